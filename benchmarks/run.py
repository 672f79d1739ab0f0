"""Runs benchmarks row by row, saves each row at once, and makes benchmarks/results/ and README's tables from the rows.

    python benchmarks/run.py [NAME ...] [--[no-]again] [--share 1/4] [--commit ID]
    python benchmarks/run.py --merge [FOLDER ...]
    python benchmarks/run.py --readme

A row is one paired run (one model in one dtype, one kernel), in a separate process. Its file is
build/bench/CLASS/NAME/ROW.json, with the commit, the machine and the date. A row that exists for the same commit, torch
and Python is not run again, unless its NAME or --again is given. --share runs one part of the rows, so that parts can
run side by side, each on its own cores (taskset); then run --merge. --commit names the measured commit if there is no
git. The machine should do nothing else meanwhile.

--merge takes the rows of build/bench, and of folders with rows of other machines (copies of their build/bench). Each
run ends with it. If others used more than a tenth of the cores during a row, it replaces no quiet row. --readme only
writes README's tables.
"""
import argparse
import datetime
import hashlib
import importlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import tables
from rows import rows_of

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "build" / "bench"


def kernel_names(kernels):
    import torch
    return [name for name, *_ in kernels.cases((2, 2), torch.float32)]


# By benchmark: arguments for all rows, and a function that gets its module and returns the arguments of each row.
WHOLE = [], lambda module: {"all": []}
BENCHMARKS = {
    "calls": WHOLE,
    "guards": ([], lambda module: {name: ["--case", name] for name, _ in module.cases()}),
    "breaks": WHOLE,
    "capture": (["--torch-compile"], WHOLE[1]),
    "cold": (["--torch-compile"], lambda module: {name: ["--model", name] for name in module.MODELS}),
    "compile": (["--torch-compile"], lambda module: {name: ["--case", name] for name in module.CASES}),
    "models": (["--torch-compile"], lambda module: {f"{name} {dtype}": ["--only", name, "--dtypes", dtype]
                                                    for dtype in module.DTYPES for name in module.MODELS}),
    "memory": (["--torch-compile"], lambda module: {f"{name} {case}": ["--only", name, "--cases", case]
                                                    for name, case in module.ROWS}),
    "training": (["--torch-compile"], lambda module: {f"{name} {kind}": ["--only", name, "--dtypes", kind]
                                                      for name, kind in module.ROWS}),
    "kernels": (["--torch-compile"], lambda module: {name: ["--only", name] for name in kernel_names(module)}),
    "updates": ([], lambda module: {name: ["--only", name] for name in module.STEPS}),
    "growth": ([], lambda module: {name: [name] for name in module.FAMILIES}),
    "neighbour": ([], lambda module: {name: ["--only", name] for name, *_ in module.cases()}),
    "watch": ([], lambda module: {pages: ["--only", pages] for pages in module.PAGES}),
    "costs": ([], lambda module: {name: [name] for name in module.ROWS}),
}


def processor():
    with open("/proc/cpuinfo") as lines:
        facts = dict(re.findall(r"^(model name|cpu family|model)\s*: (.*)$", lines.read(), re.M))
    return f"{facts.get('model name', 'unknown')} (family {facts.get('cpu family')}, model {facts.get('model')})"


def machine():
    """What stays the same from row to row."""
    import torch
    from framejit import _framejit
    own, all_cores, threads = len(os.sched_getaffinity(0)), os.cpu_count(), torch.get_num_threads()
    cores = f"{own} cores" if own == all_cores else f"{own} of {all_cores} cores"
    return {"class": _framejit.costs()[0], "processor": processor().replace(";", ","),
            "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "",
            "cores": cores if threads == own else f"{cores} for {threads} threads",
            "python": sys.version.split()[0], "torch": torch.__version__}


def commit():
    """The last commit of what is measured, and a hash of the differences from it."""
    measured = ["--", ".", ":!README.md", ":!docs", ":!benchmarks/results"]
    git = [subprocess.run(["git", *command, *measured], cwd=ROOT, capture_output=True, text=True)
           for command in (["log", "-1", "--format=%h"], ["diff", "HEAD"])]
    if any(done.returncode for done in git):
        sys.exit("no git here: name what is measured (--commit ID, make bench COMMIT=ID)")
    differs = hashlib.sha256(git[1].stdout.encode()).hexdigest()[:4] if git[1].stdout else ""
    return git[0].stdout.strip() + (f"+{differs}" if differs else "")


