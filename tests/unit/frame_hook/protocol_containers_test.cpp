// Containers, operators, iteration and text, compared with plain Python.
#include "fake_frontend.h"

namespace framejit::frame_hook::fake {
namespace {

TEST(Containers, ListMethods) {
  expect_whole(R"(
def f(real):
    l = list(real)
    l.append(9); l.insert(1, 'i'); l.extend((7, 8)); l.reverse()
    popped = l.pop(), l.pop(0)
    l.remove('i')
    l[0] = 'z'
    l[1:3] = [5, 5, 5]
    del l[-1]
    m = l.copy(); m.clear()
    n = [3, 1, 2]; n.sort(key=lambda v: -v)
    return l, popped, m, n, l.index(5), l.count(5), l[::-1], l[1:-1], l + [1], l * 2, 5 in l, n == [3, 2, 1], n < [4]
)", "[1, 2, 3]");
}

TEST(Containers, WritesToARealListAreReplayedLater) {
  const Trial t = trial("def f(l):\n    l.append(3)\n    l[0] += 10\n    return len(l), l[0], l", "[1, 2]");
  EXPECT_EQ(t.returned, "(3, 11, [11, 2, 3])") << t.detail;
  EXPECT_EQ(t.trace.effects.size(), 1u);
  EXPECT_EQ(text_of(PyTuple_GET_ITEM(t.args.get(), 0)), "[1, 2]");
}

TEST(Containers, DictMethods) {
  expect_whole(R"(
def f(real):
    d = dict(real, k=1)
    d.update({'m': 2}, n=3)
    d.setdefault('o', []).append(1)
    got = d.get('a'), d.get('zz', 5), d.pop('k'), d.pop('none', 'd')
    last = d.popitem()
    d['x'] = d | {'y': 1}
    del d['m']
    return (list(d), got, last, d['x']['y'], list(d.items())[0], list(d.values())[0], 'n' in d, len(d), dict.fromkeys('ab', 0), d.keys() & {'n', 'q'}, {**real, 'b': 2},
        {k: v for k, v in real.items()} == real)
)",
               "{'a': 1}");
}

TEST(Containers, RealDictsAreReadByKey) {
  const Trial t = trial("def f(d, x): return x + d['n'] if 'q' not in d else x",
                        "{'n': 2, 'unused': object()}, torch.tensor('x', 2)");
  EXPECT_EQ(t.returned, "add(x, 2)") << t.detail;
  EXPECT_TRUE(t.has_guard("dict_lacks L['d'] 'q'"));
  for (const std::string& g : t.guards) EXPECT_EQ(g.find("dict_keys"), std::string::npos) << g;
}

TEST(Containers, Sets) {
  expect_whole(R"(
def f(real):
    s = set(real)
    s.add(5); s.add(5); s.discard(99); s.update([6])
    s.remove(6)
    return (sorted(s), 5 in s, len(s), sorted(s | {7}), sorted(s & {1, 5}), sorted(s - {1}), sorted(s ^ {1, 8}), s >= {1}, s.issubset({1, 2, 5, 9}), s.isdisjoint({40}), {1, 2} == {2, 1},
        frozenset([1]) in {frozenset([1])})
)",
               "{1, 2}");
}

TEST(Containers, KeysAreComparedAsPythonDoes) {
  expect_whole(R"(
class K:
    def __init__(self, n): self.n = n
    def __hash__(self): return hash(self.n)
    def __eq__(self, other): return isinstance(other, K) and self.n == other.n
def f(real):
    d = {1: 'int', 'a': 's', (1, 'x'): 't', None: 'n', int: 'type'}
    e = {K(1): 'k'}
    o = object()
    return d[1.0], d[True], d[(1, 'x')], d[None], d[int], e[K(1)], K(2) in e, {o: 1}[o], real[(1, 2)], real.get((3, 4)), real[int]
)",
               "{(1, 2): 'tuple', int: 'type'}");
}

TEST(Containers, OrderedDict) {
  expect_whole(R"(
import collections
def f(real):
    o = collections.OrderedDict([('a', 1), ('b', 2)])
    o.move_to_end('a')
    o['c'] = 3
    return list(o), o.popitem(last=False), len(o), list(real.values()), next(iter(real)), list(reversed(o))
)", "collections.OrderedDict(x=1, y=2)");
}

TEST(Operators, Numbers) {
  expect_whole(R"(
def f(n, x):
    return (n + 1, n - 3, n * 2, n / 4, n // 4, n % 4, n ** 2, -n, ~n, +n, n << 1, n >> 1, n & 6, n | 1, n ^ 3, n < 8, n >= 7, n == 7.0, n != 7,
            abs(-n), divmod(n, 4), round(x, 1), int(x), float(n), bool(n), min(n, 3), max([1, n]), sum([n, 1]), pow(n, 2, 5), 1 < n < 9, not n)
)",
               "7, 2.55");
}

TEST(Operators, SpecialMethods) {
  expect_whole(R"(
class V:
    def __init__(self, n): self.n = n
    def __add__(self, o): return V(self.n + (o.n if isinstance(o, V) else o))
    def __radd__(self, o): return V(o + self.n)
    def __iadd__(self, o): self.n += 100; return self
    def __mul__(self, o): return NotImplemented
    def __neg__(self): return V(-self.n)
    def __eq__(self, o): return isinstance(o, V) and self.n == o.n
    def __lt__(self, o): return self.n < o.n
    def __getitem__(self, k): return (self.n, k)
    def __setitem__(self, k, to): self.n = to
    def __contains__(self, k): return k == self.n
    def __len__(self): return self.n
    def __bool__(self): return self.n > 0
    def __index__(self): return self.n
    def __repr__(self): return f'V({self.n})'
class W(V):
    def __radd__(self, o): return 'W first'
def f():
    a, b = V(1), V(2)
    out = [(a + b).n, (a + 5).n, (5 + a).n, (-a).n, a == V(1), a != b, a < b, a > b, a['k'], 1 in a, len(b), bool(V(0)), [10, 20, 30][b], a + W(1), repr(a), f'{b!r}', sorted([b, a])[0].n]
    a += 1
    out.append(a.n)
    a[0] = 3
    out.append(a.n)
    try: a * 3
    except TypeError as e: out.append(str(e))
    return out
)");
}

