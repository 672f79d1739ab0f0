"""Each lint check finds what it should, and lets similar code that is allowed pass."""
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import classes  # noqa: E402
import docs_paths  # noqa: E402
import layering  # noqa: E402
import limits  # noqa: E402
import names  # noqa: E402
import project  # noqa: E402
import reasons  # noqa: E402
import recipes  # noqa: E402
import recognition  # noqa: E402
import targets  # noqa: E402
import terms  # noqa: E402


@pytest.mark.parametrize("path, line, finds", [
    ("graph/graph.cpp", '#include "runtime/abi.h"', False),
    ("runtime/call_plan.cpp", '#include "graph/graph.h"', True),
    ("inductor/loop/builder.cpp", '#include "frame_hook/trace/values/value.h"', True),
    ("frame_hook/trace/machine/tracer.cpp", '#include "frame_hook/hook/frame_hook.h"', True),
    ("frame_hook/trace/values/facts.cpp", '#include "frame_hook/trace/machine/tracer.h"', True),
    ("frame_hook/trace/values/heap.h", '#include "frame_hook/trace/protocol/descriptors.h"', True),
    ("frame_hook/trace/values/heap.h", '#include "frame_hook/trace/values/facts.h"', False),
    ("frame_hook/trace/values/shadows_read.cpp", '#include "frame_hook/trace/machine/tracer.h"', True),
    ("frame_hook/trace/machine/attempts.cpp", '#include "frame_hook/trace/machine/tracer.h"', True),
    ("frame_hook/trace/machine/drops.cpp", '#include "frame_hook/trace/protocol/descriptors.h"', True),
    ("frame_hook/trace/protocol/lookup.h", '#include "frame_hook/trace/machine/tracer.h"', True),
    ("frame_hook/trace/protocol/own_dict.cpp", '#include "frame_hook/trace/protocol/descriptors.h"', True),
    ("frame_hook/trace/protocol/attributes.cpp", '#include "frame_hook/trace/protocol/descriptors.h"', False),
    ("frame_hook/trace/values/heap.cpp", '#include "frame_hook/trace/types/set_order.h"', True),
    ("frame_hook/trace/values/facts.h", '#include "frame_hook/trace/machine/call_stack.h"', False),
    ("frame_hook/trace/types/dict.cpp", '#include "frame_hook/trace/torch/special.h"', True),
    ("frame_hook/trace/torch/special.cpp", '#include "frame_hook/trace/types/builtins.h"', False),
    ("frame_hook/resume/segment.cpp", '#include "frame_hook/hook/frame_hook.h"', False),
    ("guards/cpython/weak_objects.h", '#include "guards/cpython/py_ref.h"', False),
    ("guards/cpython/weak_objects.h", '#include "guards/source.h"', True),
    ("guards/source.h", '#include "guards/cpython/py_ref.h"', False),
    ("frame_hook/hook/live_frame.h", '#include "guards/guard.h"', True),
    ("frame_hook/hook/live_frame.h", '#include "guards/cpython/frame_access.h"', False),
    ("graph/graph.cpp", "#include <Python.h>", True),
    ("guards/source.cpp", "#include <Python.h>", False),
    ("guards/source.cpp", "#include <ATen/core/Tensor.h>", True),
    ("guards/aten/tensor_facts.cpp", "#include <ATen/core/Tensor.h>", False),
    ("inductor/schedule/fusion.cpp", "#include <llvm/IR/Module.h>", True),
    ("inductor/cpu/plan/unroll.cpp", "#include <llvm/IR/Module.h>", True),
    ("inductor/cpu/plan/unroll.cpp", '#include "inductor/cpu/nest_state.h"', True),
    ("inductor/cpu/nest_state.h", '#include "inductor/cpu/plan/nest_plan.h"', False),
    ("frame_hook/hook/evaluator.cpp", "#include <internal/pycore_frame.h>", True),
    ("graph/graph.cpp", '#include "graph.h"', True),
])
def test_layering(path, line, finds):
    assert bool(layering.check(path, line)) is finds


