"""What is left to plain Python: tensor subclasses, complex, quantised and sparse tensors, functorch transforms. Results
and gradients equal eager's, and the break log names the obstacle."""
import copy

import pytest
import torch
from torch.autograd import forward_ad

import framejit
from check import backend, exactly_as, fresh, same  # noqa: F401
from framejit import _framejit


@pytest.fixture
def breaks():
    """The Break events of the test, which it must look at: (reason, detail)."""
    seen = []
    token = _framejit.add_listener(lambda e: e["event"] == "Break"
                                   and seen.append((e["fields"]["reason"], e["fields"]["detail"])))
    yield seen
    _framejit.remove_listener(token)
    assert len(seen) == framejit.stats()["graph_breaks"]


class Named(torch.Tensor):
    pass


class Counted(torch.Tensor):
    """Sees every function that is called with it."""
    calls = []

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        cls.calls.append(function.__name__)
        return super().__torch_function__(function, types, args, kwargs or {})


def work(t):
    y = t * 2 + 1
    return (y * y).sum(), y


def dense(t):
    return t.to_dense() * 2 + 1, t * 2


def of_another_library(t):
    return t.to_dense() * 2 + 1, t + t


def dequantised(t):
    return t.dequantize() * 2 + 1, t.reshape(2, 2)


def quantised():
    return torch.quantize_per_tensor(torch.randn(4), 0.1, 2, torch.qint8)


STRIDED = "a tensor that is not strided (to_dense() makes one that is)"
# name: function, a maker of its argument, the obstacle in the log
TENSORS = {
    "subclass": (work, lambda: torch.randn(4).as_subclass(Named), "a tensor of the subclass Named"),
    "subclass with functions": (work, lambda: torch.randn(4).as_subclass(Counted), "a tensor of the subclass Counted"),
    "complex": (work, lambda: torch.randn(4, dtype=torch.complex64), "a tensor of dtype torch.complex64"),
    "complex double": (work, lambda: torch.randn(4, dtype=torch.complex128), "a tensor of dtype torch.complex128"),
    "conjugated": (work, lambda: torch.randn(4, dtype=torch.complex64).conj(), "a tensor of dtype torch.complex64"),
    "negative view": (work, lambda: torch.randn(4, dtype=torch.complex64).conj().imag,
                      "a negated view (resolve_neg() makes an ordinary tensor)"),
    "quantised": (dequantised, quantised, "a tensor of dtype torch.qint8"),
    "float8": (lambda t: t.float(), lambda: torch.randn(4).to(torch.float8_e4m3fn),
               "a tensor of dtype torch.float8_e4m3fn"),
    "16 bits without a sign": (lambda t: t.int(), lambda: torch.arange(4).to(torch.uint16),
                               "a tensor of dtype torch.uint16"),
    "sparse": (dense, lambda: torch.eye(3).to_sparse(), STRIDED),
    "compressed rows": (dense, lambda: torch.eye(3).to_sparse_csr(), STRIDED),
    "of another library": (of_another_library, lambda: torch.randn(4).to_mkldnn(), STRIDED),
}


def ordinary(value):
    """Strided tensors with the contents of the tensors of `value`, and other facts that must be equal."""
    if isinstance(value, tuple):
        return tuple(ordinary(v) for v in value)
    if value is None or value.layout == torch.strided and not value.is_quantized:
        return value
    return value.to_dense() if not value.is_quantized else (value.int_repr(), value.q_scale(),
                                                            value.q_zero_point()), str(value.layout), value.dtype


