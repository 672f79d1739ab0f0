"""A compiled module in the program's hands: what is done to it reaches the original, as if the two were one object."""
import abc
import copy
import gc
import pickle
import weakref

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize

import framejit

X = torch.linspace(-1, 1, 8).reshape(2, 4)


class Doubled(nn.Linear):
    def forward(self, x):
        return super().forward(x) * 2


class Slotted(nn.Module):
    __slots__ = ("scale",)

    def __init__(self):
        super().__init__()
        self.scale = 1.0

    def forward(self, x):
        return x * self.scale


def linear():
    torch.manual_seed(0)
    return nn.Linear(4, 4)


def same_as_eager(program):
    """The results of program(module) for a compiled and for a plain module."""
    torch.manual_seed(0)
    expected = program(linear())
    torch.manual_seed(0)
    computed = program(framejit.compile(linear()))
    for ours, eager in zip(computed, expected, strict=True):
        torch.testing.assert_close(ours, eager)


@pytest.mark.parametrize("register", [parametrizations.weight_norm, parametrizations.spectral_norm,
                                      parametrizations.orthogonal], ids=lambda function: function.__name__)
@pytest.mark.filterwarnings("ignore")
def test_parametrizations(register):
    def program(module):
        results = [module(X)]
        assert register(module) is module and parametrize.is_parametrized(module)
        module.eval()
        results += [module(X), module(X), module.weight]
        results[1].sum().backward()
        results += [parameter.grad for parameter in module.parameters()]
        parametrize.remove_parametrizations(module, "weight")
        assert type(module).__name__ == "Linear" and isinstance(module, nn.Linear)
        return [*results, module(X), module.weight]
    same_as_eager(program)


def test_another_class_is_assigned():
    def program(module):
        results = [module(X)]
        module.__class__ = Doubled
        assert module.__class__ is Doubled and isinstance(module, Doubled) and type(module).__name__ == "Doubled"
        return [*results, module(X), module(X)]
    same_as_eager(program)


def test_another_class_of_the_original_is_followed():
    module = linear()
    compiled = framejit.compile(module)
    module.__class__ = Doubled
    assert torch.equal(compiled(X), module(X)) and isinstance(compiled, Doubled)


@pytest.mark.nothing_captured
def test_a_class_that_eager_refuses_is_refused():
    compiled = framejit.compile(linear())
    with pytest.raises(TypeError, match="object layout differs"):
        compiled.__class__ = Slotted
    assert compiled.__class__ is nn.Linear


def test_another_dict_is_assigned():
    def program(module):
        other = linear().double()
        module.__dict__ = other.__dict__
        assert module.__dict__ is other.__dict__
        return [module(X.double()), module.weight]
    same_as_eager(program)


@pytest.mark.parametrize("make", [lambda net: net[:-1], lambda net: net + nn.Sequential(nn.Tanh()),
                                  lambda net: type(net)(*net), lambda net: net.__class__(*net)],
                         ids=["slice", "sum", "type", "__class__"])
def test_another_module_of_its_class(make):
    net = nn.Sequential(linear(), nn.ReLU(), linear())
    compiled = framejit.compile(net)
    made = make(compiled)
    assert type(made) is nn.Sequential
    assert torch.equal(made(X), make(net)(X)) and torch.allclose(framejit.compile(made)(X), made(X))
    replica = compiled._replicate_for_data_parallel()
    assert type(replica) is nn.Sequential and replica._is_replica


def test_a_class_derived_from_its_class():
    compiled = framejit.compile(linear())

    class Tripled(type(compiled)):
        def forward(self, x):
            return super().forward(x) * 3
    assert Tripled.__bases__ == (nn.Linear,)
    plain = Tripled(4, 4)
    assert torch.equal(framejit.compile(plain)(X), plain(X))


def test_slots_of_the_class():
    module = Slotted()
    compiled = framejit.compile(module)
    assert torch.equal(compiled(X), X)
    compiled.scale = 3.0
    assert module.scale == 3.0 and torch.equal(compiled(X), X * 3)
    module.scale = 4.0
    assert compiled.scale == 4.0 and torch.equal(compiled(X), X * 4)
    assert type(compiled)().scale == 1.0
    del compiled.scale
    with pytest.raises(AttributeError, match="'Slotted' object has no attribute 'scale'"):
        compiled.scale
    assert not hasattr(module, "scale")


@pytest.mark.nothing_captured
def test_init_subclass_runs_for_classes_of_the_program_alone():
    registry = {}

    class Base(nn.Module):
        def __init_subclass__(cls, *, name, **keywords):
            super().__init_subclass__(**keywords)
            registry[name] = cls
            cls.name = name

    class Net(Base, name="net"):
        pass
    compiled = framejit.compile(Net())
    assert registry == {"net": Net} and compiled.name == "net"

    class Derived(type(compiled), name="derived"):
        pass
    assert registry == {"net": Net, "derived": Derived}


class Registering(type):
    made = []

    def __new__(cls, name, bases, body):
        cls.made.append(name)
        return super().__new__(cls, name, bases, body)

    def __call__(cls, *args):
        module = super().__call__(*args)
        module.made_by = cls
        return module


class Registered(nn.Linear, metaclass=Registering):
    pass


class Abstract(nn.Module, abc.ABC):
    @abc.abstractmethod
    def forward(self, x):
        ...


class Concrete(Abstract):
    def forward(self, x):
        return x + 1


