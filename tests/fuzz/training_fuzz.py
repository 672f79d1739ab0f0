"""Differential fuzzer of differentiable programs: random straight lines with views, in-place ops, shared inputs,
detach, no_grad islands, random ops and hooks; compiled and eager must agree in results, gradients, Nones, hooks,
errors, written inputs and the state of the generator.

    python tests/fuzz/training_fuzz.py [--seed N] [--count N] [--backend NAME] [--inner]

A line is kept if eager accepts it and the values stay finite. What happens after the forward is random too: which
outputs go backward, one after the other or together, which inputs are leaves, what is written in between. Programs
compute in float64 or float32; each number keeps the bound of the tests (tests/e2e/check.py). A failure prints the seed
and the program, shrunk by dropping lines and drawn events. With --inner, programs call backward() and
torch.autograd.grad() themselves.
"""
import functools
import itertools
import os
import random
import sys

import command
import rounds

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(os.path.dirname(HERE), "e2e"), os.path.join(os.path.dirname(HERE), "e2e", "training")]

# {t} {u} {v} tensors, {f} a fraction, {d} a dimension
SMOOTH = ["{t} + {u}", "{t} - {u}", "{t} * {u}", "{t} * {f}", "torch.tanh({t})", "torch.sigmoid({t})", "torch.sin({t})",
          "torch.exp(-{t}.abs())", "{t} / (1 + {u}.abs())", "torch.nn.functional.gelu({t})", "{t} ** 2",
          "torch.nn.functional.silu({t})", "torch.addcmul({t}, {u}, {v}, value={f})", "torch.lerp({t}, {u}, 0.25)",
          "torch.log1p({t}.abs())", "torch.hypot({t}, {u} + 3)", "torch.nn.functional.softplus({t})", "{t}.square()"]
KINKED = ["torch.relu({t})", "torch.maximum({t}, {u})", "{t}.clamp(-1, {f})", "torch.where({t} > {f}, {t}, {u})",
          "{t}.abs()", "{t}.masked_fill({u} > 0, {f})", "torch.nn.functional.leaky_relu({t}, 0.1)", "{t}.sign() * {u}"]
REDUCTIONS = ["{t}.sum({d})", "{t}.mean()", "{t}.sum({d}, keepdim=True)", "{t}.amax({d})", "torch.softmax({t}, {d})",
              "torch.log_softmax({t}, {d})", "torch.logsumexp({t}, {d})", "{t}.var({d}, correction=0)",
              "{t}.cumsum({d})", "torch.nn.functional.layer_norm({t}, {t}.shape[-1:])", "{t}.max({d}).values",
              "torch.linalg.vector_norm({t} + 2)"]
VIEWS = ["{t}.transpose(0, -1)", "{t}.unsqueeze({d})", "{t}.flatten()", "{t}.view(-1)", "{t}[1:]", "{t}[..., ::2]",
         "{t}[0]", "{t}.select({d}, 0)", "{t}.narrow({d}, 0, 1)", "{t}.expand(2, *{t}.shape)", "{t}.chunk(2, {d})[-1]",
         "{t}.unbind({d})[0]", "{t}.T", "{t}.diagonal()", "{t}.expand_as({u})", "{t}.unflatten(0, (1, -1))"]
MOVES = ["torch.cat([{t}, {u}], {d})", "torch.stack([{t}, {u}])", "{t}.flip({d})", "{t} @ {u}",
         "{t} @ {u}.transpose(-1, -2)", "{t}[n]", "{t}.index_select({d}, n)", "{t}.clone()", "{t}.contiguous()",
         "{t}.tril()", "torch.nn.functional.pad({t}, (1, 1))", "{t}.repeat_interleave(2, {d})", "{t}.roll(1, {d})",
         "torch.zeros_like({t}).index_add(0, n, {t}[n])", "torch.nn.functional.linear({t}, {u})",
         "torch.nn.functional.embedding(n, {t})"]
