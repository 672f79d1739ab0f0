"""Differential fuzzer of tensor programs: random straight lines of torch calls with views, in-place writes, reductions,
broadcasting, indexing and dtypes; compiled and eager must agree in results, written arguments, strides and which
results share memory.

    python tests/fuzz/graphs_fuzz.py [--seed N] [--count N] [--backend NAME] [--device cuda]

A line is kept if eager accepts it. Discrete operations are applied only to values that are small multiples of 1/16,
which every order of evaluation computes exactly. A failure prints the seed and the program, shrunk by dropping lines.
Programs are made on the CPU, where an index that is out of range is an error of its line. They run on the device.
"""
import functools
import os
import random
import sys

import command
import rounds

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "e2e"))

# {t} {u} {v} tensors, {e} {w} exact ones, {b} bools, {i} {j} ints, {d} a dimension, {p} a permutation, {f} a fraction
POINTWISE = ["{t} + {u}", "{t} - {u}", "{t} * {u}", "{t} * {f}", "{i} - {t}", "torch.add({t}, {u}, alpha={i})",
             "torch.addcmul({t}, {u}, {v}, value={f})", "-{t}", "{t}.abs()", "torch.tanh({t})", "torch.sigmoid({t})",
             "torch.sin({t})", "torch.exp(-{t}.abs())", "torch.log1p({t}.abs())", "{t} / (1 + {u}.abs())",
             "torch.relu({t})", "torch.nn.functional.gelu({t})", "torch.nn.functional.silu({t})",
             "torch.maximum({t}, {u})", "torch.minimum({t}, {u})", "{t}.clamp(-1, {f})", "torch.where({b}, {t}, {u})",
             "{t}.masked_fill({b}, {f})", "torch.lerp({t}, {u}, 0.25)", "torch.hypot({t}, {u})", "{t}.square()",
             "{t} ** 2", "{t}.to(torch.{dtype})", "{t}.float()", "{t}.double()"]
DISCRETE = ["{e} > {w}", "{e} == {w}", "{e} <= {f}", "{e} != {i}", "{e}.floor()", "{e}.round()", "{e}.sign()",
            "{e}.to(torch.int64)", "{e}.to(torch.int32)", "{e}.bool()", "{e} // {k}", "{e} % {k}",
            "torch.fmod({e}, {k})", "{e}.argmax({d})", "{e}.argmin({d}, keepdim=True)", "{e}.max({d})[0]",
            "{e}.max({d})[1]", "{e}.any({d})", "{e}.all()", "({e} > {w}).sum()", "{b} & {b}", "{b} | ~{b}", "{b} ^ {b}",
            "~{b}", "{b}.sum({d})", "torch.logical_and({e}, {w})", "{e}.sort({d})[0]", "{e}.cumsum({d})",
            "torch.trunc({e})", "{e}.eq({w}).float()", "{e}.count_nonzero()", "torch.isfinite({t})",
            "torch.signbit({e})", "{e}.int() << 1", "{e}.int() & 3", "{e}.long() >> 1", "{e}.to(torch.uint8)"]
REDUCTIONS = ["{t}.sum({d})", "{t}.sum()", "{t}.sum({d}, keepdim=True)", "{t}.mean({d}, keepdim=True)",
              "{t}.float().mean()", "{t}.amax({d})", "{t}.amin({d}, keepdim=True)", "{t}.max()",
              "torch.softmax({t}.float(), {d})", "torch.log_softmax({t}.float(), {d})",
              "{t}.float().var({d}, correction=0)", "torch.logsumexp({t}.float(), {d})", "{t}.prod({d}) * 0.0625",
              "torch.nn.functional.layer_norm({t}.float(), {t}.shape[-1:])", "{t}.cumsum({d})",
              "torch.linalg.vector_norm({t}.float(), dim={d})", "{t}.float().std({d}, correction=0)"]
