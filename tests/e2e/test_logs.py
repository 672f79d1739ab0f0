"""What users read: every channel's events through FRAMEJIT_LOGS, as text and as JSON, and the settings that choose
them."""
import ast
import json
import logging
import os
import random
import re

import pytest
import torch

import framejit
import programs
from pages import ROOT

PROGRAM = """
import torch, framejit
lin = torch.nn.Linear(4, 4).eval()

@framejit.compile
def f(x, k):
    y = torch.nn.functional.linear(x, lin.weight, lin.bias)
    y = y.relu() - y.mean(0, keepdim=True)
    print("a break")
    return y[:, 1:].reshape(-1) * k

with torch.no_grad():
    for n, k in (2, 3), (3, 3), (4, 2.5):
        f(torch.ones(n, 4), k)
"""
GRAPHS = 5  # before and after the break, both again for other sizes, and the second one for k as a float


def run(program=PROGRAM, tmp_path=None, **environment):
    env = {k: v for k, v in os.environ.items() if not k.startswith("FRAMEJIT")} | {"FRAMEJIT_STRICT": "1"} | environment
    if tmp_path is None:
        return programs.run(program, env=env)
    path = tmp_path / "program.py"
    path.write_text(program)
    return programs.run(file=path, env=env)


def channels():
    """Name and description of every log channel."""
    table = (ROOT / "runtime/base/log_channels.def").read_text()
    rows = re.findall(r'^LOG_CHANNEL\((\w+),\s*((?:"[^"]*"\s*)+)\)', table, re.M)
    assert len(rows) == table.count("\nLOG_CHANNEL(") > 10
    return [(name, ast.literal_eval(f"({texts})")) for name, texts in rows]


def captured(fn, *args):
    with torch.no_grad():
        explanation = framejit.explain(fn)(*args)
    assert explanation.graphs and not explanation.stats["fallbacks"]
    return explanation


def names_of_calls(explanation):
    return [re.search(r"(?:= |^)([\w.%]+)\(", line).group(1) for event in explanation.graphs
            for line in event.artefact.splitlines()
            if re.search(r"^(?!input |return).*\(", line)]


def test_captured_graph_names_calls_lines_and_aten_nodes():
    weight, bias = torch.randn(3, 4), torch.randn(3)

    def f(x):
        y = torch.nn.functional.linear(x, weight, bias)
        y = torch.relu(y)
        return (y - 1).view(-1)
    explanation = captured(f, torch.randn(2, 4))
    [graph] = explanation.graphs
    first = f.__code__.co_firstlineno
    lines = graph.artefact.splitlines()
    assert graph.fields["calls"] == "4" and graph.at == f"test_logs.py:{first + 1} {f.__qualname__}"
    assert lines[0].startswith("input %") and " = L['x'] : f32[2, 4]" in lines[0]
    calls = [line for line in lines if "   # " in line]
    wanted = [("torch.nn.functional.linear", 1), ("torch.relu", 2), ("operator.sub", 3), ("Tensor.view", 3)]
    assert len(calls) == 4 and lines[-1].startswith("return %")
    aten = [e.artefact for e in explanation.of("AtenGraph") if e.fields["stage"] == "recording"][0]
    for line, (name, offset) in zip(calls, wanted):
        made, at, nodes = re.match(r"(%\w+) = .*   # (.*)   aten: (.*)", line).groups()
        assert f" = {name}(" in line and at == f"test_logs.py:{first + offset} {f.__qualname__}"
        for node in nodes.split(", %")[0].split(", "):  # op and the values that it makes, written as in the ATen graph
            op, value = node.split(" ")
            assert re.search(rf"{re.escape(value)} = {re.escape(op)} .*# test_logs.py:{first + offset}$", aten,
                             re.M), (node, aten)
        assert nodes.rsplit("%", 1)[1] == made[1:]
    assert f"\ngraph {graph.id} at {graph.at}\n" in str(explanation)
    assert "torch.nn.functional.linear(" in str(explanation)


