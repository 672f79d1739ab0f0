"""benchmarks/results/CLASS.txt, one file for each class of processors, and README's tables, which are made from them.

A section of a file has the rows of one benchmark, newest last. Above them are the command that prints them again and
the machine; below them, the mean of each ratio, its least row, and all rows below 1.0.
"""
import dataclasses
import json
import re
import textwrap
from pathlib import Path

from rows import beyond, parse, ratio, summary, told

RESULTS = Path(__file__).resolve().parent / "results"
# Names of the classes of inductor/target/machine_classes.def for readers.
CLASSES = {"zen_avx512": "AMD with AVX-512", "intel_amx": "Intel with AMX", "intel_avx512": "Intel with AVX-512",
           "avx2": "AVX2", "sse": "registers of 128 bits"}
BENCHMARKS = ("models", "training", "kernels", "memory", "updates", "neighbour", "cold", "capture", "compile", "growth",
              "calls", "guards", "breaks", "watch", "costs")
QUIET = 0.1  # the share of the cores that others may use at most
BUSY, MISSED = "a busy machine", "its own bound is missed"
UNKNOWN = {"amd": "AMD EPYC of unknown generation"}  # rows from before classes were recorded
MARKS = "<!-- results: benchmarks/run.py --readme -->\n", "<!-- end of results -->\n"


@dataclasses.dataclass(frozen=True)
class Source:
    """The origin of rows. Its text is the line above them."""
    command: str
    commit: str
    date: str
    processor: str
    cores: str
    python: str
    torch: str
    note: str = ""

    def text(self, loads):
        load = f"load {' to '.join(map(str, sorted({min(loads), max(loads)})))} before" if loads else ""
        facts = (self.commit, self.date, self.processor, self.cores, f"Python {self.python}", f"torch {self.torch}",
                 load, self.note)
        return f"$ {self.command}        {'; '.join(facts)}".rstrip("; ")


SOURCE = re.compile(r"\$ (.*?) {8}([^;]*); ([^;]*); ([^;]*); ([^;]*); Python ([^;]*); torch ([^;]*)"
                    r"(?:; (?:load ([\d.]+)(?: to ([\d.]+))? before)?(?:; (.*))?)?")


@dataclasses.dataclass(frozen=True)
class Row:
    benchmark: str
    line: str
    source: Source
    loads: tuple

    @property
    def name(self):
        return parse(self.line)[0]


def title(name):
    return (CLASSES | UNKNOWN)[name]


def read(path):
    """The rows of a file of results."""
    rows, benchmark, source, loads = [], None, None, ()
    for line in path.read_text().splitlines():
        if line.startswith("## "):
            benchmark = line[3:].split(":")[0]
        elif line.startswith("$ "):
            *facts, least, most, note = SOURCE.fullmatch(line).groups()
            source = Source(*facts, note or "")
            loads = (float(least), float(most or least)) if least else ()
        elif benchmark and parse(line) and not line.startswith("= "):
            rows.append(Row(benchmark, line, source, loads))
    return rows


def read_all(results):
    return {path.stem: read(path) for path in sorted(results.glob("*.txt"))
            if path.read_text().startswith(f"class {path.stem}: ")}


def kept_rows(folders):
    """{class: {benchmark: files of its rows, the oldest first}}"""
    found = {}
    files = [json.loads(path.read_text()) for folder in folders for path in sorted(folder.rglob("*.json"))]
    for file in sorted(files, key=lambda file: file["date"]):
        found.setdefault(file["class"], {}).setdefault(file["benchmark"], []).append(file)
    return found


def rows_in(files):
    """The rows of one benchmark on one class: those that it has now, in its order, each from the newest file that has
    it."""
    order = files[-1]["rows"]
    newest = {file["row"]: file for file in files if file["row"] in order}
    rows = []
    for file in sorted(newest.values(), key=lambda file: order.index(file["row"])):
        note = ", ".join([BUSY] * (file["others"] > QUIET) + [MISSED] * (file["exit"] != 0))
        source = Source(f"make bench NAME={file['benchmark']}", file["commit"], file["date"][:10],
                        file["processor"] + (f" beside an {file['gpu']}" if file["gpu"] else ""), file["cores"],
                        file["python"], file["torch"], note)
        rows += [Row(file["benchmark"], line, source, (file["load"],)) for line in file["lines"]]
    return rows, set(newest) == set(order)


