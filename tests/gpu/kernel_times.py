"""Times of own kernels and of eager's, on a machine with a GPU.

    python tests/gpu/kernel_times.py [CASE ...]

"calls": one call after another, with the host's time. "graph": twenty calls, captured and replayed, with the device's
time only. GB/s: the bytes that must be read and written, divided by the time in a graph.
"""
import statistics
import sys

import torch
import torch.nn.functional as F

import framejit


def block(x, w, b):
    y = F.layer_norm(torch.tanh(x * 2 + 1), (x.shape[-1],), w, b)
    return torch.softmax(y, -1)


# A function of x, w, b, and how often it must move the elements of x.
CASES = {
    "gelu(x + b)": (lambda x, w, b: F.gelu(x + b), 2),
    "softmax": (lambda x, w, b: torch.softmax(x, -1), 2),
    "log_softmax": (lambda x, w, b: torch.log_softmax(x, -1), 2),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (x.shape[-1],), w, b), 2),
    "rms_norm": (lambda x, w, b: F.rms_norm(x, (x.shape[-1],), w), 2),
    "tanh, layer_norm, softmax": (block, 2),
    "column sum": (lambda x, w, b: x.sum(0), 1),
    "row sum": (lambda x, w, b: x.sum(-1), 1),
    "whole sum": (lambda x, w, b: x.sum(), 1),
    "argmax": (lambda x, w, b: x.argmax(-1), 1),
    "transpose": (lambda x, w, b: x.T.contiguous(), 2),
}
SIZES = ((197, 768), (8192, 8192), (4099, 1023), (64, 50257), (2048, 50257))
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def microseconds(run, count):
    times = []
    for _ in range(7):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1000 / count)
    return statistics.median(times)


def called(call, count=50):
    def calls():
        for _ in range(count):
            call()
    calls()
    return microseconds(calls, count)


def captured(call, count=20):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            call()
    graph.replay()
    return microseconds(graph.replay, count)


def row(name, fn, moved, tensors, dynamic):
    framejit.reset()
    compiled = framejit.compile(fn, dynamic=dynamic)
    with torch.no_grad():
        compiled(*tensors)
        calls = called(lambda: fn(*tensors)), called(lambda: compiled(*tensors))
        graph = captured(lambda: fn(*tensors)), captured(lambda: compiled(*tensors))
    rate = moved * tensors[0].numel() * tensors[0].element_size() / graph[1] / 1e3
    text = "   ".join(f"{kind} {eager:7.1f} {ours:7.1f} us {eager / ours:5.2f}x"
                      for kind, (eager, ours) in (("calls", calls), ("graph", graph)))
    print(f"  {name:26} {text}   {rate:5.0f} GB/s", flush=True)


def run(names=()):
    print("eager and framejit, and how many times as fast")
    for size, dynamic in [(size, False) for size in SIZES] + [((8192, 8192), True)]:
        for dtype in DTYPES:
            x, w, b = (torch.randn(*s, device="cuda").to(dtype) for s in (size, size[1:], size[1:]))
            print(f"{size} {str(dtype)[6:]}{', sizes as symbols' if dynamic else ''}; "
                  f"clone in a graph {captured(x.clone):.1f} us")
            for name, (fn, moved) in CASES.items():
                if not names or name in names:
                    row(name, fn, moved, (x, w, b), dynamic)


if __name__ == "__main__":
    run(sys.argv[1:])