CUTS = ["{t}.detach()", "{t}.detach() * {u}", "({t} - {t}.detach()) * {u}", "{t}.detach().clone()"]
RANDOM = ["torch.nn.functional.dropout({t}, 0.5)", "{t} * torch.rand_like({u})", "{t} + torch.randn({t}.shape)",
          "{t} * torch.bernoulli(torch.full_like({t}, 0.5))"]
ISLANDS = ["with torch.no_grad(): {n} = {t} * {u}", "with torch.no_grad(): {n} = {t}[0]",
           "with torch.no_grad(): {t}.mul_(0.5)", "with torch.no_grad(): {n} = torch.tanh({t})",
           "with torch.enable_grad(): {n} = {t} * {f}", "with torch.set_grad_enabled(False): {n} = {t}.sum()"]
WRITES = ["{t}.add_({u})", "{t}.mul_({f})", "{t}.mul_({u})", "{t}[0] = {f}", "{t}[..., :1] = {u}", "{t}.relu_()",
          "{t}.copy_({u})", "{t}[1:].mul_(2)", "{t}.tanh_()", "{t} += {u}", "{t}.zero_()", "{t}[n] = {f}",
          "{t}.transpose(0, -1).mul_({f})", "{t}.masked_fill_({u} > 0, {f})", "{t}.select({d}, 0).add_({u})",
          "{t}.view(-1)[1:].neg_()", "{t}.sigmoid_()", "{t}.detach_()", "{t}.index_add_(0, n, {u}[n])"]
# {n} is a result of torch.autograd.grad(), which may be None
INNER = ["{n} = of({t}.sum(), [w, {u}])", "{n} = of({t}.sum(), [{u}, w], create_graph=True)",
         "{n} = of({t}, [{u}], torch.ones_like({t}), retain_graph=True)", "{t}.sum().backward()",
         "{n} = of([{t}.mean(), {u}.sum()], [w, {v}], materialize_grads=True)", "w.grad = None",
         "{t}.backward({t}.detach(), retain_graph=True)", "{t}.square().mean().backward(inputs=[w])",
         "torch.autograd.backward([{t}.mean(), {u}.sum()], retain_graph=True)", "{n} = w.grad * {f}",
         "{n}l = {t}.detach().requires_grad_(); {n} = of(({n}l * {u}).sin().sum(), [{n}l])",
         "{n}l = {t}.detach().clone().requires_grad_(); {n} = of(({n}l * {u}).exp().sum(), [{u}, {n}l])"]
OF = """def of(outputs, inputs, *given, **options):
    found = torch.autograd.grad(outputs, inputs, *given, allow_unused=True, **options)
    return [g for g in [*found, w.detach()] if g is not None][0]
"""
GRAMMAR = [(SMOOTH, 6), (KINKED, 2), (REDUCTIONS, 2), (VIEWS, 3), (MOVES, 2), (CUTS, 1), (RANDOM, 1), (ISLANDS, 1),
           (WRITES, 3)]
INPUTS = ["a", "b", "c", "w", "n"]
MOST = 200.0  # the largest value that a line may make