def test_names_of_captured_calls():
    def f(x):
        x = torch.linalg.vector_norm(x, 2.0, 1, True) + x
        x = torch.special.expit(x.T).contiguous()
        x += 1
        a, b = torch.split(x, 2)
        return torch.cat([a, b[:, 0:1]], 1), x.to(torch.float64)
    names = names_of_calls(captured(f, torch.randn(2, 4)))
    for name in ("torch.linalg.vector_norm", "torch.special.expit", "operator.add", "operator.iadd", "torch.cat",
                 "operator.getitem", "Tensor.to", "Tensor.contiguous"):
        assert name in names, (name, names)


@pytest.mark.breaks(exception_raised=1)
def test_calls_that_make_nothing_and_calls_that_raise_are_left_out():
    def f(x):
        n = x.size(0)
        try:
            torch.mm(x, x)
        except RuntimeError:
            x = x + n
        return x
    with torch.no_grad():
        events = framejit.explain(f)(torch.randn(2, 3)).graphs
    assert all("torch.mm" not in e.artefact and "Tensor.size" not in e.artefact for e in events)


def test_every_guard_has_a_source_and_a_user_line():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(3, 3) for _ in range(2))
            self.table = {"a": 1.5, "b": (2, "x")}

        def forward(self, x, flag=True):
            for layer in self.layers:
                x = layer(x) * self.table["a"]
            return x if flag else -x
    explanation = captured(Net().eval(), torch.randn(2, 3))
    guards = [e.fields["guard"] for e in explanation.guards]
    loop = Net.forward.__code__.co_firstlineno + 1
    weight = "torch.nn.parameter.Parameter f32[3, 3] grad cpu requires_grad"
    wanted = [(f"L['self']._modules['layers']._modules['{i}']._parameters['weight'] matches {weight}", loop + 1)
              for i in range(2)]
    wanted += [("'layers' in L['self']._modules", loop), ("L['self'].table['a'] == 1.5", loop + 1),
               (f"{Net.__module__}.{Net.__qualname__}.forward.__defaults__[0] is True", loop + 2)]
    for guard, line in wanted:
        assert f"{guard}  # test_logs.py:{line} {Net.forward.__qualname__}" in guards, (guard, guards)
    without = [g for g in guards if not re.search(r"  # \S+\.py:\d+ \S+", g)]
    assert [g.partition(" (")[0] for g in without] == ["modes of torch"], without


RECOMPILES = [
    (lambda x, k: x * k, (torch.ones(2), True), (torch.ones(2), 5), "L['k'] is True but is 5"),
    (lambda x, k: x * k, (torch.ones(2), 2), (torch.ones(2), 2.5), "L['k'] == 2 but is 2.5"),
    (lambda x, k: x if k == "a" else -x, (torch.ones(2), "a"), (torch.ones(2), "b"), "L['k'] == 'a' but is 'b'"),
    (lambda x, k: x * len(k), (torch.ones(2), [1]), (torch.ones(2), [1, 2]), "len(L['k']) == 1 but is 2"),
    (lambda x, k: x * k["a"], (torch.ones(2), {"a": 1}), (torch.ones(2), {"b": 1, "a": 3}),
     "L['k']['a'] == 1 but is 3"),
    (lambda x, k: x if k is None else -x, (torch.ones(2), None), (torch.ones(2), 3), "L['k'] is None but is 3"),
    (lambda x, k: x + k, (torch.ones(2), torch.ones(2)), (torch.ones(2), torch.ones(2, dtype=torch.int64)),
     "L['k'].dtype == torch.float32 but is torch.int64"),
    (lambda x, k: x + k, (torch.ones(2), torch.ones(2)), (torch.ones(2), torch.ones(1)),
     "L['k'].size(0) == 2 but is 1"),
    (lambda x, k: x + k, (torch.ones(2, 2), torch.ones(2, 2)), (torch.ones(2, 2), torch.ones(2, 2).t()),
     "L['k'].stride(0) == 2 but is 1"),
]


@pytest.mark.parametrize("fn, first, second, text", RECOMPILES, ids=range(len(RECOMPILES)))
def test_a_recompile_names_the_guard_with_both_values(fn, first, second, text):
    compiled = framejit.compile(fn)
    heard = []
    with torch.no_grad():
        compiled(*first)
        token = framejit._framejit.add_listener(heard.append)
        try:
            compiled(*second)
        finally:
            framejit._framejit.remove_listener(token)
    assert [e["fields"]["guard"] for e in heard if e["event"] == "Recompile"] == [text]


