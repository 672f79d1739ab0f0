"""Every #include follows the order of the folders in docs/architecture.md, and outside headers appear where they
may."""
import re

from project import files, read, report

INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]', re.M)

# Who may include whom: a folder, and the folders that it may name besides itself. The longest matching folder decides.
LAYERS = {
    "runtime": [],
    "runtime/aten": ["runtime"],
    "graph": ["runtime"],
    "graph/aten": ["runtime", "runtime/aten", "graph"],
    "guards/cpython": ["runtime"],
    "guards": ["runtime", "graph", "guards/cpython"],
    "guards/aten": ["runtime", "graph", "graph/aten", "guards", "guards/cpython"],
    "frame_hook/bytecode": ["runtime", "guards/cpython"],
    "frame_hook/hook": ["runtime", "graph", "guards/cpython", "frame_hook/bytecode"],
    "frame_hook/trace": ["runtime", "graph", "guards", "guards/cpython", "frame_hook/bytecode"],
    "frame_hook/resume": ["runtime", "graph", "guards", "guards/cpython", "frame_hook/bytecode", "frame_hook/hook",
                          "frame_hook/trace"],
    "frame_hook/aten": ["runtime", "runtime/aten", "graph", "graph/aten", "guards", "guards/cpython", "guards/aten",
                        "frame_hook/bytecode", "frame_hook/trace"],
    "inductor": ["runtime", "graph", "inductor/target", "inductor/loop", "inductor/lowering", "inductor/weights",
                 "inductor/schedule", "inductor/kernel", "inductor/interp", "inductor/cpu", "inductor/cpu/plan",
                 "inductor/gpu"],
    "inductor/target": ["runtime"],
    "inductor/loop": ["runtime", "graph"],
    "inductor/lowering": ["runtime", "graph", "inductor/target", "inductor/loop"],
    "inductor/weights": ["runtime", "graph", "inductor/target", "inductor/loop", "inductor/lowering"],
    "inductor/schedule": ["runtime", "graph", "inductor/target", "inductor/loop", "inductor/lowering"],
    "inductor/kernel": ["runtime", "graph", "inductor/target", "inductor/loop", "inductor/schedule"],
    "inductor/interp": ["runtime", "graph", "inductor/target", "inductor/loop", "inductor/schedule", "inductor/kernel"],
    "inductor/cpu/plan": ["runtime", "graph", "inductor/target", "inductor/loop", "inductor/schedule",
                          "inductor/kernel"],
    "inductor/cpu": ["runtime", "graph", "inductor/target", "inductor/loop", "inductor/schedule", "inductor/kernel",
                     "inductor/cpu/plan"],
    "inductor/gpu": ["runtime", "graph", "inductor/target", "inductor/loop", "inductor/schedule", "inductor/kernel"],
}
FREE = ("python/", "tests/", "benchmarks/")  # the top: may include everything

# Outside headers: pattern, where they may appear, why.
OUTSIDE = [
    (re.compile(r"^(ATen|c10|torch)/"), re.compile(r"/aten/|^python/|^tests/unit/\w+_aten/"),
     "torch headers belong in aten/ folders and python/"),
    (re.compile(r"^(Python\.h|structmember\.h|frameobject\.h)$"),
     re.compile(r"^(guards|frame_hook|python|tests)/|/aten/"),
     "Python.h belongs in guards/, frame_hook/, python/ and aten/"),
    (re.compile(r"^(internal/)?pycore_"), re.compile(r"^frame_hook/hook/pyver_\w+\.h$"),
     "CPython's internals belong in frame_hook/hook/pyver_*.h"),
    (re.compile(r"^llvm(-c)?/"), re.compile(r"^inductor/cpu/\w+\.(cpp|h)$|^tests/unit/inductor_isa/"),
     "LLVM belongs in inductor/cpu/"),
]

# The parts of the tracer do not know the whole.
PART = re.compile(r"^frame_hook/trace/(?:machine/(?:attempts|call_stack|compiling_question|drops|errors|frame_trace"
                  r"|graph_break|nested|reachable|symbolic_frame|unresumable)"
                  r"|protocol/(?:lookup|made_values|own_dict|stand_ins)"
                  r"|torch/(?:real_calls|tensor_numbers|traced_tensors)|types/(?:c_arguments|writes)"
                  r"|values/\w+)\.(?:h|cpp)$")
WHOLE = re.compile(r"^frame_hook/trace/(?:machine/(?:tracer|parts|opcode_handlers)"
                   r"|protocol/(?:attributes|calls|construct|descriptors|patterns|strings)"
                   r"|types/(?:builtins|containers|numpy_calls)"
                   r"|torch/(?:called_by_rows|special|tensor_attributes|tensor_operands))\.h$")

