"""Measures the rows of inductor/target/costs.def on this machine, and prints its column.

    python benchmarks/costs.py [ROW ...] [--rounds 15] [--threads 1]

Each row has candidate values, and programs whose speed depends on it, at sizes that occur in no benchmark model. Every
program is compiled with each value, the variants run in turn inside one process, and the fastest run of each variant
counts, in processor seconds, which other processes hardly disturb. Rows about threads count wall-clock seconds on two
threads, and are left out if the machine is busy. Everything is done twice, with new code and memory: a row keeps its
number unless another value is faster both times, by a twentieth on average over the programs. A row that says "compile"
counts the first call too, spread over a thousand calls. At the end it prints the column, for a class of
inductor/target/machine_classes.def.
"""
import argparse
import os
import statistics
import time
import types

import torch
import torch.nn.functional as F

import framejit
from framejit import _framejit
from rows import show

MARGIN = 0.95
IDLE = 0.7  # the load up to which a machine counts as idle
CALLS = 1000  # the calls over which a compile is spread


def rand(*sizes, dtype=torch.float32):
    return torch.randn(*sizes).to(dtype)


def sines(x):
    for _ in range(24):
        x = torch.sin(x) * 1.01 + 0.1
    return x


def sigmoids(x):
    for _ in range(30):
        x = torch.sigmoid(x) + 0.1
    return x


def powers(x):
    for _ in range(12):
        x = torch.log2(x.abs() + 1.5) + 0.1
    return x


def sums(x):
    for k in range(40):
        x = x * 1.01 + x.abs() * k
    return x


def softmaxes(x):
    for _ in range(5):
        x = torch.softmax(x * 1.1, -1)
    return x


def small_layers(x, y):
    for _ in range(4):
        x = (x - x.mean(-1, keepdim=True)) * y
        x = x + x.sum(0, keepdim=True)
    return x


def two_readers(x, y, z):
    t = (x * 2 + y) * z - y
    return t.sum(1), (t * t).amax(0)


def one_hot_rows(x):
    row = x[:, 0]
    t = torch.where(row[:, None] > torch.arange(x.shape[1]), torch.sin(row)[:, None], 0.5)
    return x - torch.exp(x) * t.sum(1, keepdim=True) * t


def enlarged(x, y):
    return torch.exp(x)[:, None] * y


def parts(x, y, z):
    t = torch.cat([x * 2 + 1, y - 1, z], -1)
    return t * t + 1


def stacked(x, y, z):
    return torch.stack([x, y, z, x + y, y + z], -1).relu() * 2


def row_sums(x):
    return x.sum(-1)


def all_of(x):
    return x.sum()


def columns(x):
    return x.sum(0)


def column_norms(x):
    return (x * x).sum(0).sqrt(), x.amax(0)


def layer_norm(x):
    return F.layer_norm(F.gelu(x), x.shape[-1:])


def softmax(x):
    return torch.softmax(x, -1)


def added(x, y):
    return x + y * 2


def turned(x, y):
    return x + y.t()


def turned_more(x, y):
    return torch.relu(x * 2 + y.t() * 3) - x.abs() * y.t().square()


def gelu(x):
    return F.gelu(x)


def pools(x):
    return F.max_pool2d(x, 3, 2, 1), F.avg_pool2d(x, 5, 1, 2), F.avg_pool2d(x, 4)


def convolutions(x, v, w):
    x = F.relu(F.conv2d(x, v, padding=1))
    return F.max_pool2d(F.conv2d(x, w, padding=1) + x, 3, 2)


def products(x, w, v):
    return F.gelu(x @ w.t()) @ v.t()


def linear(x, w):
    return F.linear(x, w)


def running(x):
    return x.cumsum(0)


def running_extrema(x):
    return x.cummax(0).values + torch.logcumsumexp(x, 0)