def test_metaclasses_see_no_generated_class():
    compiled = framejit.compile(Registered(4, 4))
    assert Registering.made == ["Registered"] and isinstance(type(compiled), Registering)
    assert type(compiled) is type(framejit.compile(Registered(4, 4)))
    assert torch.equal(compiled(X), compiled._framejit_original(X))
    made = type(compiled)(4, 4)
    assert type(made) is Registered and made.made_by is Registered


def test_classes_of_abc():
    module = Concrete()
    compiled = framejit.compile(module)
    assert torch.equal(compiled(X), X + 1)
    for _ in range(2):
        assert not isinstance(module, type(compiled)) and isinstance(compiled, type(compiled))
        assert isinstance(module, Concrete) and isinstance(compiled, Abstract) and not isinstance(3, type(compiled))


@pytest.mark.nothing_captured
def test_a_finaliser_runs_once():
    finished = []

    class Net(nn.Module):
        def __del__(self):
            finished.append(type(self))
    module = Net()
    compiled = framejit.compile(module)
    del compiled
    gc.collect()
    assert finished == []
    del module
    gc.collect()
    assert finished == [Net]


def test_hooks_find_the_compiled_module_in_a_table():
    net = framejit.compile(nn.Sequential(linear(), nn.ReLU()))
    names, seen = {module: name or "root" for name, module in net.named_modules()}, []
    for module in net.modules():
        module.register_forward_hook(lambda module, inputs, output: seen.append((names[module], module == net)))
    for _ in range(2):
        net(X)
    assert seen == [("0", False), ("1", False), ("root", True)] * 2


def test_the_two_are_equal():
    module = linear()
    compiled, other = framejit.compile(module), framejit.compile(linear())
    assert compiled == module and module == compiled and hash(compiled) == hash(module)
    assert compiled == framejit.compile(module) and compiled != other and compiled != linear() and compiled != 3
    assert {module: 1}[compiled] == 1 and compiled in [module] and module in weakref.WeakSet([compiled])
    both = nn.Module()
    both.first, both.second = compiled, module
    assert [name for name, _ in both.named_modules()] == ["", "first"]
    assert list(both.state_dict()) == ["first.weight", "first.bias", "second.weight", "second.bias"]

    @framejit.compile(fullgraph=True)
    def traced(x):
        return x + (compiled == module) + 2 * (module == compiled) + 4 * (compiled == other) + 8 * (other != module)
    torch.testing.assert_close(traced(X), X + 11)


def test_a_users_equality_stays():
    class Always(nn.Linear):
        def __eq__(self, other):
            return True

        def __hash__(self):
            return 5
    compiled = framejit.compile(Always(4, 4))
    assert compiled == 3 and hash(compiled) == 5 and torch.equal(compiled(X), compiled._framejit_original(X))


@pytest.mark.nothing_captured
def test_an_equality_that_the_class_is_given_later():
    class Net(nn.Linear):
        pass
    module, compiled = Net(4, 4), framejit.compile(Net(4, 4))
    assert compiled != module and hash(compiled) != hash(module)
    Net.__eq__ = lambda self, other: isinstance(other, Net)
    Net.__hash__ = lambda self: 5
    assert compiled == module and module == compiled and compiled != linear() and hash(compiled) == 5
    assert framejit.compile(module) == compiled and {module: 1}[compiled] == 1
    Net.__hash__ = None
    with pytest.raises(TypeError, match="unhashable type: 'Net'"):
        hash(compiled)
    del Net.__eq__, Net.__hash__
    assert compiled != module and hash(compiled) != hash(module)


def test_copies_and_pickles_of_a_changed_module():
    compiled = framejit.compile(linear())
    compiled.__class__ = Doubled
    for made in (copy.copy(compiled), copy.deepcopy(compiled), pickle.loads(pickle.dumps(compiled))):
        assert made.__class__ is Doubled and torch.equal(made(X), compiled(X))


def test_a_compiled_module_in_traced_code():
    """Its class, its attributes, its __dict__, its slots and what it is equal to."""
    compiled, slotted = framejit.compile(linear()), framejit.compile(Slotted())
    names = {compiled: 3}

    @framejit.compile(fullgraph=True)
    def traced(x):
        assert isinstance(compiled, nn.Linear) and compiled.__class__ is nn.Linear
        assert "_parameters" in compiled.__dict__ and compiled in names
        return compiled(x) * names[compiled] + slotted.scale + compiled.weight.sum() + slotted(x)
    for scale in (1.0, 2.0):
        slotted.scale = scale
        expected = nn.functional.linear(X, compiled.weight, compiled.bias) * 3 + scale + compiled.weight.sum()
        torch.testing.assert_close(traced(X), expected + X * scale)


def test_defaults_and_code_of_a_compiled_function():
    def program(x, k=2, *, j=1):
        return x * k + j

    def other(x, k=2, *, j=1):
        return x - k
    compiled = framejit.compile(program)
    assert torch.equal(compiled(X), X * 2 + 1)
    assert compiled.__defaults__ == (2,) and compiled.__kwdefaults__ == {"j": 1}
    compiled.__defaults__ = (7,)
    assert torch.equal(compiled(X), X * 7 + 1) and program.__defaults__ == (7,)
    compiled.__kwdefaults__ = {"j": 5}
    assert torch.equal(compiled(X), X * 7 + 5)
    compiled.__code__ = other.__code__
    assert torch.equal(compiled(X), X - 7) and program.__code__ is compiled.__code__
    del compiled.__defaults__
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'k'"):
        compiled(X)
    with pytest.raises(TypeError, match="__code__ must be set to a code object"):
        compiled.__code__ = 3
