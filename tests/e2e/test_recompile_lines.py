"""What a line about a recompile says: what changed in the user's own words, which line asked, and what to do."""
import re
import threading

import pytest
import torch

import framejit
from test_logs import events_of

FACTOR = 3


def recompiles_of(compiled, *calls):
    return [e for e in events_of(compiled, *calls) if e["event"] == "Recompile"]


def by_size(x):
    y = x + 1
    return y * 2


def by_flag(x, up):
    y = x + 1
    return y if up else -y


def by_word(x, word):
    return x * len(word)


def by_length(x, items):
    for item in items:
        x = x * item
    return x


def by_none(x, bias):
    return x if bias is None else x + bias


def by_keys(x, **scales):
    for name in scales:
        x = x * scales[name]
    return x


def by_branch(x):
    y = x * 2
    if y.shape[0] > 3:
        y = y + 1
    return y


def by_parts(x):
    a, *others = x.unbind(0)
    return a * len(others)


def by_range(x, n):
    for _ in range(n):
        x = x * 2
    return x


ONES = torch.ones(2)

# The function, its calls (only the last one recompiles as said), the line that asked, what changed, what to do.
CASES = [
    (by_size, [(ONES,), (torch.ones(3),)], 1, "x.size(0) was 2, now it is 3",
     "nothing: a size that changed becomes a symbol; framejit.mark_dynamic(x, 0) before the first call saves this "
     "compile"),
    (by_size, [(ONES,), (torch.ones(1),)], 1, "x.size(0) was 2, now it is 1", "nothing: a size of 0 or 1 has a form"),
    (by_size, [(ONES,), (torch.ones(2, 2),)], 1, "x.dim() was 1, now it is 2", "pass tensors with one number of dim"),
    (by_size, [(ONES,), (ONES.double(),)], 1, "x.dtype was torch.float32, now it is torch.float64",
     "cast it before the call (x.to(torch.float32))"),
    (by_size, [(torch.ones(2, 3),), (torch.ones(3, 2).t(),)], 1, "x.stride(0) was 3, now it is 1",
     "pass tensors of one memory layout (x.contiguous())"),
    (by_size, [(ONES,), (torch.ones(2, requires_grad=True),)], 1, "x.requires_grad was False, now it is True",
     "call it with tensors that agree in this (x.detach()"),
    (by_flag, [(ONES, True), (ONES, False)], 2, "up was True, now it is False", "nothing: both values have"),
    (by_word, [(ONES, "a"), (ONES, "ab")], 1, "word was 'a', now it is 'ab'", "nothing if it has few values"),
    (by_length, [(ONES, [ONES]), (ONES, [ONES, ONES])], 1, "len(items) was 1, now it is 2", "always use one length"),
    (by_length, [(ONES, [ONES]), (ONES, (ONES,))], 1, "items was of class list, now of tuple", "always use the same"),
    (by_length, [(ONES, [2.0]), (ONES, [3.0])], 2, "items[0] was 2.0, now it is 3.0", "nothing if it is used"),
    (by_none, [(ONES, None), (ONES, ONES)], 1, "bias was None, now it is <torch.Tensor object>",
     "nothing if few values take turns"),
    (by_branch, [(ONES,), (torch.ones(3),), (torch.ones(4),)], 2, "x.size(0) <= 3 was true, now x.size(0) is 4",
     "nothing if few answers occur"),
    (by_range, [(ONES, 2), (ONES, 3), (ONES, 4)], 1, "n == 3 was true, now n is 4", "nothing if few answers occur"),
    (by_none, [(ONES, None), (ONES, 2.0)], 1, "bias was None, now it is 2.0", "nothing if few values take turns"),
]


@pytest.mark.parametrize("function, calls, line, change, hint", CASES, ids=range(len(CASES)))
def test_what_changed_where_and_what_to_do(function, calls, line, change, hint):
    event = recompiles_of(framejit.compile(function), *calls)[-1]
    fields, first = event["fields"], function.__code__.co_firstlineno
    assert re.sub(r" \(the closest of \d entries\)$", "", fields["change"]) == change
    assert fields["hint"].startswith(hint), fields["hint"]
    assert event["at"] == f"test_recompile_lines.py:{first + line} {function.__name__}"
    assert fields["begins"] == f"test_recompile_lines.py:{first} {function.__name__}"
    assert event["text"].endswith(f"recompile {fields['count']} of {fields['begins']}: {fields['change']}; what to do: "
                                  f"{fields['hint']}")


def test_dynamic_false_is_named():
    [event] = recompiles_of(framejit.compile(by_size, dynamic=False), (ONES,), (torch.ones(3),))
    assert event["fields"]["hint"] == "leave out dynamic=False, which compiles each size anew"