@pytest.mark.parametrize("includes, finds", [
    ({"a.h": ["b.h"], "b.h": ["c.h"], "c.h": []}, []),
    ({"a.h": ["b.h", "c.h"], "b.h": ["c.h"], "c.h": ["b.h"]}, ["b.h -> c.h -> b.h: headers include each other"]),
])
def test_headers_have_no_cycles(includes, finds):
    texts = {path: "".join(f'#include "{other}"\n' for other in others) for path, others in includes.items()}
    assert layering.check_cycles(texts) == finds


@pytest.mark.parametrize("path, line, finds", [
    ("frame_hook/trace/protocol/calls.cpp", 'if (std::string_view(type->tp_name) == "functools.partial") x();', True),
    ("frame_hook/trace/protocol/calls.cpp", "if (is_known(type, KnownType::partial)) x();", False),
    ("frame_hook/trace/protocol/calls.cpp", "if (is_of(type, CPackage::torch)) x();", False),
    ("frame_hook/trace/protocol/calls.cpp", 'if (std::string_view(type->tp_name).substr(0, 5) == "torch") x();', True),
    ("frame_hook/trace/values/c_packages.cpp", "return is_made_by_c(type) && within(type->tp_name, package);", False),
    ("frame_hook/trace/values/c_packages.cpp", "return within(type->tp_name, package);", True),
    ("frame_hook/trace/values/object_kinds.cpp", 'return strcmp(type->tp_name, "torch.Size") == 0;', True),
    ("frame_hook/trace/values/heap.cpp", 'return strcmp(type->tp_name, "torch.Size") == 0;', True),
    ("frame_hook/trace/values/heap.cpp", "const std::string_view name = type->tp_name;", False),
    ("frame_hook/trace/values/heap.cpp", 'return std::string(type->tp_name) + "()";', False),
    ("frame_hook/trace/torch/special.cpp", 'if (module_name(f) == "torch._compile") x();', True),
    ("frame_hook/resume/global_mode.cpp", 'const bool is_call = code->co_qualname == interned("a");', True),
    ("frame_hook/resume/global_mode.cpp", "const std::string name = string_of(code->co_qualname);", False),
    ("frame_hook/trace/torch/inlined.cpp", 'if (code->co_name != interned("inner")) continue;', True),
    ("frame_hook/trace/torch/inlined.cpp", 'if (code->co_name != interned("helper")) continue;', False),
    ("frame_hook/trace/torch/special.cpp", 'if (within(text_of(name), "torch.nn")) x();', True),
    ("frame_hook/resume/global_mode.cpp", 'if (name.ends_with(".backward")) x();', True),
    ("guards/guard_functions.cpp", 'if (type->tp_name == std::string_view("x")) x();', True),
    ("python/module.cpp", 'if (type->tp_name == std::string_view("x")) x();', False),
    ("frame_hook/aten/recording.cpp", 'if (text.find("unallocated storage") != text.npos) x();', True),
    ("frame_hook/aten/recording.cpp", 'if (std::string_view(e.what()).find(part) != npos) x();', True),
    ("python/framejit/api.py", 'if "no memory" in str(error): x()', True),
    ("frame_hook/aten/recording.cpp", "if (graph::has_torch_text(graph::TorchText::no_memory, e.what())) x();", False),
    ("frame_hook/aten/tensor_frontend.cpp", "if (data[0] != 7777777) x();", True),
    ("frame_hook/aten/tensor_frontend.cpp", "if (data[0] != 7777) x();", False),
    ("graph/passes/partition.cpp", 'static const std::set<std::string_view> copies = {"clone", "copy"};', True),
    ("inductor/stages.cpp", 'static constexpr std::string_view kOps[] = {"mm",\n    "bmm"};', True),
    ("graph/passes/partition.cpp", 'static constexpr std::array kNames = {"mm", "bmm"};', True),
    ("graph/graph_text.cpp", 'static constexpr const char* kNames[] = {"cpu", "cuda"};', False),
    ("graph/aten/composites.cpp", 'constexpr std::array kLayers = {"aten::lstm", "aten::gru"};', True),
    ("graph/aten/composites.cpp", 'for (const char* name : {"aten::a", "aten::b"}) x(name);', True),
    ("graph/aten/composites.cpp", 'for (const char* name :\n     {"mm.out", "_mm"}) x(name);', True),
    ("inductor/stages.cpp", 'if (is_one_of(op, {"mm", "bmm"})) x();', True),
    ("graph/passes/decompose_shape.cpp", 'for (const char* name : {"t_copy",\n    "view_copy"}) x(name);', True),
    ("graph/passes/decompose_lists.cpp", 'rows = {{"_foreach_copy", "copy"}};', False),
    ("graph/ops/packed.cpp", 'for (const char* name : {"a", "b"}) rows.push_back({name});', False),
    ("graph/aten/op_info.cpp", 'for (const char* suffix : {"_out", ".out", "out"}) x(suffix);', False),
    ("graph/aten/op_info.cpp", 'for (const char* name : ops_of({"mm"})) x(name);', False),
    ("graph/ops/view.cpp", 'static constexpr std::string_view kOps[] = {"mm", "bmm"};', False),
    ("inductor/lowering/copy.cpp", 'static constexpr std::pair<const char*, LowerFn> k[] = {{"cat", cat}};', False),
    ("graph/ops/nn.cpp", "  if (input->device != Device{}) return false;", True),
    ("graph/ops/nn.cpp", "  if (input->device.type == DeviceType::kCpu) return false;", True),
    ("graph/ops/nn.cpp", "  if (!input->device.is_cpu()) return false;", False),
    ("graph/ops/factory.cpp", "  Device device = args.device(2).value_or(Device{});", False),
    ("frame_hook/trace/types/a.cpp", '  PyObject* f = PyDict_GetItemString(PyEval_GetBuiltins(), "abs");', True),
    ("frame_hook/trace/types/a.cpp", '  PyRef math = PyRef::steal(PyImport_ImportModule("math"));', True),
    ("frame_hook/trace/types/a.cpp", '  PyObject* f = member_of_module("typing", "Generic");', True),
    ("frame_hook/trace/types/a.cpp", '  PyObject* f = original("math", "floor");', False),
    ("frame_hook/hook/a.cpp", "  Py_INCREF(PyEval_GetBuiltins());", False),
])
def test_recognition(path, line, finds):
    assert bool(recognition.check(path, line)) is finds


