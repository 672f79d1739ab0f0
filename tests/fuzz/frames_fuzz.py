"""Differential fuzzer of frames: random Python functions over tensors, ints, lists and dicts, with loops, branches,
closures, exceptions, with blocks and breaks at random places; generators and iterators over containers that are
being written, effects that an exception leaves half done, locals and cells that are unbound or deleted on some
paths, several names for one container, errors in code that asks whether it is being compiled. The calls take
different paths. Compiled and plain runs must agree in result, written arguments and output.

    python tests/fuzz/frames_fuzz.py [--seed N] [--count N] [--backend NAME]

A failure prints the seed and the program, shrunk by dropping statements.
"""
import os
import random
import sys
import textwrap

import command
import rounds

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "e2e"))

TENSOR_EXPRESSIONS = ["{t} + {u}", "{t} * {i}", "{t}.relu()", "torch.sin({t}) - {u}", "{t}.sum(0, keepdim=True) + {u}",
                      "-{t}", "torch.where({t} > 0, {t}, {u})", "{t}.clone()", "h({t}, {i})", "g({t})",
                      "{t}.view(-1).view({t}.shape)", "torch.stack([{t}, {u}]).amax(0)", "xs[{i} % len(xs)] + {t}",
                      "d['k'] * 2 + {t}"]
INT_EXPRESSIONS = ["{i} + {j}", "{i} * 2 - {j}", "len(xs) + {i}", "{i} % 5", "{t}.shape[0]", "max({i}, {j})",
                   "abs({i} - {j})", "sum(range({i} % 4))", "int(bool({i})) + {j}"]
# Builtins that take items one by one while they write to the source of the items, or while they call Python code.
LAZY = [
    "{l}.extend({l}[-1] + {i} for _ in range({j} % 3))", "{l} += ({m}[k % len({m})] * 2 for k in range({i} % 3))",
    "{l}[{i} % 3:] = ({m}[-1] + k for k in range(len({l}) % 3))",
    "{l}.extend(map(lambda k: {m}[k % len({m})] + len({l}), range(2)))",
    "{l}.extend(itertools.islice(zip_sums({l}, {m}), {i} % 4))", "d.update((k, d['k'] + len(d)) for k in 'pq')",
    "d |= ((k, {t} * len(d)) for k in 'rs')", "s.update(max(s, default=0) + 1 for _ in range({i} % 3))",
    "q.extend(q[-1] + {i} for _ in range(2))", "q.extendleft({l}[-1] + len(q) for _ in range(2))",
    "t0 = sum(bumped(t1.clone(), {i} % 4))", "t1 = sum(bumped(t0 + 1, 3), {t})", "t0 = sum(bumped({t} * 2, 2))",
    "it0 = iter({l}); next(it0, None); {l}.append({t}); n1 = len(list(it0)) % 5",
    "it0 = iter({l}); {l}.append({t}); n0 = (n0 + len(list(it0))) % 7", "t1 = sum(noisy({l}))",
    "n0 = min(noisy([{i}, {j}, 2]), key=heard) % 7", "n0 = sum(noisy([{i}, 0.5, True])) % 7",
    "{l}.sort(key=lambda v: heard(len({l})))", "n0 = sorted(map(Compared, [{i}, {j}, n0, 1]))[0].n",
    "n1 = len(list(itertools.takewhile(heard, noisy([{i}, {j}, 1]))))",
    "t0 = list(itertools.accumulate(noisy({l})))[-1]",
    "for a0, b0 in itertools.zip_longest(noisy({l}), range(2)): LOG.append(b0)",
    "n1 = [k for _, k in zip(noisy([1, 2]), it0)][-1:] == []", "d.update(dict.fromkeys(noisy(['u', 'v']), {t}))",
    "s.difference_update(k for k in list(s) if heard(len(s)) % 2)",
    "n0 = any(heard(k) for k in noisy([{i} % 2, {j} % 2]))",
    "o.value = collections.deque(noisy({l}), {i} % 3 + 1)[-1]",
]
HALF_WAY = [
    "{l}.extend(half({m}, {i} % 3))", "{l} += half({m}, {i} % 3)",
    "d.update((k, d['k'] * 2) for k in half(['k', 'w', 'k'], {i} % 4))", "s.update(half([5, 6, 7], {i} % 4))",
    "q.extend(half({m}, {i} % 3))", "{l}[:1] = half({m}, {i} % 3)", "t0 = sum(half(bumped(t1.clone(), 3), {i} % 4))",
    "n0 = sorted([3, 1, 2], key=lambda v: 1 // ({i} % 3 - v) or v)[0]", "for t1 in half({m}, {i} % 3): {l}.append(t1)",
    "n1, n0 = half([{i}, 2, 3], {j} % 4)",
]
# u0 is a local, u1 a cell; they are bound only on some paths.
UNBOUND = [
    "{u}", "t0 = t0 + {u}", "del {u}", "n1 = int({u} is x)", "t1 = peek()", "{l}.append({u})", "{u} = {u} * 2",
    "[{u} for {u} in range(2)]", "t0 = t1 * {u}.sum()",
]
ITERATORS = [
    "iter({l})", "iter(list({l}))", "enumerate({l})", "reversed({l})", "zip({l}, {m})", "map(g, {l})",
    "filter(None, [0, {i}, 2])", "iter(d.values())", "noisy({l})", "half({l}, {i} % 3)",
]
# Errors that eager never has. A handler of the program would catch them, so they are placed where there is none.
TOLD = [
    "if torch.compiler.is_compiling() and ({i}) % 3 < 2: raise ValueError('told')",
    "t0 = {t} * (told if torch.compiler.is_compiling() else 1)", "t1 = t0 + helped({t}, {i})", "xs.append(masked({t}))",
]
BREAKS = ["log({i})", "n0 = int({t}.sum().item() > 1e9) + {i}", "log(len(xs))"]