@pytest.mark.filterwarnings("ignore:.*quantized:UserWarning", "ignore:Sparse CSR:UserWarning")
class TestTensors:
    @pytest.mark.parametrize("name", TENSORS)
    def test_the_work_beside_it_is_captured(self, name, backend, breaks):
        plain, make, obstacle = TENSORS[name]

        def f(x, t):
            x = x + 1
            y = plain(t)
            return x * 2, y
        compiled, x, t = framejit.compile(f, backend=backend), torch.randn(3), make()
        for _ in range(3):
            Counted.calls.clear()
            want, seen = f(x, t), list(Counted.calls)
            Counted.calls.clear()
            got = compiled(x, t)
            assert Counted.calls == seen
            same(ordinary(got), ordinary(want))
        stats = framejit.stats()
        assert breaks[0] == ("unsupported_tensor", f"t, {obstacle}, cannot be traced")
        nameless = ("unsupported_tensor", f"{obstacle} cannot be traced")  # what plain Python left on the value stack
        assert {breaks[0]} <= set(breaks) <= {breaks[0], nameless} and stats["graphs"] >= 2 and not stats["fallbacks"]
        assert stats["hits"] == 2 * stats["graphs"]

    @pytest.mark.parametrize("name", TENSORS)
    def test_a_later_ordinary_tensor_is_captured(self, name, backend, breaks):
        """The break is right for this kind of tensor alone: a function that met one is compiled for others."""
        _, make, obstacle = TENSORS[name]
        compiled, x, t = framejit.compile(lambda t: t.clone(), backend=backend), torch.randn(3), make()
        for _ in range(2):
            same(ordinary(compiled(t)), ordinary(t.clone()))
            same(compiled(x), x)
        assert breaks == [("unsupported_tensor", f"t, {obstacle}, cannot be traced")]
        stats = framejit.stats()
        assert (stats["graphs"], stats["hits"], stats["fallbacks"]) == (1, 1, 0) and stats["plain_hits"]

    @pytest.mark.nothing_captured
    @pytest.mark.parametrize("name",
                             [name for name in TENSORS if name not in ("quantised", "of another library",
                                                                       "negative view", "float8",
                                                                       "16 bits without a sign")])
    def test_gradients(self, name, backend, breaks):
        plain, make, obstacle = TENSORS[name]
        compiled = framejit.compile(lambda t: plain(t)[0].abs().sum(), backend=backend)
        leaf = make().detach()
        with torch.enable_grad():
            for _ in range(2):
                ours, eager = leaf.clone().detach().requires_grad_(), leaf.clone().detach().requires_grad_()
                plain(eager)[0].abs().sum().backward()
                loss = compiled(ours)
                loss.backward()
                assert eager.grad is not None
                same(ordinary(ours.grad), ordinary(eager.grad))
        assert breaks[0] == ("unsupported_tensor", f"t, {obstacle}, cannot be traced")
        assert not framejit.stats()["fallbacks"]  # what follows with ordinary tensors may be a graph


@pytest.mark.nothing_captured
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
@pytest.mark.parametrize("make, obstacle", [
    (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), "a nested tensor"),
    (lambda: torch.ones(2, device="meta"), "a tensor on the device meta"),
])
def test_tensors_without_numbers_to_compare(make, obstacle, backend, breaks):
    t = make()
    assert framejit.compile(lambda t: t.dtype, backend=backend)(t) == torch.float32
    assert type(framejit.compile(lambda t: t * 2, backend=backend)(t)) is torch.Tensor
    assert set(breaks) == {("unsupported_tensor", f"t, {obstacle}, cannot be traced")}


@pytest.mark.nothing_captured
@pytest.mark.parametrize("call, name", [
    (lambda f, t: f(torch.ones(2), [1, {"y": t}], scale=2), "weights[1]['y']"),
    (lambda f, t: f(torch.ones(2), [1, {"y": 1}], scale=t), "scale"),
], ids=["an item", "a keyword"])
def test_the_input_is_named_as_the_program_names_it(call, name, breaks):
    def f(x, weights, *, scale):
        return weights[1]["y"] * scale
    call(framejit.compile(f), torch.ones(2, dtype=torch.complex64))
    assert breaks == [("unsupported_tensor", f"{name}, a tensor of dtype torch.complex64, cannot be traced")]


def meta_module(x):
    layer = torch.nn.Linear(3, 3)
    x = x + 1
    return layer.to("meta")(x.to("meta")), x


META = {
    "made": lambda x: x + torch.empty(2, 3, device="meta").shape[0],
    "made on the default device": lambda x: x + under_meta().shape[0],
    "moved": lambda x: ((x + 1).to("meta") * 2).sum(0),
    "like another": lambda x: (torch.empty_like(x + 1, device="meta") * 2, x * 3),
    "a module": meta_module,
    "moved data": lambda x: (torch.Tensor.to(x * 2, device="meta", dtype=torch.float64), x + 1),
}


def under_meta():
    with torch.device("meta"):
        return torch.ones(2)