def test_a_changed_mode_is_named_with_both_values():
    compiled, heard = framejit.compile(lambda x: x + 1), []
    compiled(torch.ones(2))
    token = framejit._framejit.add_listener(heard.append)
    try:
        with torch.no_grad():
            compiled(torch.ones(2))
    finally:
        framejit._framejit.remove_listener(token)
    [text] = [e["fields"]["guard"] for e in heard if e["event"] == "Recompile"]
    assert re.fullmatch(r"grad mode == 1 but is 0", text), text


def test_each_channel_prints_and_only_what_was_asked(tmp_path):
    names = [name for name, _ in channels()]
    done = run(tmp_path=tmp_path, FRAMEJIT_LOGS="all")
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    seen = {m.group(1) for m in (re.match(r"\[framejit (?:\d+\.\d+ )?(\w+)\]", line) for line in lines) if m}
    assert seen <= set(names) and {"graph", "aten_graph", "guards", "graph_breaks", "recompiles", "steps", "timing",
                                   "bytecode"} <= seen
    assert all(line.startswith(("[framejit ", "| ")) for line in lines), [line for line in lines
        if not line.startswith(("[framejit ", "| "))][:3]
    done = run(tmp_path=tmp_path, FRAMEJIT_LOGS="graph, recompiles,-recompiles")
    assert {re.sub(r"\d+\.\d+ ", "", line.split("]")[0]) for line in done.stderr.splitlines()
            if line.startswith("[")} == {"[framejit graph"}
    assert re.search(r"^\[framejit \d+\.\d+ graph\] program.py:\d+ f graph of \d+ calls$", done.stderr,
                     re.M), done.stderr[:300]
    assert run(FRAMEJIT_LOGS="").stderr == ""


def test_json_of_every_channel_is_valid(tmp_path):
    out = tmp_path / "log.jsonl"
    done = run(FRAMEJIT_LOGS="all", FRAMEJIT_LOGS_FORMAT="json", FRAMEJIT_LOGS_OUT=str(out))
    assert done.returncode == 0 and done.stderr == ""
    events = [json.loads(line) for line in out.read_text().splitlines()]
    assert all({"channel", "event", "at"} <= set(e) for e in events)
    assert {"graph", "guards", "graph_breaks", "recompiles"} <= {e["channel"] for e in events}
    assert [e["text"].count("return %") for e in events if e["event"] == "Graph"] == [1] * GRAPHS


def test_the_events_of_a_compile_carry_its_number(tmp_path):
    out, folder = tmp_path / "log.jsonl", tmp_path / "dump"
    done = run(FRAMEJIT_LOGS="all", FRAMEJIT_LOGS_FORMAT="json", FRAMEJIT_LOGS_OUT=str(out))
    assert done.returncode == 0, done.stderr
    compiles = {}
    for line in out.read_text().splitlines():
        event = json.loads(line)
        compiles.setdefault(event["id"], set()).add(event["event"])
    assert list(compiles) == [f"1.{n}" for n in range(1, len(compiles) + 1)], compiles
    assert all({"Bytecode", "Guard", "Stage"} <= events for events in compiles.values()), compiles
    assert {"Break", "Graph", "AtenGraph", "Loops", "Schedule", "Kernel", "Steps"} <= compiles["1.1"], compiles["1.1"]
    assert len(compiles) == GRAPHS and all("Graph" in events for events in compiles.values()), compiles
    assert [n for n, events in compiles.items() if "Recompile" in events] == ["1.3", "1.4", "1.5"], compiles
    done = run(FRAMEJIT_LOGS="graph", FRAMEJIT_DUMP_DIR=str(folder))
    assert done.returncode == 0, done.stderr
    assert (folder / "1.1" / "0000_Graph.txt").is_file()
    assert all(f" {folder}/{line.split()[1]}/" in line for line in done.stderr.splitlines()), done.stderr


