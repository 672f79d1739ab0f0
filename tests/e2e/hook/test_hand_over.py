"""Every function of the corpus, stopped before every instruction when it first gets there, and handed to the
interpreter: result, side effects and traceback equal plain Python's."""
import types

import pytest

import corpus


def codes_of(function):
    seen = []

    def walk(code):
        if code not in seen:
            seen.append(code)
            for constant in code.co_consts:
                if isinstance(constant, types.CodeType):
                    walk(constant)

    walk(function.__code__)
    return seen


def outcome(function):
    corpus.LOG.clear()
    try:
        result = "returned", repr(function())
    except BaseException as error:
        trail, at = [], error
        while at is not None:
            entry = at.__traceback__
            while entry:
                trail.append((entry.tb_frame.f_code.co_name, entry.tb_lineno, entry.tb_lasti, entry.tb_frame.f_lineno))
                entry = entry.tb_next
            trail.append((type(at).__name__, str(at)))
            at = at.__cause__ or at.__context__
        result = "raised", trail[1:]  # without this function's own entry
        del error, at, entry
    return result, [repr(item) for item in corpus.LOG]


def instructions_of(hook, code):
    return sorted({row["index"] for row in hook.decode(code)})


def used_codes(hook, function):
    candidates = codes_of(function)
    for helper in corpus.HELPERS:
        candidates += [code for code in codes_of(helper) if code not in candidates]
    for code in candidates:
        hook.mark(code, hook.COUNT)
    outcome(function)
    used = [code for code in candidates if hook.counts(code)[0] > 0]
    for code in candidates:
        hook.mark(code, hook.PASS)
    return used


@pytest.mark.parametrize("others", ["interpreted", "native"])
@pytest.mark.parametrize("function", corpus.FUNCTIONS, ids=lambda f: f.__name__)
def test_stop_before_every_instruction(hook, function, others):
    expected = outcome(function)
    used = used_codes(hook, function)
    assert function.__code__ in used
    stopped = 0
    for code in used:
        for unit in instructions_of(hook, code):
            for arrival in (1, 2, 4):
                for other in used:
                    hook.mark(other, hook.RUN if others == "native" else hook.PASS)
                hook.mark(code, hook.RUN, stop_at=unit, arrival=arrival)
                assert outcome(function) == expected, (code.co_name, unit, arrival)
                if hook.counts(code)[1] < arrival:
                    break
                stopped += 1
    assert stopped >= 5


@pytest.mark.parametrize("mode", ["RUN", "STEP"])
@pytest.mark.parametrize("function", corpus.FUNCTIONS, ids=lambda f: f.__name__)
def test_whole_frames_natively(hook, function, mode):
    expected = outcome(function)
    for code in used_codes(hook, function):
        hook.mark(code, getattr(hook, mode))
    hook.stats()
    assert outcome(function) == expected
    assert hook.stats()["instructions"] > 0


def test_most_frames_end_natively(hook):
    """The evaluator must not hand over what it claims to execute."""
    left = []
    for function in corpus.FUNCTIONS:
        hook.mark(function, hook.RUN)
        hook.stats()
        outcome(function)
        if hook.stats()["hand_overs"]:
            left.append(function.__name__)
    allowed = {"f_match", "f_call_errors", "f_imports", "f_unpack_errors", "f_async"}
    assert set(left) <= allowed