VIEWS = ["{t}.transpose({d}, {d2})", "{t}.unsqueeze({d})", "{t}.squeeze()", "{t}.flatten()", "{t}.reshape(-1)",
         "{t}.view(-1)", "{t}.view({t}.shape[0], -1)", "{t}[{i}:]", "{t}[::2]", "{t}[..., 1:]", "{t}[..., ::2]",
         "{t}[0]", "{t}[..., -1]", "{t}[None]", "{t}.narrow({d}, 0, 1)", "{t}.select({d}, 0)",
         "{t}.permute(*reversed(range({t}.dim())))", "{t}.expand(2, *{t}.shape)", "{t}.chunk(2, {d})[-1]",
         "{t}.split(1, {d})[0]", "{t}.unbind({d})[-1]", "{t}.diagonal()", "{t}.T", "{t}.mT", "{t}.movedim(0, -1)",
         "{t}.contiguous()", "{t}.clone()", "{t}.detach()", "{t}.unflatten(0, (1, -1))", "{t}.view_as({u})",
         "{t}.expand_as({u})", "{t}.swapaxes(0, {d})", "{t}.broadcast_to({u}.shape)"]
MOVES = ["torch.cat([{t}, {u}], {d})", "torch.stack([{t}, {u}], {d})", "{t}.flip({d})", "{t}.roll(1, {d})",
         "{t}.repeat(2, *[1] * ({t}.dim() - 1))", "torch.nn.functional.pad({t}, (1, 2))", "{t}.tril()", "{t}.triu(1)",
         "{t}[{x}]", "{t}.index_select({d}, {x})", "torch.gather({t}, 0, torch.zeros_like({t}, dtype=torch.int64))",
         "{t} @ {u}", "torch.matmul({t}, {u}.mT)", "torch.zeros_like({t})", "torch.ones({t}.shape, device={t}.device)",
         "torch.full_like({t}, {i})", "torch.arange({t}.shape[0], device={t}.device)",
         "torch.arange({t}.shape[-1], device={t}.device) * {t}",
         "torch.nn.functional.embedding({x}, {u})", "{t}.repeat_interleave(2, {d})",
         "torch.nn.functional.one_hot({x}, 4)", "{t}.index_add(0, {x}, {t}[{x}])",
         "torch.einsum('...i,...j->...ij', {t}, {u})", "{e}.view(torch.int32)", "torch.atleast_2d({t})"]
WRITES = ["{t}.add_({u})", "{t}.mul_({f})", "{t}.zero_()", "{t}[0] = {f}", "{t}[..., :1] = {u}", "{t}.copy_({u})",
          "{t}.relu_()", "{t}[{b}] = {i}", "{t}.masked_fill_({b}, {f})", "{t}[:, 0].fill_({i})",
          "{t}.transpose(0, -1).mul_(2)", "{t}[::2].add_(1)", "{t}[{x}] = {f}", "{t}.clamp_(-1, 1)", "{t} += {u}",
          "{t} *= {i}", "{t}.select({d}, 0).copy_({u}.select({d2}, -1))", "{t}.unsqueeze_(0)",
          "{t}.sub_({u}, alpha={i})", "{t}.view(-1)[1:].neg_()", "{t}.t_()", "{t}.fill_diagonal_({f})",
          "{t}.index_fill_({d}, {x}, {f})"]
INPUTS = ["a", "b", "c", "n", "m"]


def make_inputs(rng, sizes=None):
    """Small multiples of 1/4, whose sums and products are exact; ints that serve as indices; bools. Strides vary."""
    import torch
    rows, columns = sizes or (rng.choice([2, 3, 5]), rng.choice([2, 3, 4, 17]))
    generator = torch.Generator().manual_seed(rng.randint(0, 2**31))

    def quarters(*shape): return torch.randint(-8, 9, shape, generator=generator) / 4
    layouts = [lambda t: t, lambda t: t.T.contiguous().T, lambda t: t.repeat(1, 2)[:,
        ::2], lambda t: torch.cat([t, t])[-t.shape[0]:]]
    a, b = (rng.choice(layouts)(quarters(rows, columns)) for _ in range(2))
    c = rng.choice([quarters(columns), quarters(2, 1, columns), quarters(rows, 1), quarters()])
    if rng.random() < 0.25:
        b = b.to(rng.choice([torch.float64, torch.bfloat16, torch.float16]))
    return [a, b, c, torch.randint(0, 2, (rng.randint(1, 3),), generator=generator), quarters(rows, columns) > 0]


