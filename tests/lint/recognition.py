"""The tracer recognises an object by identity: no text of a type's name decides, except as listed here. The objects
that it knows are rows of tables, each with a reason."""
import re

from project import files, read, report

DECIDES = re.compile(r"^(?:frame_hook|guards)/")
NAME = re.compile(r"\btp_name\b|\bmodule_name\(|\bc_name_of\(")
COMPARES = re.compile(r"[=!]=\s*(?:std::string_view\()?\"|str(?:n|case)?cmp\(|\b(?:starts_with|ends_with|substr|find)\("
                      r"|\bis_of\(|\bis_numpy_module\(|std::string_view name = [^;]*tp_name")
# Where a name decides nevertheless: part of the line, and why a class of the program is not mistaken.
ALLOWED = {
    "frame_hook/trace/protocol/calls.cpp": ("c_name_of(", "a type that C code made, of torch's own modules"),
    "frame_hook/trace/protocol/stand_ins.cpp": ("const std::string_view name = type->tp_name;",
                                                "classes of the program are left out before"),
    "frame_hook/trace/types/numpy_calls.cpp": ("is_made_by_c(type) && is_numpy_module(type->tp_name)",
                                               "a type that C code made: NumPy's are many"),
    "frame_hook/aten/captured_calls.cpp": ("torch._C._VariableFunctionsClass", "only how the graph names the call"),
    "frame_hook/trace/values/object_kinds.cpp": (
        "tp_name, \"", "a type that C code made: NumPy's, itertools' and typing's are many"),
}
TABLES = {"known_types.def": re.compile(r'^KNOWN_TYPE\(\w+, "[\w.]+", "\w+", "([^"]*)"\)$'),
          "special_functions.def": re.compile(
              r'^SPECIAL_FUNCTION\(\w+, "[\w.]+", "\w+",\s*"([^"]*)"\)$', re.M)}
WORDS = 3


def check(path: str, text: str) -> list[str]:
    allowed, _ = ALLOWED.get(path, ("", ""))
    return [f"{path}:{number}: a name decides: make it a row of known_types.def or special_functions.def"
            for number, line in enumerate(text.splitlines(), 1)
            if DECIDES.match(path) and NAME.search(line) and COMPARES.search(re.sub(r"\s*//.*", "", line))
            and not (allowed and allowed in line)]


def check_table(path: str, text: str) -> list[str]:
    pattern = TABLES[path.rsplit("/", 1)[-1]]
    rows = re.sub(r",\n\s+", ", ", text)
    return [f"{path}: no row with a reason: {row}" for row in rows.splitlines()
            if row and not row.startswith("//") and len((pattern.match(row) or ["", ""])[1].split()) < WORDS]


if __name__ == "__main__":
    pages = list(files(".cpp", ".h"))
    found = [finding for page in pages for finding in check(str(page), read(page))]
    found += [finding for page in files(".def") if page.name in TABLES
              for finding in check_table(str(page), read(page))]
    found += [f"tests/lint/recognition.py: {path} has no such line any more" for path, (part, _) in ALLOWED.items()
              if not any(part in read(page) for page in pages if str(page) == path)]
    report("recognition", found)
