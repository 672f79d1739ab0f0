"""Objects are recognised by identity: the text of a name decides nothing, except as listed here. The objects, ops and
texts that rules single out are rows of tables, each with a reason."""
import functools
import re
from pathlib import Path

import recognition_rows as rows
from name_flow import LITERAL, compared_names, compared_names_of_python
from project import files, read, report

DECIDES = re.compile(r"^(?:frame_hook|guards)/.*\.(?:cpp|h)$")
PYTHON = re.compile(r"^python/.*\.py$")
EVERYWHERE = re.compile(r"^(?:runtime|graph|guards|frame_hook|inductor|python)/")
TEXT = re.compile(r"\bstrstr\(|\bwhat(?:_without_backtrace)?\(\)\)?\.(?:find|starts_with|contains)\("
                  r"|\.(?:find|rfind|contains|starts_with|ends_with)\(\"[^\"]*[ :][^\"]*\"\)|\" in str\(")
# It may return null, and leaves an error set then.
UTF8 = re.compile(r"\bPyUnicode_AsUTF8(?:AndSize)?\(")
# What the words of a name are called.
NAMED = r"(?:name|op|base|overload|architecture|detail)"
# Words that are compared below the tracer. The contents of literals are removed first.
WORDS = re.compile(r"^(?:runtime|graph|inductor)/.*\.(?:cpp|h)$")
WORD = re.compile(r"[=!]=\s*(?:std::string_view\()?\"\"|\"\"\s*[=!]="
                  r"|\b\w*" + NAMED + r"(?:\(\))?\.(?:(?:starts_with|ends_with|contains)\(|r?find\(\")"
                  r"|\bstr(?:n|case)?cmp\(")
# The text of our own breaks and errors.
DETAIL = re.compile(r"\b(?:detail|message)(?:\(\))?(?:\.(?:starts_with|ends_with|contains|r?find)\(|\s*[=!]=(?!\s*0))")
# A number that stands for something else: written where it is compared, or as a constant that is compared.
NUMBER = r"-?(?:\d[\d']{4,}|0[xX][\da-fA-F][\da-fA-F']{3,})(?:[uU]?[lL]{0,2}|[lL]{1,2}[uU]?)\b(?!\.)"
SENTINEL = re.compile(rf"[=!]=\s*{NUMBER}|(?<![\w.]){NUMBER}\s*[=!]=")
CONSTANT = re.compile(rf"\b(?:constexpr|const)\b[^;()]*?\b(\w+)\s*(?:=|\{{)\s*{NUMBER}\s*[,;}}]"
                      rf"|^(\w+) = {NUMBER}\s*$", re.M)
CPU = re.compile(r"[!=]= (?:graph::)?Device\{\}|\.type [!=]= (?:graph::)?DeviceType::kCpu")
# Lists of ops: rows of op_lists.def and other tables. The rows of graph/ops, of decompositions and of kernels to
# register are tables in C++; so is a map from ops to functions or values.
LISTS = re.compile(r"^(?:runtime|graph|inductor)/")
LISTS_ALLOWED = re.compile(r"^graph/(?:ops/|passes/decompose\w*\.cpp$)")
LIST = re.compile(r"\b(?:static|constexpr)\b[^;{}()]*=?\s*(?:\{\s*)+\"_?[a-z0-9][\w:]*(?:\.\w+)?\",\s*\"")
# The same in braces, where a loop or a call reads them. Rows of decompositions may be pairs of ops, but no loops.
NAMES = r"\{\s*(?:\"_?[a-z]\w*(?:::\w+)?(?:\.\w+)?\"(?:,\s*|(?=\s*\}))){2,}\s*\}"
IN_BRACES = re.compile(NAMES)
LOOP = re.compile(r"\bfor\s*\([^;:]*\s:\s*" + NAMES)
LOOPS_ALLOWED = re.compile(r"^graph/ops/")
NO_LISTS = {"graph/graph_text.cpp": "devices in our own text of graphs",
            "graph/tensor_meta.cpp": "devices in our own text of graphs",
            "runtime/base/text.cpp": "numbers in our own texts",
            "inductor/kernel/in_place.cpp": "what our own log says"}

# What a module has under a name may be the program's: one place looks members of modules up, and checks what it finds.
LOOK_UPS = re.compile(r"^(?:frame_hook/(?!hook/)|guards/).*\.(?:cpp|h)$")
LOOK_UP = re.compile(r"\b(?:PyImport_(?:ImportModule\w*|AddModule\w*|GetModule\w*|Import)|PyEval_GetBuiltins"
                     r"|(?:member|dict)_of_module)\(")

