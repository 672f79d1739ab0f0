// Calls: classes, builtins, partials, context variables, exceptions, generators, copies, and what breaks.
#include "fake_frontend.h"

namespace framejit::frame_hook::fake {
namespace {

TEST(Calls, ClassesWithNewAndInit) {
  expect_whole(R"(
class A:
    def __new__(cls, *args):
        made = super().__new__(cls)
        made.args = args
        return made
    def __init__(self, n): self.n = n
class Other:
    def __new__(cls): return 5
def f():
    a = A(3)
    return a.n, a.args, Other()
)");
}

TEST(Calls, CallableInstances) {
  expect_whole(R"(
class Add:
    def __init__(self, n): self.n = n
    def __call__(self, x, *, times=1): return (x + self.n) * times
def f(add):
    return add(1), Add(5)(1, times=2)
)", "Add(2)");
}

TEST(Calls, Partial) {
  expect_whole(R"(
import functools
def g(a, b, c=0, d=0): return a, b, c, d
real = functools.partial(g, 1, c=5)
def f():
    made = functools.partial(real, 2)
    return real(9), made(d=4), made(c=7), made.func is g, made.args, made.keywords
)");
}

TEST(Calls, NamedTuplesAndDataclasses) {
  expect_whole(R"(
import collections, dataclasses
P = collections.namedtuple('P', 'x y')
@dataclasses.dataclass
class D:
    a: int
    b: list = dataclasses.field(default_factory=list)
    def total(self): return self.a + len(self.b)
def f(p):
    q = P(3, y=4)
    d = D(1)
    d.b.append(2)
    x, y = q
    return p.x + p[1], q.x, q.y, x + y, len(q), d.total(), d == D(1, [2]), d.a, q._replace(x=9).x, q._asdict(), [f.name for f in dataclasses.fields(d)]
)",
               "P(1, 2)");
}

TEST(Calls, SubclassesOfBuiltins) {
  expect_whole(R"(
import collections
class L(list):
    def first(self): return self[0]
class D(dict):
    def __missing__(self, key): return key * 2
class O(collections.OrderedDict):
    def __setitem__(self, key, value):
        super().__setitem__(key, value + 1)
class N(int):
    def double(self): return self + self
class T(tuple):
    def __new__(cls, *items): return super().__new__(cls, items)
def f():
    l = L([3, 1]); l.append(5); l.tag = 'x'
    d = D(a=1); d['b'] = 2
    o = O(); o['k'] = 1
    t = T(1, 2)
    return l.first(), len(l), l.tag, list(l), d['a'], d[4], sorted(d), o['k'], list(o.items()), N(4).double(), N(3) + 1, t[1], len(t), isinstance(t, tuple)
)");
}

TEST(Calls, DefaultDictAndCounter) {
  expect_whole(R"(
import collections
def f():
    d = collections.defaultdict(list)
    d['a'].append(1)
    d['a'].append(2)
    d['b']
    return dict(d), len(d), d.get('c'), 'c' in d
)");
}

TEST(Calls, Isinstance) {
  expect_whole(R"(
import collections.abc, abc, numbers
class Base(abc.ABC):
    @abc.abstractmethod
    def go(self): ...
class A(Base):
    def go(self): return 1
def f(x):
    return (isinstance(A(), Base), isinstance([], collections.abc.Sequence), isinstance({}, collections.abc.Mapping), isinstance(3, (str, int)),
            isinstance('a', int | str), issubclass(bool, int), isinstance(x, torch.Tensor), isinstance(x, (list, tuple)), isinstance(True, numbers.Number),
            callable(f), callable(3), isinstance(A, type))
)",
               "torch.tensor('x', 2)");
}

TEST(Calls, AbstractClassesAreRefusedByPython) {
  const Trial t = trial(R"(
import abc
class Base(abc.ABC):
    @abc.abstractmethod
    def go(self): ...
def f():
    try: Base()
    except TypeError as e: return str(e)
)");
  EXPECT_EQ(t.reason, "exception_raised");
}