def replaces(row, before):
    is_worse = BUSY in row.source.note and BUSY not in before.source.note
    return row.source.date >= before.source.date and not is_worse


def merged(old, files):
    """The old rows of a class, replaced by the rows of the files if those are as good. If a benchmark ran completely,
    rows that it does not print any more are dropped."""
    kept = list(old)
    for benchmark, of_benchmark in files.items():
        rows, is_whole = rows_in(of_benchmark)
        before = {row.name: row for row in kept if row.benchmark == benchmark}
        taken = [row for row in rows if row.name not in before or replaces(row, before[row.name])]
        since = min(row.source.date for row in rows) if is_whole else ""
        gone = {name for name, row in before.items() if row.source.date <= since} - {row.name for row in rows}
        gone |= {row.name for row in taken}
        kept = [row for row in kept if row.benchmark != benchmark or row.name not in gone] + taken
    return kept


def section(benchmark, rows):
    sources = sorted({row.source: None for row in rows}, key=lambda source: source.date)
    lines = [f"## {benchmark}: make bench NAME={benchmark}"]
    for source in sources:
        of_source = [row for row in rows if row.source == source]
        lines += [source.text([load for row in of_source for load in row.loads])] + [row.line for row in of_source]
    return lines + [f"= {told(*ratios)}" for ratios in summary(benchmark, [row.line for row in rows])] + [""]


def page(name, rows):
    """The text of a file of results."""
    def all_of(fact):
        return "; ".join(sorted({getattr(row.source, fact) for row in rows}))
    facts = ("processor", "cores", "torch", "python", "date", "commit")
    lines = [f"class {name}: {title(name)}", *(f"{fact}: {all_of(fact)}" for fact in facts), ""]
    for benchmark in BENCHMARKS:
        of_benchmark = [row for row in rows if row.benchmark == benchmark]
        lines += section(benchmark, of_benchmark) if of_benchmark else []
    return "\n".join(lines)


def merge(folders, results):
    old, new = read_all(results), kept_rows(folders)
    classes = {name: merged(old.get(name, []), new.get(name, {})) for name in sorted({*old, *new})}
    for name, rows in classes.items():
        if name in UNKNOWN:
            rows = not_of_a_class(rows, [known for other, known in classes.items() if other not in UNKNOWN])
        path = results / f"{name}.txt"
        path.write_text(page(name, rows)) if rows else path.unlink()


def not_of_a_class(rows, classes):
    """The rows of an unknown class that stay: those of benchmarks that no known class has completely."""
    def names(rows, benchmark):
        return {row.name for row in rows if row.benchmark == benchmark}
    return [row for row in rows
            if not any(names(rows, row.benchmark) <= names(known, row.benchmark) for known in classes)]


# README's first table: the text of a line, and its ratios: benchmark, group, ratio.
RATIOS = (
    ("eager, models in float32", "models", "f32", "over eager"),
    ("torch.compile, models in float32", "models", "f32", "over torch.compile"),
    ("torch.compile with freezing, models in float32", "models", "f32", "over freezing"),
    ("eager, models in bfloat16", "models", "bf16", "over eager"),
    ("torch.compile, models in bfloat16", "models", "bf16", "over torch.compile"),
    ("torch.compile with freezing, models in bfloat16", "models", "bf16", "over freezing"),
    ("eager, training steps in float32", "training", "f32", "over eager"),
    ("torch.compile, training steps in float32", "training", "f32", "over torch.compile"),
    ("eager, small gradients, cross-entropy, AdamW", "training", "part", "over eager"),
    ("torch.compile, small gradients, cross-entropy, AdamW", "training", "part", "over torch.compile"),
    ("eager, pointwise and row kernels", "kernels", "", "over eager"),
    ("torch.compile, pointwise and row kernels", "kernels", "", "over torch.compile"),
    ("eager, steps of optimizers", "updates", "", "over eager"),
    ("eager, both next to a busy process", "neighbour", "beside a neighbour", "over eager"),
)
# The second: the text of a line, the benchmark, the name of the row and its figure; {} is the compiler.
COMPILERS = ("framejit", "torch.compile", "eager")
COSTS = (
    ("first call of a small function, s", "cold", ("small", "{}"), "first s"),
    ("first call of BERT-base, s", "cold", ("BERT-base", "{}"), "first s"),
    ("the same beyond a warm call, s", "cold", ("BERT-base", "{}"), "beyond warm s"),
    ("the same, with kernels found in a cache, s", "cold", ("BERT-base", "{}, cache filled"), "beyond warm s"),
    ("capture of BERT-base, ms", "capture", ("{}", "capture of BERT with 12 layers"), "ms"),
    ("compile of ResNet-50, per call of torch, ms", "compile", ("ResNet-50", "{}"), "ms an op"),
    ("compile of ResNet-50, per kernel, ms", "compile", ("ResNet-50", "{}"), "ms a kernel"),
    ("a call of one op on a hit, us", "calls", ("one op",), "{} us"),
    ("guards of BERT-base, us", "guards", ("BERT-base (12 layers)",), "{} us"),
    ("guards of 1000 parameters, us", "guards", ("1000 guarded parameters",), "{} us"),
    ("guards of 1000 ints, us", "guards", ("1000 guarded ints",), "{} us"),
    ("a graph break on a hit, us", "breaks", ("{}", "break 0 levels down"), "the break us"),
    ("each further inlined level, us", "breaks", ("{}", "each level"), "the break us"),
)


