"""At most 600 lines a file, 72 lines a function and 120 characters a line, in C++ and in Python. Pages, rules of make
and CMake, and shell scripts have no limit of functions.

Half of the C++ files have fewer than 100 lines.
"""
import ast
import re
import statistics

from project import files, read, report

FILE_LINES = 600
MEDIAN_LINES = 100  # of the C++ files
FUNCTION_LINES = 72
LINE_CHARACTERS = 120
CPP = (".h", ".cpp", ".def")
PYTHON = (".py", ".pyi")
OTHERS = (".md", ".cmake", "CMakeLists.txt", "")  # no suffix: the Makefile and the tools
RAW = re.compile(r'R"(\w*)\(.*?\)\1"', re.S)  # text of another language keeps its lines

SHOWN = re.compile(r"^```text.*?^```$", re.S | re.M)

# Comments, strings and character literals are blanked; line breaks stay, so that positions keep their line.
NOISE = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\''
                   r'|^[ \t]*#(?:\\\n|[^\n])*', re.S | re.M)
SCOPE = re.compile(r'^\s*(?:(?:inline|export)\s+)*(?:namespace|extern)\b|\b(?:class|struct|union|enum)\b[^()]*$')
NAME = re.compile(r"([\w:~]+|operator\W+)\s*\(")


def blank(text: str) -> str:
    return NOISE.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


def cpp_functions(text: str) -> list[tuple[str, int, int]]:
    """(name, first line, lines) of every function body that opens at namespace or class scope."""
    text = blank(text)
    found, scopes, head, line, function = [], [], 0, 1, None
    for position, char in enumerate(text):
        if char == "\n":
            line += 1
        elif char == ";":
            head = position + 1
        elif char == "{":
            before = text[head:position]
            is_scope = bool(SCOPE.search(before))
            if function is None and not is_scope and "(" in before and "=" not in before.split("(")[0]:
                name = NAME.search(before)
                first = line - before.lstrip().count("\n")
                function = (name.group(1).strip() if name else "?", first, len(scopes))
            scopes.append(is_scope)
            head = position + 1
        elif char == "}":
            if scopes:
                scopes.pop()
            if function is not None and len(scopes) == function[2]:
                found.append((function[0], function[1], line - function[1] + 1))
                function = None
            head = position + 1
    return found


def python_functions(text: str) -> list[tuple[str, int, int]]:
    return [(node.name, node.lineno, node.end_lineno - node.lineno + 1) for node in ast.walk(ast.parse(text))
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]


def check(path: str, text: str) -> list[str]:
    lines = text.count("\n")
    found = [f"{path}: {lines} lines, at most {FILE_LINES}"] if lines > FILE_LINES else []
    if path.endswith(".md"):  # output that a page shows has the lines that were printed
        text = SHOWN.sub(lambda m: re.sub(r"[^\n]", "", m.group()), text)
    wrapped = RAW.sub(lambda m: re.sub(r"[^\n]", "", m.group()), text) if path.endswith(CPP) else text
    found += [f"{path}:{number}: {len(line)} characters, at most {LINE_CHARACTERS}"
              for number, line in enumerate(wrapped.splitlines(), 1) if len(line) > LINE_CHARACTERS]
    if not path.endswith(CPP + PYTHON):
        return found
    functions = python_functions(text) if path.endswith(PYTHON) else cpp_functions(text)
    return found + [f"{path}:{first}: {name} has {count} lines, at most {FUNCTION_LINES}" for name, first,
                    count in functions if count > FUNCTION_LINES]


def check_median(texts: list[str]) -> list[str]:
    median = statistics.median(text.count("\n") for text in texts)
    return [] if median < MEDIAN_LINES else [f"the median C++ file has {median:g} lines, not under {MEDIAN_LINES}"]


if __name__ == "__main__":
    report("limits", [finding for p in files(*CPP, *PYTHON, *OTHERS)
                      for finding in check(str(p), read(p))] + check_median([read(p) for p in files(".h", ".cpp")]))
