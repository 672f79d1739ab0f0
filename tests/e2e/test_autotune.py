"""mode="max-autotune": choices are timed on the inputs of the call that compiles; a program sees no other
difference."""
import contextlib
import signal
import threading
import time

import pytest
import torch
import torch.nn.functional as F

import framejit
from check import check, fresh, same, threads  # noqa: F401

pytestmark = pytest.mark.cpu_only("alternatives are those of the CPU")

TUNED = dict(backends=("framejit",), mode="max-autotune")


@contextlib.contextmanager
def autotune_events():
    """The events of the channel autotune, as (event, choice, winner or reason)."""
    events = []

    def hear(event):
        if event["channel"] == "autotune":
            fields = event["fields"]
            events.append((event["event"], fields["choice"], fields.get("winner", fields.get("reason"))))
    token = framejit._framejit.add_listener(hear)
    try:
        yield events
    finally:
        framejit._framejit.remove_listener(token)


def heard(fn, *args, mode="max-autotune"):
    with autotune_events() as events:
        framejit.compile(fn, mode=mode)(*args)
    return events


def refusals(events):
    """Why choices were not timed, except for two reasons that depend on the machine: the time, and alternatives that
    are the same here."""
    return [text for event, _, text in events if event == "NotTimed"
            and not any(why in text for why in ("the budget of", "no time left", " is "))]


def conv_net():
    return torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.BatchNorm2d(16), torch.nn.ReLU(),
                               torch.nn.MaxPool2d(2), torch.nn.Conv2d(16, 16, 3, groups=16), torch.nn.Conv2d(16, 24, 1),
                               torch.nn.Flatten(), torch.nn.Linear(24 * 196, 10)).eval()


def mlp(dtype=torch.float32):
    return torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.LayerNorm(128),
                               torch.nn.Linear(128, 64), torch.nn.Softmax(1)).to(dtype).eval()


def attention(q, k, v):
    return F.scaled_dot_product_attention(q, k, v) + q


@pytest.mark.parametrize("make, choices", [
    (lambda: (conv_net(), torch.randn(2, 3, 32, 32)), {"memory_formats", "products", "threads", "unroll"}),
    (lambda: (mlp(), torch.randn(32, 64)), {"products", "threads", "unroll"}),
    (lambda: (mlp(torch.bfloat16), torch.randn(256, 64, dtype=torch.bfloat16)),
     {"wide_products", "products", "threads", "unroll"}),
    (lambda: (attention, *torch.randn(3, 1, 4, 32, 16)), {"threads", "unroll"}),
], ids=["conv_net", "mlp", "mlp_bf16", "attention"])
def test_equal_to_eager_and_every_choice_is_named(make, choices):
    fn, *args = make()
    check(fn, *args, breaks=0, compiles=1, **TUNED)
    framejit.reset()
    events = heard(fn, *args)
    assert {choice for _, choice, _ in events} == choices
    assert refusals(events) == []


def test_what_was_only_tried_is_not_logged():
    """The plan of the cost models is logged, and so is the one that replaces it."""
    explanation = framejit.explain(lambda x: torch.softmax(x, 1) * 2, mode="max-autotune")(torch.randn(64, 256))
    is_replaced = any(e.fields["winner"] != "cost_model" for e in explanation.of("Choice"))
    assert len(explanation.of("Schedule")) == (2 if is_replaced else 1)


@pytest.mark.parametrize("mode", [None, "default", "reduce-overhead"])
def test_other_modes_time_nothing(mode):
    assert heard(conv_net(), torch.randn(2, 3, 32, 32), mode=mode) == []


def test_the_mode_has_compiled_code_of_its_own():
    def f(x):
        return torch.relu(x) * 2
    x = torch.randn(100)
    plain, tuned = framejit.compile(f), framejit.compile(f, mode="max-autotune")
    plain(x)
    with autotune_events() as events:
        tuned(x)
        assert events and framejit.stats()["graphs"] == 2
        events.clear()
        plain(x), tuned(x), framejit.compile(f, mode="max-autotune")(x)
    assert not events and framejit.stats()["graphs"] == 2


def test_random_numbers_are_those_of_eager():
    def f(x):
        return F.dropout(torch.relu(x), 0.3) + torch.rand_like(x)
    check(f, torch.randn(40, 50), **TUNED)
    tuned, x = framejit.compile(f, mode="max-autotune"), torch.randn(40, 50)
    torch.manual_seed(3)
    want, state = f(x), torch.get_rng_state()
    framejit.reset()
    torch.manual_seed(3)
    with autotune_events() as events:
        same(tuned(x), want)
    assert torch.equal(torch.get_rng_state(), state)
    assert [(event, choice) for event, choice,
            _ in events] == [("NotTimed", "graph f")] and "draws random numbers" in events[0][2]