def test_keywords_are_named():
    compiled = framejit.compile(by_keys)
    [event] = recompiles_of(lambda x, names: compiled(x, **dict.fromkeys(names, 2.0)), (ONES, "a"), (ONES, "ab"))
    assert event["fields"]["change"] == "the keys of scales were ('a',), now they are ('a', 'b')"


def test_a_size_that_something_fixes():
    framejit.mark_static(fixed := torch.ones(2)), framejit.mark_static(other := torch.ones(3))
    framejit.mark_static(third := torch.ones(4))
    events = recompiles_of(framejit.compile(by_size), (fixed,), (other,), (third,))
    assert events[-1]["fields"]["hint"].startswith("pad to few sizes"), events


def test_the_rule_that_asked_about_a_size():
    event = recompiles_of(framejit.compile(by_parts), (ONES,), (torch.ones(3),), (torch.ones(4),))[-1]
    assert event["fields"]["change"].startswith("x.size(0) == 3 (number of parts of an unbind) was true, now "), event
    assert event["at"] == f"test_recompile_lines.py:{by_parts.__code__.co_firstlineno + 1} by_parts"


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout(0.5)).eval()
        self.scale = 2.0

    def forward(self, x, bias=0):
        y = self.layers(x) * self.scale
        return y + bias


def test_a_module_is_named_as_its_forward_names_it():
    model = Net()
    compiled, first = framejit.compile(model), Net.forward.__code__.co_firstlineno
    place = f"test_recompile_lines.py:{first + 1} Net.forward"
    x = torch.ones(3, 2)

    def change_of(what, *args, **kwargs):
        what()
        event = recompiles_of(lambda: compiled(*args, **kwargs), ())[-1]
        assert event["at"].startswith(f"test_recompile_lines.py:{first}") or event["at"] == place, event
        return event["fields"]["change"].partition(" (the closest")[0]

    with torch.no_grad():
        compiled(x)
    assert change_of(lambda: None, torch.ones(4, 2)) == "x.size(0) was 3, now it is 4"
    assert change_of(lambda: setattr(model, "scale", 3.0), x) == "self.scale was 2.0, now it is 3.0"
    assert change_of(lambda: model.layers[1].train(), x) == "self.layers[1].training was False, now it is True"
    assert "keyword arguments" in change_of(lambda: None, x, bias=1)
    assert change_of(lambda: model.layers[0].double(), x.double(), bias=1) == \
        "x.dtype was torch.float32, now it is torch.float64"


class Rest(torch.nn.Module):
    def forward(self, x, *rest):
        return x + rest[0]


def test_arguments_that_share_a_parameter_are_items_of_it():
    compiled = framejit.compile(Rest())
    [event] = recompiles_of(compiled, (torch.ones(3, 1), ONES), (torch.ones(3, 1), torch.ones(4)))
    assert event["fields"]["change"] == "rest[0].size(0) was 2, now it is 4"
    assert "framejit.mark_dynamic(rest[0], 0)" in event["fields"]["hint"]


@pytest.mark.breaks(outside_effect=2)
def test_values_that_have_no_name_in_the_program_are_what_they_come_from():
    def loops(x, items):
        for item in items:
            print(end="")
            x = x * 2
        return x
    first = loops.__code__.co_firstlineno
    events = recompiles_of(framejit.compile(loops), (ONES, [1, 2]))
    assert [e["fields"]["change"] for e in events] == [
        "the loop over items had 1 items left or more, now it has 0"], events
    assert [e["at"] for e in events] == [f"test_recompile_lines.py:{first + 1} {loops.__qualname__}"]
    assert events[0]["fields"]["begins"] == f"test_recompile_lines.py:{first + 2} {loops.__qualname__}"


def test_globals_and_captured_variables_have_their_names():
    global FACTOR
    captured = 2.0

    def scaled(x):
        return x * FACTOR * captured
    compiled, changes = framejit.compile(scaled), []
    changes += recompiles_of(compiled, (ONES,))
    FACTOR = 5
    changes += recompiles_of(compiled, (ONES,))
    captured = 4.0
    changes += recompiles_of(compiled, (ONES,))
    FACTOR = 3
    assert [e["fields"]["change"].partition(" (the closest")[0] for e in changes] == [
        "FACTOR was 3, now it is 5", "captured was 2.0, now it is 4.0"]


