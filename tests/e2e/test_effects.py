"""What a traced function does to the world around it: globals and cells of real outer functions keep their writes,
effects on several objects happen in the program's order, log records and warnings happen in each call, at their
line."""
import logging
import warnings

import pytest
import torch
import torch.nn.functional as F

import framejit
from check import backend, check, fresh, same  # noqa: F401

COUNT = 0
LAST = None
TABLE = {}


def write_globals(x):
    global COUNT, LAST, NEW
    COUNT += 1
    LAST = x * COUNT
    NEW = [LAST, x]
    COUNT += 1
    TABLE["count"] = COUNT
    TABLE["last"] = LAST + 1
    return LAST + COUNT


def delete_a_global(x):
    global NEW
    NEW = x + 1
    y = NEW
    del NEW
    return y


def write_globals_around_a_break(x):
    global COUNT, LAST
    COUNT += 1
    LAST = x + COUNT
    print(end="")
    COUNT *= 2
    LAST = LAST * COUNT
    return LAST - COUNT


def globals_now():
    return {name: globals().get(name, "none") for name in ("COUNT", "LAST", "NEW")} | {"TABLE": dict(TABLE)}


@pytest.fixture
def clean_globals():
    def clean():
        globals().update(COUNT=0, LAST=None)
        globals().pop("NEW", None)
        TABLE.clear()
    yield clean
    clean()


@pytest.mark.parametrize("program, breaks",
                         [(write_globals, 0), (delete_a_global, 0), (write_globals_around_a_break, 1)])
def test_globals_keep_what_is_written(program, breaks, clean_globals, backend):
    seen, x = [], torch.randn(3)
    for call in (program, framejit.compile(program, backend=backend)):
        clean_globals()
        seen.append([(call(x), globals_now()) for _ in range(6)])
    same(seen[1], seen[0])
    results, state = seen[1][-1]
    assert program is delete_a_global or state["LAST"] is not None
    assert program is not write_globals or (state["COUNT"], state["TABLE"]["count"], state["NEW"][0] is state["LAST"],
                                            state["NEW"][1] is x) == (12, 12, True, True)
    stats = framejit.stats()
    assert stats["hits"] >= 4 and stats["graph_breaks"] == breaks * stats["graphs"] // 2 and not stats[
        "fallbacks"], stats


def test_a_global_that_others_write_between_calls(clean_globals, backend):
    compiled, x = framejit.compile(write_globals, backend=backend), torch.randn(3)
    for start in (5, 0, 7, -3):
        seen = []
        for call in (write_globals, compiled):
            clean_globals()
            globals()["COUNT"] = start
            seen.append((call(x), globals_now()))
        same(seen[1], seen[0])


def make_counter():
    count, last = 0, None

    def step(x):
        nonlocal count, last
        count += 1
        last = x * count
        return last + count

    def broken_step(x):
        nonlocal count, last
        count += 1
        y = x + count
        print(end="")
        count += 10
        last = y * count
        return last, count

    def born(x):
        nonlocal last
        count = 3

        def inner(k):
            nonlocal count, last
            count += k
            last = x * count
            return last
        return inner(1) + inner(2), count

    def empty(x):
        nonlocal last
        last = x + 1
        y = last
        del last
        return y * 2

    def look():
        try:
            return count, last
        except NameError as error:
            return count, str(error)
    return {"step": step, "broken_step": broken_step, "born": born, "empty": empty, "look": look}


@pytest.mark.breaks(outside_effect={"broken_step": 2})
@pytest.mark.parametrize("name", ["step", "broken_step", "born", "empty"])
def test_cells_of_an_outer_function_keep_what_is_written(name, backend):
    plain, ours, x = make_counter(), make_counter(), torch.randn(3)
    compiled = framejit.compile(ours[name], backend=backend)
    for _ in range(6):
        same((compiled(x), ours["look"]()), (plain[name](x), plain["look"]()))
    # One compile serves the same function made again: its cells are found, not kept.
    before, plain, ours = framejit.stats(), make_counter(), make_counter()
    compiled = framejit.compile(ours[name], backend=backend)
    for _ in range(3):
        same((compiled(x), ours["look"]()), (plain[name](x), plain["look"]()))
    assert framejit.stats()["hits"] > before["hits"] and not framejit.stats()["fallbacks"], framejit.stats()