TEST(Calls, ExceptionsBornInTheTrace) {
  expect_whole(R"(
class E(ValueError):
    def __init__(self, a, b):
        super().__init__(a)
        self.b = b
def f():
    try:
        try: raise E('x', 2)
        except E as e: raise KeyError('k') from e
    except KeyError as k:
        return k.args, str(k), repr(k), k.__cause__.b, str(k.__cause__), type(k.__cause__).__name__, isinstance(k, LookupError)
)");
}

TEST(Calls, WrongArgumentsRaiseSymbolically) {
  expect_whole(R"(
def f():
    out = []
    for call in (lambda: len(), lambda: len(3), lambda: {}.pop('a'), lambda: [].pop(), lambda: [1].index(5), lambda: int('x'), lambda: {}['q'], lambda: (1,)[3], lambda: next(iter([])), lambda: 3()):
        try: call()
        except Exception as e: out.append(type(e).__name__)
    return out
)");
}

TEST(Calls, ContextVariables) {
  const Trial t = trial(R"(
import contextvars
v = contextvars.ContextVar('v', default='none')
def f():
    before = v.get()
    token = v.set('mine')
    inside = v.get()
    v.reset(token)
    return before, inside, v.get()
)");
  EXPECT_EQ(t.returned, "('none', 'mine', 'none')") << t.detail;
}

TEST(Calls, CopyOfAnInstance) {
  expect_whole(R"(
import copy
class A:
    def __init__(self): self.x, self.l = 1, [1]
class D(dict): pass
def f(a):
    b = copy.copy(a)
    b.x = 5
    c = copy.copy(A())
    d = copy.copy(D(k=1))
    return b.x, a.x, b.l is a.l, type(b) is A, c.x, d['k'], type(d) is D, copy.copy([1, 2]), copy.copy({1: 2})
)", "A()");
}

TEST(Calls, LruCacheAnswersFromTheRealCache) {
  expect_whole(R"(
import functools
@functools.lru_cache
def g(n): return n * 100
def f(): return g(2), g(2), g(n=3)
)");
}

TEST(Calls, SignatureBinding) {
  expect_whole(R"(
import inspect
def g(a, b=1, *args, c, **kw): pass
sig = inspect.signature(g)
def f():
    return list(sig.parameters), sig.parameters['b'].default, 'c' in sig.parameters, sig.bind(1, c=2).arguments, [p.kind.name for p in sig.parameters.values()]
)");
}

TEST(Calls, TypesAndNames) {
  expect_whole(R"(
class A: pass
def f():
    return type(3) is int, type(A()).__name__, type([]) == list, A().__class__ is A, list[int] == list[int], id(A) == id(A)
)");
}

TEST(Calls, GeneratorsMethods) {
  expect_whole(R"(
def g():
    got = yield 1
    try:
        yield got * 2
    except ValueError:
        yield 'caught'
    return 'done'
def f():
    it = g()
    a = next(it)
    b = it.send(5)
    c = it.throw(ValueError('x'))
    try: next(it)
    except StopIteration as e: return a, b, c, e.value
)");
}

TEST(Calls, OutsideEffectsBreak) {
  EXPECT_EQ(trial("def f():\n    print('x')").reason, "outside_effect");
  EXPECT_EQ(trial("import time\ndef f(): return time.time()").reason, "outside_effect");
  const Trial unknown = trial("import zlib\ndef f(x): return zlib.crc32(b'a'), torch.relu(x)", "torch.tensor('x', 2)");
  EXPECT_EQ(unknown.reason, "unknown_callable");
  EXPECT_EQ(unknown.detail, "zlib.crc32");
}

TEST(Calls, DisabledFunctionsBreak) {
  const Trial t =
      trial("def g(x): return x\ng._torchdynamo_disable = True\ndef f(x): return g(x)", "torch.tensor('x', 2)");
  EXPECT_EQ(t.reason, "disabled_function");
}

TEST(Calls, TensorFunctionsAreRecorded) {
  const Trial t =
      trial("def f(x, y): return torch.cat([torch.relu(x), y + 1])", "torch.tensor('x', 2), torch.tensor('y', 2)");
  EXPECT_EQ(t.returned, "cat(relu(x), add(y, 1))") << t.detail;
  EXPECT_EQ(t.ops.size(), 3u);
}

}  // namespace
}  // namespace framejit::frame_hook::fake
