"""Classes stay small: the members of each are limited, and for classes that many files use, so are the functions that
take one."""
import re

from limits import blank
from project import files, read, report

# Class, its header, most members, most functions with a parameter of it (None: a part of the tracer, which functions
# should take in place of the whole). Lower a limit whenever you can.
LIMITS = [
    ("CallStack", "frame_hook/trace/machine/call_stack.h", 14, None),
    ("Facts", "frame_hook/trace/values/facts.h", 27, None),
    ("DynamicSources", "frame_hook/trace/values/dynamic_sources.h", 11, None),
    ("Heap", "frame_hook/trace/values/heap.h", 43, None),
    ("Errors", "frame_hook/trace/machine/errors.h", 18, None),
    ("Shadows", "frame_hook/trace/values/shadows.h", 13, None),
    ("Drops", "frame_hook/trace/machine/drops.h", 9, None),
    ("OpenNumbers", "frame_hook/trace/values/open_numbers.h", 13, None),
    ("TracedTensors", "frame_hook/trace/torch/traced_tensors.h", 24, None),
    ("Attempts", "frame_hook/trace/machine/attempts.h", 44, None),
    ("CompilingQuestion", "frame_hook/trace/machine/compiling_question.h", 11, None),
    ("Dicts", "frame_hook/trace/types/dicts.h", 14, None),
    ("RealCalls", "frame_hook/trace/torch/real_calls.h", 11, None),
    ("Machine", "frame_hook/trace/machine/machine.h", 22, None),
    ("Tracer", "frame_hook/trace/machine/tracer.h", 55, 362),
]
# Classes that may exceed the general limit, and lower limits for classes that stay far below it.
LIMITS += [
    ("NestEmitter", "inductor/cpu/nest_emitter.h", 22, None),
    ("NestState", "inductor/cpu/nest_state.h", 12, 13),
    ("Recorder", "graph/aten/recorder.h", 93, None),
    ("ExprNode", "graph/aten/sym_node.cpp", 83, None),  # one for each operator of SymInt
    ("TorchRecording", "frame_hook/aten/recording.h", 69, None),
    ("Products", "inductor/gpu/hip_products.cpp", 66, None),
    ("Rows", "inductor/gpu/hip_rows.cpp", 62, None),
]
MEMBERS = 60  # of a class without a row
CLASS = re.compile(r"\b(?:class|struct)\s+([\w:]+)\b[^;{()=]*{")
SKIPPED = re.compile(r"(?:friend|using|typedef|static_assert)\b")
LABEL = re.compile(r"\b(?:public|private|protected)\s*:(?!:)")


def members(name: str, text: str) -> int:
    """Declarations in the body of a class: functions, data, types; each declarator of data counts."""
    text = blank(text)
    start = re.search(rf"\b(?:class|struct)\s+{name}\b[^;{{]*{{", text)
    if not start:
        return 0
    count, depth, head, is_function = 0, 0, start.end(), False
    for position in range(start.end(), len(text)):
        char = text[position]
        if char in "{(":
            is_function = is_function or char == "("
            depth += 1
        elif char in "})":
            depth -= 1
            if depth < 0:
                return count
        body_ends = char == "}" and depth == 0 and is_function and not text[position + 1:].lstrip()[:1] in (";", ",")
        if depth == 0 and (char == ";" or body_ends):
            declared = LABEL.sub("", text[head:position]).strip()
            if declared and not SKIPPED.match(declared):
                data = re.sub(r"[({<][^;]*[)}>]", "", declared)
                count += 1 if is_function or "struct" in declared else 1 + data.count(",")
            head, is_function = position + 1, False
    return count


def takers(name: str, text: str) -> int:
    """Functions that are defined in the text, members of other classes included, with a parameter of the class."""
    parameter = rf"\((?:[^(){{}};]|\([^()]*\))*?\b(?:const )?{name}\s*&\s*\w*\s*[,)]"
    return len(re.findall(rf"^[\w\[\] ][^\n;={{}}(]*\b[\w:]+{parameter}[^;{{}}]*{{", blank(text), re.M))


def check(name: str, path: str, most_members: int, most_takers: int | None,
          texts: dict[str, str]) -> list[str]:
    has = members(name, texts[path])
    folder = path.split("/")[0]
    taken = 0 if most_takers is None else sum(takers(name, text) for file, text in texts.items()
                                              if file.split("/")[0] == folder)
    found = [] if has else [f"{path}: there is no class {name}"]
    if has > most_members:
        found.append(f"{path}: {name} has {has} members, at most {most_members}")
    if most_takers is not None and taken > most_takers:
        found.append(f"{path}: {taken} functions take a {name}, at most {most_takers}: let some take a narrower type")
    return found


def check_others(path: str, text: str, listed: set[tuple[str, str]]) -> list[str]:
    counts = {name: members(name, text) for name in CLASS.findall(blank(text)) if (name, path) not in listed}
    return [f"{path}: {name} has {count} members, at most {MEMBERS}" for name, count in counts.items()
            if count > MEMBERS]


if __name__ == "__main__":
    sources = {str(p): read(p) for p in files(".h", ".cpp") if not str(p).startswith("tests/")}
    rows = {(name, path) for name, path, _, _ in LIMITS}
    report("classes", [finding for row in LIMITS for finding in check(*row, sources)]
           + [finding for path, text in sources.items() for finding in check_others(path, text, rows)])