class Program:
    """Lines that eager accepted one by one, and what happens around them."""

    def __init__(self, seed, lines=10, inner=False):
        import torch
        self.seed, self.rng, self.inner = seed, random.Random(seed), inner
        self.dtype = torch.float64 if self.rng.random() < 0.7 else torch.float32
        self.shape = self.rng.choice([(3, 4), (2, 2), (4, 3), (5, 5)])
        self.asking = [self.rng.random() < 0.8 for _ in range(3)] + [True]
        self.leaves = [self.rng.random() < 0.4 for _ in range(4)]
        self.shared = self.rng.random() < 0.15  # one tensor as two inputs
        self.hooked = not inner or self.rng.random() < 0.1  # w has a hook
        self.grammar = GRAMMAR + [(INNER, 5)] if inner else GRAMMAR
        self.names, self.lines, self.live = INPUTS[:-1], [], set()  # live: those that have a gradient
        for _ in range(150):
            if len(self.lines) >= lines:
                break
            self.try_line()
        made = [name for name in self.names if name not in INPUTS and (name in self.live or self.rng.random() < 0.3)]
        last = [name for name in made if name in self.live][-1:] or made[-1:]
        self.results = sorted({*last, *self.rng.sample(made, min(len(made), self.rng.randint(1, 3)))}) or ["w"]
        self.events = self.draw_events()

    def tensors(self):
        """Leaves, the same numbers each time."""
        import torch
        generator = torch.Generator().manual_seed(self.seed)

        def normal(*shape):
            return torch.randn(*shape, generator=generator, dtype=torch.float32).to(self.dtype)
        rows, columns = self.shape
        made = [normal(rows, columns), normal(columns, rows).T, normal(columns), normal(rows, columns)]
        return [t.requires_grad_(asks) for t, asks in zip(made, self.asking)]

    def inputs_of(self, leaves):
        """What f is given: leaves, or what was computed from them."""
        import torch
        given = [t if leaf else t * 1 for t, leaf in zip(leaves, self.leaves)]
        if self.shared:
            given[1] = given[0]
        return given + [torch.tensor([0, 1, 0])]

    def try_line(self):
        import torch
        pool = self.rng.choices([p for p, _ in self.grammar], [n for _, n in self.grammar])[0]
        recent, name = self.names[-3:] * 2 + self.names, f"t{len(self.lines)}"
        words = {key: self.rng.choice(recent) for key in "tuv"}
        text = self.rng.choice(pool).format(n=name, f=self.rng.choice([0.5, -0.25, 1.5, 2.0]),
                                            d=self.rng.choice([0, -1]), **words)
        line = text if pool in (WRITES, ISLANDS, INNER) else f"{name} = {text}"
        torch.manual_seed(0)
        scope = {"torch": torch, **dict(zip(INPUTS, self.inputs_of(self.tensors())))}
        try:
            exec(OF + "\n".join([*self.lines, line]), scope)
        except (RuntimeError, IndexError, TypeError, ValueError):
            return
        made = scope.get(name)
        if not all(is_sane(scope[n]) for n in [*self.names, *[name] * (
            made is not None)]):
            return
        if pool is not INNER and self.rng.random() < 0.9 and not goes_backward([scope[n] for n in self.names] + [made]):
            return
        self.lines.append(line)
        if made is not None:
            self.names.append(name)
        self.live = {n for n in self.names if scope[n].requires_grad}

    def draw_events(self):
        """(what, which), in the order in which they happen after the forward."""
        rng, outputs, events = self.rng, list(range(len(self.results))), []
        for _ in range(rng.randint(0, 2)):
            events.append((rng.choice(["hook on output", "scaling hook on output"]), rng.choice(outputs)))
        if rng.random() < 0.2:
            events.append(("write to input", rng.randrange(4)))
        if rng.random() < 0.1:
            events.append(("write to output", rng.choice(outputs)))
        way = rng.choice(["all"] * 4 + ["some", "some", "in turn", "in turn", "twice", "grad", "grad", "no backward",
                          "grad of grad"])
        if way == "in turn":
            events += [("backward", (i,)) for i in rng.sample(outputs, len(outputs))]
        elif way == "some":
            events.append(("backward", tuple(sorted(rng.sample(outputs, rng.randint(1, len(outputs)))))))
        elif way == "twice":
            events += [(rng.choice(["backward", "backward, retained"]), tuple(outputs)), ("backward", tuple(outputs))]
        elif way == "grad":
            events.append(("grad", tuple(outputs)))
        elif way == "grad of grad":  # a limit: hooks on outputs see the first gradients alone
            events = [e for e in events if "hook" not in e[0]] + [("grad of grad", tuple(outputs))]
        elif way == "all":
            events.append(("backward", tuple(outputs)))
        return events

    def source(self):
        of = "".join(f"    {line}\n" for line in OF.splitlines()) if self.inner else ""
        return f"def f({', '.join(INPUTS)}):\n" + of + "".join(f"    {line}\n" for line in self.lines) \
            + f"    return {', '.join(self.results)},\n"

    def text(self):
        kinds = [f"{n}{' asks' * a}{' leaf' * leaf}" for n, a, leaf in zip(INPUTS, self.asking, self.leaves)]
        return f"# {self.dtype} {self.shape}, {', '.join(kinds)}{', b is a' * self.shared}\n{self.source()}" \
            f"# then {self.events}"