class Program:
    """Statements as nested lists, so that shrinking can drop any of them."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.depth = self.handlers = 0
        self.body = self.block(self.rng.randint(4, 9))

    def pick(self, pool):
        names = dict(t=self.rng.choice(["x", "y", "t0", "t1"]), u=self.rng.choice(["x", "y", "t0", "t1"]),
                     i=self.rng.choice(["n", "n0", "n1", str(self.rng.randint(0, 4))]),
                     j=self.rng.choice(["n", "n0", "n1", str(self.rng.randint(0, 4))]),
                     l=self.rng.choice(["xs", "xs", "ys", "o.items"]), m=self.rng.choice(["xs", "ys"]))
        return self.rng.choice(pool).format(**names)

    def tensor(self):
        return self.pick(TENSOR_EXPRESSIONS)

    def integer(self):
        return self.pick(INT_EXPRESSIONS)

    def block(self, count):
        return [self.statement() for _ in range(count)]

    def statement(self):
        choices = ["tensor"] * 6 + ["int"] * 3 + ["list", "dict", "attr", "inplace", "break"]
        choices += ["lazy", "lazy", "half_way", "alias", "bound", "unbound", "iterator", "next"]
        if self.depth < 3:
            choices += ["if", "for", "while", "try", "with", "raise", "inner"]
        if not self.handlers:
            choices += ["told"]
        kind = self.rng.choice(choices)
        self.depth += 1
        made = getattr(self, "make_" + kind)()
        self.depth -= 1
        return made

    def make_tensor(self): return [f"{self.rng.choice(['t0', 't1'])} = {self.tensor()}"]
    def make_int(self): return [f"{self.rng.choice(['n0', 'n1'])} = ({self.integer()}) % 7"]
    def make_list(self): return [
        self.rng.choice(["xs.append({e})", "xs[0] = {e}", "xs.insert(1, {e})", "xs.extend([{e}])",
                         "xs[-1:] = [{e}]"]).format(e=self.tensor())]
    def make_dict(self): return [
        self.rng.choice(["d['k'] = {e}", "d[{i}] = {e}", "d.update(z={e})", "d.setdefault('s', {e})",
                         "d.pop('z', None)"]).format(e=self.tensor(), i=self.integer())]
    def make_attr(self): return [self.rng.choice(["o.value = {e}", "o.count += {i}", "o.step({e})"]).format(
        e=self.tensor(), i=self.integer())]
    def make_inplace(self): return [
        self.rng.choice(["t0.add_({i})", "t0 = t0.clone(); t0.mul_(2)", "t1 = t0.clone(); t1[0] = {i}"]).format(
            i=self.integer())]
    def make_lazy(self): return [self.pick(LAZY)]
    def make_half_way(self):
        caught = self.rng.choice(["except ValueError:", "except ArithmeticError:", "except Exception as e0:"])
        handler = [[self.rng.choice(["n0 = 2", "LOG.append(len(xs))", "log(0)"])]]
        return ["try:", [[self.pick(HALF_WAY)]], caught, handler]
    def make_alias(self):
        return [self.rng.choice(["ys = xs", "ys = list(xs)", "o.items = xs", "o.items = ys", "xs, ys = ys, xs",
                                 "d['xs'] = xs", "it0 = iter(xs)"])]
    def make_bound(self):
        return [f"if ({self.integer()}) % 2:", [[f"{self.rng.choice(['u0', 'u1'])} = {self.tensor()}"]]]
    def make_unbound(self):
        u = self.rng.choice(["u0", "u1"])
        body = [[self.pick([part.replace("{u}", u) for part in UNBOUND])]]
        if self.rng.random() < 0.3: body.append(self.make_break())
        handler = [[self.rng.choice(["n0 = 4", "LOG.append(str(e0))", "log(1)"])]]
        return ["try:", body, "except NameError as e0:", handler]
    def make_iterator(self): return [f"it0 = {self.pick(ITERATORS)}"]
    def make_next(self):
        return [self.rng.choice(["n1 = next(it0, None) is None", "for k0 in it0: break",
                                 "n0 = len(list(it0)) if n0 % 2 else 1",
                                 "LOG.append(sum(1 for _ in it0) if n0 % 2 else 0)"])]
    def make_told(self): return [self.pick(TOLD)]
    def make_break(self): return [self.pick(BREAKS)]
    def make_if(self): return [f"if ({self.integer()}) % 2:", self.block(self.rng.randint(1, 3)), "else:",
                               self.block(self.rng.randint(1, 2))]
    def make_for(self):
        head = self.rng.choice(["for n1 in range({i} % 4):", "for n1, t1 in enumerate(list(xs)[:2]):",
                                "for n1 in [1, 2]:", "for k0, v0 in list(d.items())[:2]:"])
        body = self.block(self.rng.randint(1, 3))
        body.insert(self.rng.randint(0, len(body)),
                    [self.rng.choice(["pass", "if n1 == 2: break", "if n1 == 1: continue"])])
        return [head.format(i=self.integer()), body]
    def make_while(self): return ["w0 = 0", "while w0 < 2:", [["w0 += 1"]] + self.block(self.rng.randint(1, 2))]
    def make_try(self):
        self.handlers += 1
        body = self.block(self.rng.randint(1, 2))
        self.handlers -= 1
        return ["try:", body + [[self.rng.choice(["pass", "raise ValueError(n0)", "xs[99]", "d['missing']"])]],
                self.rng.choice(["except (ValueError, IndexError) as e0:", "except LookupError as e0:",
                                 "except Exception as e0:"]),
                [["log(type(e0).__name__)"] if self.rng.random() < 0.3 else ["n0 = 3"]] + self.block(1),
                self.rng.choice(["finally:", "else:"]), self.block(1)]
    def make_with(self): return [self.rng.choice(["with cm():", "with torch.no_grad():", "with cm() as c0:"]),
                                 self.block(self.rng.randint(1, 3))]
    def make_raise(self): return [f"if ({self.integer()}) % 7 == 6:", [[f"raise RuntimeError('r%d' % n0)"]]]
    def make_inner(self): return ["def g0(a, b=n0, *c, k=1):",
                                  [["nonlocal n1"], ["n1 = (n1 + b) % 5"], ["return a * k + b"]],
                                  self.rng.choice(["t0 = g0({t})", "t1 = g0({t}, 2, k=3)"]).format(t="x")]

    def source(self):
        lines = []
        def emit(block, indent):
            for statement in block:
                for part in statement:
                    if isinstance(part, list):
                        emit(part, indent + 1) if part else lines.append("    " * (indent + 1) + "pass")
                    else:
                        lines.append("    " * indent + part)
        emit(self.body, 1)
        return PRELUDE + HEAD + "\n".join(
            lines) + "\n    return t0, t1, n0, n1, xs, ys, d, sorted(s), list(q), o.value, o.count\n"


HEAD = """def f(x, y, n, xs, d, o):
    t0 = x; t1 = y; n0 = n; n1 = 1; ys = xs; s = {1, n}; it0 = iter(()); o.items = [x]
    q = collections.deque([x], 4)
    def peek(): return u1 + 1
