"""Expressions that are wrong, or nearly so: every operator, special method, builtin and method that a trace stands in
for, with operands of the wrong class, the wrong number of arguments, or wrong keywords. A program records what each one
gives."""
import collections
import functools
import itertools
import math
import operator
import random
import re
import warnings

import torch

import framejit


class Plain:
    pass


class Int(int):
    pass


class List(list):
    pass


class Dict(dict):
    pass


class Slotted:
    __slots__ = ("q",)


class Held(Exception):
    __slots__ = ("held",)


class Filled(Exception):
    __slots__ = ("held",)

    def __init__(self, held):
        self.held = held


class Proper:
    @property
    def p(self):
        return 1


def function():
    pass


def two(a, b):
    pass


def keyword(*, k):
    pass


def positional(a, /):
    pass


def yields_from(v):
    def inner():
        yield from v
    return list(inner())


# The arguments of a traced call contain: o, deque_, ordered, default, slotted.
VALUES = ["3", "2.5", "True", "1j", '"a"', 'b"x"', "None", "[1]", "(1,)", "{1}", "frozenset([2])", '{"a": 1}',
          "range(3)", "slice(1)", "o", "Int(4)", "List([1])", "Dict(a=1)", "len", "int", "function", "iter([1])",
          '{"a": 1}.keys()', "torch.Size([1])", "deque_", "ordered", "default", "NotImplemented", "...", "slotted",
          "math"]
OPERATORS = "+ - * / // % ** @ & | ^ << >> < <= == != > >= in is".split()
IN_PLACE = "+ - * | & % ** @".split()
BINARY = ("add radd iadd sub rsub mul rmul imul mod rmod truediv rtruediv floordiv rfloordiv pow rpow divmod "
          "rdivmod and rand or ror ior iand xor ixor isub lshift rlshift matmul eq ne lt le gt ge contains "
          "getitem").split()
UNARY = "neg pos invert abs bool int float index len iter next str repr reversed ceil floor trunc round".split()
CLASSES = "int float bool complex str bytes list tuple set frozenset dict range object type".split()
BUILTINS = ("len isinstance issubclass hasattr getattr setattr delattr callable vars type repr str format "
            "object int float bool abs round divmod pow min max sum iter next zip enumerate map filter reversed range "
            "slice all any sorted list tuple dict set frozenset complex bytes bytearray ascii bin chr hex oct ord "
            "math.prod math.trunc math.floor math.ceil math.sqrt math.gcd operator.index operator.add itertools.chain "
            "itertools.chain.from_iterable itertools.islice itertools.product itertools.zip_longest "
            "itertools.accumulate itertools.starmap itertools.takewhile itertools.dropwhile itertools.filterfalse "
            "itertools.combinations itertools.pairwise functools.reduce functools.partial collections.deque "
            "collections.OrderedDict collections.defaultdict ValueError KeyError AttributeError OSError StopIteration "
            "ImportError SystemExit SyntaxError NameError Held Filled").split()
METHODS = {
    "[1, 2]": "append extend insert pop remove clear index count reverse sort copy",
    "(1, 2)": "index count",
    '{"a": 1}': "get pop popitem setdefault update keys values items clear copy fromkeys",
    "ordered": "pop popitem setdefault update keys clear copy fromkeys move_to_end",
    "deque_": "append appendleft extend extendleft pop popleft clear reverse rotate count index remove insert copy",
    "default": "copy __missing__ get",
    "{1, 2}": "add discard remove pop clear update copy union intersection difference symmetric_difference "
              "difference_update intersection_update issubset issuperset isdisjoint",
    "frozenset([1])": "copy union intersection difference issubset",
    '"ab"': "join format split replace index find startswith encode strip center zfill upper partition count translate",
    'b"ab"': "join split decode index startswith hex",
    "3": "bit_length to_bytes conjugate as_integer_ratio",
    "2.5": "is_integer hex as_integer_ratio fromhex",
    "range(3)": "index count", "(i for i in [1])": "send throw close", "ValueError(1)": "with_traceback add_note",
    "slice(1)": "indices", "List([1])": "append pop sort", "Dict(a=1)": "get pop update", "[]": "pop remove",
    "{}": "pop popitem", "set()": "pop remove"}


def operators():
    for a, b in itertools.product(VALUES, VALUES):
        yield from (f"{a} {op} {b}" for op in OPERATORS)
        yield from (f"w = {a}; w {op}= {b}; r = w" for op in IN_PLACE)
    for a in VALUES:
        yield from (f"{op}{a}" for op in ("-", "+", "~", "not "))


def special_methods():
    for a in VALUES:
        for name, b in itertools.product(BINARY, VALUES):
            yield f"({a}).__{name}__({b})"
        for name in UNARY:
            yield from (f"({a}).__{name}__({given})" for given in ("", "1, 2", "k=2"))
    some = ("3", "[1]", '"a"', "{1}", '{"a": 1}', "Int(4)", "2.5", "o")
    for c, name in itertools.product(CLASSES, BINARY + UNARY):
        yield from (f"{c}.__{name}__({a}, {b})" for a in some for b in some)
        yield f"{c}.__{name}__()"


def items():
    for a, b in itertools.product(VALUES, VALUES):
        yield from (f"({a})[{b}]", f"({a})[{b}] = 1; r = 0", f"del ({a})[{b}]; r = 0")


def attributes():
    for a in [*VALUES, "Proper()", "Proper", "torch", "torch.float32", "e"]:
        for n in ("nope", "p", "q", "__class__", "real", "__name__", "args", "start"):
            yield from (f"({a}).{n}", f"getattr({a}, '{n}')")
            if a not in ("math", "torch", "function", "Proper"):  # these go last
                yield from (f"({a}).{n} = 1; r = 0", f"del ({a}).{n}; r = 0", f"setattr({a}, '{n}', 1); r = 0",
                            f"delattr({a}, '{n}'); r = 0")
        yield from (f"getattr({a})", f"getattr({a}, 3)", f"hasattr({a}, 3)", f"setattr({a}, 3, 4); r = 0",
                    f"({a}).nope()", f"delattr({a}, 3)", f"del ({a}).nope; r = 0")