class Watched:
    """Records every write in JOURNAL, as a user's __setattr__, __setitem__ and property do."""

    def __init__(self, name, journal):
        self.__dict__.update(name=name, journal=journal, items={}, value=0)

    def __setattr__(self, key, value):
        self.journal.append((self.name, "attribute", key))
        self.__dict__[key] = value

    def __delattr__(self, key):
        self.journal.append((self.name, "deleted", key))
        del self.__dict__[key]

    def __setitem__(self, key, value):
        self.journal.append((self.name, "item", key))
        self.items[key] = value


class WatchedList(list):
    def __init__(self, name, journal):
        super().__init__([0, 0])
        self.name, self.journal = name, journal

    def __setitem__(self, index, value):
        self.journal.append((self.name, index))
        super().__setitem__(index, value)

    def append(self, value):
        self.journal.append((self.name, "append"))
        super().append(value)


def over_objects(x, a, b):
    a.first = x + 1
    b["k"] = x * 2
    a["k"] = b.items["k"] - 1
    b.size = a.first.shape[0]
    a.first = a.items["k"] * 3
    del a.first
    b.value += 1
    return a.items["k"] + b.value


def over_lists(x, a, b):
    a[0] = x + 1
    b.append(a[0] * 2)
    b[0] = len(a)
    a.append(b)
    a[1] = b[2]
    return a[0] + b[0]


def over_objects_with_a_break(x, a, b):
    a.first = x + 1
    b["k"] = a.first * 2
    print(end="")
    a["k"] = b.items["k"] - 1
    b.first = a.items["k"]
    return b.first * 2


def over_objects_that_raises(x, a, b):
    a.first = x + 1
    b["k"] = a.first
    try:
        a.second = b.items["missing"]
    except KeyError:
        b.first = x
    a.third = 1
    return b.items["none"]


@pytest.mark.breaks(outside_effect={"over_objects_with_a_break": 1}, exception_raised={"over_objects_that_raises": 1})
@pytest.mark.parametrize("program, make",
                         [(over_objects, Watched), (over_lists, WatchedList), (over_objects_with_a_break, Watched),
                          (over_objects_that_raises, Watched)])
def test_effects_on_several_objects_are_in_order(program, make, backend):
    compiled, x = framejit.compile(program, backend=backend), torch.randn(3)
    for _ in range(4):
        seen = []
        for call in (program, compiled):
            journal = []
            a, b = make("a", journal), make("b", journal)
            try:
                result = call(x, a, b)
            except KeyError as error:
                result = str(error)
            state = [list(v)[:2] if isinstance(v, list) else (v.items, v.__dict__.get("first"), v.value)
                     for v in (a, b)]
            seen.append((result, journal, state))
        same(seen[1], seen[0])
        assert len(seen[1][1]) >= 4 and {entry[0] for entry in seen[1][1]} == {"a", "b"}
    assert framejit.stats()["hits"] >= 3 and not framejit.stats()["fallbacks"], framejit.stats()


class Old:
    """Something that a write replaces: says so when it dies."""

    def __init__(self, name, gone):
        self.name, self.gone = name, gone

    def __del__(self):
        self.gone.append(self.name)


class Place:
    pass


def make_places(gone):
    """Objects of six kinds, each holding an Old, and functions that write them in different orders."""
    global LAST
    LAST, cell = Old("global", gone), Old("cell", gone)
    a, b, items, table = Place(), Place(), [Old("list", gone)], {"k": Old("dict", gone)}
    a.value, b.value = Old("a", gone), Old("b", gone)

    def one_way(x):
        nonlocal cell
        global LAST
        b.value = x + 1
        items[0] = 1
        LAST = x * 2
        a.value = 2
        cell = x - 1
        table["k"] = 3
        return x * 3

    def another(x):
        nonlocal cell
        global LAST
        table["k"] = x
        cell = 1
        a.value = x + 1
        LAST = 2
        items[0] = x * 2
        b.value = 3
        return x * 3
    return {"one_way": one_way, "another": another}


@pytest.mark.parametrize("name", ["one_way", "another"])
def test_the_order_of_writes_to_real_objects(name, clean_globals, backend):
    seen, x = [], torch.randn(3)
    for transform in [lambda f: f] + [lambda f: framejit.compile(f, backend=backend)] * 3:
        gone = []
        step = transform(make_places(gone)[name])
        gone.clear()
        seen.append((step(x), list(gone)))
    assert len(seen[0][1]) == 6
    for got in seen[1:]:
        same(got, seen[0])
    assert framejit.stats()["graphs"] == 1 and framejit.stats()["hits"] == 2 and not framejit.stats()["graph_breaks"]


class Guarded:
    """Holds an item in its __dict__ under the name of a property, whose setter a plain attribute write would call."""

    def __init__(self):
        self.written = []
        self.__dict__["size"] = 5

    @property
    def size(self):
        return len(self.written)

    @size.setter
    def size(self, value):
        self.written.append(value)


