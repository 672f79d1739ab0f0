"""What the log says about exits: the steps of a recipe (frame_hook/resume/recipe_ops.def), on channel steps."""
import re

import pytest
import torch

import framejit
from check import fresh  # noqa: F401

def recipes(fn, *args):
    """The texts of the recipes of one call; the numbers of registers depend on the guards."""
    texts = []
    token = framejit._framejit.add_listener(lambda e: texts.append(e["artefact"]) if e["event"] == "Exit" else None)
    try:
        framejit.compile(fn)(*args)
    finally:
        framejit._framejit.remove_listener(token)
    return [re.sub(r"register \d+", "register r", text) for text in texts]


class Point:
    pass


def containers(x, seen):
    y = x * 2
    seen.append(y)
    point = Point()
    point.y = y
    return (y, x.shape[0], "text"), [y], {"a": y}, point


def iterators(x):
    items = iter([x + 1, x, 3])
    next(items)
    return items, slice(1, 2.5), {4, 5}


def functions(x, table):
    y = x + 1
    table["f"] = 7
    return lambda: y


CONTAINERS = """\
s0 = output 0
s1 = constant 3
s2 = constant 'text'
s3 = tuple s0 s1 s2
s4 = list
s5 = dict
s6 = instance Point initialises 0
s7 = tuple s3 s4 s5 s6
s8 = fetch register r
extend_list s8 s0
fill_list s4 s0
s11 = constant 'a'
fill_dict s5 s11 s0
set_attribute y s6 s0
returns s7
"""
ITERATORS = """\
s0 = list
s1 = output 0
s2 = fetch register r
s3 = constant 3
fill_list s0 s1 s2 s3
s5 = call iter s0
s6 = advance position 1 s5
s7 = constant 1
s8 = constant 2.5
s9 = constant None
s10 = slice s7 s8 s9
s11 = constant 4
s12 = constant 5
s13 = set in order s11 s12
s14 = tuple s6 s10 s13
returns s14
"""
FUNCTIONS = """\
s0 = cell
s1 = tuple s0
s2 = fetch register r
s3 = constant '<lambda>'
s4 = constant 'functions.<locals>.<lambda>'
s5 = function functions.<locals>.<lambda> s2 s1 unbound unbound s3 s4
s6 = fetch register r
s7 = constant 'f'
s8 = constant 7
assign_dict_item s6 s7 s8
s10 = output 0
fill_cell s0 s10
returns s5
"""
def broken(x, n):
    y = x + 1
    z = n + 1
    print(end="")
    return y, z


@pytest.mark.parametrize("fn, args, expected", [
    (containers, (torch.ones(3), []), CONTAINERS), (iterators, (torch.ones(3),), ITERATORS),
    (functions, (torch.ones(3), {}), FUNCTIONS)],
                         ids=["containers", "iterators", "functions"])
def test_the_text(fn, args, expected):
    assert recipes(fn, *args) == [expected]


@pytest.mark.breaks(outside_effect=1)
def test_the_frame_before_a_break():
    first, *_ = recipes(broken, torch.ones(3), 3)
    *steps, frame = first.splitlines()
    assert steps[:1] == ["s0 = output 0"] and re.match(r"frame with locals as it is as it is s\d+ s\d+, stack", frame)
