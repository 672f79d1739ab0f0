"""Paths that pages name must exist: `folder/file.ext`, `folder/{a,b}.*`, `folder/`, `file.ext`; and so must every make
target. docs/adding.md names every table."""
import re
from pathlib import Path

from project import ROOT, files, read, report

CODE = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"^[\w.*{},-]+(?:/[\w.*{},-]+)*/?$")
SUFFIXES = (".py", ".pyi", ".h", ".cpp", ".def", ".md", ".txt", ".toml", ".cmake", ".hip", ".*")
NAME = re.compile(r"[\w-]+\.(?:cpp|h|def|py|pyi|hip|md)$")  # of a file in some folder
NO_FILES = {"Python.h", "example.py", "something_test.cpp"}
MAKE = re.compile(r"\bmake ([a-z][a-z-]+)")


def expand(text: str) -> list[str]:
    match = re.search(r"\{([^}]*)\}", text)
    if not match:
        return [text]
    return [whole for part in match.group(1).split(",")
            for whole in expand(text[:match.start()] + part + text[match.end():])]


def is_path(text: str, top: set[str]) -> bool:
    if not PATH.match(text) or text.startswith("."):
        return False
    return text.endswith(SUFFIXES) and "/" in text or ("/" in text and text.split("/")[0] in top)


def missing(text: str, folder: Path) -> bool:
    return not any(next(base.glob(text.rstrip("/")), None) for base in (ROOT, folder))


def check(page: Path, text: str, names: set[str]) -> list[str]:
    """names: of all files, without their folders."""
    top = {p.name for p in ROOT.iterdir() if p.is_dir()}
    targets = set(re.findall(r"^([a-z-]+):", read(Path("Makefile")), re.M))
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        for code in CODE.findall(line):
            paths = expand(code) if is_path(code, top) else []
            found += [f"{page}:{number}: {path} does not exist" for path in paths if missing(path, ROOT / page.parent)]
            if NAME.match(code) and code not in names | NO_FILES:
                found.append(f"{page}:{number}: no file is called {code}")
            found += [f"{page}:{number}: make {target} is no target" for target in MAKE.findall(code)
                      if target not in targets]
    return found


def check_tables(adding: str, tables: list[Path]) -> list[str]:
    return [f"docs/adding.md: {table} has no entry" for table in tables if f"`{table}`" not in adding]


if __name__ == "__main__":
    every = {path.name for path in files(".cpp", ".h", ".def", ".py", ".pyi", ".hip", ".md")}
    report("docs_paths", [finding for page in files(".md") for finding in check(page, read(page), every)]
           + check_tables(read(Path("docs/adding.md")), files(".def")))