# The operators of Python have one table; who needs one of their names asks it.
OPERATORS = "frame_hook/bytecode/operators.def"
OPERATOR = re.compile(r"^(BINARY|UNARY|COMPARISON)\((.*)\)$", re.M)

TABLES = {"originals.def": re.compile(
              r'^(?:ORIGINALS\("[\w.]+"|DEFINED_AS\("[\w.]+", "\w+", "[\w.]+", "\w+"), "([^"]*)"\)$'),
          "known_types.def": re.compile(r'^KNOWN_TYPE\(\w+, "[\w.]+", "\w+", "([^"]*)"\)$'),
          "special_functions.def": re.compile(
              r'^SPECIAL_FUNCTION\(\w+, "[\w.]+", "\w+",\s*"([^"]*)"\)$', re.M),
          "c_packages.def": re.compile(r'^C_(?:PACKAGE\(\w+, "[\w.]+"|MODULE\("[\w.]+", [\w |]+), "([^"]*)"\)$'),
          "tensor_attributes.def": re.compile(r'^TENSOR_ATTRIBUTE\(\w+, \w+, \w+, \w+, "([^"]*)"\)$'),
          "torch_texts.def": re.compile(r'^TORCH_TEXT\(\w+, "(?:[^"])+", "([^"]*)"\)$'),
          "eager_errors.def": re.compile(r'^EAGER_ERROR\("[\w.]+", \w+, "([^"]*)"\)$'),
          "torch_callables.def": re.compile(r'^TORCH_CALLABLE\(\w+, "[\w.]+", "([^"]*)"\)$'),
          "known_ops.def": re.compile(r'^KNOWN_OP\(\w+, "[\w.]+", "([^"]*)"\)$'),
          "torch_namespaces.def": re.compile(r'^TORCH_NAMESPACE\("\w+", "([^"]*)"\)$'),
          "number_ops.def": re.compile(r'^NUMBER_OP\("\w+", \w+, "([^"]*)"\)$'),
          "op_lists.def": re.compile(r'^OP_LIST\(\w+, "[\w.]+", "([^"]*)"\)$')}
REASON_WORDS = 3


def is_allowed(path: str, line: str, allowed: list[tuple[str, str, str]]) -> bool:
    return any(path == file and part in line for file, part, _ in allowed)


def check_names(path: str, text: str) -> list[str]:
    """Names of types, modules and functions of the program."""
    lines = text.splitlines()
    found = [line for line, statement in compared_names(text) if not is_allowed(path, statement, rows.NAMES)] \
        if DECIDES.match(path) else []
    found += [line for line in compared_names_of_python(text)
              if not is_allowed(path, lines[line - 1], rows.PYTHON_NAMES)] if PYTHON.match(path) else []
    return [f"{path}:{line}: a name decides: make it a row of known_types.def, special_functions.def or c_packages.def"
            for line in found]


def check_sentinels(path: str, text: str) -> list[str]:
    if not EVERYWHERE.match(path):
        return []
    named = {name for match in CONSTANT.finditer(text) for name in match.groups() if name}
    compared = re.compile("|".join(rf"[=!]=\s*{name}\b(?!\()|\b{name}\s*[=!]=" for name in sorted(named)) or r"(?!)")
    return [f"{path}:{number}: a sentinel number: ask for what it stands for"
            for number, line in enumerate(text.splitlines(), 1)
            if "PY_VERSION_HEX" not in line and not is_allowed(path, line, rows.SENTINELS)
            and (SENTINEL.search(code := re.sub(r"\s*(?://|#(?!\w)).*", "", line)) or compared.search(code))]


def check_lists(path: str, text: str) -> list[str]:
    if not LISTS.match(path) or path in NO_LISTS or not path.endswith((".cpp", ".h")):
        return []
    patterns = [LIST, IN_BRACES] if not LISTS_ALLOWED.match(path) else [] if LOOPS_ALLOWED.match(path) else [LOOP]
    lines = {text.count("\n", 0, match.start()) + 1 for pattern in patterns for match in pattern.finditer(text)}
    return [f"{path}:{line}: a list of ops: make it rows of a table" for line in sorted(lines)]


def check_look_ups(path: str, text: str) -> list[str]:
    if not LOOK_UPS.match(path) or path in rows.PLACES_OF_LOOK_UPS:
        return []
    return [f"{path}:{number}: a member of a module is looked up: ask frame_hook/trace/values/originals.h"
            for number, line in enumerate(text.splitlines(), 1)
            if LOOK_UP.search(re.sub(r"\s*//.*", "", line)) and not is_allowed(path, line, rows.LOOK_UPS)]


