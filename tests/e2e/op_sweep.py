"""Every op of torch's op_db, compiled as `lambda *a, **k: op(*a, **k)`: equal to eager, or a clean break for a known
reason.

    python tests/e2e/op_sweep.py [--backend framejit] [--dtype float32 ...] [--forms plain ...] [--samples N] [--jobs 2]
    [--only REGEX]
                                 [--classes FILE] [--partly FILE] [--journal FILE] [--summary FILE] [--at-least PERCENT]
                                 [--of-class CLASS] [--floors SET] [--gradients]

Runs in worker processes, so that one crash is one row. With --journal, rows are saved as they come, and a second run of
the same build continues after the last finished op. Exit status 1 if a sample differs or crashes, or breaks for a
reason that op_sweep_reasons.txt does not list for its op, or if fewer ops than --at-least are captured whole, or fewer
samples of a form and dtype than op_sweep_floors.txt asks for. --summary rewrites the lines of these runs in a text
file. --gradients runs the backward too: it compares the gradients of every input that can have one
(training/gradient_sweep_worker.py, with its own list of reasons).
"""
import argparse
import collections
import importlib.util
import json
import math
import multiprocessing
import os
import re
import sys
import threading

import op_sweep_worker as worker
import programs

HERE = os.path.dirname(os.path.abspath(__file__))
REASONS = os.path.join(HERE, "op_sweep_reasons.txt")
FLOORS = os.path.join(HERE, "op_sweep_floors.txt")
CLASSES = os.path.join(HERE, "op_classes.txt")
PARTLY = os.path.join(HERE, "op_partly.txt")
WHY_LEFT = os.path.join(HERE, "op_partly_reasons.txt")
GRADIENT_REASONS = os.path.join(HERE, "training", "gradient_sweep_reasons.txt")
CHUNK = 120         # ops of one worker process
SECONDS_AN_OP = 300  # a worker that is silent for this long is stuck


def known_reasons(*paths):
    """Lines "op reason": the breaks that are accepted, and "late" for errors that depend on data."""
    table = set()
    for path in paths:
        with open(path) as f:
            for line in f:
                words = line.split("#")[0].split()
                if len(words) >= 2:
                    table.add((words[0], words[1]))
    return table


def all_names(only):
    names = [worker.label_of(op) for op in worker.op_database()]
    return [n for n in dict.fromkeys(names) if re.search(only, n)]


def built_at():
    """When the compiled part of the package was built."""
    folder = importlib.util.find_spec("framejit").submodule_search_locations[0]
    return max(os.path.getmtime(os.path.join(folder, name)) for name in os.listdir(folder) if name.endswith(".so"))


class Journal:
    """Rows of all runs as JSON lines; without a file, in memory. Rows of an older build are forgotten."""

    def __init__(self, path):
        self.rows, self.done, self.path, self.lock = [], set(), path, threading.Lock()
        if path and os.path.exists(path) and os.path.getmtime(path) < built_at():
            os.remove(path)
        if path and os.path.exists(path):
            with open(path) as f:
                for line in f:
                    if line.endswith("\n"):
                        self._keep(json.loads(line))
        # Rows of an op that was not finished are made again.
        self.rows = [r for r in self.rows if self.key(r) in self.done]

    @staticmethod
    def key(row):
        return row["backend"], row["dtype"], row["forms"], row["op"]

    def _keep(self, row):
        if "done" in row:
            self.done.add(self.key(row))
        elif "status" in row:
            self.rows.append(row)

    def add(self, row):
        with self.lock:
            self._keep(row)
            if self.path:
                with open(self.path, "a") as f:
                    f.write(json.dumps(row) + "\n")


def run_worker(options, dtype, names, take):
    """Starts one worker on the ops `names` and passes its rows to `take`. Returns the sample at which it died, or
    None."""
    asked = argparse.Namespace(**{**vars(options), "worker": dtype, "names": names,
                                  "classes": options.classes or options.partly})
    (rows, for_rows), (said, for_errors) = (multiprocessing.Pipe(duplex=False) for _ in range(2))
    process = programs.template().Process(target=worker.start, args=(asked, for_rows, for_errors), daemon=True)
    process.start()
    for_rows.close(), for_errors.close()
    errors = []
    reader = threading.Thread(target=lambda: errors.extend(text_in(said).read().strip().splitlines()[-1:]))
    reader.start()
    last, stuck = None, threading.Event()

    def kill():
        stuck.set()
        process.kill()
    clock = threading.Timer(SECONDS_AN_OP, kill)
    clock.start()
    for line in text_in(rows):
        if not line.startswith("{"):
            continue
        clock.cancel()
        clock = threading.Timer(SECONDS_AN_OP, kill)
        clock.start()
        row = json.loads(line)
        if "begin" in row:
            last = row
        else:
            last = None
            take(row)
    clock.cancel()
    process.join()
    reader.join()
    code = process.exitcode
    if code == 0:
        return None
    return {**(last or {}), "why": "stuck" if stuck.is_set() else f"signal {-code}" if code < 0
            else " ".join(errors)[:200]}


