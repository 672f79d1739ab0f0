"""A row of a benchmark as a line of text, and how to read it back; and the summary of several rows.

A line is a name of one or more parts, and then figures, with two spaces between all of them:

    BERT-base  f32  eager ms 150  framejit ms 67.8  over eager 2.22

The last word of a figure is its number, the others say what it is. "over X" is X's time over framejit's (above 1,
framejit is faster), "of X" is framejit's bytes over X's (below 1, framejit uses less). Lines that a benchmark prints
after an empty line are not rows.
"""
import json
import os
import re
import statistics
import subprocess
import sys

FIGURE = re.compile(r"(\S.*) (-?\d[\d.]*(?:e[+-]\d+)?)")


def number(value):
    if not isinstance(value, float):
        return str(value)
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def ratio(value):
    return f"{value:.3f}" if 0.99 < value < 1 else f"{value:.2f}"


def line(*name, **figures):
    return "  ".join([*map(str, name), *(f"{key} {number(value)}" for key, value in figures.items())])


def show(*name, **figures):
    print(line(*name, **figures), flush=True)


def parse(text):
    """(the parts of the name, {figure: number}); None if the line is not a row."""
    first, *fields = re.split(r" {2,}", text.strip())
    matches = [FIGURE.fullmatch(field) for field in fields]
    figures = {match[1]: float(match[2]) for match in matches if match}
    name = (first, *(field for field, match in zip(fields, matches) if not match))
    return (name, figures) if first and figures else None


def rows_of(output):
    """The lines of what a benchmark printed that are rows."""
    lines = output.split("\n\n")[0].splitlines()
    return [text for text in lines if parse(text)]


# For these, the last part of a name says which rows belong together.
GROUPED = ("models", "memory", "neighbour", "training")


def summary(benchmark, lines):
    """[(group, figure, the geometric mean, [(number, name) from the worst to the best])] of every ratio."""
    found = {}
    for name, figures in filter(None, map(parse, lines)):
        *first, last = name
        group, rest = (last, first) if benchmark in GROUPED else ("", name)
        for key, value in figures.items():
            if key.startswith(("over ", "of ")):
                found.setdefault((group, key), []).append((value, " ".join(rest)))
    return [(group, key, statistics.geometric_mean(value for value, _ in rows),
             sorted(rows, reverse=key.startswith("of "))) for (group, key), rows in found.items()]


def beyond(key, rows):
    """The rows on the wrong side of 1."""
    return [row for row in rows if (row[0] > 1 if key.startswith("of ") else row[0] < 1)]


def told(group, key, mean, rows):
    """A line of the summary."""
    worst, side = ("most", "above") if key.startswith("of ") else ("least", "below")
    names = ", ".join(f"{name} {ratio(value)}" for value, name in beyond(key, rows)) or "none"
    return (f"{f'{group}: ' if group else ''}{key}: geomean {mean:.2f} of {len(rows)}, {worst} {ratio(rows[0][0])} "
            f"({rows[0][1]}); {side} 1.0: {names}")


def run_rows(benchmark, file, names, arguments):
    """Runs `file --row NAME...` with these arguments, a process for each name, which prints its figures as JSON. Prints
    the rows and their summary, and exits; if rows failed, with an error that says which and why."""
    lines, failed = [], []
    for name in names:
        done = subprocess.run([sys.executable, file, "--row", *name, *arguments], capture_output=True, text=True,
                              env=dict(os.environ, TORCHINDUCTOR_FX_GRAPH_CACHE="0"))
        if done.returncode:
            failed.append(f"{' '.join(name)}: {done.stderr.strip().splitlines()[-1:]}")
            continue
        lines.append(line(*name, **json.loads(done.stdout.strip().splitlines()[-1])))
        print(lines[-1], flush=True)
    print("", *(told(*ratios) for ratios in summary(benchmark, lines)), sep="\n")
    raise SystemExit(f"failed: {'; '.join(failed)}" if failed else 0)
