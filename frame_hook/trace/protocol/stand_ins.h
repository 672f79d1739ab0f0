// frame_hook/trace/protocol/stand_ins.h — what CPython itself answers to an operation on traced values, and what it
// raises.
//
// A stand-in is a real object that is given to C code in place of the value: the constant itself, a fresh container of
// stand-ins, or an object of a class of the same name. No code of the program runs: methods of such a class only note
// that they were called, and then the answer is unknown. An answer holds for the types of the values, which are
// guarded. A text may also contain a constant, which is guarded too.
#pragma once

#include <unordered_map>
#include <vector>

#include "frame_hook/trace/values/arguments.h"
#include "frame_hook/trace/values/open_numbers.h"

namespace framejit::frame_hook {

class StandIns {
 public:
  // specialises: a symbol becomes its number; otherwise it may be any number, and is_exact() is false.
  StandIns(OpenNumbers& numbers, bool specialises)
      : numbers_(numbers), shadows_(numbers.shadows), specialises_(specialises) {}

  struct Answer {
    enum class Kind : uint8_t { unknown, returned, raised } kind = Kind::unknown;
    PyRef object;                            // what was returned or raised
    bool is_not_implemented() const { return kind == Kind::returned && object.get() == Py_NotImplemented; }
  };
  // These special methods of Python classes return NotImplemented: the trace has already asked them.
  void decline(const std::vector<const char*>& names) { declined_ = names; }
  Answer ask(PyObject* callable, const Arguments& args);
  bool is_exact() const { return exact_; }
  void stands(const PyRef& object, Value* v) { values_.emplace(object.get(), v); }
  Value* value_of(PyObject* object);         // for a stand-in, or for a constant that C code made; null: neither
  // The exception of the program in place of a real one. Null: the real one holds something that is not a constant.
  InstanceValue* traced_error(PyObject* real);

 private:
  PyObject* of(Value* v);                    // borrowed; null: there is none
  PyRef make(Value* v);
  PyRef make_object(Value* v);
  PyRef make_instance(InstanceValue* v);
  PyRef named(PyTypeObject* type);           // of a class with this name, without contents
  PyRef class_like(PyTypeObject* type, PyTypeObject* base);
  PyRef unread();                            // an item that nobody has read: nothing is known about it
  PyObject* keep(Value* v, PyRef made);
  bool fill_list(PyObject* list, Value* v);
  bool fill_dict(PyObject* target, PyTypeObject* base, DictValue* v);
  bool fill_set(PyObject* target, SetValue* v);
  PyRef tuple_of(const std::vector<Value*>& items);

  OpenNumbers& numbers_;
  Shadows& shadows_;
  const bool specialises_;
  bool exact_ = true;
  std::vector<const char*> declined_;
  std::unordered_map<Value*, PyRef> made_;
  std::unordered_map<PyObject*, Value*> values_;
  std::unordered_map<PyTypeObject*, PyRef> classes_;
  PyRef unread_class_;
};

// Surrounds the work of C code that bytecode calls: an error that the tracer raises there gets CPython's text.
class CBoundary {
 public:
  explicit CBoundary(Errors& errors);
  ~CBoundary();
  CBoundary(const CBoundary&) = delete;
  bool is_outermost() const { return is_outermost_; }  // in its frame

 private:
  Errors& errors_;
  const size_t before_;
  const bool is_outermost_;
};

struct CCall {
  PyObject* callable;
  Arguments args;
  std::vector<const char*> declined = {};      // see StandIns::decline
};
void take_cpython_error(OpenNumbers& numbers, Value* exception, const CCall& call);
// Raises what `call` raises in CPython; if that is not known, an error of this type and text.
[[noreturn]] void raise_as_cpython(OpenNumbers& numbers, PyObject* type, const std::string& text, const CCall& call);
// For an attribute that cannot be written (or deleted: to is null): v has no dict, or no attribute of that name.
[[noreturn]] void raise_unwritable(OpenNumbers& numbers, Value* v, PyObject* name, Value* to, bool is_in_class);

template <class Does, class Call>
auto with_cpython_errors(OpenNumbers& numbers, Call&& call, Does&& does) {
  const CBoundary boundary(numbers.shadows.errors);
  try {
    return does();
  } catch (const SymbolicRaise& raised) {
    if (boundary.is_outermost()) take_cpython_error(numbers, raised.exception, call());
    throw;
  }
}

}  // namespace framejit::frame_hook