def text_in(pipe):
    return open(os.dup(pipe.fileno()), encoding="utf-8", errors="replace")


def run_chunk(options, dtype, names, journal):
    """Rows of one chunk; if a worker dies, a new one starts after the op that killed it."""
    run = {"backend": options.backend, "dtype": dtype, "forms": " ".join(options.forms)}
    left = [n for n in names if (run["backend"], dtype, run["forms"], n) not in journal.done]
    known = known_reasons(*options.reasons)

    def take(row):
        if row.get("done") and row["op"] in left:
            left.remove(row["op"])
        journal.add({**run, **row})
        if "status" in row and bad_rows([row], known):
            print(f"{dtype} {text_of(row)}", file=sys.stderr, flush=True)
    while left:
        died = run_worker(options, dtype, left, take)
        if died is None:
            break
        take({"op": left[0], "sample": -1, "form": "", **{k: v for k, v in died.items() if k != "begin"},
              "status": "crash"})
        take({"op": died.get("op", left[0]), "done": True})


def by_op(rows):
    table = collections.defaultdict(list)
    for row in rows:
        table[row["op"]].append(row)
    return table


def share_whole(rows):
    """Percentage of ops of which all samples were captured whole; samples on which plain Python raises do not count."""
    ops = by_op(rows).values()
    return 100 * sum({"whole"} <= {r["status"] for r in op} <= {"whole", "raises", "late"}
                     for op in ops) / max(len(ops), 1)


def shares(rows):
    """form -> percentage of its samples that were captured whole; samples on which plain Python raises do not count."""
    counts = collections.defaultdict(collections.Counter)
    for row in rows:
        counts[row["form"]][row["status"]] += row["status"] not in ("raises", "late")
    return {form: 100 * c["whole"] / max(c.total(), 1) for form, c in counts.items()}


def read_floors(path=FLOORS):
    """Lines "set, dtype form: percent" of the committed table."""
    with open(path) as f:
        return {key: float(percent) for key, _, percent in (line.partition(": ") for line in f
                                                            if not line.startswith("#"))}


def below_floors(name, dtype, rows, path=FLOORS):
    """The forms of which fewer samples were captured whole than the table asks for, in words. UPDATE_GOLDEN=1 raises
    floors, and adds those of new sets."""
    floors, seen = read_floors(path), {f"{name}, {dtype} {form}": share for form, share in shares(rows).items()}
    low = [f"{key}: {share:.1f} % of the samples are whole, at least {floors.get(key, 101)} % must be"
           for key, share in seen.items() if share < floors.get(key, 101)]
    if os.environ.get("UPDATE_GOLDEN") == "1":
        low = [text for text in low if text.partition(": ")[0] in floors]
        floors.update((key, max(floors.get(key, 0), math.floor(10 * share) / 10)) for key, share in seen.items())
        with open(path, "w") as f:
            f.write("# The least share of samples that are captured whole, in percent, for each set of samples, dtype "
                    "and form of inputs (op_sweep.py --floors).\n")
            f.write("".join(f"{key}: {percent:g}\n" for key, percent in sorted(floors.items())))
    return low


def bad_rows(rows, known):
    """The failures of the sweep: any break for a reason that is not known for the op counts."""
    def accepted(row):
        reasons = row["why"].split(",") if row["status"] == "break" else ["late"] if row["status"] == "late" else []
        return reasons and all((row["op"], r) in known for r in reasons)
    return [r for r in rows if r["status"] not in ("whole", "raises") and not accepted(r)]


def text_of(row):
    why = str(row.get("why", "")).split("\n")[0]
    return f"{row['op']} sample {row.get('sample', '?')} {row.get('form', '')}: {row['status']} {why}"


