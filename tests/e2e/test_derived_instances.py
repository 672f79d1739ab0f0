"""Which derived values exist: instances of a class, weights that are replaced, threads, calls that fail."""
import gc
import signal
import sys
import threading
import weakref

import pytest
import torch

import framejit
from framejit import _framejit
from check import fresh  # noqa: F401
from test_derived_weights import CALLS, check, derived, pytestmark, skip_without_packed_bfloat16, warm  # noqa: F401


class Layer(torch.nn.Module):
    """Its weight is packed, and a hook runs in the middle of a call."""

    def __init__(self, width=256):
        skip_without_packed_bfloat16()
        super().__init__()
        self.fc = torch.nn.Linear(width, width, dtype=torch.bfloat16)

    def forward(self, x):
        return self.fc(pause(x)) + 1


HOOK = []


@torch.library.custom_op("framejit_tests::pause", mutates_args=())
def pause(x: torch.Tensor) -> torch.Tensor:
    if HOOK:
        HOOK.pop()()
    return x.clone()


@pause.register_fake
def _(x):
    return torch.empty_like(x)


@pytest.fixture(autouse=True)
def without_gradients():
    with torch.no_grad():
        yield
    HOOK.clear()


def rows(width=256):
    return torch.randn(64, width, dtype=torch.bfloat16)


def bytes_of(layer):
    return layer.fc.weight.nbytes


def in_thread(call):
    def run():
        with torch.no_grad():
            call()
    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_weights_that_are_replaced_leave_nothing():
    layer, x = Layer(), rows()
    compiled = framejit.compile(layer)
    for _ in range(12):
        layer.load_state_dict({k: torch.randn_like(v) for k, v in layer.state_dict().items()}, assign=True)
        for _ in range(5):
            check(layer, compiled, x)
        assert framejit.stats()["derived_bytes"] <= bytes_of(layer)
    made = framejit.stats()["derived_made"]
    assert 2 <= made <= 5, "each change doubles the calls that are waited for"
    while framejit.stats()["derived_made"] == made:
        check(layer, compiled, x)
    assert derived() == 1


def test_a_hundred_instances_in_turn():
    layers, x = [Layer(64) for _ in range(100)], rows(64)
    compiled = framejit.compile(Layer.forward)
    for _ in range(5):
        for layer in layers:
            compiled(layer, x)
    assert derived() == 100
    del layers[:50], layer
    gc.collect()
    assert derived() == 50
    for layer in layers:
        check(layer, lambda x: compiled(layer, x), x)


def test_instances_share_a_first_weight():
    skip_without_packed_bfloat16()

    class Stack(torch.nn.Module):
        def __init__(self, first):
            super().__init__()
            self.first, self.second = first, torch.nn.Linear(256, 256, dtype=torch.bfloat16)

        def forward(self, x):
            return self.second(self.first(x))

    first = torch.nn.Linear(256, 256, dtype=torch.bfloat16)
    a, b, x = Stack(first), Stack(first), rows()
    compiled = framejit.compile(Stack.forward)
    for _ in range(20):
        compiled(a, x), compiled(b, x)
    assert derived() == 3 and framejit.stats()["derived_made"] == 3


def test_owners_go_while_their_plan_runs():
    """Derive is due in that very call: the old layer is kept alive until the call ends."""
    x = rows()
    for _ in range(5):
        model = Layer()
        compiled, old = framejit.compile(model), weakref.ref(model.fc)
        compiled(x), compiled(x)

        def replace():
            model.fc = torch.nn.Linear(256, 256, dtype=torch.bfloat16)
            gc.collect()
        HOOK.append(replace)
        compiled(x)
        assert not HOOK and old() is None
        for _ in range(CALLS):
            check(model, compiled, x)
    del model, compiled
    gc.collect()
    assert derived() == 0


def test_two_threads_in_two_instances():
    """B is in its plan when A's call derives: each keeps its own values."""
    a, b, x = Layer(), Layer(), rows()
    compiled = framejit.compile(Layer.forward)
    for _ in range(2):
        compiled(a, x), compiled(b, x)
    b_runs, a_is_done, threads = threading.Event(), threading.Event(), []

    def while_b_runs():
        b_runs.set()
        assert a_is_done.wait(60)

    def while_a_runs():
        HOOK.append(while_b_runs)
        threads.append(in_thread(lambda: compiled(b, x)))
        assert b_runs.wait(60)
    HOOK.append(while_a_runs)
    compiled(a, x)
    assert derived() == 1
    a_is_done.set()
    threads.pop().join()
    assert derived() == 2
    gone = weakref.ref(b)
    del b
    gc.collect()
    assert gone() is None and derived() == 1
    check(a, lambda x: compiled(a, x), x)


def test_threads_while_nothing_can_be_derived():
    """Float32 products are left alone: one thread finds that out while others are in calls that are due too."""
    _framejit.replace_costs("packed_rows=0")
    layer = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(4)))
    x, told = torch.randn(16, 64), []
    token = _framejit.add_listener(lambda e: told.append(e["text"]) if e["event"] == "NotDerived" else None)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        compiled = framejit.compile(layer)
        want = compiled(x)
        threads = [in_thread(lambda: [compiled(x) for _ in range(30)]) for _ in range(4)]
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
        _framejit.remove_listener(token)
        _framejit.replace_costs("")
    assert torch.equal(compiled(x), want)
    assert len(told) == 1 and "no op would gain" in told[0], told


