"""make wild: programs that others wrote, plain and compiled, in a table by package.

    run_wild.py --journal FILE --summary FILE [--package NAME ...] [--modes MODE ...] [--seed 0] [--count 192]
                [--seconds 300] [--jobs 2]

Each program runs five times under framejit.compile and five times under FRAMEJIT=1, then with batches of other sizes. A
module also trains: five steps of forward and backward. Every result is compared as tests/e2e/check.py does. "sized" are
the programs that took other sizes, "again" those of them whose other sizes made more graphs than the program has: for
these, a size did not become a symbol at its first change. A program that the journal has for a seed and the modes does
not run again, so a run that was stopped can continue.
"""
import argparse
import collections
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from wild_program import MODES

HERE = Path(__file__).parent
PACKAGES = ("einops", "torchdiffeq", "timm", "transformers", "diffusers", "kornia")
MANY = 8  # recompiles in five calls
# For the programs of a package and mode: the least share that is whole, in percent, and how many may have many
# recompiles.
FLOORS = {
    ("transformers", "compile"): (88, 2), ("transformers", "FRAMEJIT=1"): (80, 2), ("diffusers", "compile"): (85, 4),
    ("diffusers", "FRAMEJIT=1"): (50, 2), ("einops", "compile"): (95, 2), ("einops", "FRAMEJIT=1"): (80, 2),
    ("timm", "compile"): (95, 2), ("timm", "FRAMEJIT=1"): (95, 2),
    ("torchdiffeq", "compile"): (0, 12), ("torchdiffeq", "FRAMEJIT=1"): (8, 4), ("kornia", "compile"): (85, 2),
    ("kornia", "FRAMEJIT=1"): (75, 2),
}
ENOUGH = 20  # programs: a share of fewer means little


def records(journal):
    return [json.loads(line) for line in journal.read_text().splitlines()] if journal.exists() else []


def names_of(package, seed):
    asked = (f"import warnings; warnings.simplefilter('ignore'); import {package}_programs as p, json; "
             f"print(json.dumps(p.names({seed})))")
    done = subprocess.run([sys.executable, "-c", asked], cwd=HERE, capture_output=True, text=True, timeout=600)
    if done.returncode:
        sys.exit(f"{package} cannot be imported: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout.splitlines()[-1])


def start(package, options):
    """Servers for the programs that the journal lacks of a package."""
    ran = collections.defaultdict(dict)
    for r in records(options.journal):
        if (r["package"], r["seed"]) == (package, options.seed):
            ran[r["name"]][r.get("mode")] = r["verdict"]
    known = {name: modes for name, modes in ran.items() if None in modes or set(options.modes) <= set(modes)}
    missing = options.count - sum(set(modes.values()) != {"passed over"} for modes in known.values())
    names = [n for n in names_of(package, options.seed) if n not in known]
    jobs = min(options.jobs, len(names), max(missing, 0))
    for job in range(jobs):
        task = dict(package_name=package, seed=options.seed, names=names[job::jobs], count=missing // jobs
                    + (job < missing % jobs),
                    seconds=options.seconds, journal=str(options.journal), modes=options.modes)
        yield subprocess.Popen([sys.executable, str(HERE / "wild_server.py"), json.dumps(task)], cwd=HERE,
                               stderr=subprocess.DEVNULL)


def counted(reasons):
    return ", ".join(f"{reason} {count}" for reason, count in reasons.most_common())


def below_floors(rows, seed):
    """The shares below the floors, one line each."""
    found = []
    for (package, mode), (whole, many) in FLOORS.items():
        those = [r for r in rows if (r["package"], r.get("mode"), r["seed"]) == (package, mode, seed)]
        if len(those) < ENOUGH:
            continue
        wholes = 100 * sum(r.get("whole", False) for r in those) / len(those)
        manys = 100 * sum(r.get("recompiles", 0) > MANY for r in those) / len(those)
        if wholes < whole:
            found.append(f"{package} ({mode}): {wholes:.0f} % are whole, at least {whole} % must be")
        if manys > many:
            found.append(f"{package} ({mode}): {manys:.0f} % have more than {MANY} recompiles, at most {many} % may")
    return found


def table(rows, seed):
    """A row for each package and mode, then the programs that are not right, and the most frequent breaks."""
    counts = f"{'programs':>8} {'right':>6} {'whole':>6} {'recompile':>9} {'sized':>6} {'again':>6} {'seconds':>8}"
    text, wrong = [f"{'package':14} {'mode':11} {counts}  breaks by reason"], []
    groups = collections.defaultdict(list)
    for r in rows:
        if r["verdict"] != "passed over" and r["seed"] == seed:
            groups[r["package"], r["mode"]].append(r)
    for (package, mode), found in groups.items():
        breaks = collections.Counter()
        for r in found:
            breaks.update(r.get("break_reasons", {}))
        text.append(f"{package:14} {mode:11} {len(found):8} {sum(r['verdict'] == 'right' for r in found):6} "
                    f"{sum(r.get('whole', False) for r in found):6} "
                    f"{sum(r.get('recompiles', 0) > MANY for r in found):9} "
                    f"{sum(r.get('resized', 0) > 0 for r in found):6} "
                    f"{sum(r.get('more_graphs', 0) > r.get('graphs', 0) for r in found):6} "
                    f"{sum(r.get('seconds', 0) for r in found):8.0f}  {counted(breaks)}")
        bad = {"internal_error", "run_failed", "kernel_check"}
        fell = [r for r in found if bad & set(r.get("fallback_reasons", {}))]
        wrong += [f"{package} {r['name']} ({mode}): {r['verdict']}: {r['detail']}" for r in found
                  if r["verdict"] != "right"]
        wrong += [f"{package} {r['name']} ({mode}): fallbacks {r['fallback_reasons']}" for r in fell]
    over = [r for r in rows if r["verdict"] == "passed over" and r["seed"] == seed]
    passed = collections.Counter(r["package"] for r in over if "mode" not in r)
    text.append(f"passed over (cannot be made small, or eager refuses the inputs): {counted(passed) or 'none'}")
    untrained = collections.Counter(r["package"] for r in over if "mode" in r)
    text.append(f"not trained (no module, no gradient, or eager refuses it): {counted(untrained) or 'none'}")
    return "\n".join(text + [f"not right or fallen back: {len(wrong)}"] + wrong)


def parsed():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--journal", type=Path, required=True)
    parser.add_argument("--summary", type=Path, required=True)
    parser.add_argument("--package", nargs="*", default=PACKAGES, choices=PACKAGES)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=192, help="programs of a package that show something")
    parser.add_argument("--modes", nargs="*", default=MODES, choices=MODES)
    parser.add_argument("--seconds", type=int, default=300, help="for one program in one mode")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    options.journal, options.summary = options.journal.resolve(), options.summary.resolve()
    return options


def main():
    options = parsed()
    for package in options.package:
        for server in list(start(package, options)):
            server.wait()
    below = below_floors(records(options.journal), options.seed)
    found = "\n".join([table(records(options.journal), options.seed), *below])
    day = time.strftime("%F", time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))))
    options.summary.write_text(f"$ make wild SEED={options.seed}   {day}\n{found}\n")
    print(found)
    return 1 if below or any(r["verdict"] in ("wrong", "died") for r in records(options.journal)
                    if r["seed"] == options.seed) else 0


if __name__ == "__main__":
    sys.exit(main())
