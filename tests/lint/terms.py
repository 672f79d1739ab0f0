"""The words of the project that have one meaning, and the folders whose names may have them (docs/style.md).

A word is found in any form, as a part of a name: `is_checked_index`, `ChecksCopy`, `CHECKED`. A name in another folder
is CPython's, torch's or another library's; otherwise the word has a second meaning there, and needs another one.
"""
import re
from typing import NamedTuple


class Term(NamedTuple):
    word: str
    forms: str              # as parts of names, in lower case
    rooms: tuple[str, ...]  # where it has the meaning of docs/style.md
    others: str = r"(?!)"   # names of others, and ordinary English that is listed one by one


CPYTHON = r"_?Py[A-Z]\w*|PY_\w+|THP\w+"
TERMS = [
    Term("check", "check checks checked checking checker unchecked", ("graph/", "inductor/", "runtime/"),
         r"TORCH_CHECK|check_(?:exc|eg)_match|\w+_CHECK|CHECK_(?:EXC|EG)_MATCH|(?:is_)?health_check"),
    Term("poll", "poll polls polled polling", ("frame_hook/",)),
    Term("fact", "fact facts", ("graph/", "guards/", "frame_hook/"), "facts"),
    Term("info", "info infos", ("graph/", "inductor/", "runtime/"),
         r"(?:PUSH_EXC_INFO|(?:push_)?exc_info|ViewInfo|version_info)"),
    Term("properties", "property properties", ("frame_hook/resume/", "frame_hook/aten/"),
         r"\w*OutputProperties|properties|\w*unsupported_property|Properties|property|def_property\w*|\w+_property"
         r"|with_output_properties|properties_of"),
    Term("trait", "trait traits", ("inductor/",)),
    Term("verify", "verify verifies verified verifier", ("graph/", "inductor/", "runtime/"), "not_verified"),
    Term("recipe", "recipe recipes", ("frame_hook/resume/",)),
    Term("replay", "replay replays replayed replaying",
         ("runtime/aten/", "runtime/base/log_", "frame_hook/aten/", "python/", "graph/passes/functionalize.cpp"),
         r"\w+_view_replay_enabled|view_replay|replays"),
    Term("home", "home homes", ()),
    Term("finish", "finish finishes finished", (), "finished"),  # a generator, in CPython's words
    Term("told", "told untold", ()),
]
WORD_OF = {form: term for term in TERMS for form in term.forms.split()}
IN = re.compile(r"^(?:runtime|graph|guards|frame_hook|inductor|python)/.*\.(?:h|cpp|def|pyi?)$")
NAME = re.compile(r"(?<!\w)[A-Za-z_]\w*")
PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
LITERAL = re.compile(r'"(?:[^"\\\n]|\\.)*"')
QUIET = re.compile(r"^\s*(?:#include|from|import)\b.*$", re.M)


def code_of(path: str, text: str) -> str:
    """The text without comments, literals and includes; lines stay."""
    if path.endswith((".py", ".pyi")):
        text = re.sub(r'"""[\s\S]*?"""', lambda m: "\n" * m[0].count("\n"), text)
        comment = r"#[^\n]*"
    else:
        comment = r"//[^\n]*"
    return QUIET.sub("", re.sub(comment, "", LITERAL.sub('""', text)))


def term_of(name: str, path: str) -> Term | None:
    """The term that a name has outside of its rooms."""
    if re.fullmatch(CPYTHON, name):
        return None
    for part in PART.findall(name):
        term = WORD_OF.get(part.lower())
        if term and not path.startswith(term.rooms) and not re.fullmatch(term.others, name):
            return term
    return None


def check(path: str, text: str) -> list[str]:
    if not IN.match(path):
        return []
    return [f"{path}:{number}: \"{term.word}\" means something else (docs/style.md): {name}"
            for number, line in enumerate(code_of(path, text).splitlines(), 1)
            for name in NAME.findall(line) if (term := term_of(name, path))]
