"""The host's cost of a call, on a machine with a GPU: microseconds from the call to its return, with the GPU idle.

    python tests/gpu/host_times.py

"launch": the driver's own launch of one kernel. Kernels of "chain N" are kept apart by products of 8x8.
"""
import ctypes
import statistics
import sys
import time

import torch

import framejit


def host(call, count=64):
    """Median of batches that fit into the GPU's queue without waiting."""
    times = []
    for _ in range(40):
        torch.cuda.synchronize()
        start = time.perf_counter_ns()
        for _ in range(count):
            call()
        times.append((time.perf_counter_ns() - start) / 1000 / count)
    torch.cuda.synchronize()
    return statistics.median(times)


def chain(n):
    def run(x, w):
        for _ in range(n):
            x = torch.tanh(x @ w)
        return x
    return run


def points(n):
    """n kernels of ours in a row, separated by a sum over everything."""
    def run(x, w):
        for _ in range(n // 2):
            x = torch.tanh(x) + torch.tanh(x).sum() * 1e-6
        return x
    return run


def copies():
    driver = ctypes.CDLL("libcuda.so.1")
    x, y = torch.zeros(1024, device="cuda"), torch.zeros(1024, device="cuda")
    a, b = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
    return lambda: driver.cuMemcpyDtoDAsync_v2(a, b, ctypes.c_size_t(4096), None)


def settings():
    """Name, and what compiles. torch.compile runs only if an argument asks for it: it takes long."""
    yield "eager", lambda f: f
    yield "framejit", lambda f: framejit.compile(f)
    yield "framejit, replayed", lambda f: framejit.compile(f, mode="reduce-overhead")
    if "torch" in sys.argv:
        yield "torch.compile", lambda f: torch.compile(f)
        yield "torch.compile, replayed", lambda f: torch.compile(f, mode="reduce-overhead")


def main():
    x, w = torch.randn(8, 8, device="cuda"), torch.randn(8, 8, device="cuda")
    print(f"{torch.cuda.get_device_name()}; one copy by the driver, through ctypes {host(copies()):.2f} us")
    programs = {"one kernel": lambda x, w: torch.tanh(x) + w, "chain 1": chain(1), "chain 16": chain(16),
                "points 8": points(8), "points 32": points(32)}
    with torch.no_grad():
        for name, program in programs.items():
            line = f"{name:12}"
            for kind, compiler in settings():
                framejit.reset()
                call = compiler(program)
                for _ in range(5):
                    call(x, w)
                line += f"  {kind} {host(lambda: call(x, w)):.2f}"
                if kind == "framejit":
                    line += f" ({framejit.stats()['kernels']} kernels compiled)"
            print(line, flush=True)
        parts(x, w)


def parts(x, w):
    """The parts of a replay: what the hook and the guards take, and what torch's replay takes."""
    def nothing(x, w):
        return x
    graph = torch.cuda.CUDAGraph()
    for _ in range(2):
        y = torch.tanh(x) + w
    with torch.cuda.graph(graph):
        y = torch.tanh(x) + w
    compiled = framejit.compile(nothing)
    for _ in range(3):
        compiled(x, w)
    print(f"parts: torch's replay of one kernel {host(graph.replay):.2f}; a compiled function without a kernel "
          f"{host(lambda: compiled(x, w)):.2f}; is_current_stream_capturing "
          f"{host(torch.cuda.is_current_stream_capturing):.2f}; empty_strided "
          f"{host(lambda: torch.empty_strided((8, 8), (8, 1), device='cuda')):.2f}; mm {host(lambda: x @ w):.2f}")
    del y


if __name__ == "__main__":
    main()