class Rows(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(100, 256, dtype=torch.bfloat16)
        self.fc = torch.nn.Linear(256, 256, dtype=torch.bfloat16)

    def forward(self, which):
        return self.fc(self.table(which))


@pytest.mark.fallbacks(kernel_check=1)
def test_a_failed_call_keeps_no_weight():
    model, which = Rows(), torch.arange(64)
    compiled = framejit.compile(model)
    compiled(which), compiled(which)
    with pytest.raises(IndexError):
        compiled(which + 1000)  # derive is due in it
    torch.utils.swap_tensors(model.fc.weight, torch.nn.Parameter(torch.randn_like(model.fc.weight)))
    check(model, compiled, which)
    weight = weakref.ref(model.fc.weight)
    del model, compiled
    gc.collect()
    assert weight() is None


def test_shared_memory_costs_no_second_compile():
    layer, x, stages = Layer().share_memory(), rows(), []
    compiled = framejit.compile(layer)
    compiled(x)
    token = _framejit.add_listener(lambda e: stages.append(e["text"]) if e["event"] == "Stage" else None)
    try:
        warm(compiled, x)
    finally:
        _framejit.remove_listener(token)
    assert derived() == 0 and stages == []


def test_control_c_that_the_program_catches():
    layer, x = Layer(), rows()
    compiled = framejit.compile(layer)
    compiled(x), compiled(x)

    for _ in range(3):
        HOOK.append(lambda: signal.raise_signal(signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            compiled(x)
    assert framejit.stats()["fallbacks"] == 0
    warm(compiled, x)
    assert derived() == 1
    check(layer, compiled, x)


def test_weights_without_a_version_are_watched_under_freezing_too():
    with torch.inference_mode():
        layer, x = Layer(), rows()
        compiled = framejit.compile(layer, options={"freezing": True})
        warm(compiled, x)
        assert derived() == 1
        layer.fc.weight.mul_(2)
        check(layer, compiled, x)


class Bag:
    """Not an nn.Module, although it names its tensors like one."""
    def __init__(self, rows):
        self._parameters = {"w": torch.randn(rows, 64)}

    def __call__(self, x):
        return torch.nn.functional.linear(x, self._parameters["w"])


def test_tensors_of_a_class_of_the_program_are_no_weights():
    """framejit.refresh() takes modules only, so nothing may be trusted to stay as it was."""
    bag, x = Bag(8), torch.randn(300, 64)
    compiled = framejit.compile(Bag.__call__, options={"freezing": True})
    warm(lambda x: compiled(bag, x), x)
    bag._parameters["w"].data.mul_(2)
    check(bag, lambda x: compiled(bag, x), x)
    assert framejit.stats()["derived_made"] == 0


def test_tensors_of_a_class_of_the_program_may_vary_in_size():
    compiled, x = framejit.compile(Bag.__call__), torch.randn(300, 64)
    for n in range(3, 9):
        bag = Bag(n)
        check(bag, lambda x: compiled(bag, x), x)
    assert framejit.stats()["graphs"] == 2


def test_a_listener_calls_what_is_asked():
    """Logging a change runs the program's code in the middle of a call."""
    layer, others, x = Layer(), [Layer() for _ in range(3)], rows()
    compiled, seen = framejit.compile(Layer.forward), []
    warm(lambda x: compiled(layer, x), x)

    def listen(event):
        if event["event"] == "NotFresh" and not seen:
            seen.append(event["text"])
            framejit.refresh(layer)
            for other in [layer, *others]:
                compiled(other, x)
    token = _framejit.add_listener(listen)
    try:
        layer.fc.weight.data.mul_(2)
        check(layer, lambda x: compiled(layer, x), x)
    finally:
        _framejit.remove_listener(token)
    assert "['fc']._parameters['weight'] has changed" in seen[0]
    for other in [layer, *others]:
        warm(lambda x: compiled(other, x), x), warm(lambda x: compiled(other, x), x)
        check(other, lambda x: compiled(other, x), x)
    assert derived() == 4


def test_values_of_many_sizes_take_no_more_than_the_weights():
    conv = torch.nn.Conv2d(64, 128, 3, padding=1).eval().to(memory_format=torch.channels_last)
    compiled = framejit.compile(conv, dynamic=False)
    for size in (16, 20, 24, 28):
        x = torch.randn(2, 64, size, size).contiguous(memory_format=torch.channels_last)
        made = framejit.stats()["derived_made"]
        for _ in range(CALLS):
            check(conv, compiled, x)
        assert framejit.stats()["derived_made"] == made + 1, "the size that is used now gives way to none"
        # oneDNN fills up blocks of channels: on AVX2, 128 channels to 6 blocks of 24.
        assert derived() == 1 and framejit.stats()["derived_bytes"] <= 1.125 * conv.weight.nbytes
