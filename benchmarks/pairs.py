"""Paired timing: the candidates run in turn inside one process, so that a noisy neighbour hits all of them.

A figure is the median over rounds; a ratio is the median of the per-round ratios. Rounds in which other processes used
more than a tenth of the machine are dropped (and counted).
"""
import os
import statistics
import time


def _busy_elsewhere():
    """CPU seconds used by everything but this process, since boot."""
    with open("/proc/stat") as f:
        fields = [int(v) for v in f.readline().split()[1:]]
    total = sum(fields) - fields[3] - fields[4]
    own = os.times()
    return total / os.sysconf("SC_CLK_TCK") - own.user - own.system


def assert_hits(call, hits, breaks):
    """Asserts that one call of a settled compiled callable runs this many graphs, crosses this many breaks, compiles
    nothing, and runs nothing plainly."""
    import framejit
    before = framejit.stats()
    call()
    after = framejit.stats()
    seen = {key: after[key] - before[key] for key in ("hits", "graphs", "fallbacks")}
    assert seen == {"hits": hits, "graphs": 0, "fallbacks": 0} and after["graph_breaks"] - before["graph_breaks"] in (0,
        breaks), seen


def measure(candidates, rounds=30, repeat=None, target=0.02, warm=False):
    """candidates: {name: zero-argument callable}. Returns {name: [seconds per call, one per kept round]} and the
    dropped count.
    warm: each turn begins with a call that does not count, which gets back the memory that the previous candidate had
    freed."""
    if repeat is None:
        repeat = {}
        for name, call in candidates.items():
            start = time.perf_counter()
            call()
            once = max(time.perf_counter() - start, 1e-7)
            repeat[name] = max(1, min(200_000, int(target / once)))
    kept, dropped = {name: [] for name in candidates}, 0
    for _ in range(rounds):
        other, begin, row = _busy_elsewhere(), time.perf_counter(), {}
        for name, call in candidates.items():
            n = repeat[name]
            if warm:
                call()
            start = time.perf_counter()
            for _ in range(n):
                call()
            row[name] = (time.perf_counter() - start) / n
        elsewhere = (_busy_elsewhere() - other) / max(time.perf_counter() - begin, 1e-9)
        if elsewhere > 0.1 * os.cpu_count() and sum(map(len, kept.values())) // len(
            kept) + rounds - dropped > rounds // 2:
            dropped += 1
            if dropped < rounds // 2:
                continue
        for name, seconds in row.items():
            kept[name].append(seconds)
    return kept, dropped


def geomean(values):
    return statistics.geometric_mean(values)


def median(values):
    return statistics.median(values)


def ratio(base, other):
    """Median of base / other, round by round: above 1 means `other` is faster."""
    return statistics.median(b / o for b, o in zip(base, other))
