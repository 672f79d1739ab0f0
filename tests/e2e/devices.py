"""Where the programs of the tests have their tensors: TEST_DEVICE (cpu). On a GPU, the code that makes a training
program runs with that device as the default; the compiled call does not. In other tests, the arguments are moved
there."""
import contextlib
import os

import torch

DEVICE = os.environ.get("TEST_DEVICE", "cpu")
if DEVICE != "cpu":
    torch.backends.cudnn.allow_tf32 = False  # convolutions of float32 would have ten bits


_default = [None]


@contextlib.contextmanager
def default_device(device):
    """`device`: None for torch's own."""
    _default.append(device)
    torch.set_default_device(device)
    try:
        yield
    finally:
        _default.pop()
        torch.set_default_device(_default[-1])


def on_device():
    return contextlib.nullcontext() if DEVICE == "cpu" else default_device(DEVICE)


def off_device():
    return contextlib.nullcontext() if DEVICE == "cpu" else default_device(None)


def moved(tensor, device):
    """The tensor on that device, with its strides and offset."""
    memory = tensor.untyped_storage().to(device=device)
    return tensor.new_empty(0, device=device).set_(memory, tensor.storage_offset(), tensor.shape, tensor.stride())


def random_state():
    """The states of the default generators, of the CPU and of the GPUs that are in use."""
    return [torch.get_rng_state(), *(torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else ())]


def set_random_state(states):
    torch.set_rng_state(states[0])
    if states[1:]:
        torch.cuda.set_rng_state_all(states[1:])


def same_random_state(states):
    return all(map(torch.equal, states, random_state()))
