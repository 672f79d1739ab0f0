"""Our hooks together with another hook, which installs and removes itself as torch._dynamo's does."""
import pytest


@pytest.fixture
def functions(ht):
    def helper(x):
        return x + 1

    def f(x):
        return helper(x)

    ht.mark(f, ht.RUN)
    ht.mark(helper, ht.COUNT)
    yield f, helper
    ht.remove()


def test_armed_call_restores_the_other_hook(ht, functions):
    f, helper = functions
    armed = ht.armed(f)
    ht.other(True)
    assert armed(1) == 2 and armed(2) == 3
    assert ht.counts(f)[0] == 2
    assert ht.other(False) >= 2  # the helper's frames, not the armed ones
    assert armed(3) == 4 and ht.counts(f)[0] == 3


def test_untouched_frames_go_to_the_hook_below(ht, functions):
    f, helper = functions
    ht.other(True)
    ht.install()
    assert ht.on_top() and f(1) == 2
    assert ht.counts(f)[0] == 1 and ht.counts(helper)[0] == 1
    ht.remove()
    assert not ht.on_top()
    assert ht.other(False) > 0
    assert f(5) == 6 and ht.counts(f)[0] == 1


def test_the_other_on_top_chains_to_us(ht, functions):
    f, helper = functions
    ht.install()
    ht.other(True)
    assert f(1) == 2 and ht.counts(f)[0] == 1
    assert ht.other(False) >= 2
    assert ht.on_top()


def test_the_other_leaves_from_below_and_we_come_back(ht, functions):
    f, helper = functions
    ht.other(True)
    ht.install()
    ht.other(False)  # writes back the hook that it had saved, which removes ours
    assert not ht.on_top()
    ht.install()
    assert ht.on_top() and f(1) == 2 and ht.counts(f)[0] == 1


def test_no_endless_mutual_chain(ht, functions):
    """It saved ours, then we put ourselves on top again: now each hook has the other below it."""
    f, helper = functions
    ht.install()
    ht.other(True)
    ht.install()
    assert ht.on_top() and f(1) == 2
    assert ht.counts(f)[0] >= 1


def test_removed_from_the_middle(ht, functions):
    f, helper = functions
    ht.install()
    ht.other(True)
    ht.remove()  # the other one still calls ours: we pass everything on
    assert f(1) == 2 and ht.counts(f)[0] == 0
    ht.other(False)
    ht.install()
    ht.remove()
    assert f(1) == 2
