"""Functions for the stop-before-every-instruction test: no arguments, deterministic, a comparable result or an
exception.

HELPERS are the functions that they call; LOG collects side effects.
"""
import sys

LOG = []


class Guarded:
    def __init__(self, name, swallow=False):
        self.name, self.swallow = name, swallow

    def __enter__(self):
        LOG.append(("enter", self.name))
        return self

    def __exit__(self, kind, value, traceback):
        LOG.append(("exit", self.name, kind and kind.__name__, traceback and traceback.tb_lineno))
        return self.swallow


class Shape:
    sides = 4

    def __init__(self, size):
        self.size = size

    @property
    def area(self):
        return self.size**2

    def scaled(self, by, *, plus=0):
        return Shape(self.size * by + plus)

    def __getitem__(self, key):
        return (self.size, key)

    def __setitem__(self, key, value):
        LOG.append((key, value))

    def __delitem__(self, key):
        LOG.append(("del", key))

    def __bool__(self):
        return self.size > 0

    def __lt__(self, other):
        return self.size < other.size

    def __iter__(self):
        return iter((self.size, self.sides))

    def __call__(self, *args, **kwargs):
        return self.size, args, sorted(kwargs.items())

    def __del__(self):
        LOG.append(("gone", self.size))


class Square(Shape):
    def __init__(self, size):
        super().__init__(size)
        self.kind = "square"

    def scaled(self, by, *, plus=0):
        return super().scaled(by, plus=plus).size

    @classmethod
    def unit(cls):
        return super(Square, cls).__name__ if False else cls(1)


def fail_if_even(n):
    if n % 2 == 0:
        raise ValueError("even %d" % n)
    return n


def f_arithmetic():
    a, b, c = 7, 2.5, -3
    d = a
    d += 2
    d *= c
    d //= 2
    e = [1, 2]
    e += (3,)
    flags = a & 6 | 8 ^ 1, a << 2 >> 1, ~a, -b, +c, not a
    return a + b * c - a / b, a % 4, 2**a, d, e, flags, a < 9 <= 10 != b, a is not None, 3 not in e, a if c > 0 else b


def f_containers():
    xs = [*range(3), 9]
    d = {"k": 1, **{"m": 2}, "n": xs}
    first, *middle, last = xs
    (p, q), r = (1, 2), {3, *xs}
    xs[1:3] = "ab"
    del xs[0]
    d["k"] += 5
    return xs[::-1], xs[0], xs[:2], d, first, middle, last, p, q, sorted(map(str, r)), (*xs,
        1), f"{p!r:>4}{q}{xs[0]:{p + 4}}"


def f_calls():
    s = Square(3)
    t = Shape(2)
    out = [s.scaled(2), t.scaled(2, plus=1).size, t.scaled(by=3).area, Shape.scaled(t, 5).size, s.kind, s[1:2],
           t(1, 2, z=3)]
    out.append(t(*[1, 2], **{"u": 1}))
    out.append(s(*(), k=1, **{"v": 2}))
    out.append(max([3, 1, 2], key=lambda v: -v))
    t["a"] = 1
    del t["a"]
    return out, bool(t), t < s, list(s), Square.unit().size


def f_conditions():
    out = []
    for a in (0, 1, None, [], "x", Shape(0), Shape(1)):
        out.append((a and "yes") or "no")
        if a is None:
            out.append("none")
        elif not a:
            out.append("falsy")
        elif a is not None and (a == 1 or a != "y"):
            out.append("truthy")
        out.append(1 if a else 2)
    return [str(x) for x in out if not isinstance(x, Shape)]


def f_loops():
    total, seen = 0, []
    for i in range(6):
        for j in (10, 20, 30):
            if i == 4:
                break
            if j == 20 and i % 2:
                continue
            total += i * j
        else:
            seen.append(i)
    while total > 50:
        total -= 37
        if total < 0:
            break
    n = 3
    while True:
        n -= 1
        if not n:
            return total, seen, n


def f_comprehensions():
    k = 3
    table = {x: [x * y for y in range(x)] for x in range(4)}
    return [x * k for x in range(6) if x % 2], table, {x % 2 for x in range(5)}, sum(x + k
        for x in range(4)), [[k for k in "ab"], k]


def f_unpack_errors():
    out = []
    for value in (1, (1,), (1, 2, 3), "ab", Shape(3), iter([1, 2])):
        try:
            a, b = value
            out.append((a, b))
        except (TypeError, ValueError) as error:
            out.append(str(error))
        try:
            a, *b, c, d = value
            out.append(b)
        except Exception as error:
            out.append(str(error))
    return out