@pytest.mark.parametrize("name", META)
def test_tensors_without_data_are_made_by_torch(name, backend, breaks):
    """A break says so; torch runs the op, and nothing asks for a report."""
    def kinds(value):
        values = value if isinstance(value, tuple) else (value,)
        return [(v.device, v.dtype, v.shape, v.stride(), None if v.is_meta else v.tolist()) for v in values]
    compiled = framejit.compile(META[name], backend=backend)
    for _ in range(2):
        assert kinds(compiled(torch.ones(4, 3))) == kinds(META[name](torch.ones(4, 3)))
    assert not framejit.stats()["fallbacks"]
    said = [detail for reason, detail in breaks if reason in ("unsupported_op", "unsupported_tensor")]
    assert said and all("on the device meta" in detail for detail in said), breaks


class Complex(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("phase", torch.ones(2, dtype=torch.complex64))

    def forward(self, x):
        return x * self.phase


@pytest.mark.nothing_captured
def test_so_is_a_buffer_and_an_argument_of_a_module(breaks):
    framejit.compile(Complex())(torch.ones(2))
    framejit.compile(torch.nn.Tanh())(torch.ones(2, dtype=torch.complex128))
    assert [detail.partition(",")[0] for _, detail in breaks] == ["self.phase", "input"]


def cube(t):
    return (t * t * t).sum()


TRANSFORMS = {
    "vmap": lambda f, x: torch.func.vmap(f)(x),
    "grad": lambda f, x: torch.func.grad(f)(x),
    "jvp": lambda f, x: torch.func.jvp(f, (x,), (x + 1,)),
    "vjp": lambda f, x: torch.func.vjp(f, x)[1](torch.tensor(2.0)),
    "jacrev": lambda f, x: torch.func.jacrev(f)(x),
    "vmap of grad": lambda f, x: torch.func.vmap(torch.func.grad(f))(x),
    "hessian": lambda f, x: torch.func.hessian(f)(x),
}


@pytest.mark.filterwarnings("ignore:.*jit.script:DeprecationWarning")
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", TRANSFORMS)
class TestTransforms:
    @pytest.mark.nothing_captured
    def test_around(self, name, grad, backend, breaks):
        transform, x = TRANSFORMS[name], torch.randn(2, 3)
        compiled = framejit.compile(cube, backend=backend)
        with torch.set_grad_enabled(grad):
            for _ in range(2):
                same(transform(compiled, x), transform(cube, x))
        assert {reason for reason, _ in breaks} == {"unsupported_tensor"}, breaks
        assert all("active transform of torch.func" in detail for _, detail in breaks), breaks
        assert not framejit.stats()["fallbacks"] and not framejit.stats()["graphs"]

    @pytest.mark.breaks(unsupported_tensor=1)
    def test_around_what_was_compiled_without(self, name, grad, backend):
        transform, x = TRANSFORMS[name], torch.randn(2, 3)
        compiled = framejit.compile(cube, backend=backend)
        with torch.set_grad_enabled(grad):
            for _ in range(2):
                same(compiled(x), cube(x))
                same(transform(compiled, x), transform(cube, x))
        assert framejit.stats()["graphs"] == framejit.stats()["hits"] == 1

    def test_inside(self, name, grad, backend, breaks):
        transform = TRANSFORMS[name]

        def f(x):
            x = x * 2
            y = transform(cube, x)
            return x + 1, y
        compiled, x = framejit.compile(f, backend=backend), torch.randn(2, 3)
        with torch.set_grad_enabled(grad):
            for _ in range(3):
                same(compiled(x), f(x))
        assert breaks[0] == ("mode_entered", "a functorch transform is entered"), breaks
        assert len(breaks) == 1 or name == "vjp", breaks  # the function that it returns enters others
        before = framejit.stats()
        with torch.set_grad_enabled(grad):
            compiled(x)
        assert framejit.stats()["hits"] - before["hits"] >= 2 and framejit.stats()["graphs"] == before[
            "graphs"] and not framejit.stats()["fallbacks"]


@pytest.mark.nothing_captured
def test_plain_tensors_while_a_transform_is_active(backend, breaks):
    compiled, z = framejit.compile(lambda y: (y + 1).sum(), backend=backend), torch.randn(3)
    x = torch.randn(2, 4)
    same(torch.func.vmap(lambda a: a * compiled(z))(x), x * (z + 1).sum())
    assert set(breaks) == {("modes_unsupported", "a functorch transform is active")}


def made_inside(x):
    return cube(forward_ad.make_dual(x, x + 1))


def level_inside(x):
    with forward_ad.dual_level():
        return tuple(forward_ad.unpack_dual(cube(forward_ad.make_dual(x, x + 1))))


# name: function, its argument for a tensor in a level of forward-mode differentiation
DUALS = {
    "input": (cube, lambda x: forward_ad.make_dual(x, x + 1)),
    "view": (cube, lambda x: forward_ad.make_dual(x, x + 1)[:2]),
    "made inside": (made_inside, lambda x: x),
}


@pytest.mark.breaks(modes_unsupported=1)
@pytest.mark.nothing_captured
@pytest.mark.parametrize("name", DUALS)
@pytest.mark.parametrize("compiled_before", [False, True])
def test_dual_tensors_keep_their_tangents(name, compiled_before, backend):
    function, make = DUALS[name]
    compiled, x = framejit.compile(function, backend=backend), torch.randn(3)
    if compiled_before and function is cube:
        same(compiled(x), cube(x))
    with forward_ad.dual_level():
        for _ in range(2):
            same(tuple(forward_ad.unpack_dual(compiled(make(x)))), tuple(forward_ad.unpack_dual(function(make(x)))))


@pytest.mark.breaks(mode_entered=1)
@pytest.mark.nothing_captured
def test_a_level_of_forward_differentiation_inside(backend):
    compiled, x = framejit.compile(level_inside, backend=backend), torch.randn(3)
    for _ in range(2):
        same(compiled(x), level_inside(x))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(4, 8, bias=False)  # before a norm, a bias's gradient is nothing but rounding
        self.norm, self.second = torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2)
        self.scale = torch.nn.Parameter(torch.ones(2))

    def forward(self, x):
        return self.second(torch.relu(self.norm(self.first(x)))) * self.scale


