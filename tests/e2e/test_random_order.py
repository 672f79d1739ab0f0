"""Random numbers are drawn in memory order, whatever the order of the dimensions."""
import pytest
import torch
import torch.nn.functional as F

import framejit
from check import fresh, same_as  # noqa: F401

FILLS = {
    "dropout": lambda x: F.dropout(x, 0.5),
    "alpha_dropout": lambda x: F.alpha_dropout(x, 0.3, training=True),
    "bernoulli_": lambda x: torch.empty_like(x).bernoulli_(0.4),
    "uniform_": lambda x: torch.empty_like(x).uniform_(1, 3) + x,
    "exponential_": lambda x: torch.empty_like(x).exponential_() + x,
    "an argument": lambda x: (x.bernoulli_(0.3) + 1, x),
}
INPUTS = {
    "transposed": torch.rand(5, 7).t(),
    "permuted": torch.rand(3, 4, 5).permute(1, 2, 0),
    "channels last": torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "a single row": torch.rand(1, 7, 4).permute(2, 0, 1),
    "turned, with gaps": torch.rand(6, 8)[::2, ::2].t(),
    "contiguous": torch.rand(4, 9),
}


@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize("fill", FILLS)
def test_fills(fill, name):
    framejit.reset()
    compiled = framejit.compile(FILLS[fill])
    x = INPUTS[name]
    for _ in range(2):
        torch.manual_seed(3)
        want, state = FILLS[fill](x.clone()), torch.get_rng_state()
        torch.manual_seed(3)
        got = compiled(x.clone())
        assert all(torch.equal(a, b) for a, b in zip(got, want)) and torch.equal(torch.get_rng_state(), state)
    if name != "turned, with gaps" or "dropout" in fill:
        assert framejit.stats()["graph_breaks"] == 0


MANY = {
    "contiguous": (torch.rand(200, 301), torch.rand(4097), torch.rand(3, 20_000)),
    "permuted": (torch.rand(30, 40, 50).permute(1, 2, 0), torch.rand(300, 200).t(),
                 torch.rand(2, 3, 50, 70).to(memory_format=torch.channels_last)),
}


@pytest.mark.parametrize("before", [0, 1, 5], ids=lambda n: f"{n} drawn before")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("kind", MANY)
def test_many_at_a_time(kind, dtype, before):
    """From a few thousand on, framejit draws the numbers itself, on all threads; a number may have been left over."""
    for x in MANY[kind]:
        for p in (0.1, 0.5, 0.999):
            framejit.reset()
            program = lambda x: torch.empty_like(x).bernoulli_(p)
            results = {}
            for name, run in ("eager", program), ("ours", framejit.compile(program)):
                torch.manual_seed(3)
                if before:
                    torch.randperm(before + 1)
                results[name] = run(x.to(dtype)), run(x.to(dtype)), torch.get_rng_state()
            assert all(map(torch.equal, *results.values())), (x.shape, p)
            assert framejit.stats()["graphs"] == 1 and not framejit.stats()["graph_breaks"]


def test_a_generator_of_the_program():
    program = lambda x, generator: torch.bernoulli(x, 0.3, generator=generator)
    compiled, x = framejit.compile(program), torch.rand(100, 100)
    ours, theirs, state = torch.Generator().manual_seed(7), torch.Generator().manual_seed(7), torch.get_rng_state()
    for _ in range(3):
        assert torch.equal(compiled(x, ours), program(x, theirs))
    assert torch.equal(ours.get_state(), theirs.get_state()) and torch.equal(torch.get_rng_state(), state)


def test_who_draws_many():
    compiled, x = framejit.compile(lambda x: F.dropout(x, 0.5)), torch.rand(100, 100)
    compiled(x)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        compiled(x)
    assert "framejit::bernoulli" in {event.name for event in profiler.events()}


AFTER = {"rand_like": torch.rand_like, "randn_like": torch.randn_like, "normal_": lambda x: x.normal_(),
         "randint_like": lambda x: torch.randint_like(x, 99), "multinomial": lambda x: torch.multinomial(x.exp(), 2),
         "exponential_": lambda x: torch.empty_like(x).exponential_(), "dropout": lambda x: F.dropout(x, 0.5)}


@pytest.mark.parametrize("fill", AFTER)
@pytest.mark.parametrize("made_by", [torch.softmax, torch.log_softmax], ids=lambda f: f.__name__)
def test_fills_like_what_a_pass_lays_out_otherwise(fill, made_by):
    """The softmax of a transposed tensor is contiguous; the ops that it is made of keep the order of its input."""
    program, x = lambda x: AFTER[fill](made_by(x, 0)), torch.rand(3, 4).t()
    compiled = framejit.compile(program)

    def seeded(x):
        torch.manual_seed(3)
        return program(x)
    for _ in range(2):
        torch.manual_seed(3)
        same_as(seeded, compiled(x), x)
    assert framejit.stats()["graphs"] == 1 and not framejit.stats()["graph_breaks"]


