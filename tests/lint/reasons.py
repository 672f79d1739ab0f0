"""A row that names a class or function says why the protocol cannot handle it: after the row, or in a sentence above
its group."""
import re

from project import files, read, report

TABLES = ("builtins.def", "special.def", "numpy_rows.def")
ROW = re.compile(r"(?:ROW|CONCRETE)\([^)]*\)\s*(?://\s*(.*))?$")
WORDS = 3


def is_reason(text: str) -> bool:
    return len(text.split()) >= WORDS


def check(path: str, text: str) -> list[str]:
    """A group is the rows below a comment, up to an empty line or the next comment; a title is not a reason."""
    found, above, in_rows = [], "", False
    for number, line in enumerate(text.splitlines(), 1):
        row = ROW.match(line)
        if line.startswith("//"):
            above, in_rows = ("" if in_rows else above) + " " + re.sub(r"^//\s*(----.*)?", "", line), False
        elif row:
            in_rows = True
            if not is_reason(row.group(1) or "") and not (is_reason(above) and above.endswith(".")):
                found.append(f"{path}:{number}: {line.split(')')[0]}) does not say why it is needed")
        elif not line.strip():
            above, in_rows = "", False
    return found


if __name__ == "__main__":
    report("reasons", [finding for page in files(".def") if page.name in TABLES
                       for finding in check(str(page), read(page))])