class TestTrainableModules:
    def test_training_is_eagers(self, backend, breaks):
        net, batches = Net().train(), [(torch.randn(5, 4), torch.randn(5, 2)) for _ in range(3)]

        def trained(call):
            model, gradients = copy.deepcopy(net), []
            run, optimizer = call(model), torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
            with torch.enable_grad():
                for x, goal in batches:
                    optimizer.zero_grad()
                    torch.nn.functional.mse_loss(run(x), goal).backward()
                    gradients.append([p.grad.clone() for p in model.parameters()])
                    optimizer.step()
            return gradients, dict(model.state_dict())
        plain = trained(framejit.disable)
        same(trained(lambda m: framejit.compile(m, backend=backend)), plain,
             exactly_as(lambda: trained(framejit.disable)))
        assert not breaks and not framejit.stats()["fallbacks"] and framejit.stats()["backward_runs"] == 3

    def test_captured_without_gradients_and_with_them_in_turn(self, backend, breaks):
        net, x = Net().eval(), torch.randn(5, 4)
        compiled = framejit.compile(net, backend=backend)
        for grad in (False, True, False, True, False):
            with torch.set_grad_enabled(grad):
                got, want = compiled(x), net(x)
                same(got, want)
                assert (got.grad_fn is not None) == grad
                if grad:
                    ours, eager = (torch.autograd.grad(result.sum(), list(net.parameters())) for result in (got, want))
                    same(ours, eager)
        assert framejit.stats()["graphs"] == 2 and framejit.stats()["hits"] == 3 and not breaks

    def test_a_frozen_module_and_an_input_that_needs_a_gradient(self, backend, breaks):
        net = Net().eval().requires_grad_(False)
        compiled = framejit.compile(net, backend=backend)
        with torch.enable_grad():
            same(compiled(torch.ones(5, 4)), net(torch.ones(5, 4)))
            assert framejit.stats()["graphs"] == 1 and not breaks
            ours, eager = torch.ones(5, 4, requires_grad=True), torch.ones(5, 4, requires_grad=True)
            net(eager).sum().backward()
            compiled(ours).sum().backward()
            same(ours.grad, eager.grad)
        assert framejit.stats()["graphs"] == 2 and framejit.stats()["backward_runs"] == 1 and not breaks
