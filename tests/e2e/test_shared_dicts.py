"""Objects that share one __dict__, and dicts that are the __dict__ of an object: a write through one is read through
the other, in calls with and without sharing, in both orders."""
import argparse
import copy
import types

import pytest
import torch

import framejit
from check import backend, fresh, raised, same  # noqa: F401


class Plain:
    def __init__(self, **items):
        self.__dict__.update(items)


class Other:
    pass


class WithSlot:
    __slots__ = ("k", "__dict__")


class AttrDict(dict):
    def __init__(self, *args, **items):
        super().__init__(*args, **items)
        self.__dict__ = self


class HalfAttrDict(dict):
    """Its __dict__ is a dict of its own."""


class Borg:
    shared = {}

    def __init__(self):
        self.__dict__ = Borg.shared


class Stateful:
    def __getstate__(self):
        return self.__dict__

    def __setstate__(self, state):
        self.__dict__ = state


class Settings:
    rate = 1


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(2, 2)
        self.dropout = torch.nn.Dropout(0.5)
        self.register_buffer("bias", torch.ones(2))
        self.k = 1
        self.scale = 2.0

    def forward(self, x):
        return self.dropout(self.linear(x)) * self.k + self.bias * self.scale, self.training, self.k

    def set_k(self, to):
        self.k = to

    @property
    def tenfold(self):
        return self.k

    @tenfold.setter
    def tenfold(self, to):
        self.k = to * 10


def two(share, first=Plain, second=Plain):
    a, b = first(), second()
    a.k, a.n = 1, 2
    if share:
        b.__dict__ = a.__dict__
    else:
        b.k, b.n = 1, 2
    return a, b


def attr_dict(share):
    made = AttrDict(k=1, n=2) if share else HalfAttrDict(k=1, n=2)
    if not share:
        made.k, made.n = 1, 2
    return made


def object_and_dict(share, kind=Plain):
    a = kind()
    a.k, a.n = 1, 2
    return a, a.__dict__ if share else dict(a.__dict__)


X = torch.arange(1.0, 3.0)
ORDERS = [(True, True, True), (False, False, False), (True, False, True, False), (False, True, False, True)]


def check_calls(f, make, backend, orders=ORDERS, what_stays=lambda args: None):
    """Calls f compiled, with arguments that share a dict or not, and compares with plain Python: the result and what
    the arguments hold afterwards. Returns graphs and breaks of each order."""
    counts = []
    for order in orders:
        framejit.reset()
        compiled = framejit.compile(f, backend=backend)
        for share in order:
            given, plain = make(share), make(share)
            same(raised(compiled, *given, X), raised(f, *plain, X))
            same(what_stays(given), what_stays(plain))
        stats = framejit.stats()
        counts.append((stats["graphs"], stats["graph_breaks"]))
    return counts


def items_of(args):
    return [list(vars(a).items()) if hasattr(a, "__dict__") else list(a.items()) for a in args]


KEPT_APART = [(1, 0), (1, 0), (2, 0), (2, 0)]


# ---- two objects

def written_then_read(a, b, x):
    a.k = 5
    return x * b.k


def written_by_both(a, b, x):
    a.k = 3
    b.k = b.k + 4
    a.n += 1
    return x * a.k, b.k, b.n


def added(a, b, x):
    a.new = x + 1
    has = hasattr(b, "new")
    b.late = 1
    a.last = 2
    return x, has, list(vars(a)), list(b.__dict__)


def deleted(a, b, x):
    a.z = 1
    del a.n
    return x * 2, hasattr(b, "n"), hasattr(b, "z"), sorted(vars(b))


def through_the_dict(a, b, x):
    vars(a)["k"] = 7
    b.__dict__.update(n=x)
    return x * b.k, a.n, len(vars(b)), vars(a) == vars(b)


def with_setattr(a, b, x):
    setattr(a, "k", 4)
    object.__setattr__(b, "n", 9)
    return x * getattr(b, "k"), a.n


OF_TWO = [written_then_read, written_by_both, added, deleted, through_the_dict, with_setattr]


@pytest.mark.parametrize("f", OF_TWO)
@pytest.mark.parametrize("second", [Plain, Other])
def test_two_objects(f, second, backend):
    assert check_calls(f, lambda share: two(share, Plain, second), backend, what_stays=items_of) == KEPT_APART