def test_sizes_that_change():
    program = lambda x: F.dropout(x.transpose(1, 2) * 2, 0.5)
    compiled = framejit.compile(program, dynamic=True)
    for sizes in ((3, 4, 5), (2, 6, 7), (4, 8, 3)):
        x = torch.rand(sizes)
        torch.manual_seed(1)
        want = program(x)
        torch.manual_seed(1)
        got = compiled(x)
        assert torch.equal(got, want) and got.stride() == want.stride()
    assert framejit.stats()["graph_breaks"] == 0 and framejit.stats()["graphs"] == 1


@pytest.mark.breaks(unsupported_op=1)
def test_probabilities_in_a_tensor():
    """Those in another order than the memory's are left to eager."""
    for p, x in ((torch.rand(4, 6), torch.rand(4, 6)), (torch.rand(4, 6).t(), torch.rand(4, 6).t())):
        program = lambda x: torch.empty_like(x).bernoulli_(p) + x
        compiled = framejit.compile(program)
        torch.manual_seed(1)
        want = program(x)
        torch.manual_seed(1)
        assert torch.equal(compiled(x), want)


@pytest.mark.breaks(unsupported_op=1)
def test_normal_numbers_of_permuted_memory_are_left_to_eager():
    """normal_ draws in blocks, which follow neither order."""
    torch.manual_seed(0)
    want = torch.empty(9, 8).t().normal_()
    compiled = framejit.compile(lambda: torch.empty(9, 8).t().normal_() * 1)
    torch.manual_seed(0)
    assert torch.equal(compiled(), want)


class TestCallsThatFail:
    """If a check fails, the call runs again as plain Python: its numbers are drawn once."""

    @staticmethod
    def outcome(fn, *args, generator=None):
        torch.manual_seed(11)
        if generator is not None:
            generator.manual_seed(12)
        try:
            result = fn(*args)
        except IndexError as error:
            result = str(error)
        return result, torch.rand(2), None if generator is None else torch.rand(2, generator=generator)

    def same(self, fn, *args, generator=None, backend="framejit"):
        compiled = framejit.compile(fn, backend=backend)
        for place in (1, 1, 900, 2):
            got, expected = (self.outcome(f, *args, torch.tensor([place]), generator=generator) for f in (compiled, fn))
            for a, b in zip(got, expected):
                assert torch.allclose(a, b) if isinstance(a, torch.Tensor) else a == b, place
        assert framejit.stats()["fallbacks"] == 1

    @pytest.mark.parametrize("backend", ["eager", "framejit"])
    @pytest.mark.parametrize("draw",
                             [lambda: torch.rand(4), lambda: F.dropout(torch.ones(4)), lambda: torch.randperm(4) * 1.0],
                             ids=["rand", "dropout", "randperm"])
    def test_default_generator(self, draw, backend):
        compiled_fn = lambda x, i: (draw() + x[:4]).sum() + (x * 2)[i] + draw().sum()
        self.same(lambda x, i: (draw() + x[:4]).sum() + (x * 2)[i] + draw().sum(), torch.arange(9.0), backend=backend)

    def test_generator_of_ones_own(self):
        g = torch.Generator()
        self.same(lambda x, i: torch.rand(9, generator=g) + (x * 2)[i] + torch.rand(9, generator=g) + torch.rand(9),
                  torch.arange(9.0), generator=g)

    def test_caught(self):
        """If the function catches the error itself, it continues with the numbers that eager draws."""
        def fn(x, i):
            first = torch.rand(9)
            try:
                second = (x * first)[i]
            except IndexError:
                second = torch.rand(1)
            return first + second + torch.rand(9)
        self.same(fn, torch.arange(9.0))


class TestSeeding:
    """A call that seeds the generators is one break, at the line of the program. What torch does in it is not
    compiled."""
    FUNCTIONS = {
        "manual_seed": lambda x: (torch.manual_seed(5), F.dropout(x * 2, 0.5))[1],
        "random.manual_seed": lambda x: (torch.random.manual_seed(5), F.dropout(x * 2, 0.5))[1],
        "cuda.manual_seed_all": lambda x: (torch.cuda.manual_seed_all(5), x * 2 + 1)[1],
    }

    @pytest.mark.parametrize("f", FUNCTIONS.values(), ids=FUNCTIONS)
    def test_one_break(self, f):
        framejit.reset()
        compiled, x, where = framejit.compile(f), torch.ones(30), []
        token = framejit._framejit.add_listener(lambda e: e["event"] == "Break" and where.append(e["at"]))
        for _ in range(12):
            assert torch.equal(compiled(x), f(x))
        framejit._framejit.remove_listener(token)
        stats = framejit.stats()
        assert stats["break_reasons"] == {"outside_effect": 1} and stats["fallback_reasons"] == {}, stats
        assert stats["graphs"] == 1 and len(where) == 1 and where[0].startswith("test_random_order.py:"), where