@pytest.mark.breaks(outside_effect=2)
def test_explained_events_carry_the_number_of_their_compile():
    def f(x):
        y = x + 1
        print("a break")
        return y * 2
    first, second = (framejit.explain(f)(torch.ones(2)) for _ in range(2))
    compiles = [sorted({event.id for event in e.events}, key=lambda i: int(i.split(".")[1])) for e in (first, second)]
    assert [len(ids) for ids in compiles] == [2, 2] and [event.id for event in first.graphs] == compiles[0]
    numbers = [tuple(map(int, i.split("."))) for ids in compiles for i in ids]
    assert numbers == [(numbers[0][0], numbers[0][1] + n) for n in range(4)]


def test_odd_text_stays_valid_json(tmp_path):
    out = tmp_path / "log.jsonl"
    program = "import torch, framejit\nk = {'\\u00e9\\ud800\\t\"': 1}\n" \
              "f = framejit.compile(lambda x, s: x * len(s) * k['\\u00e9\\ud800\\t\"'])\n" \
              "with torch.no_grad():\n    f(torch.ones(2), 'a\\\\\\n\\x01\\u4e2d'), f(torch.ones(2), '\\x7f\\u00e9')\n"
    done = run(program, FRAMEJIT_LOGS="all", FRAMEJIT_LOGS_FORMAT="json", FRAMEJIT_LOGS_OUT=str(out))
    assert done.returncode == 0, done.stderr
    for line in out.read_bytes().decode("utf-8").splitlines():
        json.loads(line)


def test_help_lists_the_channels():
    done = run("import framejit", FRAMEJIT_LOGS="help")
    assert done.returncode == 0
    for name, description in channels():
        assert re.search(rf"^\s+{name}\s+{re.escape(description)}$", done.stderr, re.M)


@pytest.mark.parametrize("environment, message", [
    ({"FRAMEJIT_LOGS": "graph,nonsense"}, "unknown channel 'nonsense'; known: guards"),
    ({"FRAMEJIT_LOGS": "graph_break"}, "unknown channel 'graph_break'; did you mean graph_breaks? Known: guards, "),
    ({"FRAMEJIT_LOGS": "-nonsense"}, "unknown channel 'nonsense'"),
    ({"FRAMEJIT_LOGS_FORMAT": "xml"}, "text|json"),
    ({"FRAMEJIT_LOGS_OUT": "/nowhere/at/all"}, "FRAMEJIT_LOGS_OUT: cannot write '/nowhere/at/all': its folder "
     "/nowhere/at does not exist; name a file that you may write, in a folder that exists"),
    ({"FRAMEJIT_DUMP_DIR": "/proc/nowhere"}, "FRAMEJIT_DUMP_DIR: cannot write '/proc/nowhere': No such file or "
     "directory; name a folder in which you may write"),
    ({"FRAMEJIT_STRICT": "maybe"}, "FRAMEJIT_STRICT='maybe' is not accepted: expected 0 or 1"),
    ({"FRAMEJIT_ENTRIES": "8x"}, "expected an integer from 0 to"),
    ({"FRAMEJIT_CACHE_MB": "0"}, "expected an integer from 1 to"),
    ({"FRAMEJIT_ENTRIES": "-1"}, "FRAMEJIT_ENTRIES='-1' is not accepted: expected an integer from 0 to"),
    ({"FRAMEJIT_MIN_CALLS": "-5"}, "expected an integer from 1 to"),
    ({"FRAMEJIT_AUTOTUNE_MS": "-3"}, "expected an integer from 0 to"),
    ({"FRAMEJIT_CACHE_MB": "9" * 20}, "expected an integer from 1 to 1000000000 "),
    ({"FRAMEJIT_CPU_FEATURES": "mmx"}, "auto|avx512|avx2|generic"),
    ({"FRAMEJIT_LOG": "all"}, "unknown setting FRAMEJIT_LOG; did you mean FRAMEJIT_LOGS? Known: FRAMEJIT, "),
    ({"FRAMEJIT_NONSENSE": "1"}, "unknown setting FRAMEJIT_NONSENSE; known: FRAMEJIT, "),
    ({"FRAMEJIT_FILTER": "("}, "FRAMEJIT_FILTER='(' is not accepted: expected a regular expression in ECMAScript's "
                               "syntax; a parenthesis does not match ("),
    ({"FRAMEJIT_SKIP": "*a"}, "FRAMEJIT_SKIP='*a' is not accepted: expected a regular expression in ECMAScript's "
                              "syntax; a *, +, ? or { has nothing before it ("),
    ({"FRAMEJIT_SKIP": "(?i)a"}, "after (? only :, = and ! are known"),
    ({"FRAMEJIT_SKIP": "[a"}, "a [ is not closed"),
])
def test_a_bad_value_is_an_error_that_says_what_is_known(environment, message):
    done = run("import torch, framejit", **environment)
    assert done.returncode != 0 and message in done.stderr and "Traceback" in done.stderr


