"""Failures, and plain runs for a reason that the user can change, are counted as such. Each cause is one line on
stderr, even if no log was asked for. Under FRAMEJIT_STRICT a failure of ours is an error."""
import os
import re
import textwrap

import pytest
import torch

import framejit
import programs

# What the backend does, and the reason that is counted: if a backend refuses, that is a refused kernel.
FAILURES = {
    "code_generation": "kernel_refused",
    "gpu": "kernel_refused",
    "no_target": "kernel_refused",
    "not_functional": "not_functional",
    "not_verified": "not_verified",
    "recording_failed": "recording_failed",
    "internal_error": "internal_error",
}


@pytest.fixture(autouse=True)
def nothing_else():
    global _framejit_planted
    from framejit import _framejit_planted  # adds a backend: not while tests are collected
    framejit.reset()
    with torch.no_grad():
        yield
    _framejit_planted.plant("", "", "")
    framejit.reset()


def plain(program, **environment):
    """What a process without FRAMEJIT_STRICT writes to stdout and to stderr."""
    start = "import torch, framejit\nfrom framejit import _framejit_planted as planted\n"
    done = programs.run(start + textwrap.dedent(program),
                        env={**os.environ, "FRAMEJIT_STRICT": "0", "FRAMEJIT_LOGS": "", **environment})
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout, done.stderr.splitlines()


@pytest.mark.nothing_captured
@pytest.mark.parametrize("planted, reason", FAILURES.items())
def test_a_failure_is_an_error_under_strict(planted, reason):
    def f(x):
        return x * 2 + 1
    _framejit_planted.plant("compile", planted, "kernel k7 has no registers left\nand its text")
    compiled = framejit.compile(f, backend="planted")
    for count in (1, 2):  # nothing is kept
        with pytest.raises(SystemError, match="no registers left"):
            compiled(torch.ones(3))
        assert framejit.stats()["fallback_reasons"] == {reason: count} and framejit.stats()["graphs"] == 0
        assert framejit.stats()["graph_breaks"] == framejit.stats()["plain_hits"] == 0, framejit.stats()
    _framejit_planted.plant("", "", "")
    assert torch.equal(compiled(torch.ones(3)), f(torch.ones(3))) and framejit.stats()["graphs"] == 1


PROGRAM = """
    def f(x, log):
        log.append(len(log))
        return x * 2 + 1
    def g(x):
        return x * 3
    planted.plant("compile", {planted!r}, "kernel k7 has no registers left\\nand its text")
    both = framejit.compile(f, backend="planted"), framejit.compile(g, backend="planted")
    log = []
    with torch.no_grad():
        for call in range(3):
            assert torch.equal(both[0](torch.ones(3), log), f(torch.ones(3), []))
        assert torch.equal(both[1](torch.ones(3)), g(torch.ones(3))) and log == [0, 1, 2]
    stats = framejit.stats()
    print(stats["fallbacks"], stats["fallback_reasons"], stats["plain_hits"], stats["graph_breaks"], stats["graphs"])
"""


@pytest.mark.parametrize("planted, reason", FAILURES.items())
def test_a_failure_is_counted_in_each_call_and_said_once(planted, reason):
    printed, lines = plain(PROGRAM.format(planted=planted))
    assert printed == f"4 {{{reason!r}: 4}} 0 0 0\n", printed
    [line] = lines  # f and g fail for the same cause
    assert "warnings] <string>:" in line and f"runs as plain Python, {reason}: " in line, line
    assert "kernel k7 has no registers left" in line and "and its text" not in line and "what to do: " in line, line
    assert plain(PROGRAM.format(planted=planted), FRAMEJIT_LOGS="-warnings") == (printed, [])


def test_two_causes_are_two_lines_and_many_are_few():
    printed, lines = plain("""
        def make(k):
            names = {}
            exec(f"def f(x): return x * {k}", names)
            return names["f"]
        with torch.no_grad():
            for k in range(50):
                planted.plant("compile", "code_generation", f"cause {k // 2}")
                framejit.compile(make(k), backend="planted")(torch.ones(2))
        print(framejit.stats()["fallback_reasons"])
        framejit.reset()
        framejit.compile(make(1), backend="planted")(torch.ones(2))
    """)
    assert printed == "{'kernel_refused': 50}\n"
    causes = [line[line.index("cause "):].split(";")[0] for line in lines if "cause " in line]
    assert causes == [f"cause {i}" for i in range(8)] + ["cause 24"], lines  # the last after reset()
    further = [line for line in lines if "kernel_refused: further causes are not shown" in line]
    assert lines.index(further[0]) == 8 and len(further) == 1 and len(lines) == 10, lines