def test_a_borg(backend):
    def make(share):
        Borg.shared = {"k": 1, "n": 2}
        return Borg(), Borg()
    assert check_calls(written_by_both, make, backend, ORDERS[:1], items_of) == [(1, 0)]


def test_one_object_twice(backend):
    def make(share):
        a, b = two(False)
        return (a, a) if share else (a, b)
    assert check_calls(written_by_both, make, backend, what_stays=items_of) == [(1, 0), (1, 0), (2, 0), (2, 0)]


def test_a_slot_hides_the_name(backend):
    def make(share):
        a, b = Plain(k=1), WithSlot()
        b.k = 8
        if share:
            b.__dict__ = a.__dict__
        return b, a

    def f(a, b, x):
        b.k = 2
        a.k += 1
        return x * b.k, a.k
    assert check_calls(f, make, backend) == [(1, 0), (1, 0), (1, 0), (2, 0)]


# ---- an object and its dict

def item_then_attribute(a, d, x):
    d["k"] = 7
    return x * a.k


def attribute_then_item(a, d, x):
    a.k = 6
    a.new = 3
    return x * d["k"], "new" in d, len(d), list(d)


def there_and_back(a, d, x):
    y = x * a.k
    d["k"] = 7
    z = x * a.k
    a.k = 3
    d.pop("n")
    return y, z, d["k"], hasattr(a, "n"), d


def removed(a, d, x):
    del a.n
    return x + 1, d.get("n"), sorted(d.items())


OF_ONE = [item_then_attribute, attribute_then_item, there_and_back, removed]


@pytest.mark.parametrize("f", OF_ONE)
@pytest.mark.parametrize("kind", [Plain, argparse.Namespace, types.SimpleNamespace])
def test_an_object_and_its_dict(f, kind, backend):
    counts = check_calls(f, lambda share: object_and_dict(share, kind), backend, what_stays=items_of)
    assert counts == COUNTS_OF_ONE.get(f, [(1, 0), (1, 0), (2, 0), (2, 0)])


# The dict is written as a dict first: a clean break before the attribute is read.
COUNTS_OF_ONE = {item_then_attribute: [(1, 1), (1, 0), (2, 1), (3, 1)]}


def test_the_dict_of_a_tensor(backend):
    def make(share):
        t = torch.ones(2)
        t.k = 2
        return t, t.__dict__ if share else {"k": 2}

    def f(t, d, x):
        d["k"] = 5
        return x * t.k + t
    assert check_calls(f, make, backend) == [(1, 1), (1, 0), (2, 1), (3, 1)]


# ---- a dict that is its own __dict__

def attribute_then_own_item(c, x):
    c.k = 5
    c.new = x
    return x * c["k"], c["new"], "new" in c, len(c), sorted(c)


def item_then_own_attribute(c, x):
    c["k"] = 5
    c["new"] = 2
    c.setdefault("later", 4)
    return x * c.k, getattr(c, "new", None), getattr(c, "later", None), list(c.items())


def removed_item(c, x):
    c.update(k=6)
    n = c.pop("n")
    return x * c.k, hasattr(c, "n"), n, c.get("n"), len(c)


def only_read(c, x):
    return x * c.k * c["n"], c.get("other"), c.get(3), [key for key in c], dict(c), {**c}


def cleared(c, x):
    c.z = 1
    c.clear()
    return x * 2, hasattr(c, "k"), len(c)


OF_ATTR_DICT = [attribute_then_own_item, item_then_own_attribute, removed_item, only_read, cleared]
RAISES = [(1, 0), (0, 1), (1, 1), (1, 1)]  # with the other kind of dict


@pytest.mark.parametrize("f", OF_ATTR_DICT)
def test_an_attr_dict(f, backend):
    counts = check_calls(f, lambda share: (AttrDict(k=1, n=2) if share else HalfAttrDict(k=1, n=2, z=1),), backend,
                         what_stays=lambda args: list(args[0].items()))
    assert counts == {attribute_then_own_item: [(1, 0), (1, 1), (2, 1), (2, 1)], cleared: KEPT_APART,
                      only_read: [(1, 0), (0, 1), (2, 1), (1, 1)]}.get(f, RAISES)