@pytest.mark.parametrize("environment, message", [
    ({"FRAMEJIT_FILTER": "("}, "FRAMEJIT_FILTER='(' is not accepted: expected a regular expression"),
    ({"FRAMEJIT_NONSENSE": "1"}, "unknown setting FRAMEJIT_NONSENSE; known: FRAMEJIT, "),
    ({"FRAMEJIT_LOGS_OUT": "/nowhere/at/all"}, "FRAMEJIT_LOGS_OUT: cannot write '/nowhere/at/all'"),
])
def test_a_bad_value_ends_a_program_in_global_mode_with_one_line(environment, message):
    """An error inside `import torch` would be met again as one of torch, which cannot be imported twice."""
    program = "try:\n    import torch\nexcept Exception:\n    import torch\nprint('goes on')"
    done = run(program, FRAMEJIT="1", **environment)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"framejit: {message}") and done.stderr.count("\n") == 1, done.stderr


def events_of(compiled, *calls):
    heard = []
    token = framejit._framejit.add_listener(heard.append)
    try:
        with torch.no_grad():
            for args in calls:
                compiled(*args)
    finally:
        framejit._framejit.remove_listener(token)
    return heard


def test_a_recompile_is_one_event_of_the_closest_entry():
    compiled = framejit.compile(lambda x, k: x * 2 if k else x + 1)
    heard = events_of(compiled, (torch.ones(2), "a"), (torch.ones(2), ""), (torch.ones(3, 1), ""))
    recompiles = [e["fields"] for e in heard if e["event"] == "Recompile"]
    assert [f["count"] for f in recompiles] == ["1/8", "2/8"], recompiles
    assert recompiles[1]["guard"].endswith(
        " (the closest of 2 entries)") and "L['x'].dim() == 1 but is 2" in recompiles[1]["guard"]


def beginnings_of_recompiles(heard):
    return [e["fields"]["begins"] for e in heard if e["event"] == "Recompile"]


@pytest.mark.breaks(outside_effect=1)
def test_a_recompile_names_the_line_where_the_entry_begins():
    def f(x, k):
        y = x + 1
        print(end="")
        return y * len(k)
    first = f.__code__.co_firstlineno
    heard = events_of(framejit.compile(f), (torch.ones(2), "a"), (torch.ones(2), "ab"))
    assert beginnings_of_recompiles(heard) == [f"test_logs.py:{first + 2} {f.__qualname__}"], heard


def test_a_recompile_of_a_module_names_its_forward():
    class Net(torch.nn.Module):
        def forward(self, x, k):
            return x * len(k)
    heard = events_of(framejit.compile(Net()), (torch.ones(2), "a"), (torch.ones(2), "ab"))
    assert beginnings_of_recompiles(heard) == [
        f"test_logs.py:{Net.forward.__code__.co_firstlineno} {Net.forward.__qualname__}"], heard


@pytest.mark.breaks(unknown_callable=2)
def test_a_break_in_library_code_names_the_users_line_too():
    def inner(x):
        return x * random.randint(1, 1)

    def f(x):
        return inner(x + 1) + 1

    with torch.no_grad():
        breaks = framejit.explain(f)(torch.ones(2)).of("Break")
    user = f"test_logs.py:{inner.__code__.co_firstlineno + 1} {inner.__qualname__}"
    assert breaks and breaks[0].at.startswith(user + ", in random.py:"), breaks