@pytest.mark.slow
def test_a_derive_plan_that_fails_is_counted_and_the_call_goes_on():
    program = """
        planted.plant("derive", {planted!r}, "no room for panels")
        model = framejit.compile(torch.nn.Linear(8, 8), backend="planted", options={{"freezing": True}})
        with torch.no_grad():
            for _ in range(6):
                model(torch.ones(2, 8))
        print(framejit.stats()["fallback_reasons"], framejit.stats()["hits"])
    """
    for planted in ("code_generation", "internal_error"):
        printed, lines = plain(program.format(planted=planted))
        assert printed == f"{{{planted!r}: 1}} 5\n" and len(lines) == 1 and "no room for panels" in lines[0], lines
    assert plain(program.format(planted="not_derived")) == ("{} 5\n", [])  # not a failure: nothing would be gained


@pytest.mark.fallbacks(code_generation=1)
def test_a_derive_plan_that_fails_is_an_error_under_strict():
    model = framejit.compile(torch.nn.Linear(8, 8), backend="planted", options={"freezing": True})
    _framejit_planted.plant("derive", "code_generation", "no room for panels")
    with pytest.raises(SystemError, match="no room for panels"):
        for _ in range(6):
            model(torch.ones(2, 8))


def test_a_launch_that_fails_is_an_error_under_strict():
    _framejit_planted.plant("run", "", "")
    compiled = framejit.compile(lambda x: x * 2 + 1, backend="planted")
    for count in (1, 2):
        with pytest.raises(SystemError, match="launch_failed: the driver refused to launch kernel k0 .*: error 719"):
            compiled(torch.ones(3))
        assert framejit.stats()["fallback_reasons"] == {"launch_failed": count} and framejit.stats()["graphs"] == 1


def test_a_launch_that_fails_is_counted_in_each_call_and_said_once():
    program = """
        planted.plant("run", "", "")
        f = framejit.compile(lambda x: x * 2 + 1, backend="planted")
        with torch.no_grad():
            right = all(torch.equal(f(torch.ones(3)), torch.full((3,), 3.0)) for _ in range(3))
        print(framejit.stats()["fallback_reasons"], framejit.stats()["hits"], right)
    """
    printed, lines = plain(program)
    assert printed == "{'launch_failed': 3} 0 True\n", printed
    [line] = lines
    assert "runs as plain Python, launch_failed: the driver refused to launch kernel k0" in line, line
    assert "what to do: look at the GPU's driver" in line, line
    assert plain(program, FRAMEJIT_LOGS="-warnings") == (printed, [])


@pytest.mark.fallbacks(kernel_refused=1)
@pytest.mark.nothing_captured
def test_explain_shows_what_failed():
    _framejit_planted.plant("compile", "code_generation", "no registers left")
    with pytest.raises(SystemError):
        framejit.explain(lambda x: x * 2, backend="planted")(torch.ones(3))
    printed, _ = plain("""
        planted.plant("compile", "code_generation", "no registers left")
        with torch.no_grad():
            report = framejit.explain(lambda x: x * 2, backend="planted")(torch.ones(3))
        print(report)
        assert len(report.fallbacks) == 1 and not report.breaks
    """)
    assert "plain run at <string>" in printed and "kernel_refused: no registers left" in printed and (
        "what to do: unless it names a setting, report it" in printed), printed


@pytest.mark.fallbacks(kernel_refused=1)
@pytest.mark.nothing_captured
def test_fullgraph_names_the_refusal():
    _framejit_planted.plant("compile", "code_generation", "no registers left")
    with pytest.raises(framejit.GraphBreakError, match="kernel_refused: no code can be made: no registers left"):
        framejit.compile(lambda x: x * 2, backend="planted", fullgraph=True)(torch.ones(3))