def is_sane(t):
    import torch
    t = t.detach()
    return 0 < t.numel() < 2000 and (not t.dtype.is_floating_point or bool(torch.isfinite(t).all())
                                     and float(t.abs().max()) < MOST)


def goes_backward(tensors):
    import torch
    asking = [t for t in tensors if isinstance(t, torch.Tensor) and t.requires_grad]
    try:
        torch.autograd.grad([t.sum() for t in asking], asking, allow_unused=True)
    except RuntimeError:
        return False
    return True


class Steps:
    """The results of two steps of a program: numbers that are compared as floats, and facts that are compared
    exactly."""

    def __init__(self, program, f):
        import torch
        self.program, self.numbers, self.facts = program, [], []
        self.hooked = []  # what hooks are given: in order for one tensor, in any order for several
        leaves = program.tensors()
        for p in leaves[3:] if program.hooked else []:
            p.register_hook(lambda g: self.hooked.append(("hook on w", g)))
        torch.manual_seed(program.seed)
        for step in range(2):
            self.step(f, leaves)
        self.facts.append(("generator", torch.get_rng_state().tolist()))

    def number(self, name, t):
        import torch
        if not isinstance(t, torch.Tensor):
            return self.facts.append((name, t))
        kept = name.startswith(("output", "gradient"))  # strides of gradients on the way are not compared
        self.facts.append((name, list(t.shape), str(t.dtype), t.requires_grad if name.startswith("output") else None,
                           [s for s, n in zip(t.stride(), t.shape) if n > 1 and kept]))
        self.numbers.append((name, t.detach().clone()))

    def attempt(self, name, call):
        try:
            return call()
        except Exception as e:
            from steps import told
            self.facts.append((name, type(e).__name__, told(e)["text"].split("\n")[0][:300]))
            self.failed = name != "forward"
            return None

    def step(self, f, leaves):
        import torch
        given = self.program.inputs_of(leaves)
        versions = [t._version for t in given]
        results = self.attempt("forward", lambda: f(*given))
        if results is None:
            return
        self.facts.append(("written", [t._version != v for t, v in zip(given, versions)]))
        where = [t.untyped_storage().data_ptr() for t in [*given, *results]]
        self.facts.append(("shares", [where.index(p) for p in where]))
        for i, t in enumerate(results):
            self.number(f"output {i}", t)
        self.failed = False
        for what, which in self.program.events:
            if not self.failed:
                self.event(what, which, given, leaves, results)
        if self.failed:  # the effects of a backward before it raises are not compared
            self.hooked.clear()
            for t in leaves:
                t.grad = None
        for name, g in sorted(self.hooked, key=lambda pair: pair[0]):
            self.number(name, g)
        self.hooked.clear()
        for name, t in zip(INPUTS, leaves):
            self.number(f"gradient of {name}", t.grad)
            self.number(f"{name} afterwards", t)
        with torch.no_grad():
            leaves[3].mul_(0.9)

    @staticmethod
    def second(taken, asked, weights):
        """Gradients with a history, then gradients of these."""
        import torch
        first = torch.autograd.grad(taken, asked, weights, allow_unused=True, create_graph=True)
        sums = [g.square().sum() for g in first if g is not None and g.requires_grad]
        return [*first, *(torch.autograd.grad(sum(sums), asked, allow_unused=True) if sums else [])]

    def event(self, what, which, given, leaves, results):
        import torch
        from steps import cotangent
        if what.endswith("hook on output"):
            if results[which].requires_grad:
                def hook(g):
                    self.hooked.append((f"hook on output {which}", g))
                    return g * 2 if what[0] == "s" else None
                # torch 2.13 crashes if register_hook() is the first to ask a written view for its history.
                self.attempt(what, lambda: results[which].grad_fn and results[which].register_hook(hook))
                self.failed = False
        elif what.startswith("write to"):
            with torch.no_grad():
                self.attempt(what, lambda: (given if what.endswith("input") else results)[which].add_(1))
                self.failed = False
        else:
            taken = [results[i] for i in which if results[i].requires_grad]
            weights = [cotangent(t) for t in taken]
            if what == "grad":
                asked = [t for t in leaves if t.requires_grad]
                grads = self.attempt(what, lambda: torch.autograd.grad(taken, asked, weights, allow_unused=True))
                for t, g in zip(asked, grads or []):
                    self.number("taken", g)
            elif what == "grad of grad":
                asked = [t for t in leaves if t.requires_grad]
                for g in self.attempt(what, lambda: self.second(taken, asked, weights)) or []:
                    self.number("taken", g)
            elif taken:
                self.attempt(what, lambda: torch.autograd.backward(taken, weights,
                                                                   retain_graph=what.endswith("retained")))