def test_written_inputs_are_written_once():
    def f(x, y):
        x.mul_(2)
        y[1:].add_(x[:-1])
        return x + y
    check(f, torch.randn(50, 20), torch.randn(50, 20), **TUNED)
    x = torch.ones(3)
    tuned = framejit.compile(lambda x: x.add_(1), mode="max-autotune")
    for call in range(3):
        assert tuned(x) is x and x._version == call + 1 and x.tolist() == [2.0 + call] * 3


def test_running_statistics_advance_once():
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8)).requires_grad_(False)
    expected = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8)).requires_grad_(False)
    expected.load_state_dict(net.state_dict())
    tuned = framejit.compile(net, mode="max-autotune")
    with autotune_events() as events:
        for _ in range(3):
            x = torch.randn(4, 3, 8, 8)
            torch.testing.assert_close(tuned(x), expected(x))
    assert events and refusals(events) == []
    assert net[1].num_batches_tracked == 3
    torch.testing.assert_close(net[1].running_mean, expected[1].running_mean)
    torch.testing.assert_close(net[1].running_var, expected[1].running_var)


@pytest.mark.fallbacks(kernel_check=1)
def test_what_raises_is_not_timed_and_raises_as_eager():
    def f(table, i):
        return F.embedding(i, table) * 2
    table = torch.randn(5, 4)
    check(f, table, torch.tensor([1, 9]), **TUNED)
    framejit.reset()
    events = heard(f, table, torch.tensor([1, 2]))
    assert events and refusals(events) == []
    framejit.reset()
    tuned = framejit.compile(f, mode="max-autotune")
    with autotune_events() as events, pytest.raises(IndexError, match="index out of range in self"):
        tuned(table, torch.tensor([1, 9]))
    assert {event for event, _, _ in events} == {"NotTimed"}, events
    same(tuned(table, torch.tensor([1, 2])), f(table, torch.tensor([1, 2])))


def test_sizes_and_floats_that_differ_between_calls():
    def f(x, scale):
        return torch.softmax(x * scale, 1).sum(0)
    tuned = framejit.compile(f, mode="max-autotune")
    for rows, scale in ((3, 0.5), (40, 0.25), (17, 2.0), (300, 4.0)):
        x = torch.randn(rows, 33)
        torch.testing.assert_close(tuned(x, scale), f(x, scale))


def test_graphs_behind_breaks_have_their_own_inputs():
    def f(x):
        x = torch.relu(x).cumsum(0)
        print(end="")
        x += 1
        return x.amax(1)
    check(f, torch.randn(30, 40), breaks=1, compiles=2, **TUNED)


def test_same_results_with_any_number_of_threads():
    x = torch.randn(300, 500)
    def f(x):
        return torch.softmax(x, 1) @ torch.relu(x).T, x.exp().sum()
    tuned = framejit.compile(f, mode="max-autotune")
    results = []
    for count in (2, 1, 3):
        with threads(count):
            results.append(tuned(x)[1])
    assert all(torch.equal(r, results[0]) for r in results)


def test_ctrl_c_ends_the_timing():
    """The signal comes when the first choice is made, before plans of the second one are compiled and run."""
    def f(x):
        return torch.relu(x) * 2 + 1
    x, chosen = torch.randn(64), []
    tuned = framejit.compile(f, mode="max-autotune")

    def hear(event):
        if event["channel"] == "autotune":
            chosen.append(event["text"])
            signal.raise_signal(signal.SIGINT)
    token = framejit._framejit.add_listener(hear)
    try:
        with pytest.raises(KeyboardInterrupt):
            tuned(x)
    finally:
        framejit._framejit.remove_listener(token)
    assert len(chosen) == 1 and framejit.stats()["graphs"] == 0, chosen
    same(tuned(x), f(x))
    assert framejit.stats()["graphs"] == 1


def test_other_threads_run_meanwhile():
    net, x, turns, stop = conv_net(), torch.randn(64, 3, 32, 32), [], threading.Event()

    def count():
        while not stop.is_set():
            turns.append(time.perf_counter())
            time.sleep(0.001)
    thread = threading.Thread(target=count)
    thread.start()
    inside = []
    try:
        while len(inside) < 10 and not any(inside[-1:]):
            framejit.reset()
            start = time.perf_counter()
            assert heard(net, x)
            end = time.perf_counter()
            inside.append(sum(start < t < end for t in turns) > 10)
    finally:
        stop.set()
        thread.join()
    assert inside[-1], "never in ten compiles"
