"""An exception of a signal handler during a compile reaches the caller, and nothing of that compile is kept."""
import linecache
import signal
import time

import pytest
import torch

import framejit
from check import fresh, same  # noqa: F401


class Stop(BaseException):
    pass


def raise_stop(number, frame):
    raise Stop(number, "now")


def raise_timeout(number, frame):
    raise TimeoutError("too late")


@pytest.fixture(autouse=True)
def no_grad_and_alarm():
    before = signal.getsignal(signal.SIGALRM)
    with torch.no_grad():
        yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def chain():
    return torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(300)]).eval()


class Residual(torch.nn.Module):
    """Reads parameters itself, and numbers of a range, in its own frame."""
    def __init__(self):
        super().__init__()
        self.weights = torch.nn.ParameterList([torch.randn(4, 4) / 4 for _ in range(300)])
    def forward(self, x):
        for i in range(len(self.weights)):
            x = x + x @ self.weights[i] * (1 + i % 3)
        return x


def call_until(compiled, x, delay):
    """Calls again and again until the alarm ends it, which may be in a call that compiles."""
    signal.setitimer(signal.ITIMER_REAL, delay)
    end = time.perf_counter() + delay + 5
    while time.perf_counter() < end:
        compiled(x)


@pytest.mark.parametrize("backend", ["eager", "framejit"])
@pytest.mark.parametrize("make", [chain, Residual])
@pytest.mark.parametrize("handler, raised", [(signal.default_int_handler, KeyboardInterrupt), (raise_stop, Stop),
                                             (raise_timeout, TimeoutError)])
def test_alarm_during_a_compile(make, backend, handler, raised):
    model, x = make(), torch.ones(3, 4)
    compiled = framejit.compile(model, backend=backend)
    expected = model(x)
    start = time.perf_counter()
    compiled(x)
    whole = time.perf_counter() - start
    signal.signal(signal.SIGALRM, handler)
    for i in range(12):
        framejit.reset()
        with pytest.raises(raised) as caught:
            call_until(compiled, x, whole * (i + 0.5) / 12)
        if raised is Stop:
            assert caught.value.args == (signal.SIGALRM, "now")
        same(compiled(x), expected)
        stats = framejit.stats()
        assert stats["graphs"] == 1 and not stats["fallbacks"], stats
        assert not stats["graph_breaks"] and stats["interrupted"] <= 1, stats  # 0: the signal came after the compile


class Listening:
    """Log listeners are Python code that runs in a compile: this one raises once if armed."""
    def __init__(self):
        self.armed = False
    def __call__(self, event):
        if self.armed:
            self.armed = False
            raise Stop("listener")
    def write(self, text):
        self.armed = True
    def __enter__(self):
        self.token = framejit._framejit.add_listener(self)
        return self
    def __exit__(self, *_):
        framejit._framejit.remove_listener(self.token)


def test_interrupt_in_a_log_listener():
    """It counts as an interrupted compile, not as a graph break."""
    x = torch.ones(3)
    f = framejit.compile(lambda x: x.sin() + 1, backend="eager")
    with Listening() as listening, pytest.raises(Stop, match="listener"):
        listening.armed = True
        f(x)
    stats = framejit.stats()
    assert stats["interrupted"] == 1 and stats["graphs"] == stats["graph_breaks"] == stats["fallbacks"] == 0
    same(f(x), x.sin() + 1)
    assert framejit.stats()["graphs"] == framejit.stats()["interrupted"] == 1


@pytest.mark.breaks(outside_effect=1)
def test_the_frame_handles_it():
    """The compile after the break begins inside the try statement."""
    def f(x, out):
        try:
            y = x + 1
            print("armed", end="", file=out)
            return y.sin() * 2
        except Stop as e:
            return y - 1, e.args
        finally:
            x.add_(1)
    compiled = framejit.compile(f, backend="eager")
    with Listening() as listening:
        same(compiled(torch.ones(3), listening), (torch.ones(3), ("listener",)))
    with open("/dev/null", "w") as out:
        x = torch.ones(3)
        same(compiled(x, out), (torch.ones(3) + 1).sin() * 2)
        same(x, torch.full((3,), 2.0))


@pytest.mark.breaks(outside_effect=2)
def test_interrupt_while_a_break_is_described(monkeypatch):
    def f(x):
        print(end="")
        return x + 1
    def getline(file, line):
        if armed:
            armed.clear()
            raise Stop("getline")
        return real(file, line)
    real, armed, x = linecache.getline, [1], torch.ones(3)
    monkeypatch.setattr(linecache, "getline", getline)
    compiled = framejit.compile(f, backend="eager", fullgraph=True)
    with pytest.raises(Stop, match="getline"):
        compiled(x)
    assert framejit.stats()["interrupted"] == 1 and not framejit.stats()["graph_breaks"]
    with pytest.raises(framejit.GraphBreakError):
        compiled(x)
    same(framejit.compile(f, backend="eager")(x), x + 1)
