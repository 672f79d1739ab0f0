"""What framejit.explain() reports: events for programs, and a page for people."""
import re

import pytest
import torch

import framejit


@pytest.mark.breaks(outside_effect=2)
def test_explain_reports_events():
    def breaks(x):
        x = x + 1
        print("effect")
        return x * 2
    with torch.no_grad():
        framejit.compile(breaks)(torch.ones(2))  # explain() compiles anew nevertheless
        explanation = framejit.explain(breaks)(torch.ones(2))
    assert torch.equal(explanation.result, torch.full((2,), 4.0))
    assert [e.fields["reason"] for e in explanation.breaks] == ["outside_effect"]
    assert explanation.stats["graphs"] == 2 and explanation.guards
    lines = str(explanation).splitlines()
    assert lines[0].startswith("graphs 2, breaks 1, recompiles 0, ops 2, kernels 2, compiled in ")
    first = breaks.__code__.co_firstlineno
    at = lines.index(f"break 1 at test_explain.py:{first + 2} {breaks.__qualname__}")
    assert lines[at + 1] == "  outside_effect: print() acts outside of the traced program"
    source, carets = lines[at + 2:at + 4]
    assert source.startswith("  | ") and source[carets.index("^"):] == 'print("effect")' and set(
        carets[carets.index("^"):]) == {"^"} and len(carets) == len(source)
    assert lines[at + 4] == "  what to do: move it out of the compiled function"
    graphs = [line for line in lines if line.startswith("graph ")]
    assert graphs == [f"graph {event.id} at test_explain.py:{first + line} {breaks.__qualname__}"
                      for event, line in zip(explanation.graphs, (1, 3))]
    assert f"guards ({len(explanation.guards)})" in lines


@pytest.mark.breaks(outside_effect=2)
def test_explain_reports_recompiles():
    def doubles(x):
        for _ in range(2):
            print("effect")
            x = torch.cat([x, x])
        return x
    with torch.no_grad():
        explanation = framejit.explain(doubles)(torch.ones(3))
    assert torch.equal(explanation.result, torch.ones(12))
    [event] = explanation.recompiles
    guard = "L['x'].size(0) == 3 but is 6"
    assert event.fields["guard"] == guard and explanation.stats["recompiles"] == 1
    lines = str(explanation).splitlines()
    assert ", recompiles 1, " in lines[0]
    first, name = doubles.__code__.co_firstlineno, doubles.__qualname__
    at = lines.index(f"recompile {event.id} at test_explain.py:{first + 3} {name}: x.size(0) was 3, now it is 6")
    assert lines[at + 1].startswith("  what to do: nothing: a size that changed becomes a symbol")
    of_sizes, of_any = (f"graph {graph.id} at test_explain.py:{first + 3} {name}" for graph in explanation.graphs)
    at = lines.index(f"{of_sizes}, for these sizes alone")
    assert lines[at + 1] == f"  replaced by {event.id}, which has a symbol: x.size(0) was 3, now it is 6"
    assert [line for line in lines if re.fullmatch(re.escape(of_any) + r", for any (s\d) = L\['x'\].size\(0\)", line)]


def test_explain_shows_first_what_the_program_relies_on():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.lin, self.scale = torch.nn.Linear(2, 2), 3.0

        def forward(self, x, word):
            return self.lin(x) * self.scale * len(word)
    explanation = framejit.explain(Net())(torch.ones(2, 2), "ab")
    lines = str(explanation).splitlines()
    shown = lines[lines.index(f"guards ({len(explanation.guards)})") + 1:]
    plumbing = [e for e in explanation.guards if e.fields["of"] == "plumbing"]
    texts = [e.fields["guard"] for e in explanation.guards if e.fields["of"] == "program"]
    assert shown[-1] == (f"  and {len(plumbing)} on how names, hooks and parameters are found: .guards of this object "
                         "has them all")
    assert sorted(shown[:-1]) == sorted(f"  {text}" for text in texts) and "modes of torch" in shown[-2]
    assert len(plumbing) > 5 * len(texts)
    for name in ("L['args'][0] matches", "L['self'].scale == 3.0", "L['args'][1] == 'ab'", "modes of torch"):
        assert sum(name in text for text in texts) == 1, (name, texts)
    assert not [text for text in texts if "_hooks" in text or "_parameters" in text]


def test_explain_shows_the_beginning_of_long_lists():
    def stacked(tensors):
        return torch.stack(tensors) * 2
    explanation = framejit.explain(stacked)([torch.ones(2)] * 5 + [torch.ones(2) for _ in range(60)])
    [line] = [line for line in str(explanation).splitlines() if "torch.stack(" in line]
    assert re.search(r"torch.stack\(\[(%\w+, ){4}\.\.\. 61 more\]\)", line) and len(line) < 400, line
    assert explanation.graphs[0].artefact.count("%L_tensors_64") == 2  # programs read all of it


def test_explain_prints_the_first_guards_and_says_how_many_there_are():
    def scaled(x, factors):
        for factor in factors:
            x = x * factor
        return x
    explanation = framejit.explain(scaled)(torch.ones(2), [n / 2 for n in range(40)])
    lines = str(explanation).splitlines()
    at = lines.index(f"guards ({len(explanation.guards)})")
    more = sum(event.fields["of"] == "program" for event in explanation.guards) - 30
    assert more > 10 and len(lines) == at + 1 + 30 + 1, lines[at:]
    assert re.fullmatch(rf"  and {more} more, \d+ on how names, hooks and parameters are found: .guards of this object "
                        "has them all", lines[-1]), lines[-1]


@pytest.mark.breaks(outside_effect=2)
def test_explain_says_once_what_holds_for_many_graphs():
    class Net(torch.nn.Module):
        def __init__(self, parts):
            super().__init__()
            self.parts = torch.nn.ModuleList(parts)

        def forward(self, x):
            for part in self.parts:
                x = part(x)
                print(end="")
            return x
    linear = torch.nn.Linear
    with torch.no_grad():
        report = framejit.explain(Net([linear(8, 8), linear(8, 8)]).eval())(torch.ones(3, 8))
    said = [line for line in str(report).splitlines() if "derived" in line]
    assert report.stats["graphs"] == len(report.derived) == 2
    assert said == ["derived from weights: nothing: no op would gain from it  (2 graphs)"]


@pytest.mark.nothing_captured
def test_explain_says_why_there_is_no_graph():
    lines = str(framejit.explain(lambda n: n + 1)(3)).splitlines()
    assert lines[1] == "no graph: this call does no work with tensors"