def f_with():
    out = []
    with Guarded("a") as a, Guarded("b", True):
        out.append(a.name)
        fail_if_even(2)
        out.append("unreachable")
    with Guarded("c"):
        out.append(fail_if_even(1))
    for n in range(3):
        with Guarded(n):
            if n == 1:
                continue
            out.append(n)
    return out


def f_with_raises():
    with Guarded("z"):
        fail_if_even(1)
        with Guarded("y"):
            fail_if_even(4)
    return "unreachable"


def f_try():
    out = []
    for n in range(4):
        try:
            out.append(fail_if_even(n))
        except (KeyError, ValueError) as error:
            out.append(str(error))
            try:
                raise KeyError(n)
            except KeyError as inner:
                out.append((type(inner.__context__).__name__, sys.exc_info()[1] is inner))
            out.append(sys.exc_info()[1] is error)
        else:
            out.append("else")
        finally:
            out.append("finally")
    return out, sys.exc_info()


def f_try_on_one_line():
    try: nowhere_to_be_found
    except NameError as error: return str(error), error.name


def f_finally_returns():
    for i in range(3):
        try:
            if i == 1:
                return "returned", i
            if i == 0:
                continue
        finally:
            LOG.append(i)


def f_bare_raise():
    try:
        try:
            fail_if_even(6)
        except ValueError:
            LOG.append("one")
            raise
    finally:
        LOG.append("two")


def f_raise_from():
    try:
        fail_if_even(8)
    except ValueError as error:
        raise RuntimeError("outer") from error


def f_raise_forms():
    out = []
    for what in (ValueError, ValueError("x"), 3, type("Odd", (Exception,), {"__new__": lambda cls: 5})):
        try:
            raise what
        except Exception as error:
            out.append((type(error).__name__, str(error).split(" 0x")[0]))
    try:
        raise KeyError from None
    except KeyError as error:
        out.append((error.__cause__, error.__suppress_context__))
    try:
        raise
    except RuntimeError as error:
        out.append(str(error))
    return out


def f_uncaught():
    def inner(a):
        b = a + 1
        return {"x": fail_if_even(b)}["x"]

    z = 1
    return inner(
        z
    ) + 1


def f_assert():
    try:
        assert LOG == 5, "wrong"
    except AssertionError as error:
        return str(error)


def f_closures():
    n, out = 0, []

    def add(k):
        nonlocal n
        n += k

        def deep():
            return n + k

        return deep

    for k in range(3):
        out.append(add(k)())
    return n, out, (lambda a, b=n, *, c=2: a + b + c + n)(1), add.__closure__[0].cell_contents


def f_empty_cell():
    def peek():
        return later

    try:
        peek()
    except NameError as error:
        LOG.append(str(error))
    later = 1
    del later
    try:
        return later
    except UnboundLocalError as error:
        return str(error)


def f_unbound():
    if len(LOG) > 99:
        w = 1
    return w


COUNTER = 0


def f_globals():
    global COUNTER, GONE
    COUNTER = 5
    COUNTER += 1
    GONE = 1
    del GONE
    try:
        GONE
    except NameError as error:
        LOG.append(str(error))
    try:
        del GONE
    except NameError as error:
        return COUNTER, str(error)


def f_imports():
    import os.path as p
    from collections import OrderedDict, abc
    import collections.abc

    try:
        from collections import does_not_exist
    except ImportError as error:
        return p.sep, OrderedDict(a=1), abc is collections.abc, error.name


def f_class():
    x = 2

    class Local(Shape):
        y = x

        def get(self):
            return __class__.y + self.size

        def __del__(self):
            pass

    return Local(5).get()


def f_defaults():
    def f(a: int, b=1, *args, c=2, **rest) -> str:
        return a, b, args, c, rest

    try:
        f()
    except TypeError as error:
        LOG.append(str(error))
    return f(1), f(1, 2, 3, c=4, d=5), f.__annotations__, f.__defaults__, f.__kwdefaults__


def f_call_errors():
    out = []

    def f(a, b=0):
        return a, b

    for args, kwargs in (((1,), {"a": 2}), ((1, 2, 3), {}), ((), {"z": 1})):
        try:
            f(*args, **kwargs)
        except TypeError as error:
            out.append(str(error))
    for call in (lambda: f(*3), lambda: f(**3), lambda: f(**{"a": 1}, **{"a": 2}), lambda: COUNTER(1), lambda: f(1,
        **{1: 2})):
        try:
            out.append(call())
        except TypeError as error:
            out.append(str(error))
    return out


