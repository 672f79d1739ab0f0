"""Objects are recognised by identity: no text of a name decides, except as listed here. The objects, ops and texts that
rules single out are rows of tables, each with a reason."""
import re

from project import files, read, report

DECIDES = re.compile(r"^(?:frame_hook|guards)/")
NAME = re.compile(r"\btp_name\b|\bmodule_name\(|\bm_module\b|\bPyModule_GetName\(|\bco_(?:qual)?name\b"
                  r"|\bfunc_(?:qual)?name\b|[=!]= interned\(\"|\bwithin\((?!std::)|\bname\.(?:starts|ends)_with\(")
COMPARES = re.compile(r"[=!]=\s*(?:std::string_view\()?\"|str(?:n|case)?cmp\(|\b(?:starts_with|ends_with|substr|find)\("
                      r"|\bis_of\(std|\bwithin\((?!std::)|[=!]= interned\(\"|std::string_view name = [^;]*tp_name")
# Where a name decides nevertheless: file, part of the line, and why a class of the program is not mistaken.
ALLOWED = [
    ("frame_hook/trace/values/c_packages.cpp", "is_made_by_c(type) && within(type->tp_name", "rows of c_packages.def"),
    ("frame_hook/trace/values/c_packages.cpp", "std::string_view(type->tp_name).find('.')", "a type that C code made"),
    ("frame_hook/trace/values/c_packages.cpp", 'tp_name).find("pybind11")', "a type that C code made"),
    ("frame_hook/trace/values/c_packages.cpp", "return name && within(name, package);", "a module that C code made"),
    ("frame_hook/trace/values/c_packages.cpp", "name.starts_with(prefix)", "the rule for a row of c_packages.def"),
    ("frame_hook/trace/protocol/attributes_kinds.cpp", 'text == "__name__"', "reads the name, for the program"),
    ("frame_hook/trace/protocol/attributes_kinds.cpp", 'text == "__qualname__"', "reads the name, for the program"),
    ("frame_hook/trace/torch/special.cpp", "f->func_globals == dict_of_module(", "its globals are that module's dict"),
    ("frame_hook/trace/torch/special.cpp", 'within(text_of(name), "torch.optim")', "globals are that module's dict"),
    ("frame_hook/trace/torch/special.cpp", 'within(text_of(name), "torch._dynamo', "names of sys.modules, for the log"),
    ("frame_hook/trace/torch/inlined.cpp", 'interned("helper")', "a constant of a function that a row names"),
    ("frame_hook/resume/global_mode.cpp", 'name.ends_with(".forward")', "code of torch's own folder is only tried"),
    ("frame_hook/aten/captured_calls.cpp", "torch._C._VariableFunctionsClass", "only how the graph names the call"),
]
# Texts of errors and dumps: rows of torch_texts.def. Words of our own languages, in files that read them, are no such
# texts.
EVERYWHERE = re.compile(r"^(?:runtime|graph|guards|frame_hook|inductor|python)/")
TEXT = re.compile(r"\bstrstr\(|\bwhat(?:_without_backtrace)?\(\)\)?\.(?:find|starts_with|contains)\("
                  r"|\.(?:find|rfind|contains|starts_with|ends_with)\(\"[^\"]*[ :][^\"]*\"\)|\" in str\(")
TEXT_ALLOWED = [
    ("graph/number_history.cpp", '"framejit::"', "a name of an operator, not a message"),
    ("graph/aten/op_info.cpp", 'base.find("::")', "a name of an operator, not a message"),
    ("runtime/aten/extern_call.cpp", '.find("::")', "a name of an operator, not a message"),
    ("runtime/aten/shape_functions.cpp", '.find("::")', "a name of an operator, not a message"),
    ("inductor/autotune.cpp", '.find("::")', "a name of an operator, not a message"),
    ("inductor/loop/loop_text.cpp", '" : "', "our own text of loops"),
    ("runtime/base/text.cpp", '"::"', "our own text of graphs"),
    ("frame_hook/trace/values/object_kinds.cpp", '"<frozen "', "the file of a module that CPython froze"),
    ("frame_hook/trace/protocol/stand_ins.cpp", '"framejit.Unread"', "the name of a class that we made"),
]
SENTINEL = re.compile(r"[=!]=\s*-?\d[\d']{4,}\b|\b-?\d[\d']{4,}\s*[=!]=")
# Rules ask for the CPU in one way: a CPU may have an index.
CPU = re.compile(r"[!=]= (?:graph::)?Device\{\}|\.type [!=]= (?:graph::)?DeviceType::kCpu")
CPU_ALLOWED = [("graph/tensor_meta.cpp", "meta.device != Device{}", "the text of a device with an index names it")]
# Lists of ops: rows of op_lists.def and other tables. The rows of graph/ops, of decompositions and of kernels to
# register are tables in C++; so is a map from ops to functions or values.
LISTS = re.compile(r"^(?:graph|inductor)/")
LISTS_ALLOWED = re.compile(r"^graph/(?:ops/|passes/decompose\w*\.cpp$)")
LIST = re.compile(r"\b(?:static|constexpr)\b[^;{}()]*=?\s*(?:\{\s*)+\"_?[a-z0-9][\w:]*(?:\.\w+)?\",\s*\"")
# The same in braces, where a loop or a call reads them. Rows of decompositions may be pairs of ops, but no loops.
NAMES = r"\{\s*(?:\"_?[a-z]\w*(?:::\w+)?(?:\.\w+)?\"(?:,\s*|(?=\s*\}))){2,}\s*\}"
IN_BRACES = re.compile(NAMES)
LOOP = re.compile(r"\bfor\s*\([^;:]*\s:\s*" + NAMES)
LOOPS_ALLOWED = re.compile(r"^graph/ops/")
NO_LISTS = {"graph/graph_text.cpp": "devices in our own text of graphs",
            "graph/tensor_meta.cpp": "devices in our own text of graphs",
            "inductor/kernel/in_place.cpp": "what our own log says"}