BF16 = torch.bfloat16
COLUMN_SIZES = [(columns, rand, (1501, 1207)), (columns, rand, (3001, 133)), (column_norms, rand, (907, 611))]
LONG = [(all_of, rand, (100_003,)), (all_of, rand, (50_021,)), (row_sums, rand, (3, 70_001))]
TURNED = [(turned, rand, (1001, 13), (13, 1001)), (turned, rand, (701, 523), (523, 701)),
          (turned_more, rand, (601, 449), (449, 601))]
FAR = [(turned, rand, (4507, 4603), (4603, 4507)), (turned, rand, (9001, 2209), (2209, 9001))]
ROWS_OF_CAT = [(parts, rand, (901, 13), (901, 7), (901, 5)), (parts, rand, (451, 131), (451, 67), (451, 70)),
               (stacked, rand, *[(70_001,)] * 3)]
READERS = [(two_readers, rand, *[(613, 307)] * 3), (two_readers, rand, *[(151, 2003)] * 3)]
SHORT_ROWS = [(softmaxes, rand, (407, 27, 6)), (softmaxes, rand, (3011, 11)), (small_layers, rand, (71, 53), (71, 53))]
LINEARS = [(linear, rand, (rows, terms), (columns, terms)) for rows, terms,
           columns in ((41, 601, 907), (301, 601, 907), (1501, 701, 503))]