def f_match():
    out = []
    for subject in ([1, 2], [1], {"a": 1, "b": 2}, "text", 5, (1, 2, 3), None):
        match subject:
            case [a, b]:
                out.append((a, b))
            case {"a": x, **rest}:
                out.append((x, rest))
            case str() as s:
                out.append(s)
            case int(n) if n > 3:
                out.append(n)
            case [first, *others]:
                out.append((first, others))
            case _:
                out.append("other")
    return out


def counting(n):
    try:
        for i in range(n):
            got = yield i * 2
            if got:
                LOG.append(got)
    except KeyError as error:
        yield "caught", str(error)
    finally:
        LOG.append("generator finally")
    return "done"


def delegating(n):
    result = yield from counting(n)
    yield "result", result
    yield from [1, 2]


def f_generators():
    g = counting(3)
    out = [next(g), g.send("hey"), g.throw(KeyError("k"))]
    try:
        next(g)
    except StopIteration as stop:
        out.append(stop.value)
    g = counting(5)
    next(g)
    g.close()
    return out, list(counting(2)), list(delegating(3)), tuple(x for x in delegating(1))


def f_generator_raises():
    def bad():
        yield 1
        raise StopIteration

    return [x for x in bad()]


class Awaitable:
    def __init__(self, value):
        self.value = value

    def __await__(self):
        got = yield "awaiting", self.value
        return self.value, got


class AsyncGuarded:
    async def __aenter__(self):
        LOG.append("aenter")
        return await Awaitable("e")

    async def __aexit__(self, *error):
        LOG.append(("aexit", error[0] and error[0].__name__))
        await Awaitable("x")
        return True


async def doubled(x):
    value = await Awaitable(x)
    return value[0] * 2


async def stream():
    for i in range(3):
        await Awaitable(i)
        yield i


async def everything():
    total = await doubled(5)
    async with AsyncGuarded():
        total += 1
        fail_if_even(10)
    out = []
    async for z in stream():
        out.append(z)
    out += [z * 2 async for z in stream()]
    try:
        await doubled(None)
    except TypeError as error:
        out.append(str(error)[:20])
    return total, out


def f_async():
    coroutine, steps, value = everything(), [], None
    try:
        while True:
            steps.append(coroutine.send(value))
            value = len(steps)
    except StopIteration as stop:
        return steps, stop.value


def f_finalizers():
    a = Shape("a")
    a = Shape("b")
    del a
    xs = [Shape("c"), Shape("d")]
    xs[0] = None
    (Shape("e"), Shape("f"))[0]
    xs = 1
    Shape("g").size
    "{0.size}{1.size}{2.size}".format(Shape("h"), Shape("j"), Shape("k"))
    for x in [Shape("i")]:
        pass
    x = None
    return list(LOG)


def f_long():
    r = 0
    for i in range(3):
        r += 1 if i == 0 else 2
        v = [1000 + i, 1001, 1002, 1003, 1004, 1005, 1006, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, 1015,
             1016 + r]
        d = {"a%d" % i: 1, "b": v[0], "c": v[1], "d": v[2], "e": v[3], "f": v[4], "g": v[5], "h": v[6], "i": v[7],
             "j": v[8]}
        if d["b"] == 1001:
            x = v[0] + v[1] + v[2] + v[3] + v[4] + v[5] + v[6] + v[7] + v[8] + v[9] + v[10] + v[11] + v[12] + v[13] + v[
                14]
            y = v[0] - v[1] - v[2] - v[3] - v[4] - v[5] - v[6] - v[7] - v[8] - v[9] - v[10] - v[11] - v[12] - v[13] - v[
                14]
            x = v[0] * v[1] + v[2] + v[3] + v[4] + v[5] + v[6] + v[7] + v[8] + v[9] + v[10] + v[11] + v[12] + v[13] + x
            r += x + y
    return r, sorted(d)


def countdown(n):
    return 1 if n == 0 else 1 + countdown(n - 1)


def f_recursion():
    return countdown(40)


def f_introspection():
    a = 1
    names = sorted(locals())
    frame = sys._getframe()
    a = 5
    return names, frame.f_locals["a"], frame.f_lineno - frame.f_code.co_firstlineno, frame.f_back is not None, a


FUNCTIONS = [value for name, value in list(globals().items()) if name.startswith("f_")]
HELPERS = [counting, delegating, everything, doubled, stream, fail_if_even, countdown, Awaitable.__await__,
           AsyncGuarded.__aenter__, AsyncGuarded.__aexit__, Guarded.__enter__, Guarded.__exit__, Shape.scaled,
           Shape.__call__, Shape.__del__, Square.__init__, Square.scaled]