def test_recognition_of_rows():
    assert not recognition.check_table("a/known_types.def", '// text\nKNOWN_TYPE(a, "m.n", "C", "why it is needed")\n')
    assert recognition.check_table("a/known_types.def", 'KNOWN_TYPE(a, "m.n", "C", "")\n')
    assert not recognition.check_table("a/special_functions.def",
                                       'SPECIAL_FUNCTION(a, "m.n", "f",\n    "why it is needed")\n')
    assert recognition.check_table("a/special_functions.def", 'SPECIAL_FUNCTION(a, "m.n", "f", "why")\n')
    assert not recognition.check_table("a/originals.def", 'ORIGINALS("m", "why it is needed")\n'
                                       'DEFINED_AS("m.n", "f", "m.k", "g", "why it is needed")\n')
    assert recognition.check_table("a/originals.def", 'DEFINED_AS("m.n", "f", "m.k", "g", "why")\n')
    assert not recognition.check_table("a/c_packages.def", 'C_PACKAGE(a, "m", "why it is needed")\n'
                                       'C_MODULE("m.n", kPure | kAsked, "why it is needed")\n')
    assert recognition.check_table("a/c_packages.def", 'C_MODULE("m.n", kPure, "")\n')
    assert not recognition.check_table("a/op_lists.def", 'OP_LIST(a, "mm.out", "why it is needed")\n')
    assert recognition.check_table("a/op_lists.def", 'OP_LIST(a, "mm.out", "why")\n')
    assert not recognition.check_table("a/eager_errors.def", 'EAGER_ERROR("mm.out", rule, "why it is needed")\n')
    assert recognition.check_table("a/eager_errors.def", 'EAGER_ERROR("mm.out", rule, "why")\n')
    assert not recognition.check_table("a/torch_callables.def", 'TORCH_CALLABLE(a, "m.n", "why it is needed")\n')
    assert recognition.check_table("a/torch_callables.def", 'TORCH_CALLABLE(a, "m.n", "why")\n')
    assert not recognition.check_table("a/torch_texts.def", 'TORCH_TEXT(a, "a b",\n    "why it is needed")\n')
    assert recognition.check_table("a/torch_texts.def", 'TORCH_TEXT(a, "a b", "why")\n')