def item(text):
    return textwrap.fill(text, 118, initial_indent="- ", subsequent_indent="  ", break_long_words=False,
                         break_on_hyphens=False)


def table(head, lines):
    return [f"| {' | '.join(cells)} |" for cells in (head, ("---",) * len(head), *lines)]


def ratios_of(rows):
    """{(benchmark, group, ratio): (geometric mean, [(number, name) from the worst to the best])}"""
    return {(benchmark, group, key): (mean, ordered) for benchmark in BENCHMARKS for group, key, mean, ordered in
            summary(benchmark, [row.line for row in rows if row.benchmark == benchmark])}


def table_of_ratios(classes):
    """The table, and one list item per list of rows below 1.0."""
    found = {name: ratios_of(classes[name]) for name in CLASSES if name in classes}
    lines, below = [], []
    for label, *key in RATIOS:
        is_first = True
        for name, ratios in found.items():
            mean, rows = ratios.get(tuple(key), (0, []))
            if rows:
                least = f"{ratio(rows[0][0])} ({rows[0][1]})"
                lines.append((label if is_first else "", title(name), str(len(rows)), f"{mean:.2f}", least))
                is_first = False
            worse = ", ".join(f"{row} {ratio(value)}" for value, row in beyond(key[-1], rows))
            below += [item(f"{label}, {title(name)}: {worse}")] if worse else []
    return table(("time divided by framejit's", "processors", "rows", "mean", "least"), lines), below


def table_of_costs(classes):
    """Each line is for one class: the one with the most compilers measured, and of those the newest."""
    lines = []
    for label, benchmark, wanted, key in COSTS:
        found = []
        for place, name in enumerate(filter(classes.get, (*CLASSES, *UNKNOWN))):
            rows = {row.name: (parse(row.line)[1], row.source.date) for row in classes[name]
                    if row.benchmark == benchmark}
            cells, dates = [], set()
            for compiler in COMPILERS:
                figures, date = rows.get(tuple(part.format(compiler) for part in wanted), ({}, ""))
                value = figures.get(key.format(compiler))
                cells.append("" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.3g}")
                dates |= {date} if cells[-1] else set()
            found.append((sum(map(bool, cells)), max(dates, default=""), -place, (label, *cells, title(name))))
        lines += [max(found)[-1]] if found and max(found)[0] else []
    return table(("", *COMPILERS, "measured on"), lines)


def readme_part(classes):
    ratios, below = table_of_ratios(classes)
    measured = []
    for name in filter(classes.get, (*CLASSES, *UNKNOWN)):
        of_rows = {fact: sorted({getattr(row.source, fact) for row in classes[name]}) for fact in ("processor", "date")}
        measured.append(item(f"{title(name)}: {', '.join(of_rows['processor'])}; {of_rows['date'][0]} to "
                             f"{of_rows['date'][-1]}; `benchmarks/results/{name}.txt`"))
    return "\n".join([*ratios, "", "All rows below 1.0:", "", *(below or ["- none"]), "", *table_of_costs(classes), "",
                      "Where the rows were measured; the files have commits, commands and all rows:", "",
                      *measured]) + "\n"


def with_results(text, classes):
    """README's text with its figures replaced by those of the files."""
    before, rest = text.split(MARKS[0])
    return before + MARKS[0] + readme_part(classes) + MARKS[1] + rest.split(MARKS[1])[1]


def write_readme(results, readme):
    readme.write_text(with_results(readme.read_text(), read_all(results)))
