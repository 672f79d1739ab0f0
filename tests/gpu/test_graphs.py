"""On a machine with a GPU: calls under mode="reduce-overhead" are replays of graphs, and equal eager.

    make test-gpu                       builds, and runs this file among others
"""
import gc
import threading

import torch
import torch.nn.functional as F

import framejit

try:
    import pytest
    pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="not tested: there is no GPU")
except ImportError:  # as a program: test_gpu.py
    pytest = None


def randn(*size, dtype=torch.float32):
    return torch.randn(*size, device="cuda").to(dtype)


class Block(torch.nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.first, self.second = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.second(F.gelu(self.first(self.norm(x))))


def block(width=64):
    return Block(width).cuda().eval().requires_grad_(False)


def close(got, expected):
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)


class Counted:
    """Counts what is replayed, recorded and refused while it is open."""
    def __enter__(self):
        self.events = []
        self.token = framejit._framejit.add_listener(self.events.append)
        self.before = framejit.stats()
        return self

    def __exit__(self, *error):
        framejit._framejit.remove_listener(self.token)

    def count(self, name):
        return framejit.stats()[name] - self.before[name]

    def reasons(self):
        return [e["fields"]["reason"] for e in self.events if e["event"] == "NotReplayed"]


def compiled_of(fn, **settings):
    framejit.reset()
    return framejit.compile(fn, mode="reduce-overhead", **settings)


def test_calls_are_replayed():
    model = block()
    compiled = compiled_of(model, fullgraph=True)
    with torch.no_grad(), Counted() as seen:
        for _ in range(10):
            x = randn(8, 64)
            close(compiled(x), model(x))
    assert seen.count("replays") >= 8 and seen.count("recordings") <= 3, framejit.stats()
    assert not seen.reasons() and framejit.stats()["fallbacks"] == 0


def test_outputs_stay_what_they_are():
    model = block()
    compiled = compiled_of(model)
    with torch.no_grad(), Counted() as seen:
        xs = [randn(8, 64) for _ in range(20)]
        ys = [compiled(x) for x in xs]
        for x, y in zip(xs, ys):
            close(y, model(x))
        last = compiled(xs[0])
        for x in xs[1:]:  # an output that is the next input
            last, expected = compiled(last), model(last.clone())
            close(last, expected)
    assert seen.count("replays") >= 30


def test_outputs_in_memory_that_graphs_share():
    """The first graph runs again while an output of the second is in use."""
    model = block()
    compiled = compiled_of(model)
    with torch.no_grad(), Counted() as seen:
        kept = [compiled(randn(8, 64)) for _ in range(4)]
        del kept
        for _ in range(6):
            x, y, z = randn(8, 64), randn(8, 64), randn(8, 64)
            first, second = compiled(x), compiled(y)
            close(first, model(x))
            del first
            third = compiled(z)
            close(second, model(y))
            close(third, model(z))
            del second, third
    assert seen.count("replays") >= 14, framejit.stats()


def test_outputs_of_two_functions():
    models = block(64), block(64)
    framejit.reset()
    compiled = [framejit.compile(lambda x, m=m: m(x) * 2, mode="reduce-overhead") for m in models]
    with torch.no_grad(), Counted() as seen:
        for i in range(12):
            xs = randn(8, 64), randn(8, 64)
            order = (0, 1) if i % 2 else (1, 0)
            got = {n: compiled[n](xs[n]) for n in order}
            for n in order:
                close(got[n], models[n](xs[n]) * 2)
    assert seen.count("replays") >= 16, framejit.stats()


def test_ten_thousand_replays_with_changing_inputs():
    model = block(32)
    compiled = compiled_of(model)
    with torch.no_grad(), Counted() as seen:
        worst = torch.zeros((), device="cuda")
        for i in range(10000):
            x = torch.full((4, 32), i / 1000, device="cuda")
            x[:, i % 32] = -1
            worst = torch.maximum(worst, (compiled(x) - model(x)).abs().max())
    assert worst.item() < 1e-3 and seen.count("replays") > 9900, (worst, framejit.stats())