def builtins():
    for b in BUILTINS:
        yield from (f"{b}({given})" for given in ("", "1, 2, 3", "1, 2, 3, 4", "[], [], k=1", "'a', 'b'", "[2, 'a']",
                                                  "[], start=''", "'zz', 40", "[None]", "['a'], ''"))
        for a in VALUES:
            yield from (f"{b}({given})" for given in (
                a, f"*{a}", f"**{a}", f"1, {a}", f"{a}, 1", f"[1, 2], {a}", f"k={a}", f"[3], key={a}",
                f"[3], default={a}"))
            if b not in ("repr", "str", "ascii", "format"):  # they contain addresses
                yield from (f"list({b}({a}, [1]))", f"list({b}({a}))")


def methods():
    for of, names in METHODS.items():
        for m in names.split():
            yield from (f"({of}).{m}({given})" for given in (
                "", "1, 2, 3", "1, 2, 3, 4, 5", "[1], key=3", "[(1,)]", "[1, 'a']", "99", "'zz'"))
            yield from (f"type({of}).{m}({given})" for given in ("", "3", "'a', 3", "o"))
            for a in VALUES:
                yield from (f"({of}).{m}({given})" for given in (a, f"k={a}", f"1, {a}", f"{a}, 1"))


def statements():
    for a in [*VALUES, "(1, 2, 3)", "[]", "'abc'", "{1: 2, 3: 4, 5: 6}", "iter([1, 2, 3])"]:
        yield from (f"p, q = {a}; r = 0", f"p, q, *s = {a}; r = 0", f"[*{a}]", f"{{**{a}}}", f"(lambda *k: k)(*{a})",
                    f"(lambda **k: k)(**{a})", f"{{*{a}}}", f"function(**{a}, **{a})", f"[k for k in {a}]", f"{a}()",
                    f"({a})(1, k=2)", f"'{{:z}}'.format({a})", f"'%d %d' % ({a})", f"'%z' % ({a})",
                    f"'{{x}} {{0}}'.format({a})", f"'{{0.nope}}'.format({a})", f"int({a}) + undefined_name",
                    f"[1, 2, 3][{a}:]", f"raise {a}", f"raise ValueError(1) from {a}", f"isinstance(1, {a})",
                    f"assert False, {a}", f"with {a}: pass", f"sum([1], {a})", f"x.nope({a})", f"yields_from({a})",
                    f"hash([{a}])", f"{{{a}: 1}}", f"{{}}[{a}]", f"{{{a}}}", "next(iter([]))", f"two({a})",
                    f"two(1, {a}, 3)", f"two(z={a})", f"two(a=1, b=2, c={a})", f"keyword({a})", f"positional(a={a})")


FAMILIES = {f.__name__: f for f in (operators, special_methods, items, attributes, builtins, methods, statements)}
HEAD = "def f(x, o, deque_, ordered, default, slotted, e):\n    out = []\n"


def as_statement(text):
    is_one = re.match(r"(w =|del |raise |assert |with |p, q)", text) or "; r = " in text
    return text if is_one else "r = " + text


def drawn(family, most, seed):
    """This many statements of a family, drawn by the seed, that Python can parse."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = [as_statement(e) for e in dict.fromkeys(FAMILIES[family]())]
        random.Random(seed).shuffle(made)
        parsed = []
        for statement in made:
            try:
                compile(HEAD + "    " + statement, "<sweep>", "exec")
                parsed.append(statement)
            except SyntaxError:
                continue
            if len(parsed) == most:
                break
    return parsed


def told(error):
    members = [getattr(error, name, "missing") for name in ("name", "obj", "value", "code", "msg", "held")]
    return (type(error), str(error), error.args, members, type(error.__cause__), type(error.__context__),
            error.__suppress_context__)


def given(value):
    if isinstance(value, BaseException):
        return told(value)
    exact = type(value) in (int, float, complex, str, bytes, list, tuple, dict, set, frozenset, bool)
    return type(value), value if exact or value is NotImplemented else None


def arguments():
    return (torch.ones(2), Plain(), collections.deque([1]), collections.OrderedDict(a=1), collections.defaultdict(list),
            Slotted(), ValueError(7))


def program(statements, keeps):
    """A function that takes arguments(). keeps: exceptions leave the trace, and are checked outside."""
    text = HEAD
    for statement in statements:
        text += f"    try:\n        {statement}\n        out.append(given(r))\n"
        text += f"    except Exception as e:\n        out.append({'e' if keeps else 'told(e)'})\n"
    names = dict(globals())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(text + "    return x + 1, out\n", "<sweep>", "exec"), names)
    return names["f"]


def shown(out):
    return [re.sub("0x[0-9a-f]+", "", repr(told(v) if isinstance(v, BaseException) else v)) for v in out]


def both(statements, keeps):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        framejit.reset()
        plain = program(statements, keeps)
        return shown(plain(*arguments())[1]), shown(framejit.compile(plain, backend="eager")(*arguments())[1])


def differences(statements, keeps=False, together=8):
    """(statement, plain Python's, ours) where they differ."""
    found = []
    for i in range(0, len(statements), together):
        group = statements[i:i + together]
        want, got = both(group, keeps)
        if want != got:
            alone = [(s, *both([s], keeps)) for s in group]
            found += [(s, w[0], g[0]) for s, w, g in alone if w != g] or [(group, want, got)]
    return found
