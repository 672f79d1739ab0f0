"""nn.LSTM, GRU and RNN: one graph with every option, with eager's results; packed sequences; weights that are
swapped."""
import itertools

import pytest
import torch
from torch import nn

import framejit
from check import check, fresh, same_as  # noqa: F401

KINDS = [nn.LSTM, nn.GRU, nn.RNN]
OPTIONS = [{}, {"num_layers": 2, "bidirectional": True}, {"batch_first": True}, {"bias": False},
           {"num_layers": 3, "dropout": 0.5}]


def made(kind, **options):
    torch.manual_seed(0)
    return kind(5, 4, **options).eval()


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.__name__)
def test_whole_without_and_with_a_first_state(kind, options):
    rnn, x = made(kind, **options), torch.randn(6, 3, 5)
    check(lambda x: rnn(x), x, breaks=0, compiles=1)
    state = rnn(x)[1]
    check(lambda x, state: rnn(x * 2, state), x, state, breaks=0, compiles=1)


def test_projections_and_relu():
    x = torch.randn(6, 3, 5)
    lstm, rnn = made(nn.LSTM, proj_size=2, num_layers=2, bidirectional=True), made(nn.RNN, nonlinearity="relu")
    check(lambda x: lstm(x), x, breaks=0, compiles=1)
    check(lambda x: rnn(x), x, breaks=0, compiles=1)


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.__name__)
def test_without_a_batch_in_half_precision_and_in_float64(kind):
    rnn = made(kind)
    check(lambda x: rnn(x), torch.randn(6, 5), breaks=0, compiles=1)
    wide = made(kind).double()
    check(lambda x: wide(x), torch.randn(6, 3, 5, dtype=torch.float64), breaks=0, compiles=1)
    half = made(kind).bfloat16()
    check(lambda x: half(x), torch.randn(6, 3, 5, dtype=torch.bfloat16), breaks=0, compiles=1)


@pytest.mark.cpu_only("its loop has tensors of the CPU")
def test_inside_of_a_model_with_lengths_that_change():
    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.rnn, self.head = nn.Embedding(20, 5), made(nn.LSTM, batch_first=True,
                                                                        bidirectional=True), nn.Linear(8, 3)

        def forward(self, ids):
            hidden, (last, _) = self.rnn(self.embed(ids).relu())
            return self.head(hidden.tanh()).softmax(-1), last.sum(0)

    model = Tagger().eval()
    check(model, torch.randint(0, 20, (2, 7)), breaks=0, compiles=1)
    framejit.reset()
    compiled = framejit.compile(model)
    for length in (3, 5, 8, 11, 2):
        ids = torch.randint(0, 20, (2, length))
        for got, want in zip(compiled(ids), model(ids)):
            torch.testing.assert_close(got, want)
    assert framejit.stats()["graph_breaks"] == 0
    assert framejit.stats()["graphs"] <= 2


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.__name__)
def test_packed_sequences(kind):
    rnn = made(kind, num_layers=2)

    def f(x, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(x * 2, lengths)
        out, state = rnn(packed)
        out, lengths = nn.utils.rnn.pad_packed_sequence(out)
        return out.sin() + 1, state, lengths

    check(f, torch.randn(6, 3, 5), torch.tensor([6, 4, 1]), compiles=3 if kind is nn.LSTM else 4, breaks=5)


LSTM = nn.LSTM(3, 4)
READS = {  # of a batch's data and lengths
    "_pad_packed_sequence": lambda x, n: torch._pad_packed_sequence(x[0, :n.sum()], n, False, 0.0, -1)[0],
    "_pack_padded_sequence": lambda x, n: torch._pack_padded_sequence(x, n, True)[0],
    "lstm.data": lambda x, n: LSTM(nn.utils.rnn.PackedSequence(x[0], n))[0].data,
    "tensor_split": lambda x, n: torch.tensor_split(x[0], n)[0],
    "repeat_interleave": lambda x, n: x.repeat_interleave(n, 0),
    "bincount": lambda x, n: torch.bincount(n),
    "segment_reduce": lambda x, n: torch.segment_reduce(x[0], "sum", lengths=n),
    "ctc_loss": lambda x, n: nn.functional.ctc_loss(x.transpose(0, 1), torch.ones_like(x[:, :, 0]).long(), n, n),
    "one_hot": lambda x, n: nn.functional.one_hot(n),
    "quantile": lambda x, n: torch.quantile(x, n / 10),
}


BREAKS = {"_pad_packed_sequence": {"data_dependent_value": 5}, "_pack_padded_sequence": {"exception_raised": 4},
          "lstm.data": {"data_dependent_value": 7}, "tensor_split": {"data_dependent_value": 4},
          "repeat_interleave": {"data_dependent_size": 4}, "bincount": {"data_dependent_size": 4},
          "ctc_loss": {"data_dependent_value": 4}, "one_hot": {"data_dependent_value": 4},
          "quantile": {"data_dependent_value": 4}}


@pytest.mark.parametrize("read", [pytest.param(f, id=name, marks=pytest.mark.breaks(**BREAKS.get(name, {})))
                                  for name, f in READS.items()])
def test_what_reads_the_data_of_a_tensor_with_symbolic_sizes(read):
    """Code of torch that reads sizes from memory finds none in a trace, whether the tensor's sizes are known or not."""
    def f(x, n):
        return read(x * 2, n + 0) + 1

    compiled = framejit.compile(f)
    for sizes in ([3, 2], [2, 2, 1], [4, 3, 2, 1], [2], [3, 2, 1]):
        x, n = torch.randn(len(sizes), sum(sizes), 3), torch.tensor(sizes)
        same_as(f, compiled(x, n), x, n)
    assert framejit.stats()["graphs"] > 1


def kinds_of_recurrence():
    for kind in KINDS:
        for options in [*OPTIONS, {"num_layers": 2}, {"bidirectional": True}]:
            yield kind, options, torch.float32
        yield kind, {}, torch.float64
        yield kind, {}, torch.bfloat16
    yield nn.LSTM, {"proj_size": 2}, torch.float32
    yield nn.RNN, {"nonlinearity": "relu"}, torch.float32


def test_many_kinds_one_after_the_other():
    """Each is compiled, called with several inputs, and gone when the next one comes: all share one forward."""
    for kind, options, dtype in kinds_of_recurrence():
        rnn = made(kind, **options).to(dtype)
        compiled, x = framejit.compile(rnn), torch.randn(6, 3, 5, dtype=dtype)
        for args in [(x,), (x, rnn(x)[1]), (x[:, 0],), (x[:4],)] * 2:
            same_as(rnn, compiled(*args), *args)
    stats = framejit.stats()
    assert stats["fallback_reasons"] == {} and stats["graph_breaks"] == 0, stats


def test_weights_that_were_swapped_are_seen():
    for kind in KINDS:
        framejit.reset()
        rnn, x = made(kind), torch.randn(6, 3, 5)
        compiled = framejit.compile(rnn)
        assert torch.equal(compiled(x)[0], rnn(x)[0])
        rnn.weight_ih_l0 = nn.Parameter(torch.randn_like(rnn.weight_ih_l0))
        torch.testing.assert_close(compiled(x)[0], rnn(x)[0])
        rnn.weight_ih_l0.mul_(2)
        torch.testing.assert_close(compiled(x)[0], rnn(x)[0])
        others = {name: torch.randn_like(p) for name, p in rnn.named_parameters()}
        want = torch.func.functional_call(rnn, others, (x,))[0]
        torch.testing.assert_close(torch.func.functional_call(compiled,
                                                              {f"_orig_mod.{k}" if hasattr(compiled, "_orig_mod")
                                                               else k: v for k, v in others.items()}, (x,))[0]
                                   if isinstance(compiled, nn.Module) else want, want)
        torch.testing.assert_close(compiled(x)[0], rnn(x)[0])


def test_errors_are_those_of_eager():
    rnn = made(nn.LSTM)
    check(lambda x: rnn(x), torch.randn(6, 3, 7))
    check(lambda x: rnn(x), torch.randn(6, 3, 5, dtype=torch.float64))
    check(lambda x, h: rnn(x, (h, h)), torch.randn(6, 3, 5), torch.randn(1, 2, 4))


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.__name__)
def test_sizes_of_one_and_layouts(kind):
    for length, batch, width, batch_first, both, layers in itertools.product((1, 3), (1, 2), (1, 4), (False, True),
        (False, True), (1, 2)):
        rnn = kind(5, width, layers, batch_first=batch_first, bidirectional=both).eval()
        x = torch.randn(batch, length, 5) if batch_first else torch.randn(length, batch, 5)
        framejit.reset()
        for fn in (lambda x: rnn(x), lambda x: rnn(x.transpose(0, 1).contiguous().transpose(0, 1))[0].sin().flatten()):
            same_as(fn, framejit.compile(fn)(x), x)
        assert framejit.stats()["graph_breaks"] == 0 and not framejit.stats()["fallbacks"]