def body(lines):
    return "namespace a {\nclass B {\n  int f(int x) const {\n" + "    x += '{';  // {\n" * lines \
        + "    return x;\n  }\n};\n}\n"


def test_limits_cpp():
    assert limits.check("a.cpp", body(69)) == []
    assert limits.check("a.cpp", body(70)) == ["a.cpp:3: f has 73 lines, at most 72"]
    assert limits.check("a.cpp", "\n" * 601) == ["a.cpp: 601 lines, at most 600"]
    table = "const int rows[] = {\n" + "1,\n" * 100 + "};\nenum class E : int {\n" + "x,\n" * 100 + "};\n"
    assert limits.check("a.cpp", table) == []


def test_limits_of_a_line():
    assert limits.check("a.cpp", "// " + "x" * 117) == []
    assert limits.check("a.cpp", "int a;\n// " + "x" * 118) == ["a.cpp:2: 121 characters, at most 120"]
    assert limits.check("a.cpp", 'auto text = R"(' + "x" * 200 + ')";') == []
    assert limits.check("a.py", 'text = "' + "x" * 200 + '"') == ["a.py:1: 209 characters, at most 120"]


def test_limits_of_a_page():
    assert limits.check("a.md", "x" * 120 + "\n```text\n" + "x" * 200 + "\n```\n") == []
    assert limits.check("a.md", "```python\n" + "x" * 121 + "\n```\n") == ["a.md:2: 121 characters, at most 120"]


@pytest.mark.parametrize("path", ["Makefile", "tools/setup", ".ci/run", "cmake/flags.cmake", "tests/CMakeLists.txt"])
def test_limits_of_rules_and_tools(path):
    assert Path(path) in project.files(*limits.OTHERS)
    assert limits.check(path, "f() {\n" + "  x\n" * 80 + "}\n" + "x" * 120 + "\n") == []
    assert limits.check(path, "\n" + "x" * 121 + "\n") == [f"{path}:2: 121 characters, at most 120"]


def test_median_of_lines():
    short, long = "\n" * 99, "\n" * 101
    assert limits.check_median([short, short, long]) == []
    assert limits.check_median([short, long, long]) == ["the median C++ file has 101 lines, not under 100"]


def test_limits_python():
    assert limits.check("a.py", "def f():\n" + "    pass\n" * 71) == []
    assert limits.check("a.py", "def f():\n" + "    pass\n" * 72) == ["a.py:1: f has 73 lines, at most 72"]


CLASS = """
class Heap {  // int in_a_comment();
 public:
  Heap(int a, int b) : a_(a), b_{b} {}
  template <class T> T* make(int kind);
  static bool is_one() { return true; }
  friend struct Other;
  struct Part { int x, y; };

 private:
  int *a_ = nullptr, b_;
  std::vector<std::pair<int, int>> pairs_{};
};
class Other { int x; };
"""