def summary_of(rows, known):
    """The lines of one run: ops and samples by outcome, breaks by reason, and what fails the sweep."""
    count = collections.Counter(r["status"] for r in rows)
    lines = [f"ops {len(by_op(rows))}, captured whole {share_whole(rows):.1f} %; samples {len(rows)}: "
             + ", ".join(f"{k} {n}" for k, n in sorted(count.items(), key=lambda c: -c[1]))]
    reasons = collections.defaultdict(lambda: [0, set()])
    for row in rows:
        if row["status"] == "break":
            for reason in row["why"].split(","):
                reasons[reason][0] += 1
                reasons[reason][1].add(row["op"])
        elif row["status"] == "late":
            reasons["late error"][0] += 1
            reasons["late error"][1].add(row["op"])
    for reason, (samples, ops) in sorted(reasons.items(), key=lambda r: -len(r[1][1])):
        lines.append(f"  {reason}: {len(ops)} ops, {samples} samples: "
                     f"{' '.join(sorted(ops)[:12])}{' ...' if len(ops) > 12 else ''}")
    bad = collections.defaultdict(list)
    for row in bad_rows(rows, known):
        bad[row["op"], row["status"], row.get("why", "")[:60] if row["status"] != "break" else row["why"]].append(row)
    lines.append(f"  unexpected: {sum(len(r) for r in bad.values())} samples")
    return lines + [f"    {text_of(same[0])}" + (f" (and {len(same) - 1} more)" if len(same) > 1 else "")
                    for same in bad.values()]


def write_summary(path, sections):
    """Replaces the sections of the file that these runs made; the others stay. A section is a line "# name" and the
    lines after it."""
    old = {}
    if os.path.exists(path):
        with open(path) as f:
            for part in re.split(r"(?m)^# ", f.read())[1:]:
                name, _, body = part.partition("\n")
                old[name] = body.rstrip("\n").split("\n")
    old.update(sections)
    with open(path, "w") as f:
        f.write("".join(f"# {name}\n" + "\n".join(lines) + "\n\n" for name, lines in sorted(old.items())).rstrip("\n")
                + "\n")


RANKS = ["break", "extern", "mixed", "kernels", "views"]


def classes_of(rows):
    """op -> its class: the lowest of its samples; samples that raise do not count."""
    table = {}
    for row in rows:
        if row["status"] not in ("raises", "late"):
            table[row["op"]] = min(table.get(row["op"], "views"), row.get("class", "break"), key=RANKS.index)
    return table


def read_classes(path):
    """Lines "class count: op op ..." of a committed table."""
    table = {}
    if os.path.exists(path):
        with open(path) as f:
            for line in f:
                kind, colon, ops = line.partition(":")
                if colon and not line.startswith("#"):
                    table.update((op, kind.split()[0]) for op in ops.split())
    return table


def write_classes(path, table):
    with open(path, "w") as f:
        f.write("# How the default backend runs the first sample of each op of torch's op_db: only our own kernels, "
                "views that need no step,\n"
                "# kernels and PyTorch's own ops (mixed), only the latter (extern), or a graph break. Ops may move "
                "up, never down (make golden-update).\n")
        for kind in reversed(RANKS):
            ops = sorted(op for op, k in table.items() if k == kind)
            f.write(f"{kind} {len(ops)}: {' '.join(ops)}\n")


def fallen(committed, now):
    """Ops of the committed table that are missing now or have a lower class, in words."""
    return [f"{op}: {now.get(op, 'missing')} instead of {kind}" for op, kind in sorted(committed.items())
            if op not in now or RANKS.index(now[op]) < RANKS.index(kind)]


def partly(rows):
    """Lines "op: own of captured; ops number, ..." for each op of which some samples, but not all, run only as
    PyTorch's own ops, and which ops these are. Samples whose results have no elements do not count."""
    counts, left = collections.defaultdict(lambda: [0, 0]), collections.defaultdict(collections.Counter)
    for row in rows:
        if "class" in row and not row.get("empty"):
            counts[row["op"]][0] += row["class"] != "extern"
            counts[row["op"]][1] += 1
            if row["class"] == "extern":
                left[row["op"]]["+".join(row["left"])] += 1
    return [f"{op}: {own} of {all_}; " + ", ".join(f"{ops} {n}" for ops, n in sorted(left[op].items()))
            for op, (own, all_) in sorted(counts.items()) if 0 < own < all_]


def write_partly(path, rows_of):
    """rows_of: the rows of each dtype, which is a section of the file."""
    with open(path, "w") as f:
        f.write("# How many of an op's samples (op_db, plain inputs) have kernels or views of our own; and which of "
                "PyTorch's own ops\n# are all that the others have (make sweep). All samples are captured whole. "
                "op_partly_reasons.txt says why PyTorch has\n# these ops.\n")
        for dtype, rows in rows_of.items():
            f.write("".join(line + "\n" for line in ["", f"[{dtype}]", *partly(rows)]))


