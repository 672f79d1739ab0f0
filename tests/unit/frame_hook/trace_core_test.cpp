// tests/unit/frame_hook/trace_core_test.cpp — opcodes, calls, generators, exceptions: a whole trace returns what Python
// returns.
#include "fake_frontend.h"

namespace framejit::frame_hook::fake {
namespace {

TEST(TraceData, LocalsConstantsAndGlobals) {
  expect_whole("def f(a, b):\n  c = a\n  a = b\n  return a, c, 3, 'text', None, (1, 2)", "1, 2");
  expect_whole("K = 5\ndef f():\n  return K, len");
  expect_whole("def f():\n  global K\n  K = 7\n  return K");
  expect_whole("def f(x):\n  return x + 1", kX);
}

TEST(TraceData, CellsAndClosures) {
  expect_whole("def f(a):\n  def g():\n    nonlocal a\n    a = a + 1\n    return a\n  return g(), g(), a", "1");
  expect_whole("def outer():\n  k = 3\n  def f(x):\n    return x * k\n  return f\nf = outer()", kX);
  expect_whole("def f(n):\n  return [i * n for i in range(3)], {i for i in range(2)}, {i: n for i in range(2)}", "2");
  expect_whole("def f(n):\n  fs = [lambda k=k: k + n for k in range(3)]\n  return [g() for g in fs]", "2");
}

TEST(TraceData, UnboundLocalIsRaised) {
  expect_whole("def f():\n  try:\n    a\n  except UnboundLocalError as e:\n    return e.args\n  a = 1");
  expect_whole("def f():\n  try:\n    return missing\n  except NameError as e:\n    return e.args");
  expect_whole("def f(a):\n  del a\n  try:\n    return a\n  except UnboundLocalError:\n    return 'gone'", "1");
}

TEST(TraceBuild, ContainersAndUnpacking) {
  expect_whole("def f(a, b):\n  return (a, b), [a, b], {'k': a, b: 2}, [*(a, b), 3], {**{'a': 1}, 'b': 2}, (*[1], 2)",
               "1, 2");
  expect_whole("def f():\n  a, (b, *c), d = 1, (2, 3, 4), 5\n  *e, g = 'xyz'\n  return a, b, c, d, e, g");
  expect_whole("def f():\n  try:\n    a, b = 1, 2, 3\n  except ValueError as e:\n    return e.args");
  expect_whole("def f():\n  try:\n    a, b, *c = [1]\n  except ValueError as e:\n    return e.args");
  expect_whole("def f(a):\n  return f'{a} {a!r:>5} {a:03d}', [1, 2, 3, 4][1:3], 'abc'[::-1]", "7");
}

TEST(TraceBuild, SetsKeepUniqueItems) { expect_whole("def f():\n  return len({1, 2, 1}), 2 in {1, 2}, {*[3], 3}"); }

TEST(TraceOperator, ComparisonsAndIdentity) {
  expect_whole("def f(a, b):\n  return a < b, a == b, a is b, a is not None, not a, -a, ~a, a in (1, 2), 5 not in [a]",
               "1, 2");
  expect_whole("def f(a):\n  return 'yes' if a else 'no', a or 3, a and 4", "0");
  expect_whole("def f(a):\n  return 1 < a < 5", "3");
  expect_whole("def f(a):\n  a += 1\n  a *= 3\n  return a // 2, a % 4, a ** 2, a << 1, a & 3", "3");
}

TEST(TraceOperator, Match) {
  const char* source =
      "class P:\n  __match_args__ = ('x', 'y')\n  def __init__(self, x, y):\n    self.x, self.y = x, y\n"
      "def g(v):\n  match v:\n    case 0: return 'zero'\n    case [a, b]: return a + b\n    case {'k': k}: return k\n  "
      "  case P(1, y): return y\n"
      "    case str() as s: return s\n    case _: return 'other'\n"
      "def f():\n  return g(0), g([1, 2]), g({'k': 9}), g(P(1, 8)), g(P(2, 8)), g('s'), g(1.5)";
  expect_whole(source);
}

TEST(TraceCall, ArgumentsBindAsInPython) {
  const std::string g = "def g(a, b=2, /, c=3, *rest, d, e=5, **more):\n  return a, b, c, rest, d, e, more\n";
  expect_whole(
      g + "def f():\n  return g(1, d=4), g(1, 2, 3, 4, 5, d=6, z=7), g(*(1, 2), **{'d': 3, 'c': 4}), g(1, d=0, a=9)");
  for (const char* call : {"g()", "g(1)", "h(1, 2, 3)", "h(1, x=2)", "h(1, a=2)", "h()", "p(a=1)", "k(1, 2)", "k()",
                           "h(**{'a': 1}, **{'a': 2})", "h(1, 2, 3, 4)"}) {
    const std::string defs =
        g + "def h(a, b=1):\n  return a, b\ndef p(a, /):\n  return a\ndef k(*, u, v):\n  return u\n";
    expect_whole(defs + "def f():\n  try:\n    return " + call + "\n  except TypeError as e:\n    return e.args");
  }
}

TEST(TraceCall, MethodsClassesAndClosures) {
  expect_whole(
      "class C:\n  def __init__(self, k):\n    self.k = k\n  def m(self, v):\n    return self.k + v\n  @staticmethod\n "
      " def s(v):\n    return v\n"
      "  @classmethod\n  def make(cls, v):\n    return cls(v)\ndef f(x):\n  c = C.make(1)\n  return c.m(x), C.s(2), "
      "c.k, C(3).m(4)",
      kX);
  expect_whole(
      "class A:\n  def m(self):\n    return 'A'\nclass B(A):\n  def m(self):\n    return super().m() + 'B'\ndef f():\n "
      " return B().m()");
  expect_whole(
      "def deco(g):\n  def inner(*args, **kwargs):\n    return g(*args, **kwargs) * 2\n  return inner\n@deco\ndef h(x, "
      "k=1):\n  return x + k\ndef f(x):\n  return h(x, k=3)",
      kX);
}

TEST(TraceCall, BuiltinsOfTheFunction) {
  const std::string own =
      "space = {'__builtins__': {'len': lambda v: 'own'}}\ng = eval('lambda v: (len(v), [len(i) for i in [v]])', "
      "space)\n";
  expect_whole(own + "def f():\n  return g([]), len([])");
}

TEST(TraceCall, FunctionMadeInTheTrace) {
  expect_whole(
      "def f(x):\n  def g(a, b=x, *, c: int = 2):\n    return a, b, c\n  return g(1), g(1, 2, c=3), g.__name__", kX);
}

TEST(TraceControl, LoopsAndJumps) {
  expect_whole(
      "def f(x):\n  total = x\n  for i in range(4):\n    if i == 1:\n      continue\n    if i == 3:\n      break\n    "
      "total = total + i\n"
      "  else:\n    return 'never'\n  while False:\n    pass\n  return total",
      kX);
  expect_whole("def f():\n  n, out = 5, []\n  while n:\n    n -= 1\n    out.append(n)\n  return out");
}

TEST(TraceControl, Imports) {
  expect_whole(
      "import os.path\ndef f():\n  import os\n  import os.path as p\n  from os import sep\n  from os.path import "
      "join\n  return sep, p is os.path, join('a', 'b')");
}

TEST(TraceGenerators, ConsumedInside) {
  expect_whole(
      "def g(n):\n  for i in range(n):\n    yield i\ndef f():\n  return list(g(3)), sum(g(4)), [a for a in g(2)], "
      "tuple(g(1)), any(i > 1 for i in g(3)), dict((i, i) for i in g(2))");
  expect_whole(
      "def g():\n  got = yield 1\n  yield got\n  return 5\ndef h():\n  r = yield from g()\n  yield r\ndef f():\n  it = "
      "h()\n  a = next(it)\n  b = it.send('s')\n  return a, b, list(it)");
  expect_whole(
      "def g():\n  try:\n    yield 1\n  except ValueError:\n    yield 'caught'\n  finally:\n    pass\ndef f():\n  it = "
      "g()\n  next(it)\n  return it.throw(ValueError), list(it)");
  expect_whole(
      "def g():\n  yield 1\ndef f():\n  it = g()\n  next(it)\n  try:\n    next(it)\n  except StopIteration:\n    "
      "return next(it, 'default')");
  expect_whole(
      "def g():\n  raise StopIteration\n  yield\ndef f():\n  try:\n    return list(g())\n  except RuntimeError as e:\n "
      "   return e.args");
  expect_whole("def g(x):\n  yield x + 1\n  yield x * 2\ndef f(x):\n  return sum(list(g(x))[0] for _ in range(1))",
               "2");
}

TEST(TraceExceptions, TryExceptFinally) {
  expect_whole(
      "def f():\n  out = []\n  try:\n    try:\n      raise KeyError('k')\n    except (ValueError, KeyError) as e:\n    "
      "  out.append(e.args)\n      raise TypeError('t') from e\n"
      "    finally:\n      out.append('finally')\n  except TypeError as e:\n    out.append(type(e.__cause__) is "
      "KeyError)\n    out.append(e.__context__ is e.__cause__)\n"
      "  else:\n    out.append('else')\n  return out");
  expect_whole(
      "def g():\n  raise ValueError('deep')\ndef f():\n  try:\n    g()\n  except ValueError as e:\n    return e.args");
  expect_whole(
      "def f():\n  try:\n    try:\n      raise ValueError(1)\n    except ValueError:\n      raise\n  except ValueError "
      "as e:\n    return e.args");
  expect_whole(
      "def f():\n  for i in range(3):\n    try:\n      if i == 1:\n        continue\n      if i == 2:\n        return "
      "i\n    finally:\n      i = 7");
  expect_whole("def f():\n  try:\n    raise 5\n  except TypeError as e:\n    return e.args");
  expect_whole("def f():\n  try:\n    assert 1 == 2, 'no'\n  except AssertionError as e:\n    return e.args");
  expect_whole("def f():\n  try:\n    return {}['a']\n  except KeyError as e:\n    return e.args");
}

TEST(TraceExceptions, With) {
  const std::string manager =
      "log = []\nclass M:\n  def __init__(self, swallow):\n    self.swallow = swallow\n  def __enter__(self):\n    "
      "return 'entered'\n"
      "  def __exit__(self, kind, value, tb):\n    self.seen = kind\n    return self.swallow\n";
  expect_whole(manager +
               "def f():\n  m = M(True)\n  with m as e:\n    raise ValueError\n  return e, m.seen is ValueError");
  expect_whole(manager +
               "def f():\n  m = M(False)\n  try:\n    with m:\n      raise ValueError('v')\n  except ValueError as "
               "e:\n    return e.args, m.seen is ValueError");
  expect_whole(manager + "def f():\n  m = M(False)\n  with m as a, M(True) as b:\n    r = a + b\n  return r, m.seen");
  expect_whole(
      "import contextlib\n@contextlib.contextmanager\ndef cm(x):\n  try:\n    yield x\n  finally:\n    pass\ndef "
      "f():\n  with cm(3) as v:\n    r = v + 1\n  return r");
  expect_whole("def f():\n  try:\n    with 3:\n      pass\n  except TypeError as e:\n    return e.args");
}

}  // namespace
}  // namespace framejit::frame_hook::fake