def is_exact(t):
    """Small multiples of 1/16: sums and products of a few stay exact in every dtype used."""
    import torch
    if not t.dtype.is_floating_point:
        return True
    d = t.detach().double() * 16
    return bool(torch.isfinite(d).all()) and bool((d == d.round()).all()) and (t.numel() == 0
        or float(d.abs().max()) <= 128)


def shows_rounding(tensors):
    """Whether integers share memory with floats that are not exact: read as an integer, the last bit of a rounding may
    be a large number."""
    rounded = {t.untyped_storage().data_ptr() for t in tensors if not is_exact(t)}
    return any(t.untyped_storage().data_ptr() in rounded for t in tensors if t.numel()
               and not t.dtype.is_floating_point)


class Program:
    """Lines that eager accepted one by one, on the inputs of the seed. An exact value is exact for inputs of every size
    that eager accepts."""

    def __init__(self, seed, lines=14):
        import torch
        self.rng = random.Random(seed)
        self.dynamic = self.rng.random() < 0.3
        state = self.rng.getstate()
        self.inputs = make_inputs(self.rng)
        self.more = [make_inputs(self.rng, (self.rng.randint(2, 6), self.rng.randint(2, 9)))
                     for _ in range(2 if self.dynamic else 0)]
        assert state is not None
        self.scopes = [{"torch": torch, **dict(zip(INPUTS, copies(inputs)))} for inputs in [self.inputs, *self.more]]
        self.names, self.lines = list(INPUTS), []
        for _ in range(200):
            if len(self.lines) >= lines:
                break
            self.try_line()
        shown = [n for n in self.names if n not in INPUTS]
        count = min(len(shown), self.rng.randint(1, 4))
        self.result = ", ".join(sorted({shown[-1], *self.rng.sample(shown, count)})) if shown else "a"

    def fill(self, pattern):
        rng, scope = self.rng, self.scopes[0]
        recent = self.names[-4:] * 2 + self.names
        tensors = [n for n in recent if scope[n].dtype.is_floating_point or rng.random() < 0.3]
        exact = [n for n in recent if scope[n].numel() and all(is_exact(s[n]) for s in self.scopes)]
        bools = [n for n in self.names if scope[n].dtype.is_floating_point is False
                 and str(scope[n].dtype) == "torch.bool"]
        words = {key: rng.choice(tensors) for key in "tuv"}
        words.update({key: rng.choice(exact or ["a"]) for key in "ew"}, b=rng.choice(bools), x="n",
                     i=rng.randint(-2, 3), j=rng.randint(0, 3), k=rng.choice([2, 3, -2, 0.5]),
                     f=rng.choice([0.5, -0.25, 2.0, 1.5]), d=rng.choice([-1, 0, -1, 0, 1]), d2=rng.choice([-1, 0, 1]),
                     dtype=rng.choice(["float64", "bfloat16", "float16", "float32"]))
        return pattern.format(**words)

    def try_line(self):
        import torch
        pool = self.rng.choice([POINTWISE] * 4 + [DISCRETE] * 2 + [REDUCTIONS] * 2 + [VIEWS] * 3 + [MOVES]
                               + [WRITES] * 2)
        text = self.fill(self.rng.choice(pool))
        name = f"t{len(self.lines)}"
        line = text if pool is WRITES else f"{name} = {text}"
        trials = []
        for number, scope in enumerate(self.scopes):
            trial = dict(zip(scope, copies(list(scope.values()))))
            try:
                with torch.no_grad():
                    exec(line, trial)
            except (RuntimeError, IndexError, TypeError, ValueError, AttributeError):
                if not number:
                    return
                continue  # a call that raises in both
            made = [trial[n] for n in self.names] + ([trial[name]] if pool is not WRITES else [])
            if not all(isinstance(t, torch.Tensor) and t.numel() < 4000 and sane(t)
                       for t in made) or shows_rounding(made):
                return
            trials.append(trial)
        self.scopes = trials
        if pool is not WRITES:
            self.names.append(name)
        self.lines.append(line)

    def move(self, device):
        """Inputs that raise on the CPU are left out: on a GPU, an index that is out of range ends the process."""
        import torch
        from devices import moved
        scope = {"torch": torch}
        exec(self.source(), scope)
        self.inputs = [moved(t, device) for t in self.inputs]
        self.more = [[moved(t, device) for t in inputs] for inputs in self.more
                     if isinstance(call(scope["f"], copies(inputs)), list)]

    def source(self):
        return f"def f({', '.join(INPUTS)}):\n" + "".join(f"    {line}\n"
                                                          for line in self.lines) + f"    return {self.result}\n"