def file_of(kept, benchmark, row):
    return kept / benchmark / (re.sub(r"[^\w.-]+", "_", row) + ".json")


def is_there(path, wanted):
    """Whether the row exists, ended well, and has the same commit and machine."""
    if not path.is_file():
        return False
    row, same = json.loads(path.read_text()), ("commit", "python", "torch", "processor", "cores")
    return row["exit"] == 0 and all(row[key] == wanted[key] for key in same)


def busy_seconds():
    """Processor seconds of all processes on the cores that rows may use, since boot; time that the host took away
    counts too."""
    cores = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    with open("/proc/stat") as lines:
        found = [line.split() for line in lines if line.split()[0] in cores]
    return sum(sum(map(int, fields[1:9])) - int(fields[4]) - int(fields[5]) for fields in found) / os.sysconf(
        "SC_CLK_TCK")


def run(arguments, path, row):
    """Runs one row and keeps it. If it fails, its output is shown; if it has figures, it is kept all the same."""
    print(f"$ python {' '.join(arguments)}", flush=True)
    row = row | {"load": round(os.getloadavg()[0], 1), "date": datetime.datetime.now().isoformat("T", "minutes")}
    environment = {key: value for key, value in os.environ.items() if key not in ("FRAMEJIT_STRICT", "FRAMEJIT_LOGS")}
    output, busy, own, start = "", busy_seconds(), sum(os.times()[:4]), time.perf_counter()
    with subprocess.Popen([sys.executable, *arguments], cwd=ROOT, env=environment, stdout=subprocess.PIPE,
                          text=True) as child:
        for line in child.stdout:
            print(line, end="", flush=True)
            output += line
    others = busy_seconds() - busy - (sum(os.times()[:4]) - own)
    share = others / (time.perf_counter() - start) / len(os.sched_getaffinity(0))
    row |= {"lines": rows_of(output), "exit": child.returncode, "others": round(max(share, 0), 3)}
    if row["lines"]:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")  # a stopped run leaves only whole files
        part.write_text(json.dumps(row, indent=1) + "\n")
        part.replace(path)
    return not child.returncode and bool(row["lines"])


def plan(names):
    """(benchmark, row, its arguments, all rows of the benchmark)"""
    for name in names:
        shared, of_rows = BENCHMARKS[name]
        rows = of_rows(importlib.import_module(name))
        for row, own in rows.items():
            yield name, row, [f"benchmarks/{name}.py", *shared, *own], list(rows)


def measure(options):
    """The rows that failed."""
    here = machine() | {"commit": options.commit or commit()}
    kept, failed = KEPT / here["class"], []
    again = bool(options.names) if options.again is None else options.again
    part, parts = map(int, options.share.split("/"))
    for benchmark, row, arguments, rows in list(plan(options.names or BENCHMARKS))[part - 1::parts]:
        path = file_of(kept, benchmark, row)
        if not again and is_there(path, here):
            continue
        if not run(arguments, path, here | {"benchmark": benchmark, "row": row, "rows": rows}):
            failed.append(f"{benchmark} {row}")
    return failed


def options_of(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--again", action=argparse.BooleanOptionalAction)
    parser.add_argument("--share", default="1/1")
    parser.add_argument("--commit", default="")
    parser.add_argument("--merge", nargs="*", metavar="FOLDER")
    parser.add_argument("--readme", action="store_true")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"no benchmark is named {unknown[0]}; known: {', '.join(BENCHMARKS)}")
    return options


def main():
    options = options_of()
    runs = options.merge is None and not options.readme
    failed = measure(options) if runs else []
    if not options.readme and not (runs and options.share != "1/1"):
        tables.merge([KEPT, *map(Path, options.merge or [])], tables.RESULTS)
    tables.write_readme(tables.RESULTS, ROOT / "README.md")
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