def test_members_of_a_class():
    assert classes.members("Heap", CLASS) == 7
    assert classes.members("Other", CLASS) == 1
    assert classes.members("Hea", CLASS) == 0


@pytest.mark.parametrize("line, count", [
    ("Value* f(Heap& heap, int x) {", 1),
    ("static bool f(int x,\n              const Heap& heap) {", 1),
    ("bool Other::f(Heap&) const {", 1),
    ("Value* f(Heap& heap);", 0),
    ("Value* f(Heaps& heap) {", 0),
    ("  return f(heap, [&](Heap& h) {", 0),
])
def test_functions_that_take_a_class(line, count):
    assert classes.takers("Heap", line + "}\n") == count


def test_limits_of_a_class():
    texts = {"a/heap.h": CLASS, "a/heap.cpp": "int f(Heap& heap) {}\nint g(Heap& heap) {}\n",
             "b/other.cpp": "int h(Heap& heap) {}  // of another folder\n"}
    assert classes.check("Heap", "a/heap.h", 7, 2, texts) == []
    assert classes.check("Heap", "a/heap.h", 6, 2, texts) == ["a/heap.h: Heap has 7 members, at most 6"]
    assert classes.check("Heap", "a/heap.h", 7, 1, texts) == [
        "a/heap.h: 2 functions take a Heap, at most 1: let some take a narrower type"]
    assert classes.check("Heap", "a/heap.h", 7, None, texts) == []
    assert classes.check("Gone", "a/heap.h", 7, 2, texts) == ["a/heap.h: there is no class Gone"]


def test_limits_of_other_classes():
    text = "class Big {\n" + "".join(f"  int f{i}();\n" for i in range(61)) + "  struct Part { int x; };\n};\n"
    assert classes.check_others("a.cpp", text, set()) == ["a.cpp: Big has 62 members, at most 60"]
    assert classes.check_others("a.cpp", text, {("Big", "a.cpp")}) == []
    assert classes.check_others("a.cpp", CLASS, set()) == []


@pytest.mark.parametrize("path, line, finds", [
    ("python/framejit/api.py", "from torch._dynamo import config", True),
    ("tests/e2e/test_x.py", "torch.compile(f)", False),
    ("benchmarks/demo.py", "torch.compile(f)", False),
    ("python/framejit/api.py", "torch.compile(f)", True),
    ("python/framejit/api.py", "import subprocess", True),
    ("benchmarks/demo.py", "import subprocess", False),
    ("graph/graph.cpp", "// TO" + "DO later", True),
    ("README.md", "see /ro" + "ot/x", True),
    ("README.md", "see docs/x", False),
    ("graph/graph.cpp", "FJ_CHECK(a, b);", True),
    ("graph/graph.cpp", "FJ_ASSERT(a, b);", False),
    ("graph/aten/recorder.h", "const OpFacts& facts;", True),
    ("guards/guard.h", "const TensorFacts& facts;", False),
    ("inductor/joined_kernels.h", "struct KernelFacts {", True),
    ("graph/aten/recorder.h", "  Result<void> finish(const std::vector<at::Tensor>& outputs);", True),
    ("graph/aten/recorder.h", "  Result<void> build(const std::vector<at::Tensor>& outputs);", False),
    ("runtime/call_plan.cpp", "if (b.home == Home::kArena) return;", True),
    ("graph/passes/dce.cpp", "const bool is_checked = has_checks(node);", False),
    ("guards/guard.h", "bool is_checked(int x);", True),
    ("frame_hook/trace/values/heap.cpp", "ChecksCopy copy;", True),
    ("frame_hook/trace/values/heap.cpp", "if (PyTuple_CheckExact(o) && THPVariable_Check(o)) x();", False),
    ("frame_hook/trace/values/heap.cpp", 'x("a check");  // checks', False),
    ("frame_hook/hook/armed_call.cpp", '#include "inductor/schedule/checks.h"', False),
    ("python/framejit/options.py", "def check_flag(name):", True),
    ("python/framejit/options.py", '"""Checks the settings."""', False),
    ("inductor/assemble.cpp", "SizeFact fact;", True),
    ("inductor/assemble.cpp", "OutputProperties properties;", False),
    ("graph/graph.cpp", "struct KernelTraits {};", True),
    ("guards/guard.cpp", "struct GuardInfo {};", True),
    ("guards/guard.cpp", "void poll_signals();", True),
    ("frame_hook/resume/segment.cpp", "bool verify_recipe();", True),
    ("runtime/aten/backward.h", "std::vector<int> told;", True),
    ("graph/graph_builder.h", "Graph finish_graph();", True),
    ("graph/graph_builder.h", "Graph build();", False),
    ("tests/unit/runtime/x.cpp", "if (b.home == Home::kArena) return;", False),
])
def test_names(path, line, finds):
    assert bool(names.check(path, line)) is finds