def read_partly(path=PARTLY):
    """(dtype, op, "own of captured", the ops that are left to PyTorch) of each line."""
    found, dtype = [], None
    with open(path) as f:
        for line in f:
            if line.startswith("["):
                dtype = line.strip("[]\n")
            elif line.strip() and not line.startswith("#"):
                op, count, rest = re.match(r"(\S+): (\d+ of \d+); (.*)", line).groups()
                found.append((dtype, op, count, {name for part in rest.split(", ")
                                                 for name in part.split()[0].split("+")}))
    return found


def read_why_left(path=WHY_LEFT):
    """Lines "op op ...: reason": why PyTorch runs these ops, where a sample consists of nothing else."""
    with open(path) as f:
        return {op: why.strip() for line in f if line.strip() and not line.startswith("#")
                for ops, _, why in [line.partition(": ")] for op in ops.split()}


def compare_classes(path, rows):
    """True if an op has a lower class than before. A table that is out of date is rewritten along with golden files,
    and is a failure otherwise."""
    committed, now = read_classes(path), classes_of(rows)
    down = fallen(committed, now)
    stale = committed != now
    if stale and not down and os.environ.get("UPDATE_GOLDEN") == "1":
        write_classes(path, now)
        stale = False
    for line in down or (["better than the committed table: make golden-update"] if stale else []):
        print(line)
    return bool(down) or stale


def report(journal, options):
    failed, sections, known, partly_rows = False, {}, known_reasons(*options.reasons), {}
    for dtype in options.dtype:
        run = (options.backend, dtype, " ".join(options.forms))
        rows = [r for r in journal.rows if (r["backend"], r["dtype"], r["forms"]) == run
                and re.search(options.only, r["op"])]
        limit = f", first {options.samples} samples" if options.samples < 10**6 else ""
        name = f"{'gradients, ' * options.gradients}backend {options.backend}, {dtype}, inputs {run[2]}{limit}"
        sections[name] = summary_of(rows, known)
        print(name, *sections[name], sep="\n")
        if options.classes:
            failed = compare_classes(options.classes, rows) or failed
        if options.partly:
            partly_rows[dtype] = rows
        if options.floors:
            low = below_floors(options.floors, dtype, rows)
            print(*low, sep="\n")
            failed = failed or bool(low)
        failed = failed or not rows or bool(bad_rows(rows, known)) or share_whole(rows) < options.at_least
    if options.partly:
        write_partly(options.partly, partly_rows)
    if options.summary:
        write_summary(options.summary, sections)
    return 1 if failed else 0


def main(arguments=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", default="framejit")
    parser.add_argument("--samples", type=int, default=10**6, help="first samples of each op")
    parser.add_argument("--forms", nargs="+", default=["plain"], choices=[*worker.FORMS, "all"])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--dtype", nargs="+", default=["float32", "int64", "bool"])
    parser.add_argument("--only", default="")
    parser.add_argument("--of-class", metavar="CLASS", help="only ops of this class of op_classes.txt")
    parser.add_argument("--at-least", type=float, default=0.0, metavar="PERCENT", help="captured whole, for each dtype")
    parser.add_argument("--floors", metavar="SET", help="compare the shares of samples with op_sweep_floors.txt")
    parser.add_argument("--classes", metavar="FILE",
                        help="compare what each op becomes with a committed table (one dtype, plain inputs)")
    parser.add_argument("--partly", metavar="FILE",
                        help="write which ops are kernels for some samples only (plain inputs)")
    parser.add_argument("--gradients", action="store_true", help="those of the inputs too")
    parser.add_argument("--journal")
    parser.add_argument("--summary")
    options = parser.parse_args(arguments)
    options.reasons = [REASONS, GRADIENT_REASONS] if options.gradients else [REASONS]
    if "all" in options.forms:
        options.forms = list(worker.FORMS)
    from concurrent.futures import ThreadPoolExecutor
    names, journal = all_names(options.only), Journal(options.journal)
    if options.of_class:
        classes = read_classes(CLASSES)
        names = [name for name in names if classes.get(name) == options.of_class]
    parts = max(options.jobs, -(-len(names) // CHUNK))
    chunks = [(d, names[i::parts]) for d in options.dtype for i in range(parts)]
    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(lambda c: run_chunk(options, *c, journal), chunks))
    return report(journal, options)


if __name__ == "__main__":
    sys.exit(main())