def test_two_models_on_two_streams():
    models = block(128), block(128)
    framejit.reset()
    compiled = [framejit.compile(m, mode="reduce-overhead") for m in models]
    streams = torch.cuda.Stream(), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.no_grad():
        xs = [randn(64, 128) for _ in range(400)]
        torch.cuda.synchronize()
        got = []
        for i, x in enumerate(xs):
            with torch.cuda.stream(streams[i % 2]):
                got.append(compiled[i % 2](x))
        torch.cuda.synchronize()
        for i, (x, y) in enumerate(zip(xs, got)):
            close(y, models[i % 2](x))
    assert framejit.stats()["replays"] > 380, framejit.stats()


def test_weights_that_change_are_read():
    model = block()
    compiled = compiled_of(model)
    with torch.no_grad():
        for i in range(8):
            model.first.weight.mul_(0.9)
            model.second.bias.data.add_(1)
            if i == 5:
                model.first.weight.data = randn(256, 64)
            if i == 6:
                model.first.load_state_dict({"weight": randn(256, 64), "bias": randn(256)}, assign=True)
                model.requires_grad_(False)
            x = randn(8, 64)
            close(compiled(x), model(x))


def test_instances_of_a_module():
    models = [block() for _ in range(4)]
    framejit.reset()
    compiled = [framejit.compile(m, mode="reduce-overhead") for m in models]
    with torch.no_grad(), Counted() as seen:
        for _ in range(5):
            x = y = randn(8, 64)
            for c, m in zip(compiled, models):
                x, y = c(x), m(y)
            close(x, y)
    assert seen.count("replays") >= 12
    assert framejit.stats()["graphs"] == 1


def test_random_numbers_are_eagers():
    def noisy(x):
        return F.dropout(x, 0.3, True) + torch.rand_like(x) * torch.randn(x.shape[-1], device="cuda")
    compiled = compiled_of(noisy)
    x = randn(64, 33)
    with torch.no_grad(), Counted() as seen:
        torch.manual_seed(3)
        expected = [(noisy(x), torch.rand(3, device="cuda")) for _ in range(8)]
        state = torch.cuda.get_rng_state()
        torch.manual_seed(3)
        got = [(compiled(x), torch.rand(3, device="cuda")) for _ in range(8)]
        assert torch.equal(torch.cuda.get_rng_state(), state)
        torch.manual_seed(3)
        again = [(compiled(x), torch.rand(3, device="cuda")) for _ in range(8)]
    for (a, b), (c, d), (e, f) in zip(expected, got, again):
        assert torch.equal(b, d) and torch.equal(b, f)
        close(c, a)
        close(e, a)
    assert seen.count("replays") >= 12


def drawn_late():
    """A function that draws random numbers after a long time on the GPU."""
    weight = randn(2048, 2048) * 0.01

    def late(x):
        y = x
        for _ in range(40):
            y = y @ weight
        return F.dropout(x + y * 0, 0.5, True)
    return late


def test_random_numbers_while_the_gpu_is_busy():
    """A recording is made while the replay before it has not drawn yet."""
    late = drawn_late()

    def quiet(x):
        return x * 2 + 1
    compiled, other = compiled_of(late), compiled_of(quiet)
    x = randn(2048, 2048)
    with torch.no_grad(), Counted() as seen:
        torch.manual_seed(3)
        expected = [late(x) for _ in range(8)]
        torch.cuda.synchronize()
        torch.manual_seed(3)
        got = []
        for _ in range(8):
            got.append(compiled(x))  # kept, so there is another recording
            other(x)  # draws nothing
    assert seen.count("recordings") >= 3
    for k, (a, b) in enumerate(zip(expected, got)):
        assert torch.equal(a == 0, b == 0), k