def test_terms_are_those_of_the_page():
    """Each word that the lint knows is in the table of docs/style.md, as a word or as one that is not used."""
    page = (Path(__file__).parents[2] / "docs/style.md").read_text().lower()
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    assert all(any(re.search(rf"\b{term.word}", row) for row in rows) for term in terms.TERMS)
    words = [re.findall(r"`(\w+)`", part) for part in re.search(
        r"it finds (.*?) in the wrong folder, and (.*?) anywhere", " ".join(page.split())).groups()]
    assert [sorted(part) for part in words] == [
        sorted(term.word for term in terms.TERMS if bool(term.rooms) is has_rooms) for has_rooms in (True, False)]
    assert len(terms.WORD_OF) == sum(len(term.forms.split()) for term in terms.TERMS)


@pytest.mark.parametrize("line, finds", [
    ("see `graph/graph.h`", False),
    ("see `graph/{graph,no_such}.h`", True),
    ("see `graph/no_such_folder/`", True),
    ("see `graph.h`, and `Python.h`", False),
    ("see `no_such_file.h`", True),
    ("run `make demo`", False),
    ("run `make coffee`", True),
    ("the class `torch.Tensor` and `a/b`", False),
])
def test_docs_paths(line, finds):
    assert bool(docs_paths.check(Path("README.md"), line, {"graph.h"})) is finds


def test_every_table_has_an_entry():
    tables = [Path("graph/ops.def"), Path("graph/lists.def")]
    assert docs_paths.check_tables("A row of `graph/ops.def`.", tables) == [
        "docs/adding.md: graph/lists.def has no entry"]


@pytest.mark.parametrize("text, finds", [
    ("// Why these are here.\nROW(a, b, c)\nROW(a, d, c)\n", 0),
    ("// ---- title\nROW(a, b, c)\nROW(a, d, c)\n", 2),
    ("// ---- title\n// Why these are here.\nROW(a, b, c)\n", 0),
    ("// Why these are here.\nROW(a, b, c)\n\nCONCRETE(a, d)\n", 1),
    ("// Why these are here.\nROW(a, b, c)\n// others\nROW(a, d, c)\n", 1),
    ("ROW(a, b, c)  // an effect: a break\nROW(a, d, c)\n", 1),
])
def test_reasons(text, finds):
    assert len(reasons.check("builtins.def", text)) == finds