# The breaks are those of CPython's logging.
@pytest.mark.breaks(outside_effect=range(2, 6), unknown_attribute=5, unknown_callable=range(10, 12))
def test_each_break_of_a_library_call_names_the_users_line(caplog):
    """After the first break, the trace begins in the library. A file __init__.py is named with its folder."""
    caplog.set_level(logging.INFO)

    def f(x):
        y = x + 1
        logging.info("a break")
        return y * 2

    with torch.no_grad():
        breaks = framejit.explain(f)(torch.ones(2)).breaks
    user = f"test_logs.py:{f.__code__.co_firstlineno + 2} {f.__qualname__}"
    assert len(breaks) > 2 and all(b.at.startswith(user + ", in logging/__init__.py:") for b in breaks), [
        b.at for b in breaks]


@pytest.mark.breaks(data_dependent_value=1)
@pytest.mark.parametrize("fn, detail", [
    (lambda x: x.sum().item(), "Tensor.item()"),
    (lambda x: float(x.sum()), "float() of a tensor"),
    (lambda x: x.numpy(), "Tensor.numpy()"),
    (lambda x: x.tolist(), "Tensor.tolist()"),
    (lambda x: x.data_ptr(), "Tensor.data_ptr()"),
    (lambda x: x.const_data_ptr(), "Tensor.const_data_ptr()"),
    (lambda x: x.is_set_to(x), "Tensor.is_set_to()"),
])
def test_a_read_of_data_names_what_the_program_calls(fn, detail):
    with torch.no_grad():
        [stop] = framejit.explain(lambda x: fn(x + 1))(torch.ones(2)).breaks
    assert stop.fields["reason"] == "data_dependent_value"
    assert stop.fields["detail"] == f"{detail} needs the data of a tensor"


@pytest.mark.breaks(data_dependent_jump=5, real_iterator=4)
def test_a_break_in_the_body_of_a_loop_over_an_iterator_says_what_helps():
    def over(items):
        def f(model, x):
            for _, p in items(model.named_parameters()):
                if p.max() > 99:
                    x = x + 1
            return x
        with torch.no_grad():
            return framejit.explain(f)(torch.nn.Linear(2, 2), torch.ones(2)).breaks
    [stop, *_] = [b for b in over(iter) if b.fields["reason"] == "real_iterator"]
    assert "before a graph break" in stop.fields["detail"]
    assert "if there is a break in the body of its loop" in stop.fields["hint"] and "list(...)" in stop.fields["hint"]
    assert {b.fields["reason"] for b in over(list)} == {"data_dependent_jump"}


@pytest.mark.breaks(unknown_callable=1)
def test_a_break_names_a_function_of_pybind11_by_its_module():
    with torch.no_grad():
        breaks = framejit.explain(lambda x: (x + 1, torch._C._jit_texpr_fuser_enabled()))(torch.ones(2)).of("Break")
    assert [b.fields["detail"]
            for b in breaks] == ["call of torch._C._jit_texpr_fuser_enabled, which is not known to be safe to trace"]


TUNED = """
import torch, framejit
with torch.no_grad():
    framejit.compile(torch.nn.Sequential(torch.nn.Conv2d(8, 8, 3), torch.nn.Sigmoid()),
        mode="max-autotune")(torch.randn(2, 8, 32, 32))
"""


def test_max_autotune_names_times_and_winners():
    lines = run(TUNED, FRAMEJIT_LOGS="autotune", FRAMEJIT_AUTOTUNE_MS="120000").stderr.splitlines()
    choices, timed = ("memory_formats", "threads", "unroll"), r"[0-9.e+-]+ ms( \(2 runs\))?"
    assert len(lines) == len(choices), lines
    for choice, line in zip(choices, lines):
        same_plans = r"\w+ is \w+(, \w+ is \w+)*"
        text = (rf"({choice}: \w+ of cost_model {timed}(, \w+ {timed})+(; {same_plans})?|{choice} not timed: "
                rf"{same_plans})")
        assert re.fullmatch(rf"\[framejit 1.1 autotune\] container.py:\d+ Sequential.forward {text}", line), line
    assert " of cost_model " in "".join(lines)


def test_max_autotune_without_a_budget():
    lines = run(TUNED, FRAMEJIT_LOGS="autotune", FRAMEJIT_AUTOTUNE_MS="0").stderr.splitlines()
    assert len(lines) == 3 and all(line.endswith("not timed: the budget of 0 ms is used up") for line in lines), lines