def test_a_mode_is_on_or_off():
    compiled = framejit.compile(by_size)
    compiled(ONES)
    [event] = recompiles_of(compiled, (ONES,))  # events_of() turns grad mode off
    assert event["fields"]["change"] == "grad mode was on, now it is off"
    assert event["fields"]["hint"].startswith("call it under the same modes of torch")


def test_an_error_about_recompiles_says_the_same():
    compiled = framejit.compile(by_size)
    compiled(ONES)
    at = f"test_recompile_lines.py:{by_size.__code__.co_firstlineno + 1} by_size"
    told = re.escape(f"{at}: x.size(0) was 2, now it is 3; what to do: ")
    with torch.compiler.set_stance("fail_on_recompile"), pytest.raises(RuntimeError, match=told):
        compiled(torch.ones(3))


LIBRARY = """
def by_size(x, word=None):
    y = x + 1
    return y * 2

def by_break(x, n, act):
    act()
    y = x * n
    return y if y.shape[0] > 2 else -y

def by_parts(x):
    a, *others = x.unbind(0)
    return a * len(others)
"""
library = {}
exec(compile(LIBRARY, "/opt/site-packages/library.py", "exec"), library)


def lines_of(event, *calls):
    """Where the events say that they are, without those of nn.Module's own code."""
    heard = events_of(*calls)
    return {e["at"] if event == "Recompile" else e["fields"]["guard"].partition("  # ")[2] for e in heard
            if e["event"] == event and e["fields"].get("of") != "plumbing"}


def test_library_code_is_named_after_the_line_of_the_program():
    def calls(x):
        return library["by_size"](x)
    line = calls.__code__.co_firstlineno + 1
    place = f"test_recompile_lines.py:{line} {calls.__qualname__}, in library.py:3 by_size"
    compiled = framejit.compile(calls)
    assert place in lines_of("Guard", compiled, (ONES,))
    [event] = recompiles_of(compiled, (torch.ones(3),))
    assert event["at"] == place and f" {place} recompile 1/8 of test_recompile_lines.py:" in event["text"]
    report = framejit.explain(calls)(ONES)
    assert f"  # {place}" in str(report), report


def test_a_fact_of_a_rule_in_library_code_is_too():
    def calls(x):
        return library["by_parts"](x)
    at = f"test_recompile_lines.py:{calls.__code__.co_firstlineno + 1} {calls.__qualname__}, in library.py:12 by_parts"
    event = recompiles_of(framejit.compile(calls), (ONES,), (torch.ones(3),), (torch.ones(4),))[-1]
    assert "number of parts" in event["fields"]["change"] and event["at"] == at, event


@pytest.mark.breaks(outside_effect=1)
def test_code_after_a_break_in_a_library_is_too():
    """There, the trace begins in the library."""
    def calls(x, n):
        y = x + 1
        return library["by_break"](y, n, print)
    way = f"test_recompile_lines.py:{calls.__code__.co_firstlineno + 2} {calls.__qualname__}, in "
    compiled = framejit.compile(calls)
    assert f"{way}library.py:8 by_break" in lines_of("Guard", compiled, (ONES, True))
    events = recompiles_of(compiled, (ONES, False))
    assert [(e["at"], e["fields"]["begins"]) for e in events] == [
        (f"{way}library.py:8 by_break", "library.py:7 by_break")], events


def test_a_compiled_function_of_a_library_is_named_after_its_call():
    compiled = framejit.compile(library["by_size"])

    def calls(x):
        return compiled(x)
    first = calls.__code__.co_firstlineno
    [event] = recompiles_of(calls, (ONES,), (torch.ones(3),))
    assert event["at"] == f"test_recompile_lines.py:{first + 1} {calls.__qualname__}, in library.py:3 by_size"
    assert event["fields"]["begins"] == "library.py:2 by_size"


def test_without_any_line_of_the_program_the_library_has_the_last_word():
    def calls(compiled, size):
        thread = threading.Thread(target=compiled, args=(torch.ones(size),))
        thread.start(), thread.join()
    compiled = framejit.compile(library["by_size"])
    [event] = recompiles_of(lambda size: calls(compiled, size), (2,), (3,))
    assert event["at"] == "library.py:3 by_size"


@pytest.mark.parametrize("make", [torch.linspace, torch.logspace])
def test_a_length_that_torch_takes_as_a_constant_is_said_to_be_one(make):
    event = recompiles_of(framejit.compile(lambda x: x + make(0, 1, x.shape[0])),
                          *[(torch.ones(n),) for n in (2, 3, 4)])[-1]
    assert event["fields"]["change"].startswith(
        "x.size(0) == 3 (torch takes this number as a constant) was true, now x.size(0) is 4"), event
    assert "such as that of linspace" in event["fields"]["hint"]