@pytest.mark.parametrize("path, line, finds", [
    ("inductor/cpu/orc_jit.cpp", "if (is_intel()) return 1;", True),
    ("inductor/cpu/orc_jit.cpp", 'if (vendor == "GenuineIntel") return 1;', True),
    ("inductor/target/machine_classes.def", 'MACHINE_CLASS(intel, kAvx512, "GenuineIntel", "", "")', False),
    ("inductor/lowering/pool.cpp", "if (device.type == graph::DeviceType::kCpu) return;", True),
    ("inductor/schedule/schedule.cpp", "if (place.device.is_cpu()) return;", True),
    ("inductor/compile.cpp", "if (device.is_cpu()) return make();", False),
    ("graph/plan_sizes.cpp", "if (device.type == DeviceType::kCpu) return {};", False),
    ("inductor/compile_kernels.cpp", "if (std::thread::hardware_concurrency() > 1) two();", True),
    ("inductor/cpu/code_names.cpp", "sysconf(_SC_PAGESIZE)", False),
    ("inductor/schedule/split.cpp", "constexpr int64_t kFewResults = 8, kLongReduction = 65536;", True),
    ("inductor/cpu/nest_tiles.cpp", "constexpr int64_t kCaches = 64 << 20;", True),
    ("inductor/buffer_placement.cpp", "constexpr int64_t kLarge = 64 * 1024;", True),
    ("inductor/schedule/schedule.cpp", "const bool is_small = work(nest) <= 4096;", True),
    ("inductor/cpu/nest_columns.cpp", "constexpr int64_t kCacheLine = 64;", True),
    ("inductor/cpu/nest_emitter.cpp", "number(target_.costs.stream_points)", True),
    ("inductor/cpu/plan/main_loop.cpp", "if (part < p.costs.stream_points) x();", False),
    ("inductor/cpu/nest_columns.cpp", "constexpr int64_t kStackBytes = 48 << 10;", False),
    ("inductor/cpu/nest_reductions.cpp", "constexpr int64_t kShort = 64;  // of 4096 at most", False),
    ("inductor/cpu/vector_math.cpp", "constexpr int kBias = 1023;", False),
])
def test_targets(path, line, finds):
    assert bool(targets.check(path, line)) is finds


@pytest.mark.parametrize("table, programs, finds", [
    ('COST(a, "rows", any, 1, 2, AS_ZEN, 3, 4, 5,\n     "of a")\n', 'ROWS = {"a": 1}', 0),
    ('COST(a, "rows", any, 1, 2, AS_ZEN, 3, 4,\n     "of a")\n', 'ROWS = {"a": 1}', 1),
    ('CPU_COST(a, "rows", multiple_of(12), 1, 2, AS_ZEN, 3, 4,\n     "of a")\n', 'UNTIMED = {"a": "why"}', 0),
    ('CPU_COST(a, "rows", any, 1, 2, AS_ZEN, 3, x,\n     "of a")\n', 'ROWS = {"a": 1}', 1),
    ('CPU_COST(a, "rows", any, 1, 2, AS_ZEN, 3, 4,\n     "of a")\n', 'ROWS = {}', 1),
    ('GPU_COST(a, "rows", any, 1,\n     "of a")\n', 'ROWS = {}', 0),
    ('GPU_COST(a, "rows", any, 1,\n     "of a")\n', 'ROWS = {"b": 1}', 1),
    ('COST(a, "rows", any, 1, "of a")\n', 'ROWS = {}', 1),
    ('COST(a, "rows", 1, 2, AS_ZEN, 3, 4, 5,\n     "of a")\n', 'ROWS = {"a": 1}', 2),
])
def test_table_of_costs(table, programs, finds):
    assert len(targets.check_table(table, programs)) == finds


@pytest.mark.parametrize("recipe, finds", [
    ('@$(if $(QUICK),echo "left out, among others, the slow tests")', True),
    ('@$(if $(QUICK),echo "$(LEFT_OUT)")', False),
])
def test_recipes(tmp_path, recipe, finds):
    (tmp_path / "Makefile").write_text(f"LEFT_OUT := left out, among others\ntest:  ## tests\n\t{recipe}\n")
    assert recipes.targets((tmp_path / "Makefile").read_text()) == ["test"]
    assert bool(recipes.check("make", {}, ["test"], tmp_path)) is finds