def sane(t):
    import torch
    limit = 60 if t.dtype in (torch.float16, torch.bfloat16) else 1000
    return t.numel() == 0 or t.dtype.is_complex is False and bool(torch.isfinite(t).all()) and (
        not t.dtype.is_floating_point or float(t.abs().max()) < limit)


def copies(values):
    """Copies that keep strides, offsets, and which of them share memory."""
    from op_sweep_worker import copier
    import torch
    copy = copier()
    return [copy(v) if isinstance(v, torch.Tensor) else v for v in values]


def sharing(tensors):
    """For each tensor, the first one that shares its memory."""
    where = [t.untyped_storage().data_ptr() if t.numel() else -1 - k for k, t in enumerate(tensors)]
    return [where.index(w) for w in where]


def difference(got, want, exact, coarsest, where, reach=lambda: 0):
    """Metadata and exact values must be equal. Other values must agree as closely as float64 and the coarsest dtype on
    the way allow: as a whole, and each element unless reach(), which says how far roundings move it, explains the
    difference."""
    import torch
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{where}: {got.dtype}{list(got.shape)} instead of {want.dtype}{list(want.shape)}"
    strides = [(a, b) for n, a, b in zip(want.shape, got.stride(), want.stride()) if n > 1 and want.numel()]
    if any(a != b for a, b in strides):
        return f"{where}: strides {got.stride()} instead of {want.stride()}"
    if torch.equal(got, want):
        return None
    if not want.dtype.is_floating_point:
        return f"{where}: values differ, {int((got != want).sum())} of {want.numel()}"
    known = isinstance(exact, torch.Tensor) and exact.shape == want.shape
    reference = exact.double() if known else want.double()
    # inputs are float32
    unit = max(torch.finfo(dtype).eps
               for dtype in ([want.dtype, coarsest] if known else [want.dtype, coarsest, torch.float32]))
    eagers, off = (want.double() - reference).abs(), (got.double() - reference).abs()
    bound = 8 * float(eagers.max()) + 256 * min(unit, 1e-3) * max(1.0, float(reference.abs().max()))
    if not float(off.max()) <= bound:
        return f"{where}: off by {float(off.max()):.3g}, allowed {bound:.3g}"
    far = ~(off <= 8 * eagers + 256 * min(unit, 1e-3) * reference.abs())
    if bool(far.any()):
        far &= ~(off <= 8 * reach())
    return f"{where}: {int(far.sum())} of {far.numel()} elements differ, off by {float(off[far].max()):.3g}" if bool(
        far.any()) else None


def reach_of(f, inputs):
    """A function that says how far roundings move each element of result k, and of argument k after the results: by
    eight disturbed runs (tests/e2e/wide.py)."""
    @functools.cache
    def runs():
        def flat(noise=None):
            result, after, _ = in_float64(f, copies(inputs), noise=noise)
            return [*(result if isinstance(result, list) else [result]), *after]
        exact = flat()
        return [functools.reduce(torch.maximum, moves) for moves in zip(*[
            [(a.double() - b.double()).abs() for a, b in zip(flat(n), exact)] for n in range(8)])]
    import torch
    from wide import in_float64
    return lambda k: runs()[k]


