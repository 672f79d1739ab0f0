// Attribute protocol: what traced code sees of instances, classes, functions, modules and super objects, and the guards
// that it adds.
#include "fake_frontend.h"

namespace framejit::frame_hook::fake {
namespace {

TEST(Attributes, InstanceDictShadowsTheClass) {
  expect_whole(R"(
class A:
    y = 2
    z = 3
    def __init__(self):
        self.x = 1
        self.y = 20
    def total(self):
        return self.x, self.y, self.z
def f(a):
    return a.total()
)", "A()");
}

TEST(Attributes, GuardsNameTheAttribute) {
  const Trial t = trial(R"(
class A:
    def __init__(self): self.n = 4
def f(a, x):
    return x + a.n
)", "A(), torch.tensor('x', 2)");
  EXPECT_EQ(t.returned, "add(x, 4)") << t.detail;
  EXPECT_TRUE(t.has_guard("type_is L['a'] A"));
  EXPECT_TRUE(t.has_guard("equals L['a'].n 4"));
}

TEST(Attributes, Properties) {
  expect_whole(R"(
class A:
    def __init__(self): self._v = 1
    @property
    def v(self): return self._v * 10
    @v.setter
    def v(self, to): self._v = to + 1
def f():
    a = A()
    before = a.v
    a.v = 5
    return before, a.v, a._v
)");
}

TEST(Attributes, GetattrHooks) {
  expect_whole(R"(
class A:
    real = 1
    def __getattr__(self, name):
        if name.startswith('no'): raise AttributeError(name)
        return 'made ' + name
class B:
    def __getattribute__(self, name):
        if name == 'hidden': return 'seen'
        return super().__getattribute__(name)
    def __init__(self): self.open = 7
def f():
    a, b = A(), B()
    return a.real, a.other, hasattr(a, 'no'), getattr(a, 'nothing', 'default'), b.hidden, b.open, hasattr(b, 'zip')
)");
}

TEST(Attributes, SetattrHooks) {
  expect_whole(R"(
class A:
    def __setattr__(self, name, to):
        object.__setattr__(self, name, to * 2)
    def __delattr__(self, name):
        super().__delattr__(name)
def f():
    a = A()
    a.x = 4
    a.y = 1
    del a.y
    return a.x, hasattr(a, 'y'), dict(a.__dict__)
)");
}

TEST(Attributes, ClassAndStaticMethods) {
  expect_whole(R"(
class A:
    tag = 'a'
    @classmethod
    def make(cls, n): return cls.tag, n
    @staticmethod
    def twice(n): return n * 2
class B(A):
    tag = 'b'
def f():
    return A.make(1), B.make(2), B().make(3), A.twice(4), B().twice(5)
)");
}

TEST(Attributes, Super) {
  expect_whole(R"(
class A:
    def __init__(self, n): self.n = n
    def value(self): return self.n
    @classmethod
    def name(cls): return 'A of ' + cls.__name__
class B(A):
    def __init__(self, n):
        super().__init__(n + 1)
    def value(self): return super().value() * 10
    @classmethod
    def name(cls): return super().name()
def f():
    b = B(1)
    return b.value(), b.name(), super(B, b).value()
)");
}

TEST(Attributes, Slots) {
  expect_whole(R"(
class A:
    __slots__ = ('x', 'y')
    def __init__(self, x): self.x = x
def f(real):
    a = A(3)
    a.y = 4
    return a.x, a.y, real.x, hasattr(a, 'z')
)", "A(9)");
}

TEST(Attributes, DictAliasesTheInstance) {
  expect_whole(R"(
class A: pass
def f():
    a = A()
    d = a.__dict__
    d['x'] = 1
    a.y = 2
    d.update(z=3)
    del d['x']
    return sorted(d), a.y, a.z, hasattr(a, 'x'), vars(a) == {'y': 2, 'z': 3}, len(d)
)");
}

TEST(Attributes, WritesToRealInstancesAreSeenAndKeptAside) {
  const Trial t = trial(R"(
class A:
    def __init__(self): self.x = 1
def f(a):
    a.x = a.x + 1
    a.new = a.x * 10
    return a.x, a.new, list(a.__dict__)
)", "A()");
  EXPECT_EQ(t.returned, "(2, 20, ['x', 'new'])") << t.detail;
  ASSERT_EQ(t.trace.effects.size(), 1u);
  PyRef x = PyRef::steal(PyObject_GetAttrString(PyTuple_GET_ITEM(t.args.get(), 0), "x"));
  EXPECT_EQ(text_of(x.get()), "1");  // untouched
}

TEST(Attributes, DescriptorsWrittenInPython) {
  expect_whole(R"(
class Ten:
    def __get__(self, obj, owner): return 10 if obj is None else obj.base + 10
class Checked:
    def __set_name__(self, owner, name): self.key = '_' + name
    def __get__(self, obj, owner): return getattr(obj, self.key)
    def __set__(self, obj, to): setattr(obj, self.key, to + 1)
class A:
    base = 5
    ten = Ten()
    size = Checked()
def f():
    a = A()
    a.size = 1
    return a.ten, A.ten, a.size, a._size
)");
}

TEST(Attributes, CachedProperty) {
  expect_whole(R"(
import functools
class A:
    calls = 0
    @functools.cached_property
    def v(self): return [1]
def f():
    a = A()
    return a.v is a.v, 'v' in a.__dict__
)");
}

TEST(Attributes, Functions) {
  expect_whole(R"(
import functools
def g(a, b=2, *, c=3): 'doc'
g.mark = 7
def f():
    def h(x): return x
    h.tag = 1
    return g.__name__, g.__defaults__, g.__kwdefaults__, g.mark, g.__doc__, g.__code__.co_argcount, h.tag, h.__qualname__, h.__module__, hasattr(g, 'none')
)");
}

TEST(Attributes, WrapsKeepsTheNames) {
  expect_whole(R"(
import functools
def decorate(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        return ('wrapped', fn(*args, **kwargs))
    return wrapper
@decorate
def g(x): return x + 1
def f():
    return g(1), g.__name__, g.__wrapped__(5)
)");
}

TEST(Attributes, Enums) {
  expect_whole(R"(
import enum
class Color(enum.Enum):
    RED = 1
    BLUE = 'b'
class Mode(str, enum.Enum):
    FAST = 'fast'
def f(c):
    return c.name, c.value, c is Color.RED, c == Color.BLUE, Color('b').name, Color['RED'].value, Mode.FAST == 'fast', Mode('fast') is Mode.FAST
)",
               "Color.RED");
}

TEST(Attributes, Modules) {
  expect_whole(R"(
import math, string
def f():
    return math.pi, string.digits, hasattr(math, 'nothing'), math.__name__
)");
}

TEST(Attributes, UnknownAttributeRaisesWithPythonsMessage) {
  expect_whole(R"(
class A: pass
def f():
    out = []
    for thing, name in ((A(), 'x'), (A, 'y'), (3, 'z'), ([], 'w')):
        try: getattr(thing, name)
        except AttributeError as e: out.append(str(e))
    return out
)");
}

TEST(Attributes, MetaclassAttributes) {
  expect_whole(R"(
class Meta(type):
    kind = 'meta'
    def shout(cls): return cls.__name__.upper()
    def __call__(cls, *args):
        made = super().__call__(*args)
        made.counted = True
        return made
class A(metaclass=Meta):
    def __init__(self, n): self.n = n
def f():
    a = A(3)
    return A.kind, A.shout(), a.n, a.counted, type(A) is Meta, A.__mro__ == (A, object), A.__name__
)");
}

TEST(Attributes, TensorAttributesAreRecorded) {
  const Trial t = trial("def f(x): return x.shape, x.size(0), x.relu()", "torch.tensor('x', 2, 3)");
  EXPECT_EQ(t.returned, "((2, 3), 2, relu(x))") << t.detail;
  EXPECT_EQ(t.ops, std::vector<std::string>{"relu(x)"});
}

}  // namespace
}  // namespace framejit::frame_hook::fake
