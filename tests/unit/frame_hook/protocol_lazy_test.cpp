// Builtins that take items one by one while they write, or call Python code, compared with the running version of
// Python.
#include "fake_frontend.h"

namespace framejit::frame_hook::fake {
namespace {

TEST(LazyBuiltins, WritesToWhatTheItemsAreMadeFrom) {
  expect_whole(R"(
import collections, itertools
def f(x):
    y = [x]
    y.extend(y[-1] + 1 for _ in range(3))
    y += (len(y) for _ in range(2))
    def grow():
        y.append('grown')
        yield len(y)
        y.append('again')
        yield len(y)
    y[1:3] = grow()
    def shrink():
        y.clear()
        yield 'left'
    z = list(y)
    y[3:9] = shrink()
    s = {1}
    s.update(max(s) + 1 for _ in range(3))
    d = {'a': 1}
    d.update((k, len(d)) for k in 'bc')
    d |= ((k, len(d)) for k in 'de')
    q = collections.deque([1], 3)
    q.extend(q[-1] + 1 for _ in range(4))
    q += [9]
    q.extendleft(q)
    w = [1]
    for a, b in itertools.zip_longest(w, range(3)):
        w.append(b)
        if len(w) > 5: break
    return z, y, sorted(s), d, list(q), w
)", "1");
}

TEST(LazyBuiltins, WhatWasTakenBeforeAnErrorStays) {
  expect_whole(R"(
def half(items, stop):
    for k, v in enumerate(items):
        if k == stop: raise ValueError(k)
        yield v
def f(x):
    y, s, d, out = [x], {1}, {}, []
    for step in (lambda: y.extend(half([1, 2, 3], 2)), lambda: y.__iadd__(half([4, 5], 1)),
                 lambda: s.update([7], half([8, 9], 1)), lambda: d.update(half([('a', 1), ('b', 2)], 1)),
                 lambda: d.update([('c', 3), ('d',)]), lambda: d.update([5]), lambda: y.sort(key=lambda v: 1 // (v - 4)),
                 lambda: y.__setitem__(slice(0, 1), half([1], 0)), lambda: y.__setitem__(slice(0, 1), 3)):
        try:
            step()
        except Exception as e:
            out.append((type(e).__name__, str(e)))
    return y, sorted(s), d, out
)",
               "1");
}

TEST(LazyBuiltins, SortsCompareAsThisPythonDoes) {
  expect_whole(R"(
class C:
    def __init__(self, v, log, bad=None): self.v, self.log, self.bad = v, log, bad
    def __lt__(self, other):
        self.log.append((self.v, other.v))
        if (self.v, other.v) == self.bad: raise ValueError
        return self.v < other.v
def f(x):
    out = []
    for values in ([3, 1, 2], [1, 2, 3, 4], [4, 3, 2, 1], [2, 2, 1, 1, 3], [1, 1, 1], [2, 1, 1, 0, 5, 5],
                   [*range(70, 0, -1), *range(20)]):
        for reverse in (False, True):
            log = []
            out.append([c.v for c in sorted((C(v, log) for v in values), reverse=reverse)])
            half = [C(v, log, (1, 2)) for v in values]
            try:
                half.sort(reverse=reverse)
            except ValueError:
                log.append('raised')
            out.append(([c.v for c in half], log))
    seen, nan = [], float('nan')
    y = [3, 1, 2]
    y.sort(key=lambda v: seen.append(list(y)) or v)
    return out, y, seen, str(sorted([3.0, nan, 1.0, nan, 2.0]))
)", "1");
}

TEST(LazyBuiltins, StepsAndCallsAlternate) {
  expect_whole(R"(
import collections, functools, itertools, math
class Add:
    def __init__(self, log): self.log = log
    def __radd__(self, other):
        self.log.append('added')
        return 1
class Lengths:
    def __init__(self, log): self.log = log
    def __len__(self):
        self.log.append('len')
        return 2
    def __getitem__(self, i):
        self.log.append(i)
        if i > 1: raise IndexError
        return i
def f(x):
    log, out = [], []
    def items(*values):
        for v in values:
            log.append(v)
            yield v
    def heard(v):
        log.append('heard')
        return v
    out += [sum(items(Add(log), Add(log))) and len(log), min(items(3, 1, 2), key=heard), max(items(1, 2), key=heard)]
    out += [math.prod(items(2, 3)), str(sum(items(*[0.1] * 10))), dict(collections.Counter(items(*'abca')))]
    out.append(functools.reduce(lambda a, b: log.append('reduced') or a + b, items(1, 2, 3)))
    for made in (itertools.accumulate(items(1, 2, 3)), itertools.pairwise(items(1, 2, 3)),
                 itertools.accumulate(items(1, 2), lambda a, b: heard(a * b), initial=5),
                 itertools.starmap(pow, items((2, 3), (3, 2))), itertools.takewhile(heard, items(1, 0, 5)),
                 itertools.dropwhile(heard, items(1, 0, 5)), itertools.zip_longest(items(1, 2), items(3))):
        for v in made:
            log.append('got')
            out.append(v)
        out.append(next(made, 'ended'))
    a = iter([1, 2, 3, 4])
    z = zip(a, iter([1]))
    out += [list(z), list(z), list(a)]
    for choose in (min, max):
        try:
            choose([])
        except ValueError as e:
            out.append(str(e))
    out += [list(Lengths(log)), tuple(Lengths(log)), [*Lengths(log)], list(reversed(Lengths(log))), sum(Lengths(log))]
    return out, [v if isinstance(v, (int, str, float, tuple)) else 'object' for v in log]
)", "1");
}

TEST(Unbound, InnerFramesAndCells) {
  expect_whole(R"(
def f(x):
    out = []
    def peek(): return u
    for k in range(3):
        try:
            out.append(peek())
        except NameError as e:
            out.append(str(e))
        u = k
        if k == 1: del u
    try:
        del u, u
    except UnboundLocalError as e:
        out.append(str(e))
    i = [i for i in range(2)]
    return out, i
)", "1");
}

}  // namespace
}  // namespace framejit::frame_hook::fake