def set_in_the_dict(x, a):
    a.__dict__["size"] = 7
    return x + a.size


def update_the_dict(x, a):
    vars(a).update(size=x, other=1)
    return x + a.size


def delete_in_the_dict(x, a):
    del a.__dict__["size"]
    return x + a.size


def set_both(x, a):
    a.__dict__["size"] = x
    a.size = 2
    return x + a.size


def set_in_the_dict_of_a_new_one(x, a):
    new = Guarded()
    new.__dict__["size"] = 9
    return x + 1, new.__dict__, new


@pytest.mark.breaks(unsupported_write=1)
@pytest.mark.breaks(unsupported_write={"set_in_the_dict_of_a_new_one": 1})
@pytest.mark.parametrize("program", [set_in_the_dict, update_the_dict, delete_in_the_dict, set_both,
                                     set_in_the_dict_of_a_new_one])
def test_items_of_a_dict_under_the_name_of_a_property(program, backend):
    compiled, x = framejit.compile(program, backend=backend), torch.randn(3)
    for _ in range(3):
        ours, plain = Guarded(), Guarded()
        same((compiled(x, ours), vars(ours)), (program(x, plain), vars(plain)))


@pytest.mark.fallbacks(run_failed={"eager": 2}, kernel_check={"framejit": 2})
def test_the_order_is_seen_by_what_fails_in_the_middle(backend):
    """An error of the graph comes after the effects before it and before those after it; or all of it is undone and
    done again."""
    def f(x, i, a, b):
        a.append(len(b))
        b.append(len(a))
        y = x[i]
        a.append("late")
        return y
    compiled, x = framejit.compile(f, backend=backend), torch.randn(3)
    for index in (1, 7, 2, 9):
        seen = []
        for call in (f, compiled):
            a, b = [], []
            try:
                result = call(x, torch.tensor([index]), a, b)
            except IndexError as error:
                result = str(error)
            seen.append((result, a, b))
        same(seen[1], seen[0])


LOGGER = logging.getLogger("framejit.test_effects")


def line_of(function, offset):
    return function.__code__.co_firstlineno + offset


def logs(x):
    x = x + 1
    LOGGER.warning("size %d", x.shape[0])
    return x * 2


def logs_in_a_callee(x):
    return logs(x * 3) - 1


def logs_for_its_caller(x):
    def helper(x):
        LOGGER.error("for the caller", stacklevel=2)
        return x * 2
    x = x + 1
    x = helper(x)
    return x - 1


def logs_an_exception(x):
    try:
        x = x + 1
        raise ValueError("here")
    except ValueError:
        LOGGER.exception("caught")
    return x * 2


@pytest.mark.breaks(  # of CPython's logging, which differs from version to version
    outside_effect=range(2, 8), unknown_callable=range(10, 16), exception_state={"exception": 1},
    unknown_attribute={"function": 5, "callee": 5, "stacklevel": 6, "exception": 6}, real_iterator={"exception": 3})
@pytest.mark.parametrize("program, function, offset", [
    (logs, logs, 2), (logs_in_a_callee, logs, 2), (logs_for_its_caller, logs_for_its_caller, 5),
    (logs_an_exception, logs_an_exception, 5)],
    ids=["function", "callee", "stacklevel", "exception"])
def test_a_record_is_logged_on_each_call(program, function, offset, backend, caplog):
    compiled, x = framejit.compile(program, backend=backend), torch.randn(3)
    for call in range(4):
        before, records = framejit.stats(), []
        for each in (program, compiled):
            caplog.clear()
            result = each(x)
            records.append((result, [(r.levelname, r.getMessage(), r.funcName, r.lineno, r.pathname, r.exc_info
                                      and (r.exc_info[0], str(r.exc_info[1])))
                                     for r in caplog.records]))
        same(records[1], records[0])
        [(_, _, name, line, _, _)] = records[1][1]
        assert (name, line) == (function.__name__, line_of(function, offset))
        after = framejit.stats()
        assert call == 0 or after["hits"] - before["hits"] >= 2 and after["graphs"] == before["graphs"], after
    assert not framejit.stats()["fallbacks"], framejit.stats()


def warns(x):
    x = x + 1
    warnings.warn(f"size {x.shape[0]}")
    return x * 2


def warns_in_a_callee(x):
    return warns(x * 3) - 1


def warns_for_its_caller(x):
    def helper(x):
        warnings.warn("for the caller", DeprecationWarning, stacklevel=2)
        return x * 2
    x = x + 1
    x = helper(x)
    return x - 1