# Torch's own code of these asks for sizes as numbers.
ASKING = {
    "LSTM": (lambda: nn.LSTM(5, 4, batch_first=True), lambda n: [torch.randn(2, n, 5)]),
    "GRU": (lambda: nn.GRU(5, 4, batch_first=True), lambda n: [torch.randn(2, n, 5)]),
    "LSTM, other batches": (lambda: nn.LSTM(5, 4), lambda n: [torch.randn(3, n, 5)]),
    "GRUCell": (lambda: nn.GRUCell(5, 4), lambda n: [torch.randn(n, 5), torch.randn(n, 4)]),
    "LSTMCell": (lambda: nn.LSTMCell(5, 4), lambda n: [torch.randn(n, 5)]),
    "cov": (lambda: torch.cov, lambda n: [torch.randn(n, 6)]),
    "stft": (lambda: lambda x: torch.view_as_real(torch.stft(x, 8, return_complex=True, window=torch.ones(8))),
             lambda n: [torch.randn(n, 16)]),
    "istft": (lambda: lambda x: torch.istft(torch.stft(x, 8, return_complex=True, window=torch.ones(8)), 8,
                                            window=torch.ones(8)), lambda n: [torch.randn(n, 16)]),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", ASKING)
def test_sizes_that_vary_are_captured_where_torch_wants_numbers(name, grad):
    torch.manual_seed(0)
    make, inputs = ASKING[name]
    module = make()
    parameters = list(module.parameters()) if grad and isinstance(module, nn.Module) else []
    compiled = framejit.compile(module)

    def run(f, args):
        args = [arg.clone().requires_grad_(grad) for arg in args]
        out = f(*args)
        leaves = torch.utils._pytree.tree_leaves(out)
        grads = torch.autograd.grad(sum(leaf.sin().sum() for leaf in leaves), args + parameters) if grad else ()
        return leaves, [list(leaf.shape) for leaf in leaves], [leaf.stride() for leaf in leaves], grads

    with torch.set_grad_enabled(grad):
        for n in (5, 6, 7, 8, 6):
            args = inputs(n)
            got, want = run(compiled, args), run(module, args)
            assert got[1:3] == want[1:3]
            torch.testing.assert_close(got[0], want[0])
            torch.testing.assert_close(got[3], want[3])
    stats = framejit.stats()
    assert not stats["graph_breaks"] and not stats["fallbacks"] and stats["graphs"] <= 4 and stats["hits"] >= 1, stats