def difference(got, want, exact):
    """What differs between two Steps, in words, or None. exact(): the numbers in float64; with a number, those of a
    disturbed run."""
    from check import part, same
    for a, b in zip(got.facts, want.facts):
        if a[0] == "grad of grad" and a[2].startswith("framejit: "):  # a limit, which the error names
            return None
        if a != b:
            return f"{a} instead of {b}"
    if len(got.facts) != len(want.facts) or len(got.numbers) != len(want.numbers):
        return f"{len(got.facts)} facts instead of {len(want.facts)}"
    for i, ((name, a), (_, b)) in enumerate(zip(got.numbers, want.numbers)):
        try:
            same(a, b, part(exact, lambda numbers: numbers[i]), name, strides=False, luck="norms")
        except AssertionError as e:
            return str(e)
    return None


def exactly(program, f, count):
    """A function that makes the `count` numbers of eager `f` in float64; with a number, those of a disturbed run. None
    where there are more or fewer."""
    from wide import Wide

    @functools.cache
    def numbers(noise=None):
        with Wide(noise) as mode:
            made = mode.values([t for _, t in Steps(program, f).numbers])
        return made if len(made) == count else None
    return numbers


def run(program, seed, backend):
    """None if compiled and eager agree, otherwise what differs."""
    import torch
    import framejit
    scope = {"torch": torch}
    exec(compile(program.source(), f"<training_fuzz {seed}>", "exec"), scope)
    framejit.reset()
    want = Steps(program, scope["f"])
    got = Steps(program, framejit.compile(scope["f"], backend=backend))
    return difference(got, want, exactly(program, framejit.disable(scope["f"]), len(want.numbers)))


def shrink(program, seed, backend):
    """Drops lines and events as long as the same failure stays."""
    first = str(run(program, seed, backend))[:24]

    def fails():
        try:
            why = run(program, seed, backend)
        except Exception:
            return False
        return bool(why) and why.startswith(first) and "NameError" not in why
    rounds.shrink(lambda: itertools.chain(rounds.drops(program.lines), rounds.drops(program.events)), fails)


def fuzz(first, count, backend, inner=False):
    """Runs `count` programs. Returns the failures as text, and how many programs were whole: no break, a graph, and a
    backward plan if a gradient was required."""
    import framejit

    def one(seed):
        program = Program(seed, inner=inner)
        why = run(program, seed, backend)
        stats = framejit.stats()
        whole = stats["graphs"] > 0 and not stats["graph_breaks"] and not stats["fallbacks"]
        if why:
            shrink(program, seed, backend)
            why = f"{why}\n{program.text()}\n{run(program, seed, backend)}"
        return why, whole
    return rounds.run(first, count, one, "whole", backend)


def main():
    parser = command.parser("framejit")
    parser.add_argument("--inner", action="store_true")
    options = parser.parse_args()
    return 1 if fuzz(options.seed, options.count, options.backend, options.inner)[0] else 0


if __name__ == "__main__":
    import warnings
    warnings.simplefilter("ignore")
    sys.exit(main())