# The rooms of the tracer, and the rooms whose headers each may name besides its own. machine, protocol and types need
# each other: a call runs a frame, an instruction is an operation, an operation of a builtin type may call Python code.
ROOMS = {
    "values": [],
    "machine": ["values", "protocol", "types"],
    "protocol": ["values", "machine", "types"],
    "types": ["values", "machine", "protocol"],
    "torch": ["values", "machine", "protocol", "types"],
}
ROOM = re.compile(r"^frame_hook/trace/(\w+)/(\w+\.\w+)$")
# What a room names nevertheless: the file, the header, and why.
ROOM_EXCEPTIONS = [
    ("values/facts.h", "machine/frame_trace.h", "the guards are in what the trace hands over"),
    ("values/facts.h", "machine/call_stack.h", "a guard names the user's line"),
    ("values/shadows.h", "machine/errors.h", "reading a container may raise what CPython raises"),
    ("values/originals.cpp", "machine/graph_break.h", "what is not believed is a break"),
    ("machine/frame_trace.h", "torch/tensor_frontend.h", "the trace hands the recording over"),
    ("machine/tracer.h", "torch/real_calls.h", "a part of the tracer"),
    ("protocol/attributes.cpp", "torch/tensor_attributes.h", "the attributes of tensors are torch's"),
    ("protocol/attributes_write.cpp", "torch/tensor_attributes.h", "the attributes of tensors are torch's"),
    ("protocol/calls.cpp", "torch/special.h", "a call asks each room that has rows for callables"),
    ("protocol/items.cpp", "torch/tensor_operands.h", "an operator with a tensor among its operands"),
    ("protocol/operators.cpp", "torch/tensor_operands.h", "an operator with a tensor among its operands"),
    ("protocol/operators_compare.cpp", "torch/tensor_operands.h", "an operator with a tensor among its operands"),
    ("types/builtins.h", "torch/special.def", "torch's rows are found as those of builtins.def are"),
    ("types/builtins.cpp", "torch/special.def", "torch's rows are found as those of builtins.def are"),
]


def crosses_rooms(path: str, target: str) -> bool:
    mine, theirs = ROOM.match(path), ROOM.match(target)
    if not mine or not theirs or theirs[1] == mine[1] or theirs[1] in ROOMS[mine[1]]:
        return False
    return not any((f"{mine[1]}/{mine[2]}", f"{theirs[1]}/{theirs[2]}") == row[:2] for row in ROOM_EXCEPTIONS)


def layer_of(path: str) -> str | None:
    parts = path.split("/")[:-1]
    for length in range(len(parts), 0, -1):
        folder = "/".join(parts[:length])
        if folder in LAYERS:
            return folder
    return None


def check(path: str, text: str) -> list[str]:
    found = []
    for match in INCLUDE.finditer(text):
        kind, target = match.groups()
        where = f"{path}:{text.count(chr(10), 0, match.start()) + 1}"
        for pattern, allowed, why in OUTSIDE:
            if pattern.match(target) and not allowed.search(path):
                found.append(f"{where}: <{target}>: {why}")
        if PART.match(path) and WHOLE.match(target):
            found.append(f"{where}: a part of the tracer must not include {target}")
        if crosses_rooms(path, target):
            found.append(f"{where}: this room of the tracer must not include {target}; see ROOMS in layering.py")
        if kind == '"' and not path.startswith(FREE):
            mine, theirs = layer_of(path), layer_of(target)
            if mine is None:
                found.append(f"{where}: the folder has no layer; add it to tests/lint/layering.py")
            elif theirs is None:
                if not any(pattern.match(target) for pattern, _, _ in OUTSIDE):
                    found.append(f'{where}: "{target}" is not named from the root')
            elif theirs != mine and theirs not in LAYERS[mine]:
                found.append(f"{where}: {mine} must not include {theirs} ({target})")
    return found


def check_cycles(texts: dict[str, str]) -> list[str]:
    """Headers that include each other, directly or through others."""
    found, done = [], set()

    def visit(path: str, on_the_way: list[str]) -> None:
        if path in on_the_way:
            found.append(" -> ".join([*on_the_way[on_the_way.index(path):], path]) + ": headers include each other")
        elif path not in done:
            for _, target in INCLUDE.findall(texts.get(path, "")):
                visit(target, [*on_the_way, path])
            done.add(path)

    for path in texts:
        visit(path, [])
    return found


if __name__ == "__main__":
    sources = {str(p): read(p) for p in files(".h", ".cpp", ".def")}
    report("layering", [finding for path, text in sources.items() for finding in check(path, text)]
           + check_cycles({path: text for path, text in sources.items() if path.endswith(".h")}))
