"""The order in which a call names its keywords: an entry serves all of them, unless the code looks at the order."""
import itertools
import random
import textwrap

import pytest
import torch

import framejit

stop = framejit.disable(lambda: None)


def add(x, a=0, **rest):
    return multiply(x + a, **rest)


def multiply(x, b=1, c=0, **rest):
    return x * b - c


def listed(x, **rest):
    return x + len(rest), list(rest)


class Model(torch.nn.Module):
    def forward(self, x, **kw):
        return add(x, **kw)


def by_name(x, **kw):
    return x * kw["a"] + kw["b"] - kw.get("c")


def passed_on(x, **kw):
    return add(x, **kw)


def copied(x, **kw):
    return add(x, **{**kw, "c": 2})


def taken_out(x, **kw):
    x = x + kw.pop("b") + len(kw)
    return add(x, **kw) if kw else x


def two_dicts(x, **kw):
    return add(x, **{"d": 1, **dict(kw)})


def in_a_list(x, **kw):
    return x + 1, list(kw)


def in_a_loop(x, **kw):
    for value in kw.values():
        x = x * 2 + value
    return x


def at_the_end(x, **kw):
    return x + 1, kw.popitem()


def as_text(x, **kw):
    return x + 1, f"{kw}"


def in_the_callee(x, **kw):
    return listed(x, **kw)


def returned_copy(x, **kw):
    return x + 1, {"z": 0, **kw}


def put_back(x, **kw):
    kw["a"] = kw.pop("a")
    return x + 1, kw


def of_an_attribute(x, **kw):
    holder = type("Holder", (), {})()
    holder.__dict__.update(kw)
    return x + holder.a, list(vars(holder))


VALUES = {"a": 3, "b": 4, "c": 5}


def all_orders(fn, compiled):
    framejit.reset()
    with torch.no_grad():
        for names in itertools.permutations(VALUES):
            # keys that are different objects from those of the code
            given = {chr(ord(name)): VALUES[name] for name in names}
            # == of dicts does not look at the order
            assert str(compiled(torch.ones(3), **given)) == str(fn(torch.ones(3), **given))
    return framejit.stats()


@pytest.mark.parametrize("fn", [by_name, passed_on, copied, taken_out, two_dicts], ids=lambda fn: fn.__name__)
def test_nobody_looks(fn):
    stats = all_orders(fn, framejit.compile(fn))
    assert stats["graphs"] == 1 and stats["recompiles"] == 0 and stats["hits"] == 5, stats


def test_a_module():
    model = Model()
    stats = all_orders(model, framejit.compile(model))
    assert stats["graphs"] == 1 and stats["recompiles"] == 0, stats


@pytest.mark.breaks(made_in_trace={"of_an_attribute": 1})
@pytest.mark.parametrize("fn", [in_a_list, in_a_loop, at_the_end, as_text, in_the_callee, returned_copy, put_back,
                                of_an_attribute], ids=lambda fn: fn.__name__)
def test_somebody_looks(fn):
    all_orders(fn, framejit.compile(fn))


def test_which_keyword_an_error_names():
    def f(x, **kw):
        try:
            return multiply_strictly(x, **kw)
        except TypeError as error:
            return x + 1, str(error)

    def multiply_strictly(x, b=1):
        return x * b
    all_orders(f, framejit.compile(f))


STEPS = (
    "x = x + kw['{name}']", "x = x + kw.get('{name}', 1)", "x = x + kw.pop('{name}', 2)", "kw['{name}'] = {number}",
    "kw.update({other}={number}, {name}=1)", "kw = dict(kw)", "kw = {{**kw, '{name}': {number}}}",
    "kw = kw | {{'{name}': 7}}", "x = x + len(kw)", "x = x * 2 if '{name}' in kw else x", "seen.append(list(kw))",
    "seen.append(kw.popitem())", "x = sum(kw.values(), x)", "seen.append(dict(**kw))", "stop()",
    "kw.setdefault('{name}', {number})", "seen.append(inner(x, **kw))", "kept.update(kw)", "kept['{name}'] = kw",
    "del kw['{name}']", "seen.append(str(kw))", "seen.append(sorted(kw))", "seen.append(kw == kept)",
    "kw, kept = kept, kw",
)


def program(seed):
    draw = random.Random(seed)
    steps = [draw.choice(STEPS).format(name=draw.choice("abcd"), other=draw.choice("ef"), number=draw.randrange(9))
             for _ in range(draw.randrange(2, 7))]
    body = "\n".join(f"try:\n    {step}\nexcept (KeyError, TypeError) as error:\n    seen.append(str(error))"
                     for step in steps)
    source = ("def f(x, kept, **kw):\n    seen = []\n" + textwrap.indent(body, "    ")
              + f"\n    return x + 1, seen{draw.choice(['', ', kw, kept'])}\n")
    scope = {"stop": stop, "inner": lambda x, a=0, **rest: (x + a, rest)}
    exec(compile(source, "<keywords>", "exec"), scope)
    return scope["f"], source


@pytest.mark.breaks(disabled_function={"9": 1, "24": 6, "29": 6})
@pytest.mark.parametrize("seed", range(40))
def test_drawn_programs(seed):
    fn, source = program(seed)
    compiled = framejit.compile(fn, backend="eager")
    framejit.reset()
    with torch.no_grad():
        for names in 2 * list(itertools.permutations(VALUES)):
            given = {chr(ord(name)): VALUES[name] for name in names}
            kept, our_kept = dict(reversed(given.items())), dict(reversed(given.items()))
            want, got = str(fn(torch.ones(3), kept, **given)), str(compiled(torch.ones(3), our_kept, **given))
            assert got == want, source