def switched(share):
    made = AttrDict(k=1, n=2)
    if not share:
        made.__dict__ = {"k": 1, "n": 2}
    return made,


@pytest.mark.parametrize("f", OF_ATTR_DICT)
def test_an_attr_dict_that_is_no_longer_one(f, backend):
    counts = check_calls(f, switched, backend,
                         what_stays=lambda args: (list(args[0].items()), list(vars(args[0]).items())))
    assert counts == {attribute_then_own_item: [(1, 0), (1, 1), (2, 1), (2, 1)],  # raises if it is no longer one
                      only_read: [(1, 0), (1, 0), (2, 0), (1, 0)]}.get(f, KEPT_APART)


def test_made_in_the_trace(backend):
    def f(x):
        c = AttrDict(k=1)
        c.z = 2
        c["y"] = x
        return sorted(c), c.y * c["z"], c

    def of_two(x):
        a, b = Plain(a=x), Plain()
        b.__dict__ = a.__dict__
        b.a = x * 5
        a.b = 3
        return a.a, b.b, vars(a) is vars(b)

    def copied(x):
        a = Stateful()
        a.x = x
        b = copy.copy(a)
        b.x = x * 7
        return a.x, b.x
    for g in (f, of_two, copied):
        compiled = framejit.compile(g, backend=backend)
        for _ in range(3):
            same(compiled(X), g(X))
    stats = framejit.stats()
    assert (stats["graphs"], stats["graph_breaks"]) == (3, 3)


# ---- compiled modules: the wrapper shares the original's __dict__

def evaluated(m, x):
    m.eval()
    return m(x)


def trained_and_back(m, x):
    m.train(False)
    y = m(x)
    m.train()
    return y, m.training


def attribute(m, x):
    m.k = 5
    m.training = False
    m.dropout.p = 0.0
    return m(x)


def added_to(m, x):
    m.eval()
    m.k += 1
    m.set_k(m.k + 3)
    m.tenfold = m.tenfold + 1
    return m(x)


def items(m, x):
    m.eval()
    m.__dict__["k"] = 8
    vars(m).update(scale=9.0)
    return m(x), m.k


def forward_of_the_object(m, x):
    m.forward = lambda x: x * 100
    return m(x)


def buffer(m, x):
    m.eval()
    m.bias = x * 3
    object.__setattr__(m, "scale", 0.5)
    return m(x)


OF_MODULES = [evaluated, trained_and_back, attribute, added_to, items, forward_of_the_object, buffer]


def state(args):
    module = args[0]
    return (module.k, module.training, module.dropout.training, module.scale, dict(module.state_dict()),
            [name for name in vars(module)])


@pytest.mark.parametrize("f", OF_MODULES)
def test_a_compiled_module_in_a_compiled_function(f, backend):
    torch.manual_seed(0)
    model = Model()

    def make(share):
        made = copy.deepcopy(model)
        return (framejit.compile(made, backend=backend) if share else made),

    for order in ORDERS:
        framejit.reset()
        compiled = framejit.compile(f, backend=backend)
        for share in order:
            given, plain = make(share), make(False)
            same(compiled(*given, X), f(*plain, X))
            same(state(given), state(plain))
        stats = framejit.stats()
        assert (stats["graphs"], stats["graph_breaks"]) == (len(set(order)), 0)


# ---- classes

def test_the_dict_of_a_class(backend):
    items_of_class = Settings.__dict__

    def f(x):
        Settings.rate = 5
        seen = items_of_class["rate"]
        Settings.rate = 7
        inside = vars(Settings)
        Settings.rate = 1
        return x * seen, inside["rate"], items_of_class["rate"]
    compiled = framejit.compile(f, backend=backend)
    for _ in range(3):
        same(compiled(X), f(X))
    stats = framejit.stats()
    assert (stats["graphs"], stats["graph_breaks"]) == (3, 2)


def test_a_key_that_the_trace_made(backend):
    known = {}

    def f(x):
        key = Other()
        key.k = 3
        known[key] = x.shape[0]
        return x + 1
    compiled = framejit.compile(f, backend=backend)
    for calls in (1, 2, 3):
        same(compiled(X), X + 1)
        assert len(known) == calls and {key.k for key in known} == {3} and set(known.values()) == {X.shape[0]}
    assert framejit.stats()["graphs"] == 3