def test_random_numbers_on_two_streams():
    """Each replay writes the generator's offset where those of other streams read it."""
    late, streams = drawn_late(), [torch.cuda.Stream(), torch.cuda.Stream()]

    def early(x):
        return F.dropout(x, 0.5, True)
    functions, x = (late, early), randn(2048, 2048)

    def run(functions):
        results = []
        for k in range(12):
            with torch.cuda.stream(streams[k % 2]):
                results.append((functions[k % 2](x) == 0).clone())
        torch.cuda.synchronize()
        return results
    compiled = [compiled_of(f) for f in functions]
    with torch.no_grad():
        torch.manual_seed(3)
        expected = run(functions)
        for _ in range(2):  # the second time all calls are replays
            torch.manual_seed(3)
            for k, (a, b) in enumerate(zip(expected, run(compiled))):
                assert torch.equal(a, b), k


def test_written_inputs():
    def step(cache, x, at):
        cache.index_copy_(0, at, x)
        return cache.sum(0) + x[0]
    compiled = compiled_of(step)
    mine, theirs = torch.zeros(16, 32, device="cuda"), torch.zeros(16, 32, device="cuda")
    with torch.no_grad(), Counted() as seen:
        for i in range(16):
            x, at = randn(1, 32), torch.tensor([i], device="cuda")
            version = mine._version
            close(compiled(mine, x, at), step(theirs, x, at))
            assert torch.equal(mine, theirs) and mine._version == version + 1
        for _ in range(4):  # another cache in each call: copied in and back
            mine, theirs = torch.zeros(16, 32, device="cuda"), torch.zeros(16, 32, device="cuda")
            close(compiled(mine, x, at), step(theirs, x, at))
            assert torch.equal(mine, theirs)
    assert seen.count("replays") >= 14


def test_buffers_of_batch_norm():
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU()).cuda()
    model.requires_grad_(False)
    other = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU()).cuda()
    other.load_state_dict(model.state_dict())
    compiled = compiled_of(model)
    with torch.no_grad(), Counted() as seen:
        for _ in range(6):
            x = randn(4, 3, 20, 20)
            close(compiled(x), other(x))
        for (name, a), (_, b) in zip(model.state_dict().items(), other.state_dict().items()):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3, msg=name)
    assert seen.count("replays") >= 4


def test_sizes_have_graphs_of_their_own():
    model = block()
    compiled = compiled_of(model, dynamic=True)
    with torch.no_grad(), Counted() as seen:
        for _ in range(4):
            for rows in (3, 8, 21):
                x = randn(rows, 64)
                close(compiled(x), model(x))
    assert seen.count("replays") >= 6 and seen.count("recordings") >= 3


def test_both_halves_of_a_break_replay():
    first, second = block(), block()
    def halves(x):
        x = first(x)
        if bool(x.sum() > 1e9):
            return x
        return second(x)
    compiled = compiled_of(halves)
    with torch.no_grad(), Counted() as seen:
        for _ in range(6):
            x = randn(8, 64)
            close(compiled(x), second(first(x)))
    assert seen.count("replays") >= 6, (framejit.stats(), seen.reasons())


def test_views_of_inputs_and_inference_mode():
    def views(x, y):
        return x[1:], y.t(), x, (x * 2)[::2], y + 1
    compiled = compiled_of(views)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            for _ in range(5):
                x, y = randn(6, 5), randn(4, 7)
                for a, b in zip(compiled(x, y), views(x, y)):
                    assert torch.equal(a, b) and a.stride() == b.stride() and a._is_view() == b._is_view()
                    assert a.is_inference() == b.is_inference()
                    assert a.storage_offset() == b.storage_offset()
                out = compiled(x, y)
                out[0].zero_()
                assert not x[1:].any() and out[2] is x


