// frame_hook/resume/recipe_text.cpp — a recipe as text, for the log channel `steps`: a step a line, slots as s0, s1.
#include "frame_hook/resume/recipe.h"
#include "frame_hook/trace/values/describe.h"
#include "frame_hook/trace/values/object_kinds.h"
#include "guards/cpython/interrupts.h"

namespace framejit::frame_hook {

namespace {

enum class Makes : uint8_t { made, done };
enum class Holds : uint8_t { none, value, type, code, name, callable, file, names, order };

struct Row {
  const char* name;
  Makes makes;
  std::string_view number;
  Holds object;
};
constexpr Row kRows[] = {
#define RECIPE_OP(name, makes, number, object) {#name, Makes::makes, #number, Holds::object},
#include "frame_hook/resume/recipe_ops.def"
#undef RECIPE_OP
};

std::string repr_of(PyObject* object) {
  const PyRef text = PyRef::steal(PyObject_Repr(object));
  if (!text) drop_error();
  return text ? text_of(text.get()) : "?";
}

// Runs no code of the program.
std::string text_of_value(PyObject* object) {
  if (is_exact_scalar(Py_TYPE(object))) return repr_of(object);
  if (PyType_Check(object)) return reinterpret_cast<PyTypeObject*>(object)->tp_name;
  return std::string("<") + Py_TYPE(object)->tp_name + ">";
}

std::string object_text(Holds kind, PyObject* object) {
  if (!object) return "";
  switch (kind) {
    case Holds::none: return "";
    case Holds::value:
    case Holds::type: return " " + text_of_value(object);
    case Holds::code: return " " + std::string(text_of(reinterpret_cast<PyCodeObject*>(object)->co_qualname));
    case Holds::name:
    case Holds::file: return " " + std::string(text_of(object));
    case Holds::callable: return " " + (PyType_Check(object) ? text_of_value(object) : name_of_callable(object));
    case Holds::names: return " " + repr_of(object);
    case Holds::order: return " in order";
  }
  return "";
}

}  // namespace

std::string slot_text(SlotId slot) {
  return slot == kUnbound ? "unbound" : slot == kAsItIs ? "as it is" : "s" + std::to_string(slot);
}

std::string Recipe::text() const {
  std::string out;
  for (size_t i = 0; i < steps_.size(); ++i) {
    const RecipeStep& s = steps_[i];
    const Row& row = kRows[static_cast<size_t>(s.op)];
    if (end_begins_ && i == *end_begins_) out += "for the end of the frame:\n";
    if (row.makes == Makes::made) out += slot_text(s.result) + " = ";
    out += row.name + object_text(row.object, s.object.get());
    if (s.op == RecipeOp::size) out += " " + sizes_[s.number].text();
    else if (row.number != "none")
      out += (row.number == row.name ? "" : " " + std::string(row.number)) + " " + std::to_string(s.number);
    for (const SlotId operand : s.operands) out += " " + slot_text(operand);
    out += "\n";
  }
  return out;
}

}  // namespace framejit::frame_hook