SAID = {
    "a gradient": ("x, w = torch.ones(3), torch.ones(3, requires_grad=True)\n"
                   "f = framejit.compile(lambda x: x * w + 1, backend=lambda graph, inputs: graph)\n"
                   "[f(x) for _ in range(3)]",
                   "unsupported_tensor", "gradient"),
    "a sparse tensor": ("f = framejit.compile(lambda x: x * 2)\n[f(torch.ones(3).to_sparse()) for _ in range(3)]",
                        "unsupported_tensor", "not strided"),
    "a long loop": ("def f(x, n):\n    for i in range(n):\n        n += 0\n    return x * 2\n"
                    "framejit.compile(f)(torch.ones(3), 600_000)",
                    "trace_too_long", "disable the loop"),
    "a deep recursion": ("def f(x, n):\n    return x + 1 if n == 0 else f(x, n - 1)\n"
                         "[framejit.compile(f)(torch.ones(3), 300) for _ in range(3)]",
                         "recursion_limit", "compile the inner function by itself"),
    "a large range": ("def f(x):\n    return [x * 2 for i in range(2**70, 2**70 + 2)]\n"
                      "[framejit.compile(f)(torch.ones(3)) for _ in range(3)]", "too_large", "a range beyond 64 bits"),
    "a write through a view of another dtype": (
        "def f(x):\n    y = x * 2\n    y.view(torch.int32).as_strided((2,), (1,)).zero_()\n    return y\n"
        "f = framejit.compile(f)\n[f(torch.ones(4)) for _ in range(3)]", "no_functional_form", "x.clone()"),
    "the limit of entries": ("f = framejit.compile(lambda x, s: x * len(s))\n"
                             "[f(torch.ones(3), 'a' * n) for n in range(12)]", "entry_limit", "FRAMEJIT_ENTRIES"),
    "a mode": ("from torch.overrides import TorchFunctionMode\nf = framejit.compile(lambda x: x * 2)\n"
               "class Mode(TorchFunctionMode):\n"
               "    def __torch_function__(self, function, types, args=(), kwargs=None):\n"
               "        return function(*args, **(kwargs or {}))\n"
               "with Mode():\n    [f(torch.ones(3)) for _ in range(3)]",
               "modes_unsupported", "leave the mode"),
    "odd globals": ("class D(dict):\n    pass\nf = framejit.compile(eval('lambda x: x * 2', D()))\n"
                    "[f(torch.ones(3)) for _ in range(3)]", "odd_globals", "define the function in a module"),
    "a gradient that cannot be recorded": (
        "x = torch.rand(4, 2, requires_grad=True)\nf = framejit.compile(lambda x: x.cumprod(1))\n"
        "with torch.enable_grad():\n    [f(x) for _ in range(3)]", "no_backward", "framejit.disable"),
    "a held value that is written": (
        "def written(x):\n    y = x.exp()\n    y.mul_(2)\n    return y\n"
        "f = framejit.compile(written, dynamic=True)\n"
        "with torch.enable_grad():\n    for n in (3, 4, 5):\n        f(torch.ones(n, 4, requires_grad=True))",
        "no_backward", "a value that ExpBackward0 holds was modified after it was saved"),
    "a tracer": ("import sys\nf = framejit.compile(lambda x: x * 2)\nsys.settrace(lambda *event: None)\n"
                 "[f(torch.ones(3)) for _ in range(3)]\nsys.settrace(None)", "observed", "end the tool"),
    "a second derivative": (
        "x = torch.rand(4, requires_grad=True)\ndef double(x):\n    x.exp_()\n    return x.sin() * x\n"
        "f = framejit.compile(double)\nfor i in range(4):\n    y = f(x * 1)\n    try:\n"
        "        torch.autograd.grad(y.sum(), x, create_graph=i == 0)\n    except RuntimeError:\n        assert i == 0",
        "no_backward", "an earlier backward failed, framejit: create_graph=True"),
    "a wrong shape function": (
        "@torch.library.custom_op('framejit_said::twice', mutates_args=())\n"
        "def twice(x: torch.Tensor) -> torch.Tensor:\n    return torch.cat([x, x])\n"
        "twice.register_fake(torch.empty_like)\nf = framejit.compile(lambda x: twice(x * 2) + 1)\n"
        "with torch.no_grad():\n    [f(torch.ones(3)) for _ in range(3)]",
        "unsupported_op", "a result of framejit_said::twice differs from what its shape function says"),
    "a generator": ("@framejit.compile\ndef g(x):\n    yield x * 2\n[list(g(torch.ones(3))) for _ in range(3)]",
                    "generator_frame", "compile the function that consumes it"),
    "a coroutine": ("@framejit.compile\nasync def g(x):\n    return x * 2\n",
                    "generator_frame", "compile the function that consumes it"),
}