"""
PRELUDE = textwrap.dedent("""
    import collections
    import itertools
    import torch
    from contextlib import contextmanager
    LOG = []
    def log(v):
        LOG.append(v)
        print(end="")
    class Obj:
        def __init__(self): self.value = None; self.count = 0
        def step(self, v):
            self.count += 1
            self.value = v if self.count % 2 else self.value
    @contextmanager
    def cm():
        LOG.append("in")
        try: yield 5
        finally: LOG.append("out")
    def g(t): return t * 2 if t.dim() else t
    def heard(v):
        LOG.append(v)
        return v
    def noisy(items):
        for item in items:
            LOG.append(len(LOG))
            yield item
    def half(items, stop):
        for k, item in enumerate(items):
            if k == stop: raise ValueError(k)
            yield item
    def bumped(t, k):
        for _ in range(k): yield t.add_(1)
    def zip_sums(a, b):
        for v, w in zip(a, b): yield v + w
    class Compared:
        def __init__(self, n): self.n = n
        def __lt__(self, other):
            LOG.append((self.n, other.n))
            return self.n < other.n
    def masked(t, m=None):
        if m is None and not torch.compiler.is_compiling(): m = torch.ones_like(t)
        return t * m.sum()
    def helped(t, k):
        if k % 2 and torch.compiler.is_compiling(): raise LookupError(k)
        return t + k
    def h(t, k):
        for _ in range(k % 3): t = t + k
        return t