TEST(Operators, Comparisons) {
  expect_whole(R"(
def f(l):
    return ([1, 2] == l, (1, 2) < (1, 3), [1] != [1], {'a': [1]} == {'a': [1]}, 'a' < 'b', None == 0, None is None, 1 == 'a', int == int, (1, 'x') == (1, 'x'), [] == (), 'b' in 'abc',
        3 in range(2, 5), 'x' not in ['y'], {1} < {1, 2}, slice(1) == slice(1), l.append == l.append)
)",
               "[1, 2]");
}

TEST(Operators, SymbolicSizes) {
  TraceOptions options;
  options.hints.dynamic_sources = {"L['n']"};
  const Trial t = trial(
      "def f(n): return n + 1, n * 2 - n, n // 2, n % 2, n > 3, max(n, 2), len(range(3)), min(n, 1000) if n < 1000 "
      "else 0",
      "7", options);
  EXPECT_EQ(t.reason, "") << t.detail;
  EXPECT_EQ(t.returned, "(s0 + 1, s0, s0//2, s0 % 2, True, s0, 3, s0)");
}

TEST(Operators, TensorsRecordThroughTheirSlots) {
  const Trial t = trial(R"(
def f(x):
    y = 1 - x
    y += 2
    return -y @ x, x[0], x < 2
)", "torch.tensor('x', 2)");
  EXPECT_EQ(t.returned, "(matmul(neg(add(sub(1, x), 2)), x), getitem(x, 0), lt(x, 2))") << t.detail;
}

TEST(Iteration, Builtins) {
  expect_whole(R"(
import itertools, functools
def f(l, d):
    return (list(zip(l, 'abc')), list(enumerate(l, 5)), list(map(lambda a, b: a + b, l, l)), list(filter(None, [0, 1, 2])), list(reversed(l)), sorted(l, reverse=True),
            any(v > 2 for v in l), all(l), list(range(5, 0, -2)), [k for k in d], list(itertools.chain(l, (9,))), list(itertools.islice(itertools.count(3), 1, 6, 2)),
            list(itertools.chain.from_iterable([[1], [2]])), list(itertools.product('ab', [1, 2])), list(itertools.zip_longest([1], [2, 3], fillvalue=0)),
            functools.reduce(lambda a, b: a * b, l), list(itertools.repeat('r', 2)), list(itertools.accumulate(l)), next(iter(l)), next(iter([]), 'end'),
            sum(v for v in l), tuple(x for x in d.items()), max(l, key=lambda v: -v), list(itertools.combinations(l, 2)), list(itertools.pairwise(l)), dict(zip('ab', l)))
)",
               "[1, 2, 3], {'a': 1}");
}

TEST(Iteration, IteratorsWrittenInPython) {
  expect_whole(R"(
class Count:
    def __init__(self, n): self.n = n
    def __iter__(self): return self
    def __next__(self):
        if not self.n: raise StopIteration
        self.n -= 1
        return self.n
class Items:
    def __getitem__(self, i):
        if i > 2: raise IndexError
        return i * i
class Delegate:
    def __iter__(self): return iter([1, 2])
def f():
    a, *rest = Count(3)
    return a, rest, list(Items()), [*Delegate()], 4 in Items(), sum(Count(4)), list(iter(lambda: 1, 1))
)");
}

TEST(Iteration, ChangingADictWhileIteratingRaises) {
  expect_whole(R"(
def f():
    d = {1: 1}
    try:
        for k in d: d[k + 1] = 1
    except RuntimeError as e: return str(e)
)");
}

TEST(Iteration, RealIteratorsOfUnknownStateBreak) {
  EXPECT_EQ(trial("def f(it):\n    return next(it)", "iter(__import__('io').StringIO('a'))").reason, "real_iterator");
}

TEST(Strings, Methods) {
  expect_whole(R"(
def f(s):
    return (s.upper(), s.split(','), s.startswith(('a', 'b')), ' '.join(['x', s]), '{} {n:>4}'.format(s, n=3), '{0}-{0}'.format([1]), s[1:], s * 2, len(s), '%s has %d' % (s, 3), '%s' % [s],
        '%r' % None, f'{s!r:>8}|{3.14159:.2f}|{[1, "a"]}', s.encode(), s.isidentifier(), s in 'zza,bzz', str(1.5), repr({'a': (1,)}), str(None), str(int), list('ab'), s.replace('a', 'c'),
        max('ab'), ascii('x'), ord('a'))
)",
               "'a,b'");
}

TEST(Strings, TextOfATensorBreaks) {
  EXPECT_EQ(trial("def f(x): return f'{x}'", "torch.tensor('x', 2)").reason, "data_dependent_value");
  EXPECT_EQ(trial("def f(x): return str([x])", "torch.tensor('x', 2)").reason, "data_dependent_value");
}

TEST(Strings, AddressesBreak) { EXPECT_EQ(trial("def f(): return repr(object())").reason, "text_formatting"); }

}  // namespace
}  // namespace framejit::frame_hook::fake