BREAKS = {"a gradient", "a sparse tensor", "a mode", "a long loop", "a deep recursion", "a large range",
          "a write through a view of another dtype", "a gradient that cannot be recorded",
          "a held value that is written"}


@pytest.mark.parametrize("what", SAID)
def test_what_the_user_can_change_is_said_once(what):
    program, reason, says = SAID[what]
    printed, lines = plain(program)
    what_happens = "has a graph break" if what in BREAKS else "runs as plain Python"
    assert len(lines) == 1 and f" {what_happens}, {reason}: " in lines[0] and says in lines[0], lines
    assert plain(program, FRAMEJIT_LOGS="-warnings") == (printed, [])


def test_places_whose_code_has_to_change_are_lines_of_their_own():
    _, lines = plain("""
        functions = [framejit.compile(eval("\\n" * i + f"lambda x, s: x * len(s) + {i}")) for i in range(3)]
        for f in functions:
            for n in range(12):
                f(torch.ones(3), "a" * n)
        def large(x):
            return [x * 2 for i in range(2**70, 2**70 + 2)]
        def larger(x):
            return [x * 3 for i in range(2**70, 2**70 + 2)]
        for _ in range(3):
            framejit.compile(large)(torch.ones(3))
            framejit.compile(larger)(torch.ones(3))
    """, FRAMEJIT_ENTRIES="3")
    reasons = [line.split(": ")[0].split(", ")[-1] for line in lines]
    assert reasons == ["entry_limit"] * 3 + ["too_large"] * 2, lines


@pytest.mark.parametrize("strict, options, change", [
    ("0", "fullgraph=True", "x = x.to_sparse()"), ("0", "fullgraph=True", "planted.plant('compile', 'gpu', 'no')"),
    ("1", "", "planted.plant('compile', 'gpu', 'no')"), ("1", "", "planted.plant('compile', 'internal_error', 'no')")])
def test_what_raises_is_not_said_to_run(strict, options, change):
    printed, lines = plain(f"x = torch.ones(3)\n{change}\n"
                           f"f = framejit.compile(lambda x: x * 2, backend='planted', {options})\n"
                           "try:\n    with torch.no_grad():\n        f(x)\n"
                           "except (framejit.GraphBreakError, SystemError):\n    print('raised')\n",
                           FRAMEJIT_STRICT=strict)
    assert (printed, lines) == ("raised\n", [])


def test_two_kinds_of_tensors_are_two_lines():
    _, lines = plain("f = framejit.compile(lambda x: x * 2, backend=lambda graph, inputs: graph)\n"
                     "g = framejit.compile(lambda x: x * 3)\n"
                     "for _ in range(2):\n    f(torch.ones(3, requires_grad=True)), g(torch.ones(3).to_sparse())\n")
    assert len(lines) == 2 and "gradient" in lines[0] and "not strided" in lines[1], lines


def test_each_function_at_its_limit_says_what_differs():
    _, lines = plain("by_word = framejit.compile(lambda x, s: x * len(s))\n"
                     "f = framejit.compile(lambda xs: sum(x.sum() for x in xs))\n"
                     "for n in range(1, 12):\n    by_word(torch.ones(3), 'a' * n), f([torch.ones(3)] * n)\n")
    changes = [re.search("FRAMEJIT_ENTRIES allows: (.+?); what to do: ", line)[1] for line in lines]
    assert changes == ["s was 'aaaaaaaa', now it is 'aaaaaaaaa'", "len(xs) was 8, now it is 9"], lines


def test_a_limit_of_zero_is_said_to_be_one():
    _, lines = plain("[framejit.compile(lambda x: x * 2)(torch.ones(3)) for _ in range(3)]", FRAMEJIT_ENTRIES="0")
    assert len(lines) == 1 and "allows: the limit is 0; what to do: " in lines[0], lines