@pytest.mark.parametrize("program, function, offset",
                         [(warns, warns, 2), (warns_in_a_callee, warns, 2),
                          (warns_for_its_caller, warns_for_its_caller, 5)], ids=["function", "callee", "stacklevel"])
@pytest.mark.parametrize("action, count", [("always", 4), ("default", 1), ("ignore", 0), ("error", 4)])
def test_a_warning_is_given_on_each_call(program, function, offset, action, count, backend):
    def warned(call, x):
        globals().pop("__warningregistry__", None)
        results = []
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter(action)
            for _ in range(4):
                try:
                    results.append(call(x))
                except Warning as warning:
                    results.append((type(warning), str(warning),
                                    [entry.tb_lineno for entry in entries(warning.__traceback__)][1:]))
        return results, [(str(w.message), w.category, w.filename, w.lineno) for w in seen]

    def entries(trace):
        while trace:
            if trace.tb_frame.f_code.co_filename == __file__:
                yield trace
            trace = trace.tb_next
    compiled, x = framejit.compile(program, backend=backend), torch.randn(3)
    same(warned(compiled, x), warned(program, x))
    before = framejit.stats()
    got = warned(compiled, x)
    after = framejit.stats()
    assert [line for *_, line in got[1]] == [line_of(function, offset)] * (0 if action == "error" else count)
    assert sum(isinstance(r, tuple) for r in got[0]) == (4 if action == "error" else 0)
    raises = action == "error"  # plain Python raises it
    assert after["break_reasons"] == ({"outside_effect": 1} if raises else {}) and not after["fallbacks"], after
    assert after["graphs"] == before["graphs"] and after["hits"] - before["hits"] == 4, after


class Mine(UserWarning):
    pass


def warns_twice(x, seen):
    x = x + 1
    warnings.warn("first", Mine)
    seen.append(x.shape[0])
    warnings.warn(message="second", category=DeprecationWarning, stacklevel=0)
    return F.kl_div(x, x.exp())


def test_warnings_before_an_effect_are_one_graph(backend):
    x = torch.randn(3)
    check(warns_twice, x, [], backends=(backend,))

    def of(fn):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            result = fn(x, [])
        return result, [(str(w.message)[:10], w.category, w.filename, w.lineno) for w in seen]
    framejit.reset()
    compiled = framejit.compile(warns_twice, backend=backend)
    for _ in range(3):
        same(of(compiled), of(warns_twice))
    assert len(of(compiled)[1]) == 3 and framejit.stats()["graph_breaks"] == 0


class Counting(UserWarning):
    def __init__(self, *args):
        super().__init__(*args)


def warns_of_a_class(x):
    x = x + 1
    warnings.warn("its constructor is Python code", Counting)
    return x * 2


def warns_an_object(x):
    x = x + 1
    warnings.warn(Mine("made here"))
    return x * 2


def warns_a_caller_outside(x):
    x = x + 1
    warnings.warn("for the caller", stacklevel=2)
    return x * 2


@pytest.mark.parametrize("program", [warns_of_a_class, warns_an_object, warns_a_caller_outside])
def test_warnings_that_break(program, backend):
    stats = check(program, torch.randn(3), compiles=2, breaks=1, backends=(backend,))
    assert stats["break_reasons"] == {"outside_effect": 1}


def test_a_filter_that_raises_later(backend):
    """Between two calls a filter for a base class of the warning's class is added, and removed again."""
    def results(fn, x):
        seen = []
        for action in (None, "error", None):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if action:
                    warnings.filterwarnings(action, category=UserWarning)
                try:
                    seen.append(fn(x, []))
                except Mine as error:
                    seen.append(str(error))
        return seen
    x, compiled = torch.randn(3), framejit.compile(warns_twice, backend=backend)
    same(results(compiled, x), results(warns_twice, x))
    assert framejit.stats()["break_reasons"]["outside_effect"] == 1 and not framejit.stats()["fallbacks"]


def reads_the_record(x, seen):
    x = x + 1
    warnings.warn("recorded")
    return x * (1 + len(seen))


def test_a_record_that_the_program_reads(backend):
    compiled, x = framejit.compile(reads_the_record, backend=backend), torch.randn(3)
    for _ in range(3):
        results = []
        for fn in (reads_the_record, compiled):
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                results.append((fn(x, seen), len(seen)))
        same(results[1], results[0])
        assert torch.equal(results[0][0], (x + 1) * 2)
    assert framejit.stats()["graph_breaks"] == 1
