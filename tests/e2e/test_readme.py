"""README.md and docs/: every block of code runs and prints what the page says, and everything that a page names exists.
The pages that are generated from tables are current (make golden-update)."""
import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging import licenses  # pytest needs packaging

import pages
import programs
from pages import ROOT

UPDATE = os.environ.get("UPDATE_GOLDEN") == "1"
PAGES = {str(page.relative_to(ROOT)): page for page in pages.all_pages()}
RUNNING = [name for name, page in PAGES.items() if any(b.language == "python" for b in pages.blocks(page))]
# Commands that need a build, a network or a tool that may be missing, and where they are tested.
ONLY_READ = {"make": "the target exists (here), and its own tests", "pip": "tools/check_wheel installs the wheel",
             "perf": "tests/e2e/test_code_names.py reads what it reads"}


def without_settings(**settings):
    return {k: v for k, v in os.environ.items() if not k.startswith("FRAMEJIT")} | settings


def clean_environment(**settings):
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return without_settings(PATH=path) | settings


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """What the Python blocks of each page print, in one process for all pages."""
    done = subprocess.run([sys.executable, pages.__file__, *RUNNING], cwd=tmp_path_factory.mktemp("pages"),
                          env=clean_environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", RUNNING)
def test_python_blocks_print_what_the_page_says(printed, name):
    blocks = [(block, shown) for block, shown in pages.programs(PAGES[name]) if block.language == "python"]
    assert len(blocks) == len(printed[name]) > 0
    for (block, shown), result in zip(blocks, printed[name]):
        assert not result["error"], f"{name}:{block.line}\n{result['error']}"
        assert shown is None or pages.is_as_shown(shown, result["printed"]), (
            f"{name}:{block.line} prints\n{result['printed']}")


def shell_blocks():
    """(page, line, command, the Python program above it, the output that the page shows)."""
    for name, page in PAGES.items():
        program = None
        for block, shown in pages.programs(page):
            if block.language == "python":
                program = block.text
                continue
            commands = [re.sub(r"\s+#.*", "", line) for line in block.text.splitlines()]
            words = [next(word for word in command.split() if "=" not in word) for command in commands]
            if not all(word in ONLY_READ for word in words):
                yield name, block.line, "\n".join(commands), program, shown


@pytest.mark.parametrize("name, line, commands, program, shown",
                         [pytest.param(*block, id=f"{block[0]}:{block[1]}") for block in shell_blocks()])
def test_shell_blocks_print_what_the_page_says(tmp_path, name, line, commands, program, shown):
    (tmp_path / "example.py").write_text(program)
    done = subprocess.run(["bash", "-ec", commands], cwd=tmp_path, env=clean_environment(), text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout[-2000:]
    assert shown is not None and pages.is_as_shown(shown, done.stdout), f"{name}:{line} prints\n{done.stdout}"


def test_a_block_that_prints_something_else_is_found():
    assert pages.is_as_shown("a ... c\n...\nTIME\n", "a b c\n1\n2\nTIME\n") and pages.is_as_shown("...\nb\n", "b\n")
    assert pages.is_as_shown("took 0.123 s\n", "took 12.000 s\n")
    for shown in ("a\n", "a\nb\n...\nd\n", "a\nc\nb\n", "took 0.1 ms\n"):
        assert not pages.is_as_shown(shown, "a\nb\nc\n")


def leads_somewhere(page, link):
    """Whether the page that a link names exists, and the heading."""
    path, _, heading = link.partition("#")
    target = page.parent / path if path else page
    if not target.is_file() or not heading:
        return target.is_file()
    titles = re.findall(r"^#+ (.+)$", pages.FENCE.sub("", target.read_text(encoding="utf-8")), re.M)
    return heading in [re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles]


def test_a_link_that_leads_nowhere_is_found():
    page = ROOT / "docs/adding.md"
    assert leads_somewhere(page, "architecture.md#rooms-of-the-tracer") and leads_somewhere(page, "#a-guard")
    for link in ("architecture.md#rooms", "#a-gard", "no_page.md", "no_page.md#a-guard"):
        assert not leads_somewhere(page, link), link


@pytest.mark.parametrize("name", PAGES)
def test_what_a_page_names_is_there(name):
    import framejit
    page, text = PAGES[name], PAGES[name].read_text(encoding="utf-8")
    known = set(re.findall(r'"(FRAMEJIT_?\w*)"', (ROOT / "runtime/base/config.def").read_text()))
    known |= set(re.findall(r"^option\((\w+)", (ROOT / "CMakeLists.txt").read_text(), re.M))
    assert set(re.findall(r"\bFRAMEJIT_[A-Z0-9_]+", text)) - known == set()
    for word in re.findall(r"\bframejit\.([a-z_]+)", text):
        assert hasattr(framejit, word) or word in ("md", "txt"), f"{name} names framejit.{word}"
    for link in re.findall(r"\]\(([^)]+)\)", text):
        assert link.startswith("https://") or leads_somewhere(page, link), f"{name} links to {link}"
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    for block in pages.blocks(page):
        assert block.language in ("python", "sh", "text", "cpp"), f"{name}:{block.line} is of no known language"
        if block.language == "sh":
            assert set(re.findall(r"^make ([a-z-]+)", block.text, re.M)) <= targets, f"{name}:{block.line}"
        if block.language == "cpp":
            assert block.text in (ROOT / block.words[1]).read_text(), f"{name}:{block.line} is not in {block.words[1]}"


def test_readme_leads_to_every_page():
    links = set(re.findall(r"\]\((docs/\w+\.md)\)", (ROOT / "README.md").read_text(encoding="utf-8")))
    assert links == {name for name in PAGES if name.startswith("docs/")}


def current(name, text):
    if UPDATE:
        PAGES[name].write_text(text, encoding="utf-8")
    assert PAGES[name].read_text(encoding="utf-8") == text, f"make golden-update rewrites {name}"


def current_part(name, marker, items):
    """The part of a page below the comment <!-- marker: ... -->."""
    items = pages.filled("\n".join(items))
    text = PAGES[name].read_text(encoding="utf-8")
    made, count = re.subn(rf"(<!-- {marker}: .*-->\n)(?s:.*?)(<!-- end -->)",
                          lambda m: m[1] + items + "\n" + m[2], text)
    assert count == 1
    current(name, made)


def current_list(name, marker, rows):
    current_part(name, marker, [f"- `{row}`: {text}." for row, text in rows])


# The order of docs/settings.md; a setting that is not named here comes under the last title.
SETTINGS = {
    "What is compiled": ("FRAMEJIT", "FRAMEJIT_MIN_CALLS", "FRAMEJIT_FILTER", "FRAMEJIT_SKIP", "FRAMEJIT_ENTRIES"),
    "What is printed": ("FRAMEJIT_LOGS", "FRAMEJIT_LOGS_OUT", "FRAMEJIT_LOGS_FORMAT", "FRAMEJIT_ASSEMBLY",
                        "FRAMEJIT_DUMP_DIR", "FRAMEJIT_PERF", "FRAMEJIT_GDB"),
    "What is kept": ("FRAMEJIT_CACHE_DIR", "FRAMEJIT_CACHE_MB", "FRAMEJIT_DERIVE_AFTER", "FRAMEJIT_DERIVED_MB"),
    "For tests of framejit": ("FRAMEJIT_STRICT", "FRAMEJIT_STRESS", "FRAMEJIT_TRACE_ALL"),
    "How kernels are made": (),
}


def settings_page():
    table = (ROOT / "runtime/base/config.def").read_text()
    text = r'"((?:[^"\\]|\\.)*)"'
    row = rf'^KNOB\(\w+, (\w+), {text}, ("[^"]*"|[^,]+), {text},\s*((?:{text}\s*)+)\)'
    found = {}
    for kind, name, default, choices, doc in (match.groups()[:5] for match in re.finditer(row, table, re.M)):
        accepted = {"flag": "0 or 1", "integer": choices.replace("..", " to "),
                    "text": ", ".join(f"`{word}`" for word in choices.split("|")) if choices else "string",
                    "pattern": "regular expression"}[kind]
        usual = {"false": "0", "true": "1"}.get(default, default.strip('"'))
        said = ast.literal_eval(f"({doc})")
        found[name] = f"- `{name}` ({accepted}; default: {f'`{usual}`' if usual else 'empty'}): {said}."
    assert len(found) == len(re.findall(r"^KNOB\(", table, re.M))
    named = {name for names in SETTINGS.values() for name in names}
    assert named <= set(found), sorted(named - set(found))
    lines = ["# Settings", "",
             "Written by `tests/e2e/test_readme.py` from `runtime/base/config.def` (`make golden-update`).", "",
             "Every setting of the process is an environment variable. framejit reads it once, when it is imported. An "
             "empty value is the default. A bad value is an error that says what is accepted: a number must be "
             "within the bounds that are given below, and 0 means what its line says. There is one exception: a "
             "`FRAMEJIT_CACHE_DIR` that cannot be used is a warning, because the program runs without it; "
             "`framejit.cache` raises in that case. A program that imports neither torch nor framejit gets no message. "
             "`true` and `false` mean 1 "
             "and 0. Regular expressions use ECMAScript's syntax. Settings of one compiled function are arguments of "
             "`framejit.compile`: `fullgraph`, `dynamic`, `backend`, `mode`, `options`, `disable`. "
             "`framejit.cache(folder, max_mb=...)` sets the two variables of the cache from the program."]
    for title, names in SETTINGS.items():
        lines += ["", f"## {title}", ""] + [found[name] for name in names or [n for n in found if n not in named]]
    return pages.filled("\n".join(lines) + "\n")


def test_the_page_of_settings():
    current("docs/settings.md", settings_page())


def test_a_wrong_setting_is_an_error_that_says_what_is_accepted():
    done = programs.run("import framejit", env=without_settings(FRAMEJIT_PRODUCTS="x"))
    assert done.returncode and "ValueError" in done.stderr and "library" in done.stderr


WRONG_VALUES = """
import os, re, sys
import framejit
from framejit import _framejit
for kind, name, choices in eval(sys.argv[1]):
    least = int(choices.partition("..")[0]) if kind == "integer" else 0
    wrong = {"flag": ["-1", "2", "abc", "1e3", " 1"], "pattern": ["(", "["], "text": ["abc", "0"] if choices else [],
             "integer": ["abc", "1e3", " 1", "0x8", "99999999999999999999", str(least - 1)]}[kind]
    for value in wrong:
        os.environ[name] = value
        try:
            _framejit.configure()
            print(f"{name}={value} is accepted")
        except ValueError as error:
            if not re.match(rf"{name}='{re.escape(value)}' is not accepted: expected .+ \\(.+\\)$", str(error)):
                print(error)
    os.environ[name] = ""
    _framejit.configure()
"""


def test_wrong_values_of_each_setting_are_errors_and_empty_ones_are_the_default():
    table = (ROOT / "runtime/base/config.def").read_text()
    rows = re.findall(r'^KNOB\(\w+, (\w+), "(\w+)",\s*(?:"[^"]*"|[^,]+), "([^"]*)",', table, re.M)
    assert len(rows) == len(re.findall(r"^KNOB\(", table, re.M)) > 20
    done = programs.run(WRONG_VALUES, repr(rows), env=without_settings())
    assert (done.returncode, done.stdout) == (0, ""), (done.stdout, done.stderr)


def test_the_list_of_channels():
    table = (ROOT / "runtime/base/log_channels.def").read_text()
    rows = re.findall(r'^LOG_CHANNEL\((\w+),\s*((?:"[^"]*"\s*)+)\)', table, re.M)
    done = programs.run("import framejit", env=without_settings(FRAMEJIT_LOGS="help"))
    assert [name for name, _ in rows] == re.findall(r"^  (\w+) ", done.stderr, re.M) and len(rows) > 10
    current_list("docs/logs.md", "channels", [(name, ast.literal_eval(f"({doc})")) for name, doc in rows])


def test_the_list_of_totals():
    from framejit import _framejit, api
    rows = _framejit.totals()
    assert [name for name, _ in rows] == list(api.stats()) and len(rows) > 30
    assert all(f"    {name} " in api.stats.__doc__ for name, _ in rows)
    current_list("docs/logs.md", "totals", rows)


def test_the_list_of_graph_refusals():
    table = (ROOT / "runtime/aten/graph_refusals.def").read_text()
    text = r'((?:"(?:[^"\\]|\\.)*"\s*)+)'
    rows = re.findall(rf"^GRAPH_REFUSAL\((\w+),\s*{text},\s*{text}\)", table, re.M)
    assert len(rows) == len(re.findall(r"^GRAPH_REFUSAL\(\w+,", table, re.M)) > 5
    items = []
    for name, *texts in rows:
        what, hint = (ast.literal_eval(f"({literal})").replace("{0}", "...") for literal in texts)
        items += [f"- `{name}`: {what}", f"  *{hint}*"]
    current_part("docs/gpu.md", "refusals", items)


# The folders of headers that are not ours, and their owners.
HEADERS = {"ATen": "PyTorch", "c10": "PyTorch", "torch": "PyTorch", "llvm": "LLVM", "linux": "Linux",
           "sys": "the C library"}


# Text after the table of linked parts names files of LLVM with licences of their own.
OWN_LICENCES = ("Henry Spencer", "BLAKE3", "xxHash", "SipHash", "conversion of Unicode", "MD5")


def is_spdx(expression):
    """Whether it has only known identifiers, as SPDX spells them."""
    try:
        return licenses.canonicalize_license_expression(expression) == expression
    except licenses.InvalidLicenseExpression:
        return False


def test_spdx_names():
    assert is_spdx("MIT OR CC0-1.0 OR Apache-2.0 WITH LLVM-exception") and is_spdx("LicenseRef-public-domain")
    wrong = ("", "BSD", "apache-2.0", "Apache-2.0 WITH LLVM", "GPLv2", "MIT OR", "see its page")
    assert not [name for name in wrong if is_spdx(name)]


def licences(section):
    """part -> licence, of a table."""
    lines = [line.strip("|") for line in section.split("\n") if line.startswith("|")]
    rows = [[cell.strip() for cell in line.split("|")] for line in lines]
    assert rows[0][-1] == "licence" and all(len(row) == len(rows[0]) for row in rows)
    return {row[0]: row[-1] for row in rows[2:]}


def test_the_table_of_third_parties():
    text = PAGES["docs/third_party.md"].read_text(encoding="utf-8")
    section = text.split("## Linked")[1].split("##")[0]
    linked, compiled = licences(section), licences(text.split("## Compiled")[1].split("##")[0])
    rules = (ROOT / "cmake/llvm_target.cmake").read_text()
    archives = re.findall(r"^find_library\(\w+ (\w+\.a) REQUIRED\)", rules, re.M)
    version = re.search(r"llvm-config-(\d+)", rules)[1]
    parts = [f"LLVM {version}", *(f"`{archive}`" for archive in archives)]
    assert len(archives) == 2 and len(linked) == len(parts)
    assert all(any(part in row for row in linked) for part in parts)
    used = set()
    for folder in ("runtime", "graph", "guards", "frame_hook", "inductor", "python"):
        for path in (*(ROOT / folder).rglob("*.h"), *(ROOT / folder).rglob("*.cpp")):
            used |= set(re.findall(r"^#include <(\w+)/", path.read_text(), re.M))
    assert used == set(HEADERS), "a project's headers are new, or gone"
    projects = {*HEADERS.values(), "CPython", "pybind11", "libstdc++"} - {"LLVM", "the C library"}
    assert {re.match(r"[\w+]+", row)[0] for row in compiled} == projects
    prose = " ".join(section.split("\n\n")[-2].split())
    own = re.findall(r"([\w ]+) \(([^):]+)(?::[^)]*)?\)", prose)
    assert [[name for name in OWN_LICENCES if name in part] for part, _ in own] == [[name] for name in OWN_LICENCES]
    named = [*linked.items(), *compiled.items(), *own]
    assert not [(part, licence) for part, licence in named if not is_spdx(licence)]


def stage_text(block, events):
    """framejit's output for a block of docs/one_program.md: `text Event [its stage or form] [which of them]`."""
    name, *rest = block.words[1:]
    which = int(rest.pop()) - 1 if rest and rest[-1].isdigit() else 0
    found = [e for e in events if e["event"] == name and (not rest or rest[0] in (e.get("stage"), e.get("form")))]
    assert found, f"nothing is printed for {block.words}"
    if name == "Bytecode" and sys.version_info[:2] != (3, 11):
        return block.text  # a block of the reference; positions differ elsewhere
    if name in ("Guard", "Recompile"):
        first = found[0]["id"]
        return "".join(e["guard"] + "\n" for e in found if e["id"] == first)
    text = found[which]["text"].rstrip("\n") + "\n"
    return re.sub(r'(?m)^(code c\d+ = )"\w+" for ".*?"', r'\1"..." for "..."', text)


def test_one_program(tmp_path):
    page = PAGES["docs/one_program.md"]
    (tmp_path / "example.py").write_text(next(b.text for b in pages.blocks(page) if b.language == "python"))
    done = programs.run(file="example.py", cwd=tmp_path,
                        env=without_settings(FRAMEJIT_LOGS="all", FRAMEJIT_LOGS_FORMAT="json",
                                             FRAMEJIT_CPU_FEATURES="generic"))
    assert done.returncode == 0, done.stderr[-2000:]
    events = [json.loads(line) for line in done.stderr.splitlines()]
    made = pages.FENCE.sub(lambda m: f"```{m[1]}\n{stage_text(pages.Block(tuple(m[1].split()), m[2], 0), events)}```"
                           if re.match(r"text \w", m[1]) else m[0], page.read_text(encoding="utf-8"))
    assert made.count("```text ") >= 12
    current("docs/one_program.md", made)
