"""Records a function, replays the recording op by op, and compares with eager: shapes of every op, outputs, written
inputs."""
import torch

from framejit._framejit_recorder import Recorder


def clone_like(t):
    """A copy with t's strides, including overlaps."""
    extent = 1 + sum((n - 1) * s for n, s in zip(t.size(), t.stride())) if t.numel() else 0
    return t.as_strided((extent,), (1,)).clone().as_strided(t.size(), t.stride())


def flat_tensors(x):
    if isinstance(x, torch.Tensor):
        return [x]
    if isinstance(x, dict):
        x = list(x.values())
    if isinstance(x, (list, tuple)):
        return [t for item in x for t in flat_tensors(item)]
    return []


class Recording:
    def __init__(self, fn, inputs, dynamic=None):
        self.recorder = Recorder()
        dynamic = dynamic or [[] for _ in inputs]
        traced = [self.recorder.input(t, f"L['x{i}']", d) for i, (t, d) in enumerate(zip(inputs, dynamic))]
        self.outputs = flat_tensors(self.recorder.call(fn, *traced))
        self.recorder.build(self.outputs)

    def replay(self, inputs, functional=False):
        return self.recorder.run(inputs, functional=functional)


def same(got, want, tolerance, where):
    assert got.dtype == want.dtype and got.shape == want.shape, (f"{where}: {got.dtype}{list(got.shape)} instead of "
                                                                 f"{want.dtype}{list(want.shape)}")
    for d in range(want.dim()):
        if want.numel() and want.size(d) > 1:
            assert got.stride(d) == want.stride(d), f"{where}: strides {got.stride()} instead of {want.stride()}"
    if tolerance is None:
        return
    assert torch.allclose(got.double(), want.double(), rtol=tolerance, atol=tolerance,
                          equal_nan=True), f"{where}: values differ by {(got.double() - want.double()).abs().max()}"


def check_recording(fn, *inputs, dynamic=None, others=(), tolerance=1e-6, functional=True, seed=0):
    """Records fn(*inputs), then runs the recording (and its functional form) on the inputs and on every tuple of
    `others`."""
    recording = Recording(fn, inputs, dynamic)
    assert not recording.recorder.python_ops(), f"shapes of {recording.recorder.python_ops()} came from Python"
    if functional:
        recording.recorder.run_passes(decompose=False)
    for args in [inputs, *others]:
        for form in [False, True] if functional else [False]:
            torch.manual_seed(seed)
            eager_args = [clone_like(t) for t in args]
            want = flat_tensors(fn(*eager_args))
            torch.manual_seed(seed)
            our_args = [clone_like(t) for t in args]
            got, wrong, broken = recording.replay(our_args, functional=form)
            assert not broken, f"these inputs need a recording of their own: {broken}"
            name = "functional" if form else "recorded"
            assert not wrong or form, f"{name}: {wrong}\n{recording.recorder.text()}"
            assert len(got) == len(want)
            for i, (g, w) in enumerate(zip(got, want)):
                same(g, w, tolerance, f"{name}: output {i}")
            for i, (g, w) in enumerate(zip(our_args, eager_args)):
                same(g, w, tolerance, f"{name}: input {i} afterwards")
    return recording
