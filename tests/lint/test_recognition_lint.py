"""Plants for the lint of recognition: names that a variable keeps, names in Python, numbers, words."""
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import recognition  # noqa: E402
import recognition_rows  # noqa: E402

CPP, RULE, PYTHON = "frame_hook/trace/values/heap.cpp", "graph/passes/attention.cpp", "python/framejit/api.py"
HELD = "bool f(PyTypeObject* type) {\n  const std::string_view text = type->tp_name;\n"


@pytest.mark.parametrize("path, text, lines", [
    (CPP, HELD + '  g();\n  return text == "torch.Size";\n}\n', [4]),
    (CPP, HELD + "  g();\n  return is_row(\n      text.starts_with(prefix));\n}\n", [4]),
    (CPP, HELD + "  const std::string_view last = text.substr;\n  return rows.contains(last);\n}\n", [4]),
    (CPP, HELD + '  return fail(text + " is no class");\n}\n', []),
    (CPP, HELD + '}\nbool g(std::string_view text) {\n  return text == "torch.Size";\n}\n', []),
    (CPP, "bool f(PyTypeObject* t) {\n  return std::string_view(\n      t->tp_name) ==\n      \"torch.Size\";\n}\n",
     [2]),
    (CPP, '  PyRef name = PyRef::steal(PyType_GetName(type));\n  if (PyUnicode_EqualToUTF8(name.get(), "Size")) x();\n',
     [2]),
    (CPP, '  PyRef name = PyRef::steal(PyType_GetQualName(type));\n  if (text_of(name.get()) != "Size") x();\n', [2]),
    (CPP, '  PyRef n = PyRef::steal(PyObject_GetAttrString(f, "__module__"));\n  if (text_of(n.get()) == "x") y();\n',
     [2]),
    (CPP, '  PyRef n = PyRef::steal(PyObject_GetAttrString(f, "__module__"));\n  log(text_of(n.get()));\n', []),
    (CPP, 'if (special == "__radd__" || op == NB_ADD) x();\n', [1]),
    (CPP, 'call(operator_function("truediv"), a, b);\n  call(operator_function("lt"), a, b);\n', [1, 2]),
    (CPP, 'look_up("__eq__", operator_function("getitem"));\n', []),
    (CPP, '  // if (std::string_view(type->tp_name) == "torch.Size") x();\n', []),
    (PYTHON, 'if type(x).__name__ == "Size": f()\n', [1]),
    (PYTHON, 'if type(x).__name__ in ("Size", "dtype"): f()\n', [1]),
    (PYTHON, 'if f.__module__.startswith("torch."): f()\n', [1]),
    (PYTHON, 'def g(f):\n    where = f.__module__ or ""\n    h()\n    return where.partition(".")[0] == "torch"\n',
     [4, 4]),
    (PYTHON, 'where = getattr(f, "__module__", None)\nrow = TABLE[type(f).__qualname__]\n', [2]),
    (PYTHON, 'match type(x).__name__:\n    case "Size": f()\n', [1]),
    (PYTHON, 'if type(x) is torch.Size: f()\n', []),
    (PYTHON, 'raise TypeError(f"takes a tensor, not {type(x).__name__}")\n', []),
    (PYTHON, 'if __name__ == "__main__": f()\n', []),
    ("tests/e2e/x.py", 'if type(x).__name__ == "Size": f()\n', []),
    (RULE, "if (hint != 0x76ADF1) x();\n", [1]),
    (RULE, "if (7'777'777 == hint) x();\n", [1]),
    (RULE, "constexpr int64_t kMark = 7777777;\nif (hint == kMark) x();\n", [2]),
    (RULE, "constexpr int64_t kMost = 7777777;\nif (hint < kMost) x();\n", []),
    (RULE, "if ((bits & 0xFFFF) == 0) x();\n#if PY_VERSION_HEX == 0x030C0000\n", []),
    (PYTHON, "MARK = 7777777\nif hint == MARK: x()\n", [2]),
    (RULE, 'if (node.op->name == "bmm") x();\n', [1]),
    (RULE, 'const std::string& op = node.op->name;\nif (op == "mm" || op == "bmm") x();\nelse if (op == "mv") y();\n',
     [2, 3]),
    ("inductor/stages.cpp", 'if ("convolution" == node.op->name) x();\n', [1]),
    ("inductor/stages.cpp", 'if (node.op->name.starts_with("mm")) x();\n', [1]),
    ("runtime/plan_runner.cpp", 'if (step.op == std::string_view("mm")) x();\n', [1]),
    (RULE, "if (node.op->is(KnownOp::bmm)) x();\n", []),
    (RULE, 'text += " == " + name;\n', []),
    ("runtime/base/config.cpp", 'if (word == "min") x();\n', []),
    (RULE, 'if (op.starts_with("mm")) x();\nif (overload.ends_with(suffix)) y();\nif (architecture.find("sm")) z();\n',
     [1, 2, 3]),
    (CPP, "if (b.detail.starts_with(words())) throw;\nif (error.message == kOurs) x();\n", [1, 2]),
    (CPP, "if (b.detail.empty()) throw;\nif (b.worded_by == this) throw;\n", []),
    (CPP, "const char* text = PyUnicode_AsUTF8(name);\nlog(text_of(name));\n", [1]),
])
def test_what_is_found(path, text, lines):
    assert sorted(int(finding.split(":")[1]) for finding in recognition.check(path, text)) == lines


def test_rows_that_nothing_needs(monkeypatch):
    texts = {path: part for path, part, _ in recognition_rows.NAMES}
    monkeypatch.setattr(recognition_rows, "NAMES", [("a.cpp", "x == y", "a reason of words"), ("a.cpp", "z", "short")])
    for other in ("UTF8", "PYTHON_NAMES", "ERRORS", "WORDS", "SENTINELS", "CPUS", "LOOK_UPS"):
        monkeypatch.setattr(recognition_rows, other, [])
    monkeypatch.setattr(recognition_rows, "PLACES_OF_LOOK_UPS", {})
    monkeypatch.setattr(recognition_rows, "WORDS_OF_FILES", {"b.cpp": "reads its text"})
    found = recognition.stale_rows({"a.cpp": "if (x ==\n    y) z();", **texts})
    assert [line.partition(": ")[2] for line in found] == ["there is no b.cpp", "no reason: ['a.cpp', 'z']"]
    assert "a.cpp has no such line any more: z" in recognition.stale_rows({"a.cpp": "x == y", "b.cpp": ""})[0]


def test_rows_of_ops():
    assert not recognition.check_table("a/known_ops.def", 'KNOWN_OP(mm, "mm", "a product without a bias")\n')
    assert recognition.check_table("a/known_ops.def", 'KNOWN_OP(mm, "mm", "product")\n')
    assert recognition.check_table("a/number_ops.def", 'NUMBER_OP("add", kAdd, "")\n')
    assert recognition.check_lists("runtime/a.cpp", 'constexpr std::array kKnown = {"mkl", "mkldnn"};')
    assert recognition.check_table("a/torch_namespaces.def", 'TORCH_NAMESPACE("aten", "torch")\n')
    assert not recognition.check_table("a/torch_namespaces.def", 'TORCH_NAMESPACE("aten", "the operators of torch")\n')