# Row: its candidate values, programs as (function, how tensors are made, their sizes ...), and "compile" if first calls
# count.
ROWS = {
    "most_work": ([128, 256, 512, 1024], [(sines, rand, (37, 53)), (sines, rand, (611, 307))], "compile"),
    "most_instructions": ([48, 96, 192], [(sums, rand, (613, 307)), (sums, rand, (41, 33))], "compile"),
    "most_nests": ([4, 8, 12, 24], [(softmaxes, rand, (301, 211)), (small_layers, rand, (211, 170), (211, 170))],
                   "compile"),
    "points_inside": ([4, 8, 16, 32], SHORT_ROWS),
    "enough_points": ([16, 64, 256], SHORT_ROWS),
    "few_points": ([2, 8, 32], [(layer_norm, rand, (5, 40_009)), (layer_norm, rand, (13, 7001))]),
    "small_points": ([512, 4096, 32_768],
                     [(small_layers, rand, (41, 53), (41, 53)), (small_layers, rand, (130, 170), (130, 170))]),
    "inlined_instructions": ([1, 3, 6, 12], READERS),
    "inlined_loads": ([1, 2, 4], READERS),
    "shared_row": ([0, 16, 128, 1 << 40],
                   [(one_hot_rows, rand, size) for size in ((40_009, 11), (5003, 77), (613, 20_011))]),
    "enlarged": ([1, 2, 8], [(enlarged, rand, (307,), (307, 5)), (enlarged, rand, (1201,), (1201, 131))]),
    "region_run": ([2, 8, 16, 64], ROWS_OF_CAT),
    "region_choices": ([1, 4, 8], ROWS_OF_CAT),
    "region_instructions": ([0, 6, 12], ROWS_OF_CAT),
    "choice_instructions": ([3, 6, 12], ROWS_OF_CAT),
    "split_results": ([1, 8, 32], [*LONG, (row_sums, rand, (21, 70_001))]),
    "split_length": ([16_384, 65_536, 262_144], LONG),
    "split_columns": ([65_536, 262_144, 1_048_576], [*COLUMN_SIZES, (columns, rand, (1103, 171))]),
    "split_few_columns": ([0, 8, 32], [(columns, rand, size) for size in ((70_001, 3), (40_003, 7), (21_001, 13))]),
    "split_rows": ([32, 128, 512], COLUMN_SIZES),
    "split_run": ([256, 1024, 4096], LONG),
    "split_scattered": ([4, 64, 1024], [(columns, rand, (80_021, 5)), (columns, rand, (130_003, 3))]),
    "most_parts": ([16, 64, 256], [*LONG, *COLUMN_SIZES]),
    "enough_parts": ([8, 16, 32], [*LONG, *COLUMN_SIZES]),
    "scratch_bytes": ([32_768, 131_072, 524_288], [(softmax, rand, (151, n)) for n in (5003, 9001, 20_011)]),
    "scratch_elements": ([4096, 16_384, 65_536], [(softmax, rand, (151, n)) for n in (5003, 9001, 20_011)]),
    "tile_extent": ([4, 8, 16, 32], TURNED),
    "flat_points": ([2, 8, 32], [(added, rand, (5, 30_011), (30_011,)), (added, rand, (13, 4001), (4001,))]),
    "grain_points": ([8192, 32_768, 131_072], [(gelu, rand, (n,)) for n in (20_011, 70_001, 300_007)]
                     + [(added, rand, (170_003,), (170_003,))]),
    "pool_elements": ([4, 9, 16, 25], [(pools, rand, (1, 19, 61, 61)), (pools, rand, (3, 7, 37, 35))]),
    "conversion": ([125, 500, 2000], [(convolutions, rand, (1, 37, 41, 41), (37, 37, 3, 3), (37, 37, 3, 3))]),
    "wide_products": ([4, 16, 64],
                      [(linear, lambda *s: rand(*s, dtype=BF16), (r, 301), (407, 301)) for r in (3, 17, 150)]),
    "arena_tensor": ([16_384, 65_536, 1_048_576],
                     [(products, rand, (n, 130), (190, 130), (130, 190)) for n in (50, 301, 1700)]),
    "product_rows": ([0, 32, 384, 2048, 8192], [*LINEARS, (linear, rand, (3001, 301), (407, 301))]),
    "product_terms": ([0, 1280, 4096, 8192],
                      [(linear, rand, (131, terms), (407, terms)) for terms in (601, 1501, 3001, 5003)]),
    "product_few_rows": ([8, 32, 64], [(linear, rand, (rows, 5003), (407, 5003)) for rows in (11, 29, 57)]),
    "product_least_rows": ([2, 4, 8], [(linear, rand, (rows, 701), (1103, 701)) for rows in (2, 3, 5)]),
    "product_least_terms": ([32, 128, 256, 512],
                            [(linear, rand, (151, terms), (407, terms)) for terms in (45, 130, 301)]),
    "product_least_columns": ([12, 48, 96, 192], [(linear, rand, (151, 601), (n, 601)) for n in (21, 70, 131)]),
    "product_columns": ([24, 48, 96, 192], LINEARS),
    "unrolled_points": ([256, 1024, 4096], [(added, rand, (n,), (n,)) for n in (701, 1301, 3001)]
                        + [(row_sums, rand, (31, 43))], "compile"),
    "light_instructions": ([2, 4, 8, 16],
                           [(added, rand, (1_500_007,), (1_500_007,)), (turned_more, rand, (1201, 1), (1, 1201)),
                            (row_sums, rand, (701, 3001))]),
    "slab_instructions": ([0, 1, 2, 4], COLUMN_SIZES),
    "slab_rows": ([4, 8, 16, 32], COLUMN_SIZES),
    "slabs": ([1, 4, 16], [(columns, rand, (n, 3001)) for n in (11, 37, 101)]),
    "walked_points": ([1, 2, 4, 8], [(running, rand, (40_009,)), (running_extrema, rand, (20_011,))]),
    "walked_instructions": ([2, 16, 64], [(running, rand, (40_009,)), (running_extrema, rand, (20_011,)),
                                          (turned, rand, (701, 523), (523, 701))]),
    "stream_points": ([1024, 16_384, 262_144], [(added, rand, (n,), (n,)) for n in (50_021, 300_007, 2_500_009)]),
    "chain_registers": ([4, 8, 16, 32], [(sigmoids, rand, (22_613,)), (sigmoids, rand, (2003,))]),
    "wide_chain_registers": ([8, 16, 32], [(powers, rand, (22_613,)), (powers, rand, (2003,))]),
    "prefetch_ahead": ([512, 1024, 2048, 4096],
                       [(row_sums, lambda *s: rand(*s, dtype=BF16), size) for size in ((3001, 4099), (151, 30_011))]),
    "tile_lines": ([1, 2, 4, 8], FAR),
    "tiles_ahead": ([0, 1, 2, 4], FAR),
    "register_tile": ([0, 8, 16], FAR + TURNED[1:2]),
}
SHARED = ("grain_points", "few_points", "flat_points", "split_results", "split_length")  # measured on two threads
# Rows that timing cannot decide, and why.
UNTIMED = {
    "block_saving": "bytes that a call holds: benchmarks/memory.py counts them",
    "derived_bytes": "weights of modules alone are derived from: benchmarks/models.py times them",
    "packed_rows": "the same",
    "packed_work": "the same",
    "points_of_an_outer": "there is no limit but on GPUs",
    "uneven_points": "there is no limit but on GPUs",
    "recomputed_points": "a kernel costs next to nothing but on GPUs",
}