def call(f, inputs):
    import torch
    try:
        with torch.no_grad():
            result = f(*inputs)
        return list(result) if isinstance(result, tuple) else [result]
    except Exception as e:
        return f"{type(e).__name__}: {str(e).splitlines()[:1]}"  # some of torch's messages continue with a C++ stack


def widened(source, inputs):
    """The program in float64, where dtypes are not written out."""
    import torch
    if ".view(torch.int32)" in source:
        return None  # the bits would not be those intended
    source = source.replace("torch.bfloat16", "torch.float64").replace("torch.float16",
                                                                       "torch.float64").replace("torch.float32",
                                                                           "torch.float64").replace(".float()",
                                                                               ".double()")
    scope = {"torch": torch}
    exec(source, scope)
    inputs = copies(inputs)
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)  # what integers become
    try:
        result = call(scope["f"], [t.double() if t.dtype.is_floating_point else t for t in inputs])
    finally:
        torch.set_default_dtype(usual)
    return result if isinstance(result, list) else None


def run(program, seed, backend):
    """None if compiled and eager agree on all inputs, otherwise the difference."""
    import torch
    import framejit
    source = program.source()
    scope = {"torch": torch}
    exec(compile(source, f"<graphs_fuzz {seed}>", "exec"), scope)
    framejit.reset()
    compiled = framejit.compile(scope["f"], backend=backend)
    program.raised = False
    for number, inputs in enumerate([program.inputs, program.inputs, *program.more]):
        plain, ours = copies(inputs), copies(inputs)
        want, got = call(scope["f"], plain), call(compiled, ours)
        if isinstance(want, str) or isinstance(got, str):
            program.raised = True
            if want != got:
                return f"call {number}: {got} instead of {want}"
            continue
        coarsest = torch.bfloat16 if "bfloat16" in source or inputs[
            1].dtype == torch.bfloat16 else torch.float16 if "float16" in source or inputs[
                1].dtype == torch.float16 else torch.float64
        exact = widened(source, inputs) or [None] * len(want)
        reach = reach_of(scope["f"], inputs)
        for k, (a, b, e) in enumerate(zip(got + ours, want + plain, exact + [None] * len(plain))):
            why = difference(a, b, e, coarsest, f"call {number}, "
                             + (f"result {k}" if k < len(want) else f"argument {k - len(want)}"),
                             functools.partial(reach, k))
            if why:
                return why
        if sharing(got + ours) != sharing(want + plain):
            return f"call {number}: memory is shared as {sharing(got + ours)} instead of {sharing(want + plain)}"
    return None


def still_fails(program, seed, backend, run):
    """An error of eager is no failure: a line that a later one needs stays."""
    try:
        why = run(program, seed, backend)
    except Exception as e:
        why = str(e)
    return bool(why) and not isinstance(call_plain(program), str)


def shrink(program, seed, backend):
    rounds.shrink(lambda: rounds.drops(program.lines), lambda: still_fails(program, seed, backend, run))


def call_plain(program):
    import torch
    scope = {"torch": torch}
    exec(program.source(), scope)
    return call(scope["f"], copies(program.inputs))


def is_whole(stats):
    """Whether a program was captured whole, apart from eager's errors."""
    return stats["graphs"] > 0 and set(stats["break_reasons"]) <= {"exception_raised"}


def fuzz(first, count, backend, device="cpu"):
    """Runs `count` programs; returns the failures as text, and how many programs were captured whole."""
    import framejit

    def one(seed):
        program = Program(seed)
        if device != "cpu":
            program.move(device)
        why = run(program, seed, backend)
        stats = framejit.stats()
        whole = is_whole(stats)
        if why:
            shrink(program, seed, backend)
        elif stats["fallbacks"] and not program.raised:
            why = f"compiled code failed and plain Python ran: {stats['fallback_reasons']}"
        return why and f"{why}\n{program.source()}", whole
    return rounds.run(first, count, one, "whole", backend)


def main():
    parser = command.parser("framejit")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    return 1 if fuzz(options.seed, options.count, options.backend, options.device)[0] else 0


if __name__ == "__main__":
    import warnings
    warnings.simplefilter("ignore")
    sys.exit(main())