def test_max_autotune_leaves_warnings_to_the_call():
    """A warning that torch gives once must not be used up by timed runs, and must not be given twice."""
    program = """
import torch, framejit
def f(x, edges):
    return torch.searchsorted(edges, x.t()) + 1
if MODE is not None:
    f = framejit.compile(f, mode=MODE)
with torch.no_grad():
    for _ in range(2):
        f(torch.rand(3, 4), torch.arange(5.0))
print(framejit.stats()["graphs"])
"""
    plain, tuned = (run(f"MODE = {mode!r}" + program, FRAMEJIT_LOGS="autotune") for mode in (None, "max-autotune"))
    assert (plain.stdout, tuned.stdout) == ("0\n", "1\n")
    assert plain.stderr.count("UserWarning") == tuned.stderr.count("UserWarning") == 1, (plain.stderr, tuned.stderr)
    assert "unroll: " in tuned.stderr, tuned.stderr


def test_code_of_torch_that_wants_numbers_gets_them():
    program = """
import torch, framejit
from torch._C._dynamo.guards import assert_size_stride  # takes no symbols

@framejit.compile(dynamic=True)
def f(x):
    y = x * 2
    assert_size_stride(y, (y.shape[0], 4), (4, 1))
    return y + 1

with torch.no_grad():
    for rows in (3, 5):
        print(f(torch.ones(rows, 4)).sum().item())
"""
    done = run(program, FRAMEJIT_LOGS="graph_breaks")
    assert done.stdout == "36.0\n60.0\n" and done.stderr == "", done.stderr


def test_words_of_torch_have_no_stack():
    program = """
import torch, framejit

@framejit.compile
def f(x, y):
    return x * 2 + y

try:
    f(torch.ones(3, 4), torch.ones(5))
except RuntimeError as e:
    print("raised")
"""
    done = run(program, FRAMEJIT_LOGS="graph_breaks")
    assert done.stdout == "raised\n", done.stderr
    assert "torch says about add.Tensor: The size of tensor a (4) must match" in done.stderr
    assert "Exception raised from" not in done.stderr and "frame #" not in done.stderr


def test_only_an_error_that_nothing_catches_is_said_to_be_uncaught():
    program = """
import torch, framejit

def caught(x):
    try:
        y = x @ torch.ones(7, 7)
    except RuntimeError:
        y = x * 2
    return y + 1

def uncaught(x):
    x = x + 1
    raise KeyError(x.dim())

with torch.no_grad():
    print(framejit.compile(caught)(torch.ones(2, 2)).sum().item())
    try:
        framejit.compile(uncaught)(torch.ones(2))
    except KeyError as e:
        print(e)
"""
    done = run(program, FRAMEJIT_LOGS="graph_breaks")
    assert done.stdout == "12.0\n1\n", done.stderr
    reasons = re.findall(r"break exception_raised: (.*?);", done.stderr)
    assert reasons == ["an error of mm is raised", "KeyError, which the traced code does not catch, is raised"], reasons


def test_a_plain_run_that_the_user_can_change_is_said_once(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("""import torch, framejit
def f(layer, x):
    return layer(x)
for _ in range(2):
    compiled = framejit.compile(f)
    compiled(torch.nn.Linear(3, 3), torch.eye(3).to_sparse())
with torch.no_grad():
    for text in "abcdefghijkl":
        framejit.compile(lambda x, n: x * len(n))(torch.ones(3), text)
""")

    def lines(**environment):
        clean = {k: v for k, v in os.environ.items() if not k.startswith("FRAMEJIT")}
        done = programs.run(file=program, env=clean | environment)
        assert done.returncode == 0, done.stderr
        return done.stderr.splitlines()

    said = lines(FRAMEJIT_ENTRIES="4")
    assert len(said) == 2, said
    assert " has a graph break, unsupported_tensor: " in said[0] and " runs as plain Python, entry_limit: " in said[1]
    assert "not strided" in said[0] and "Linear.forward" in said[0]
    assert lines(FRAMEJIT_LOGS="-warnings", FRAMEJIT_ENTRIES="4") == []