def clone(function):
    """The function with its own code object: entries are kept per code object."""
    return types.FunctionType(function.__code__.replace(), globals(), function.__name__)


def variant(function, tensors, row, value):
    _framejit.replace_costs(f"{row}={value}")
    call = framejit.compile(clone(function))
    start = time.process_time()
    call(*tensors)
    first = time.process_time() - start
    call(*tensors)
    _framejit.replace_costs("")
    return call, first


def fastest(calls, tensors, rounds, target=0.002):
    """Seconds of each call's fastest run; they take turns."""
    now = time.perf_counter if torch.get_num_threads() > 1 else time.process_time
    best, repeat = [float("inf")] * len(calls), []
    for call in calls:
        start = now()
        call(*tensors)
        repeat.append(max(1, min(10_000, int(target / max(now() - start, 1e-7)))))
    for turn in range(rounds):
        for k in range(len(calls)):
            at = (k + turn) % len(calls)
            start = now()
            for _ in range(repeat[at]):
                calls[at](*tensors)
            best[at] = min(best[at], (now() - start) / repeat[at])
    return best


def measured(row, values, programs, how, rounds):
    """Per value: its seconds divided by those of the first value, averaged over the programs."""
    ratios = [[] for _ in values]
    for function, make, *sizes in programs:
        torch.manual_seed(0)
        tensors = [make(*size) for size in sizes]
        made = [variant(function, tensors, row, value) for value in values]
        seconds = fastest([call for call, _ in made], tensors, rounds)
        if how == "compile":
            first = [min(first, *(variant(function, tensors, row, value)[1] for _ in range(2))) for (_, first),
                     value in zip(made, values)]
            seconds = [run + compiled / CALLS for run, compiled in zip(seconds, first)]
        for ratio, own in zip(ratios, seconds):
            ratio.append(own / seconds[0])
        framejit.reset()
    return [statistics.geometric_mean(ratio) for ratio in ratios]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="*")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    machine, known = _framejit.costs()
    unknown = [name for name in options.rows if name not in ROWS]
    if unknown:
        parser.error(f"no program for {unknown[0]}; known: {', '.join(ROWS)}")
    torch.set_num_threads(options.threads)
    column = {}
    with torch.no_grad():
        for name in options.rows or ROWS:
            values, programs, how = (*ROWS[name], "")[:3]
            now = known[name]
            if name in SHARED and os.getloadavg()[0] > IDLE:
                print(f"{name} {now}: not measured, the machine is busy (load {os.getloadavg()[0]:.1f})", flush=True)
                continue
            tried = sorted({now, *values})
            torch.set_num_threads(2 if name in SHARED else options.threads)
            rounds = [dict(zip(tried, measured(name, tried, programs, how, options.rounds))) for _ in range(2)]
            over_now = {value: [ratios[value] / ratios[now] for ratios in rounds] for value in tried}
            best = min(over_now, key=lambda value: max(over_now[value]))
            column[name] = best if max(over_now[best]) < MARGIN else now
            show(name, now=now, best=column[name], **{f"{value} {when}": ratio for value, both in over_now.items()
                                                      for when, ratio in zip(("once", "again"), both)})
    print(f"\ncolumn {machine}:")
    for name, number in column.items():
        print(f"{name}, {number}")
    for name, why in UNTIMED.items():
        if not options.rows:
            print(f"{name}, {known[name]}: not timed, {why}")


if __name__ == "__main__":
    main()