def test_inside_of_the_programs_own_capture():
    model = block()
    compiled = compiled_of(model)
    x = randn(8, 64)
    with torch.no_grad():
        for _ in range(4):
            compiled(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = compiled(x)
        for _ in range(3):
            x.copy_(randn(8, 64))
            graph.replay()
            close(y, model(x))
            close(compiled(x), model(x))


def run_in_threads(count, own_stream, calls=200):
    """Wrong calls of threads that share two models, as text; stats() begins at zero."""
    models = [block(256) for _ in range(2)]
    torch.cuda.synchronize()
    framejit.reset()
    compiled = [framejit.compile(m, mode="reduce-overhead") for m in models]
    with torch.no_grad():
        for c in compiled:  # so that no thread compiles
            c(randn(32, 256))
    torch.cuda.synchronize()
    errors = []

    def work(i):
        stream = torch.cuda.Stream() if own_stream else torch.cuda.current_stream()
        try:
            with torch.no_grad(), torch.cuda.stream(stream):
                generator = torch.Generator("cuda").manual_seed(i)
                for call in range(calls):
                    x = torch.randn(32, 256, device="cuda", generator=generator)
                    got, expected = compiled[i % 2](x), models[i % 2](x)
                    wrong = ((got - expected).abs() > 1e-3).sum(1)
                    if wrong.any():
                        errors.append(f"thread {i} call {call}: {int((wrong > 0).sum())} rows, "
                                      f"{int(wrong.sum())} elements, of x {int((got == x).sum())}")
        except Exception as error:  # the main thread reports it below
            errors.append(repr(error)[:500])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.cuda.synchronize()
    return errors


def test_threads_on_one_stream():
    errors = run_in_threads(4, own_stream=False)
    assert not errors, (len(errors), errors[:4], framejit.stats())
    assert framejit.stats()["replays"] > 200, framejit.stats()


def test_threads_with_streams():
    errors = run_in_threads(4, own_stream=True)
    assert not errors, (len(errors), errors[:4], framejit.stats())
    assert framejit.stats()["replays"] > 600, framejit.stats()


def test_another_thread_allocates_during_captures():
    stop = threading.Event()

    def allocate():
        while not stop.is_set():
            for n in (1 << 12, 1 << 21, 5 << 20):
                torch.empty(n, device="cuda").fill_(1)
            torch.cuda.empty_cache()
    thread = threading.Thread(target=allocate)
    thread.start()
    try:
        with torch.no_grad():
            for width in (16, 32, 48, 80, 96):
                model = block(width)
                compiled = compiled_of(model)
                for _ in range(5):
                    x = randn(8, width)
                    close(compiled(x), model(x))
    finally:
        stop.set()
        thread.join()


def test_what_does_not_replay_says_why():
    def with_cpu(x, c):
        return torch.relu(x) * 2, torch.relu(c)

    def scaled(x, s):
        return x * s
    with torch.no_grad():
        with Counted() as seen:
            compiled = compiled_of(with_cpu)
            for _ in range(4):
                x, c = randn(8), torch.randn(8)
                for a, b in zip(compiled(x, c), with_cpu(x, c)):
                    assert torch.equal(a, b)
        assert seen.reasons() == ["cpu_input"], seen.reasons()
        compiled = compiled_of(scaled)
        for i in range(8):
            x = randn(8)
            close(compiled(x, 0.5 * i), scaled(x, 0.5 * i))


def test_an_op_that_waits_is_not_captured():
    def waits(x):
        return torch.linalg.eigvals(x @ x.T + 1).abs().sort()[0] * 2
    compiled = compiled_of(waits)
    with torch.no_grad(), Counted() as seen:
        for _ in range(6):
            x = randn(8, 8)
            # Near eager's is enough: the library's eigenvalues of a product are no more exact.
            torch.testing.assert_close(compiled(x), waits(x), rtol=1e-2, atol=1e-2)
            torch.rand(3, device="cuda")  # the generator is no longer in a capture
            torch.empty(1 << 22, device="cuda").record_stream(torch.cuda.Stream())
    print("   an op that waits:", seen.reasons(), "recordings", seen.count("recordings"),
          [e["fields"]["detail"][:200] for e in seen.events if e["event"] == "NotReplayed"])
    assert seen.count("recordings") == 0 or not seen.reasons()


def test_a_random_op_in_a_capture_that_fails():
    def waits(x):
        return torch.linalg.eigvals(torch.rand(6, 6, device="cuda") + x).abs().sort()[0]
    compiled = compiled_of(waits)
    x = randn(6, 6)
    with torch.no_grad():
        torch.manual_seed(1)
        expected = [waits(x) for _ in range(5)]
        torch.manual_seed(1)
        for e in expected:
            # As above. Other random numbers would be off by far more.
            torch.testing.assert_close(compiled(x), e, rtol=1e-2, atol=1e-2)
        torch.rand(3, device="cuda")


def test_out_of_memory_in_a_capture():
    def large(x):
        return (x.repeat(n, 1) @ x.T).sum(0) + x.sum()
    n = 1
    x = torch.rand(1 << 10, 1 << 10, device="cuda")  # no terms cancel: the sums are of many thousand rows
    free = torch.cuda.mem_get_info()[0]
    n = max(1, int(free * 0.6) // (4 << 20) // 2)
    compiled = compiled_of(large)
    with torch.no_grad():
        expected = large(x)
        for _ in range(2):
            close(compiled(x), expected)
        hog = torch.empty(int(torch.cuda.mem_get_info()[0] * 0.6), dtype=torch.uint8, device="cuda")
        for _ in range(2):
            try:
                compiled(x)
            except torch.OutOfMemoryError:
                pass
        del hog
        framejit.reset()
        gc.collect()
        torch.cuda.empty_cache()
        close(framejit.compile(large, mode="reduce-overhead")(x), expected)
    torch.cuda.empty_cache()


def test_autocast():
    model = block()
    compiled = compiled_of(model)
    for _ in range(5):
        x = randn(8, 64)
        with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
            torch.testing.assert_close(compiled(x), model(x), rtol=3e-2, atol=3e-2)
        with torch.no_grad():
            close(compiled(x), model(x))


def test_marked_addresses():
    def attend(cache, x):
        return (cache * x).sum(0)
    compiled = compiled_of(attend)
    caches = [randn(64, 128) for _ in range(2)]
    with torch.no_grad(), Counted() as seen:
        for cache in caches:
            framejit.mark_static_address(cache)
        for i in range(10):
            x = randn(128)
            close(compiled(caches[i % 2], x), attend(caches[i % 2], x))
    copied = [e["fields"]["copied"] for e in seen.events if e["event"] == "Recorded"]
    assert copied and all("cache" not in c for c in copied), copied


def test_memory_is_flat():
    model = block(128)
    compiled = compiled_of(model)
    with torch.no_grad():
        x = randn(64, 128)
        expected = model(x)
        for _ in range(20):
            compiled(x)
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
        for i in range(10000):
            y = compiled(x)
            if i % 1000 == 0:
                close(y, expected)
                x = randn(64, 128)
                expected = model(x)
        torch.cuda.synchronize()
        del y, expected
        after = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    assert after[0] <= before[0] + (1 << 20) and after[1] <= before[1] + (4 << 20), (before, after)


def test_recordings_go_with_their_entries():
    with torch.no_grad():
        for _ in range(100):
            model = block()
            compiled = compiled_of(model)
            for _ in range(3):
                y = compiled(randn(8, 64))
        close(y.clone(), y)
        del compiled, model, y
        framejit.reset()
        gc.collect()
    assert framejit.stats()["recording_bytes"] == 0


def test_max_autotune():
    model = block()
    framejit.reset()
    compiled = framejit.compile(model, mode="max-autotune")
    with torch.no_grad(), Counted() as seen:
        for _ in range(6):
            x = randn(8, 64)
            close(compiled(x), model(x))
    assert seen.count("replays") >= 4