@functools.cache
def names_of_operators() -> re.Pattern[str]:
    """Special methods, except of comparisons, whose slots are two of their own; functions, where they are looked up."""
    methods, functions = [], []
    for kind, row in OPERATOR.findall(read(Path(OPERATORS))):
        names = re.split(r",\s*", row)
        if kind == "COMPARISON":
            functions.append(names[1])
            continue
        special, function = names[1 + (kind == "BINARY"):][:2]
        methods += [special] if kind == "UNARY" else [special, "r" + special, "i" + special]
        functions += [function] if kind == "UNARY" else [function, "i" + special]
    return re.compile(rf'"__(?:{"|".join(methods)})__"|operator_function\("(?:{"|".join(functions)})"\)|\bNB_[A-Z]')


def check_operators(path: str, text: str) -> list[str]:
    if not LOOK_UPS.match(path) and not path.startswith("frame_hook/hook/"):
        return []
    return [f"{path}:{number}: a name of an operator: ask frame_hook/bytecode/operators.h"
            for number, line in enumerate(text.splitlines(), 1)
            if names_of_operators().search(re.sub(r"\s*//.*", "", line)) and "static_assert(" not in line]


def check(path: str, text: str) -> list[str]:
    found = [finding for look in (check_look_ups, check_operators, check_names, check_sentinels, check_lists)
             for finding in look(path, text)]
    for number, line in enumerate(text.splitlines(), 1):
        code = re.sub(r"\s*//.*", "", line)
        if EVERYWHERE.match(path) and UTF8.search(code) and not is_allowed(path, line, rows.UTF8):
            found.append(f"{path}:{number}: a text that may be null: ask text_of() of guards/cpython/names.h")
        if EVERYWHERE.match(path) and DETAIL.search(code):
            found.append(f"{path}:{number}: the text of a break decides: make it a field of the break")
        if EVERYWHERE.match(path) and TEXT.search(code) and not is_allowed(path, line, rows.ERRORS):
            found.append(f"{path}:{number}: a text is searched: make it a row of torch_texts.def")
        if EVERYWHERE.match(path) and CPU.search(code) and not is_allowed(path, line, rows.CPUS):
            found.append(f"{path}:{number}: a comparison with the CPU: ask is_cpu()")
        if (WORDS.match(path) and path not in rows.WORDS_OF_FILES and WORD.search(LITERAL.sub('""', code))
                and not is_allowed(path, line, rows.WORDS)):
            found.append(f"{path}:{number}: a word decides: make an op a row of graph/known_ops.def")
    return found


def check_table(path: str, text: str) -> list[str]:
    pattern = TABLES[path.rsplit("/", 1)[-1]]
    rows = re.sub(r",\n\s+", ", ", text)
    return [f"{path}: no row with a reason: {row}" for row in rows.splitlines()
            if row and not row.startswith("//") and len((pattern.match(row) or ["", ""])[1].split()) < REASON_WORDS]


def stale_rows(texts: dict[str, str]) -> list[str]:
    """Rows whose line is gone, or that give no reason."""
    listed = (rows.NAMES + rows.UTF8 + rows.PYTHON_NAMES + rows.ERRORS + rows.WORDS + rows.SENTINELS + rows.CPUS
              + rows.LOOK_UPS)
    flat = {path: " ".join(text.split()) for path, text in texts.items()}
    return [f"tests/lint/recognition_rows.py: {path} has no such line any more: {part}" for path, part, _ in listed
            if part not in flat.get(path, "")] \
        + [f"tests/lint/recognition_rows.py: there is no {path}"
           for path in [*rows.WORDS_OF_FILES, *rows.PLACES_OF_LOOK_UPS] if path not in texts] \
        + [f"tests/lint/recognition_rows.py: no reason: {row}" for *row, why in [*listed, *rows.WORDS_OF_FILES.items(),
                                                                           *rows.PLACES_OF_LOOK_UPS.items()]
           if len(why.split()) < REASON_WORDS]


if __name__ == "__main__":
    texts = {str(page): read(page) for page in files(".cpp", ".h", ".py")}
    found = [finding for path, text in texts.items() for finding in check(path, text)]
    found += [finding for page in files(".def") if page.name in TABLES
              for finding in check_table(str(page), read(page))]
    report("recognition", found + stale_rows(texts))