TABLES = {"known_types.def": re.compile(r'^KNOWN_TYPE\(\w+, "[\w.]+", "\w+", "([^"]*)"\)$'),
          "special_functions.def": re.compile(
              r'^SPECIAL_FUNCTION\(\w+, "[\w.]+", "\w+",\s*"([^"]*)"\)$', re.M),
          "c_packages.def": re.compile(r'^C_(?:PACKAGE\(\w+, "[\w.]+"|MODULE\("[\w.]+", [\w |]+), "([^"]*)"\)$'),
          "torch_texts.def": re.compile(r'^TORCH_TEXT\(\w+, "(?:[^"])+", "([^"]*)"\)$'),
          "eager_errors.def": re.compile(r'^EAGER_ERROR\("[\w.]+", \w+, "([^"]*)"\)$'),
          "torch_callables.def": re.compile(r'^TORCH_CALLABLE\(\w+, "[\w.]+", "([^"]*)"\)$'),
          "op_lists.def": re.compile(r'^OP_LIST\(\w+, "[\w.]+", "([^"]*)"\)$')}
WORDS = 3


def is_allowed(path: str, line: str, allowed: list[tuple[str, str, str]]) -> bool:
    return any(path == file and part in line for file, part, _ in allowed)


def check(path: str, text: str) -> list[str]:
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        code = re.sub(r"\s*//.*", "", line)
        if DECIDES.match(path) and NAME.search(line) and COMPARES.search(code) and not is_allowed(path, line, ALLOWED):
            found.append(f"{path}:{number}: a name decides: make it a row of known_types.def, special_functions.def or "
                         "c_packages.def")
        if EVERYWHERE.match(path) and TEXT.search(code) and not is_allowed(path, line, TEXT_ALLOWED):
            found.append(f"{path}:{number}: a text is searched: make it a row of torch_texts.def")
        if EVERYWHERE.match(path) and CPU.search(code) and not is_allowed(path, line, CPU_ALLOWED):
            found.append(f"{path}:{number}: a comparison with the CPU: ask is_cpu()")
        if EVERYWHERE.match(path) and SENTINEL.search(code):
            found.append(f"{path}:{number}: a sentinel number: ask for what it stands for")
    if LISTS.match(path) and path not in NO_LISTS and path.endswith((".cpp", ".h")):
        patterns = [LIST, IN_BRACES] if not LISTS_ALLOWED.match(path) else [] if LOOPS_ALLOWED.match(path) else [LOOP]
        lines = {text.count("\n", 0, match.start()) + 1 for pattern in patterns for match in pattern.finditer(text)}
        found += [f"{path}:{line}: a list of ops: make it rows of a table" for line in sorted(lines)]
    return found


def check_table(path: str, text: str) -> list[str]:
    pattern = TABLES[path.rsplit("/", 1)[-1]]
    rows = re.sub(r",\n\s+", ", ", text)
    return [f"{path}: no row with a reason: {row}" for row in rows.splitlines()
            if row and not row.startswith("//") and len((pattern.match(row) or ["", ""])[1].split()) < WORDS]


if __name__ == "__main__":
    pages = list(files(".cpp", ".h", ".py"))
    found = [finding for page in pages for finding in check(str(page), read(page))]
    found += [finding for page in files(".def") if page.name in TABLES
              for finding in check_table(str(page), read(page))]
    found += [f"tests/lint/recognition.py: {path} has no such line any more: {part}"
              for path, part, _ in ALLOWED + TEXT_ALLOWED + CPU_ALLOWED
              if not any(part in read(page) for page in pages if str(page) == path)]
    report("recognition", found)
