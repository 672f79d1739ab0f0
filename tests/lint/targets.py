"""The inductor asks the target: it contains no maker of CPUs, no device and no machine-specific number; every cost has
a program that measures it."""
import ast
import re

from project import files, read, report

DECIDES = re.compile(r"^inductor/(?!target/)")
ASKS = [
    (re.compile(r"\bis_intel\b|\bis_amd\b|GenuineIntel|AuthenticAMD|__builtin_cpu_(?:is|supports)\b|\b__get_cpuid"),
     "tells CPUs apart: inductor/target/machine_classes.def does"),
    (re.compile(r"\bDeviceType::kCpu\b|\.is_cpu\(\)"),
     "tells devices apart: ask a row of inductor/target/target_traits.def"),
    (re.compile(r"\bhardware_concurrency\b|\bsysconf\((?!_SC_PAGESIZE)|\bsched_getaffinity\b|/sys/devices"),
     "asks the machine: inductor/target/machine.h does"),
]
# The places where a device becomes a target, and where the device of a graph's kernels is chosen.
ASKED_IN = {("inductor/compile.cpp", "is_cpu"), ("inductor/lowering/lower.cpp", "is_cpu")}

# Numbers from 256 on, shifts, and multiples of 1024: sizes and costs, as far as a pattern can recognise them.
NUMBER = r"(?:\d+\s*<<\s*\d+|\d+\s*\*\s*1024|(?:2(?:5[6-9]|[6-9]\d)|[3-9]\d\d|\d{4,}))\b"
BARE = re.compile(r"\bconstexpr\s+(?:u?int\d+_t|size_t|unsigned|int|double)\b[^;]*?\bk\w+\s*=\s*"
                  r"(?:int64_t\{|size_t\{)?\s*" + NUMBER + r"|[<>]=?\s*" + NUMBER)
NAMED = re.compile(r"\bk(?:CacheLine|CacheBytes|L[123]\w*|Cores)\b")
# Numbers that look machine-specific but are not.
ALLOWED = {
    "kRoom": "address space that LLVM wants before it begins",
    "kStackBytes": "stack of a thread, whatever the machine",
    "kRounding32": "a property of float32",
}
SKIPPED = re.compile(r"^inductor/cpu/(?:vector_math|wide_math|avx512_math|lane_math|lane_ops|code_names)\."
                     r"|^inductor/cpu/plan/bf16_values\.|_costs\.def$|prelude\.hip$")
# The plan of a kernel reads costs; its emission reads the plan.
EMITS = re.compile(r"^inductor/cpu/\w+\.(?:cpp|h)$")
COSTS = re.compile(r"\bcosts\b")
COMMENT = re.compile(r"//.*|\"(?:\\.|[^\"\\])*\"")

TABLE, PROGRAMS = "inductor/target/costs.def", "benchmarks/costs.py"
ROW = re.compile(r"^(COST|CPU_COST|GPU_COST)\((\w+), \"([^\"]*)\", (?:any|positive|power_of_two|multiple_of\(\d+\)), "
                 r"(.*),$", re.M)
CELLS = {"COST": 6, "CPU_COST": 5, "GPU_COST": 1}


def check(path: str, text: str) -> list[str]:
    found = []
    if not DECIDES.match(path):
        return found
    for number, line in enumerate(text.splitlines(), 1):
        code = COMMENT.sub("", line)
        for pattern, why in ASKS:
            hit = pattern.search(code) or (pattern is ASKS[0][0] and pattern.search(line.split("//")[0]))
            if hit and not any(path == where and word in hit.group() for where, word in ASKED_IN):
                found.append(f"{path}:{number}: {why}: {line.strip()[:100]}")
        if EMITS.match(path) and COSTS.search(code):
            found.append(f"{path}:{number}: decides by a cost: inductor/cpu/plan does: {line.strip()[:100]}")
        is_bare = (BARE.search(code) and not SKIPPED.search(path)) or NAMED.search(code)
        if is_bare and not any(re.search(rf"\b{name}\b", code) for name in ALLOWED):
            found.append(f"{path}:{number}: a bare number: a row of {TABLE}, or a formula of what the machine is "
                         f"asked: {line.strip()[:100]}")
    return found


def check_table(table: str, programs: str) -> list[str]:
    """Each row has a cell for each class, and a program in the benchmark; each program has a row."""
    found, names = [], {}
    for kind, name, unit, cells in ROW.findall(table):
        names[name] = kind
        count = len(cells.split(", "))
        if count != CELLS[kind]:
            found.append(f"{TABLE}: {name} has {count} columns, not {CELLS[kind]}")
        if not unit:
            found.append(f"{TABLE}: {name} has no unit")
        found += [f"{TABLE}: {name}: {cell} is no number" for cell in cells.split(", ")
                  if not re.fullmatch(r"\d+|AS_[A-Z0-9]+", cell)]
    lines = len(re.findall(r"^(?:COST|CPU_COST|GPU_COST)\(", table, re.M))
    if lines != len(names):
        found.append(f"{TABLE}: {lines - len(names)} rows cannot be read")
    measured = set()
    for node in ast.walk(ast.parse(programs)):
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") in ("ROWS", "UNTIMED"):
            measured |= {key.value for key in node.value.keys}
    own = {name for name, kind in names.items() if kind != "GPU_COST"}
    found += [f"{PROGRAMS}: no program measures {name}" for name in sorted(own - measured)]
    return found + [f"{PROGRAMS}: {name} is no row of {TABLE}" for name in sorted(measured - own)]


if __name__ == "__main__":
    findings = [finding for p in files(".cpp", ".h", ".def") for finding in check(str(p), read(p))]
    report("targets", findings + check_table(read(TABLE), read(PROGRAMS)))
