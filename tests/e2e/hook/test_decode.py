"""The decoder and its tables compared with the running CPython's own view (opcode, dis)."""
import dis
import importlib
import opcode
import sys
import types

import pytest

import corpus
import _framejit_hooktest as h

VERSION = sys.version_info[:2]


def test_every_opcode_is_a_row():
    missing = [name for name, number in opcode.opmap.items() if (h.row(name) or (None,))[0] != number]
    assert missing == []


def test_no_row_of_another_version():
    for name in ("PRECALL", "KW_NAMES", "RETURN_CONST", "CALL_KW", "TO_BOOL", "LOAD_METHOD", "BINARY_SLICE",
                 "NOT_AN_OPCODE"):
        assert (h.row(name) is not None) == (name in opcode.opmap), name


def all_codes():
    for module in [corpus] + [importlib.import_module(name)
                              for name in "dis ast argparse dataclasses enum typing inspect asyncio.tasks".split()]:
        with open(module.__file__) as source:
            todo = [compile(source.read(), module.__file__, "exec")]
        while todo:
            code = todo.pop()
            todo += [c for c in code.co_consts if isinstance(c, types.CodeType)]
            yield code


def reference(code):
    """dis's instructions without caches, EXTENDED_ARG, and the instructions that decoding merges."""
    start, out = None, []
    for i in dis.get_instructions(code):
        if start is None:
            start = i.offset
        if i.opname == "EXTENDED_ARG" or i.opname == "KW_NAMES" or i.opname == "PRECALL":
            continue
        out.append((start // 2, i))
        start = None
    return out


def slots(code):
    return code.co_varnames + tuple(c for c in code.co_cellvars if c not in code.co_varnames) + code.co_freevars


def test_instructions_agree_with_dis():
    count = 0
    for code in all_codes():
        rows = [r for r in h.decode(code) if not r["flags"] & 4096]
        expected = reference(code)
        assert [r["index"] for r in rows] == [index for index, _ in expected]
        lines = [p[0] or 0 for p in code.co_positions()]
        for row, (_, i) in zip(rows, expected):
            assert row["op"] not in ("unknown", "never"), i.opname
            assert row["opcode_index"] == i.offset // 2
            assert row["line"] == lines[i.offset // 2] == max(row["span"][0], 0)
            if row["op"] == "for_iter":
                assert row["target"] == i.argval // 2 + (VERSION[1] - 11)
            elif i.opcode in dis.hasjrel:
                assert row["target"] == i.argval // 2, i
            if i.opcode in dis.hasname:
                assert row["object"] == code.co_names[row["arg"]] and i.argval in (row["object"],
                    "NULL + " + row["object"])
            elif row["op"] in ("load_const", "return_const"):
                assert row["object"] is code.co_consts[row["arg"]]
            elif i.opcode in dis.haslocal or i.opcode in dis.hasfree:
                assert slots(code)[row["arg"]] == (i.argval[0] if isinstance(i.argval, tuple) else i.argval)
            count += 1
    assert count > 20000


def test_no_jump_into_the_middle():
    for code in all_codes():
        rows = h.decode(code)
        starts = {r["index"] for r in rows}
        assert all(r["target"] in starts for r in rows if r["target"] >= 0)
        assert all(target in starts for _, _, target, _, _ in h.handlers(code))


def test_exception_table_agrees_with_dis():
    for code in all_codes():
        expected = [(e.start // 2, e.end // 2, e.target // 2, e.depth, int(e.lasti))
                    for e in dis._parse_exception_table(code)]
        if VERSION >= (3, 13):  # dis gives inclusive ends there
            ends = {(start, target): end for start, end, target, _, _ in h.handlers(code)}
            expected = [(s, ends[s, t], t, d, l) for s, _, t, d, l in expected]
        assert h.handlers(code) == expected


def by_op(function, op, nth=0):
    return [r for r in h.decode(function) if r["op"] == op][nth]


def test_call_with_keywords_is_one_instruction():
    def f(g):
        return g(1, k=2)

    row = by_op(f, "call")
    assert row["arg"] == 2
    if VERSION < (3, 13):
        assert row["object"] == ("k",) and row["index"] < row["opcode_index"]
    else:
        assert row["flags"] & 8 and row["object"] is None


def test_flags_of_packed_arguments():
    def f(a):
        print(a.b(), a.c, f"{a:>3}{a!r}", a < 1)

    rows = h.decode(f)
    method, plain = [r["flags"] & 1 for r in rows if r["op"] == "load_attr"]
    assert method == 1 and plain == 0
    null = by_op(f, "load_global")["flags"]
    assert null & 2 and bool(null & 4) == (VERSION >= (3, 13))
    assert [r["flags"] & 32 for r in rows if r["op"] == "format_value"] == [32, 0]
    assert by_op(f, "compare_op")["arg"] == 0  # Py_LT


def test_end_for_pops_by_version():
    def f(xs):
        for x in xs:
            pass
        return 1

    pops = [r["arg"] for r in h.decode(f) if r["op"] == "pop_top"]
    assert pops == {11: [], 12: [2], 13: [1, 1]}[VERSION[1]]


def test_liveness():
    def f(a, b, c):
        d = a + b
        a = 1
        while c:
            try:
                e = d
                g(e)
            except ValueError:
                return b
            c = c - 1
        return a

    rows = h.decode(f)

    def live_before(op, arg):
        return set(next(r for r in rows if r["op"] == op and r["object"] == arg)["live"])

    assert set(rows[0]["live"]) == {"a", "b", "c"}
    assert live_before("load_global", "g") == {"a", "b", "c", "d", "e"}  # b: the handler reads it
    assert set([r for r in rows if r["op"] in ("return_value",)][-1]["live"]) == set()


def test_liveness_keeps_cells():
    def f(a):
        def g():
            return a

        return 1

    assert all("a" in r["live"] for r in h.decode(f))


def test_text_lists_lines_and_handlers():
    text = h.text(corpus.f_try_on_one_line)
    assert text.startswith("L%d 0 resume 0" % corpus.f_try_on_one_line.__code__.co_firstlineno)
    assert "load_global nowhere_to_be_found" in text and "\nhandler " in text


def test_wide_arguments():
    names = ["n%d" % k for k in range(300)]
    scope = {}
    exec("def f(g):\n" + "".join("  %s = %d\n" % (n, 1000 + k) for k, n in enumerate(names))
         + "  return g(k=%s)" % names[-1], scope)
    rows = h.decode(scope["f"])
    assert [r["object"] for r in rows if r["op"] == "load_const"][:300] == list(range(1000, 1300))
    wide = [r for r in rows if r["op"] == "store_fast" and r["arg"] > 255][0]
    assert wide["opcode_index"] == wide["index"] + 1
    assert scope["f"](lambda k: k) == 1299


@pytest.mark.parametrize("name", ["load_fast", "call"])
def test_effects_are_documented(name):
    row = h.row({"load_fast": "LOAD_FAST", "call": "CALL"}[name])
    assert row[1] == name and "--" in row[2]