""")


def run(source, seed, backend, calls=4):
    """None if compiled and plain agree, otherwise the difference."""
    import torch
    import framejit
    from check import exactly_as, same

    def once(change):
        scope = {"__name__": "fuzz"}
        exec(compile(source, f"<fuzz {seed}>", "exec"), scope)
        f = change(scope["f"])
        results = []
        for call in range(calls):
            torch.manual_seed(seed)
            x, y = torch.randn(3, 2), torch.randn(3, 2)
            args = [x, y, (2, 3, 2, 5)[call % 4], [x + 1, y] if call % 3 < 2 else [y], {"k": y}, scope["Obj"]()]
            try:
                with torch.no_grad():
                    results.append(("returned", f(*args)))
            except Exception as e:
                results.append(("raised", type(e).__name__, str(e)))
            results.append(vars(args[5]))
            results.append(args[:5])
        return results, scope["LOG"]
    framejit.reset()
    want, want_log = once(lambda f: f)
    got, got_log = once(lambda f: framejit.compile(f, backend=backend))
    try:
        same(got, want, exactly_as(lambda: once(lambda f: f)[0]))
        same(got_log, want_log, where="log")
    except AssertionError as e:
        return str(e)
    failed = set(framejit.stats()["fallback_reasons"]) - {"entry_limit"}  # loops over small ints reach the limit
    return f"plain Python ran: {failed}" if failed and not any(r[0] == "raised" for r in want[::3]) else None


def shrink(program, seed, backend):
    """Drops statements as long as the failure stays."""
    def blocks(block):
        yield block
        for statement in block:
            for part in statement:
                if isinstance(part, list):
                    yield from blocks(part)

    def fails():
        try:
            return run(program.source(), seed, backend)
        except SyntaxError:
            return False
    rounds.shrink(lambda: (edit for block in list(blocks(program.body)) for edit in rounds.drops(block)), fails)
    return program.source()


def fuzz(first, count, backend, shrunk=True):
    """Runs `count` programs; returns the failures as text, and in how many programs something was captured."""
    import framejit
    failures, programs, captured = [], 0, 0
    for seed in range(first, first + count):
        program = Program(seed)
        try:
            compile(program.source(), "p", "exec")
        except SyntaxError:
            continue
        programs += 1
        why = run(program.source(), seed, backend)
        captured += framejit.stats()["graphs"] > 0
        if why:
            source = shrink(program, seed, backend) if shrunk else program.source()
            failures.append(f"seed {seed}, backend {backend}: {why}\n{source[len(PRELUDE):]}")
            print(failures[-1], flush=True)
    print(f"{programs} programs, {captured} with a graph, {len(failures)} failures, backend {backend}", flush=True)
    return failures, captured / max(programs, 1)


def main():
    parser = command.parser("eager")
    parser.add_argument("--no-shrink", action="store_true")
    options = parser.parse_args()
    failures, _ = fuzz(options.seed, options.count, options.backend, not options.no_shrink)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
