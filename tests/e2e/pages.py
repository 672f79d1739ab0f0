"""The code blocks of README.md and docs/, and how they run (tests/e2e/test_readme.py; docs/style.md has the rules).

    python pages.py PAGE...     runs the Python blocks of the pages and prints what each printed, as JSON
"""
import contextlib
import dataclasses
import io
import json
import re
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.M | re.S)
# What differs from run to run, and its replacement.
VARYING = ((re.compile(r"\b\d+\.\d+ (s|ms)\b"), r"TIME \1"), (re.compile(r"0x[0-9a-f]{6,}"), "ADDRESS"))


@dataclasses.dataclass(frozen=True)
class Block:
    words: tuple[str, ...]  # of the line that opens it: the language, and the words after it
    text: str
    line: int

    @property
    def language(self):
        return self.words[0] if self.words else ""


def all_pages():
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page):
    text = page.read_text(encoding="utf-8")
    return [Block(tuple(match[1].split()), match[2], text.count("\n", 0, match.start()) + 1)
            for match in FENCE.finditer(text)]


def programs(page):
    """(block that runs, the output that the page shows or None), for Python and shell."""
    found = []
    for block in blocks(page):
        if block.language in ("python", "sh"):
            found.append([block, None])
        elif block.language == "text" and len(block.words) == 1:
            assert found and found[-1][1] is None, f"{page.name}:{block.line}: this block is printed by none"
            found[-1][1] = block.text
    return found


def pattern(shown):
    """The text that a page shows, as a regular expression: "..." stands for any text in a line, or for any lines."""
    for varying, name in VARYING:
        shown = varying.sub(name, shown)
    lines = [r"(?:.*\n)*?" if line.strip() == "..." else re.escape(line).replace(r"\.\.\.", ".*") + r"\n"
             for line in shown.splitlines()]
    return "".join(lines)


def is_as_shown(shown, printed):
    for varying, name in VARYING:
        printed = varying.sub(name, printed)
    return re.fullmatch(pattern(shown), printed) is not None


def filled(text):
    """The text of a generated page with its paragraphs and list items, one line each, wrapped; code is not wrapped."""
    def wrapped(line):
        if line.startswith(("|", "#")):
            return line
        kept = re.sub(r"`[^`]+`|\[[^]]*\]\([^)]*\)", lambda m: m[0].replace(" ", "\0"), line)
        first = "- " if line.startswith("- ") else ""
        indent = " " * (len(line) - len(line.lstrip())) or " " * len(first)
        return textwrap.fill(kept, 120, subsequent_indent=indent, break_long_words=False,
                             break_on_hyphens=False).replace("\0", " ")
    return "\n".join(wrapped(line) for line in text.split("\n"))


def run_page(page):
    """Runs each Python block in turn, in one namespace, as the file example.py; returns what it printed, and its
    error."""
    import linecache
    import traceback
    results, names = [], {"__name__": "__main__"}
    for block, _ in programs(page):
        if block.language != "python":
            continue
        Path("example.py").write_text(block.text)
        linecache.checkcache()
        out, error = io.StringIO(), ""
        with contextlib.redirect_stdout(out):
            try:
                exec(compile(block.text, "example.py", "exec"), names)
            except BaseException:
                error = traceback.format_exc()
        results.append({"printed": out.getvalue(), "error": error})
    return results


if __name__ == "__main__":
    import torch

    import framejit
    said = {}
    for name in sys.argv[1:]:
        framejit.reset()
        torch.manual_seed(0)
        said[name] = run_page(ROOT / name)
    print(json.dumps(said))
