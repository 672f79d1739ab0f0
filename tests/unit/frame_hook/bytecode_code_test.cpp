// tests/unit/frame_hook/bytecode_code_test.cpp — the decoder's tables and queries. tests/e2e/hook/test_decode.py
// compares it with dis.
#include "frame_hook/bytecode/code.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "frame_hook/bytecode/opcode_rows.h"
#include "guards/cpython/py_ref.h"

namespace framejit::frame_hook {
namespace {

// The code of the function `f` that `source` defines.
PyRef code_of(const char* source) {
  PyRef names = PyRef::steal(PyDict_New());
  PyDict_SetItemString(names.get(), "__builtins__", PyEval_GetBuiltins());
  PyRef done = PyRef::steal(PyRun_String(source, Py_file_input, names.get(), names.get()));
  if (!done) PyErr_Print();
  PyObject* function = PyDict_GetItemString(names.get(), "f");
  return PyRef::borrow(function ? PyFunction_GET_CODE(function) : nullptr);
}

std::shared_ptr<const Code> decode(const PyRef& code) {
  return Code::decode(reinterpret_cast<PyCodeObject*>(code.get()));
}

std::vector<Op> ops_of(const Code& code) {
  std::vector<Op> ops;
  for (const Instruction& i : code.instructions) ops.push_back(i.op);
  return ops;
}

TEST(Opcodes, EveryOpcodeOfThisPythonIsARow) {
  PyRef module = PyRef::steal(PyImport_ImportModule("opcode"));
  PyRef table = PyRef::steal(PyObject_GetAttrString(module.get(), "opmap"));
  PyObject *name, *number;
  size_t count = 0;
  for (Py_ssize_t at = 0; PyDict_Next(table.get(), &at, &name, &number); count++) {
    const OpcodeRow* row = find_row(PyUnicode_AsUTF8(name));
    ASSERT_NE(row, nullptr) << PyUnicode_AsUTF8(name);
    EXPECT_EQ(row->number, PyLong_AsLong(number)) << row->name;
  }
  EXPECT_GT(count, 100u);
}

TEST(Opcodes, RowsAreFoundByNumber) {
  const OpcodeRow* row = find_row("LOAD_CONST");
  EXPECT_EQ(row_of(static_cast<uint8_t>(row->number)), row);
  EXPECT_EQ(raw_name_of(static_cast<uint8_t>(row->number)), "LOAD_CONST");
  EXPECT_EQ(find_row("NO_SUCH_OPCODE"), nullptr);
  EXPECT_STREQ(name_of(Op::load_const), "load_const");
  EXPECT_EQ(arg_kind_of(Op::for_iter), ArgKind::jump);
}

TEST(Code, StraightLine) {
  const PyRef code = code_of("def f(a, b):\n  return a * b\n");
  const auto decoded = decode(code);
  EXPECT_EQ(ops_of(*decoded),
            (std::vector<Op>{Op::resume, Op::load_fast, Op::load_fast, Op::binary_op, Op::return_value}));
  EXPECT_EQ(decoded->instructions[1].line, 2);
  EXPECT_EQ(decoded->instructions[2].arg, 1);
  EXPECT_EQ(decoded->instructions.back().next_index, decoded->unit_count);
}

TEST(Code, PositionsAreWhereInstructionsStart) {
  const PyRef code = code_of("def f(a):\n  return g(a.b, k=1)\n");
  const auto decoded = decode(code);
  for (size_t position = 0; position < decoded->instructions.size(); position++)
    if (!decoded->instructions[position].has(Instruction::kSecondHalf)) {
      EXPECT_EQ(decoded->position_at(decoded->instructions[position].index), static_cast<int>(position));
    }
  EXPECT_EQ(decoded->position_at(-1), -1);
  EXPECT_EQ(decoded->position_at(decoded->unit_count), -1);
  const auto starts = std::count_if(decoded->instructions.begin(), decoded->instructions.end(),
                                    [](const Instruction& i) { return !i.has(Instruction::kSecondHalf); });
  int found = 0;
  for (int unit = 0; unit < decoded->unit_count; unit++) found += decoded->position_at(unit) >= 0;
  EXPECT_EQ(found, starts);
}

TEST(Code, HandlersAndJumpsPointAtInstructions) {
  const PyRef code =
      code_of("def f(a):\n  for x in a:\n    try:\n      g(x)\n    except ValueError:\n      pass\n  return 1\n");
  const auto decoded = decode(code);
  ASSERT_FALSE(decoded->exception_table.empty());
  for (const ExceptionRange& range : decoded->exception_table) {
    EXPECT_EQ(decoded->instructions.at(range.target_position).index, range.target);
    EXPECT_EQ(decoded->find_handler(range.start), &range);
    EXPECT_EQ(decoded->find_handler(range.end - 1), &range);
    EXPECT_NE(decoded->find_handler(range.end), &range);
  }
  EXPECT_EQ(decoded->find_handler(0), nullptr);
  int jumps = 0;
  for (const Instruction& i : decoded->instructions) {
    EXPECT_EQ(i.target >= 0, i.target_position >= 0) << name_of(i.op);
    if (i.target < 0) continue;
    ++jumps;
    EXPECT_EQ(decoded->instructions.at(i.target_position).index, i.target) << name_of(i.op);
  }
  EXPECT_GT(jumps, 2);  // the loop's end, its beginning, and past a handler that does not match
}

TEST(Code, LivenessKillsAfterTheLastRead) {
  const PyRef code = code_of("def f(a, b):\n  c = a\n  a = b\n  return c\n");
  const auto decoded = decode(code);
  EXPECT_TRUE(decoded->is_live(0, 0));
  EXPECT_TRUE(decoded->is_live(0, 1));
  EXPECT_FALSE(decoded->is_live(0, 2));
  const int last = static_cast<int>(decoded->instructions.size()) - 1;
  EXPECT_FALSE(decoded->is_live(last, 2));
  EXPECT_TRUE(decoded->is_live(last - 1, 2));
  EXPECT_FALSE(decoded->is_live(last - 1, 0));
}

TEST(Code, SpanHasColumns) {
  const PyRef code = code_of("def f(a):\n  return a + missing\n");
  const auto decoded = decode(code);
  const auto add = std::find_if(decoded->instructions.begin(), decoded->instructions.end(),
                                [](const Instruction& i) { return i.op == Op::binary_op; });
  const SourceSpan span = decoded->span(*add);
  EXPECT_EQ(span.line, 2);
  EXPECT_EQ(span.column, 9);
  EXPECT_EQ(span.end_column, 20);
}

}  // namespace
}  // namespace framejit::frame_hook