WEIGHTS_IN_A_REGION = """
m = torch.nn.Linear(2, 2)
f = framejit.compile(m)
opt = torch.optim.SGD(m.parameters(), lr=1.0)
def step():
    f(torch.ones(1, 2)).sum().backward()
    opt.step()
"""


def test_a_weight_that_is_written_in_its_autocast_region_is_said_once():
    _, lines = plain(WEIGHTS_IN_A_REGION + "with torch.autocast('cpu', torch.bfloat16):\n    step(), step(), step()")
    assert len(lines) == 1 and "End the region before the optimizer's step" in lines[0], lines


@pytest.mark.parametrize("steps", [
    "for _ in range(4):\n    with torch.autocast('cpu', torch.bfloat16):\n        y = f(torch.ones(1, 2)), "
    "f(torch.ones(1, 2))\n    y[0].sum().backward()\n    opt.step()",
    "with torch.autocast('cpu', torch.bfloat16, cache_enabled=False):\n    [step() for _ in range(4)]",
    "[step() for _ in range(4)]"], ids=["a region for each step", "no copies are kept", "no region"])
def test_other_writes_to_weights_are_not(steps):
    assert plain(WEIGHTS_IN_A_REGION + steps)[1] == []


def test_a_program_that_is_captured_says_nothing():
    _, lines = plain("def f(x):\n    x = x + 1\n    print(end='')\n    return x * 2\n"
                     "with torch.no_grad():\n    [framejit.compile(f)(torch.ones(3)) for _ in range(3)]\n")
    assert lines == []


def test_a_backward_that_is_refused_runs_op_by_op():
    printed, lines = plain("""
        planted.plant("backward", "code_generation", "no registers left\\nand its text")
        x = torch.ones(3, requires_grad=True)
        for f in (lambda x: x.sin() * x, lambda x: x.cos() * x):  # for one cause
            f = framejit.compile(f, backend="planted")
            for _ in range(2):
                f(x).sum().backward()
        with torch.no_grad():
            right = torch.allclose(x.grad, 2 * (x.cos() * x + x.sin() - x.sin() * x + x.cos()))
        print(framejit.stats()["fallback_reasons"], right)
    """)
    assert printed == "{'backward_failed': 2} True\n"
    [line] = lines
    assert "backward_failed: a compiled backward failed: no registers left; its ops run one by one" in line, line


def test_a_backward_that_is_refused_is_an_error_under_strict():
    _framejit_planted.plant("backward", "code_generation", "no registers left")
    with torch.enable_grad():
        y = framejit.compile(lambda x: x.sin() * x, backend="planted")(torch.ones(3, requires_grad=True))
        with pytest.raises(RuntimeError, match="no code for a backward: no registers left"):
            y.sum().backward()
    assert framejit.stats()["fallback_reasons"] == {"backward_failed": 1}


def test_a_backward_whose_launch_fails_raises_it():
    printed, lines = plain("""
        planted.plant("run_backward", "", "")
        f = framejit.compile(lambda x: x.sin() * x, backend="planted")
        x = torch.ones(3, requires_grad=True)
        for _ in range(2):
            try:
                f(x).sum().backward()
            except RuntimeError as error:
                print(error)
        print(framejit.stats()["fallback_reasons"], framejit.stats()["backward_runs"], x.grad)
    """)
    *errors, counts = printed.splitlines()
    assert counts == "{'backward_failed': 2} 0 None" and len(errors) == 2, printed
    assert all("the driver refused to launch kernel k0" in error for error in errors), printed
    [line] = lines
    assert "the driver refused to launch kernel k0" in line and "; backward() raises it" in line, line


def test_a_break_in_cleanup_without_a_line_names_its_statement():
    program = """
        import contextlib

        @framejit.compile
        def f(x):
            with contextlib.ExitStack() as stack:  # line 8
                stack.callback(print, end="")
                x = x + 1
                raise TypeError

        try:
            f(torch.ones(2))
        except TypeError:
            pass
    """
    said = "\n".join(plain(program, FRAMEJIT_LOGS="graph_breaks")[1])
    assert ":8 f break exception_raised" in said and ":0 f" not in said, said
