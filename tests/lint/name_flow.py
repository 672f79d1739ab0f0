"""Finds where the text of a name is compared, even through a variable: C++ by statements, Python by its syntax tree."""
import ast
import re

LITERAL = re.compile(r'"(?:[^"\\\n]|\\.)*"')
COMMENT = re.compile(r"//[^\n]*")
# Functions and members that hand out the name of a type, a module, a function or a code object.
READS = re.compile(r"\btp_name\b|\bPyType_Get(?:Name|QualName|FullyQualifiedName|ModuleName)\(|\bPyModule_GetName\w*\("
                   r"|\bm_module\b|\bco_(?:qual)?name\b|\bfunc_(?:qual)?name\b|\bml_name\b"
                   r"|\b(?:module_name|module_text|name_of_callable|torch_call_name|type_name)\("
                   r"|\b\w*(?:[aA]ttr\w*|Item\w*)\([^;]*\"__(?:module|name|qualname)__\"")
COMPARES = re.compile(r"[=!]=\s*(?:std::string_view\()?\"|\"\s*\)?\s*[=!]=|[=!]= (?:interned|std::string_view)\("
                      r"|str(?:n|case)?cmp\(|\bPyUnicode_(?:Compare|Equal|Tailmatch|Contains)\w*\(|\bregex_\w+\("
                      r"|\b(?:starts_with|ends_with|substr|find|rfind|contains|compare|count|within)\((?!std::)"
                      r"|\bis_of\(std|\bsub_match\b")
# Comparisons that always compare names.
ALWAYS = re.compile(r"[=!]= interned\(\"|\bwithin\((?!std::)[^()]*\(|\bname\.(?:starts|ends)_with\(")
KEEPS = re.compile(r"\b(\w+)\s*=(?!=)\s*|\b(?:std::string(?:_view)?|PyRef|PyObject\s*\*\s*(?:const)?)\s+(\w+)\s*[({]")


def statements(text: str):
    """(line, statement) of C++, comments left out; (line, None) where a function begins or ends."""
    code = COMMENT.sub("", text)
    cut = LITERAL.sub(lambda m: '"' + re.sub(r"[;{}]", "_", m[0][1:-1]) + '"', code)
    begin = 0
    for end in re.finditer(r"[;{}]", cut):
        part = code[begin:end.start()]
        stripped = part.lstrip()
        start = end.start() - len(stripped)
        if start == 0 or code[start - 1] == "\n":
            yield code.count("\n", 0, start) + 1, None
        if stripped:
            yield code.count("\n", 0, start) + 1, " ".join(stripped.split())
        if end[0] == "}" and (end.start() == 0 or code[end.start() - 1] == "\n"):
            yield code.count("\n", 0, end.start()) + 1, None
        begin = end.end()


def compared_names(text: str) -> list[tuple[int, str]]:
    """The statements in which a name is compared, searched or looked up: (line, statement)."""
    found, held = [], set()
    for line, statement in statements(text):
        if statement is None:
            held = set()
            continue
        def reads(part):
            return bool(READS.search(part)) or any(re.search(rf"\b{name}\b", part) for name in held)
        if ALWAYS.search(statement) or reads(statement) and COMPARES.search(statement):
            found.append((line, statement))
        places = list(KEEPS.finditer(statement))
        for k, place in enumerate(places):
            value = statement[place.end():places[k + 1].start() if k + 1 < len(places) else None]
            (held.add if reads(value) else held.discard)(place[1] or place[2])
    return found


PYTHON_NAMES = {"__module__", "__name__", "__qualname__", "co_name", "co_qualname"}
PYTHON_SEARCHES = {"startswith", "endswith", "find", "rfind", "index", "count", "match", "fullmatch", "search",
                   "partition", "rpartition", "split", "rsplit", "get", "removeprefix", "removesuffix"}


class PythonNames(ast.NodeVisitor):
    def __init__(self):
        self.found, self.held = [], [set()]

    def reads(self, node) -> bool:
        return any(isinstance(n, ast.Attribute) and n.attr in PYTHON_NAMES
                   or isinstance(n, ast.Name) and (n.id == "__name__" or any(n.id in names for names in self.held))
                   or isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == "getattr"
                   and len(n.args) > 1 and isinstance(n.args[1], ast.Constant) and n.args[1].value in PYTHON_NAMES
                   for n in ast.walk(node))

    def note(self, node, *parts):
        if any(self.reads(part) for part in parts):
            self.found.append(node.lineno)

    def visit_FunctionDef(self, node):
        self.held.append(set())
        self.generic_visit(node)
        self.held.pop()

    visit_AsyncFunctionDef = visit_Lambda = visit_FunctionDef

    def keep(self, target, value):
        for name in ast.walk(target):
            if isinstance(name, ast.Name):
                (self.held[-1].add if self.reads(value) else self.held[-1].discard)(name.id)

    def visit_Assign(self, node):
        self.generic_visit(node)
        for target in node.targets:
            if isinstance(target, (ast.Name, ast.Tuple)) and not isinstance(node.value, (ast.Dict, ast.Call)):
                self.keep(target, node.value)

    def visit_NamedExpr(self, node):
        self.generic_visit(node)
        self.keep(node.target, node.value)

    def visit_Compare(self, node):
        is_main = isinstance(node.left, ast.Name) and node.left.id == "__name__"
        if not is_main and not all(isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops):
            self.note(node, node.left, *node.comparators)
        self.generic_visit(node)

    def visit_Call(self, node):
        if isinstance(node.func, ast.Attribute) and node.func.attr in PYTHON_SEARCHES:
            self.note(node, node.func.value, *node.args)
        self.generic_visit(node)

    def visit_Subscript(self, node):
        self.note(node, node.slice)
        self.generic_visit(node)

    def visit_Match(self, node):
        self.note(node, node.subject)
        self.generic_visit(node)


def compared_names_of_python(text: str) -> list[int]:
    """The lines on which a name is compared, searched or looked up."""
    visitor = PythonNames()
    visitor.visit(ast.parse(text))
    return visitor.found
