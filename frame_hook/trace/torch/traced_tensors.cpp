// frame_hook/trace/torch/traced_tensors.cpp — real tensors as inputs of the recording, recorded calls, and open floats
// as 0-dim tensors.
#include "frame_hook/trace/torch/traced_tensors.h"

#include <algorithm>

#include "frame_hook/trace/values/object_kinds.h"
#include "frame_hook/trace/values/originals.h"
#include "frame_hook/trace/values/size_marks.h"
#include "frame_hook/trace/values/weight_sources.h"
#include "guards/cpython/interrupts.h"

namespace framejit::frame_hook {

using guards::GuardKind;
using guards::kNoSource;

void TracedTensors::reset() {
  read_numbers_.clear();
  last_line_ = {nullptr, 0};
}

// ---- inputs and calls

namespace {

// A marked size is a symbol within its range; sizes outside of it compile separately.
void decide_marked_ranges(Recording& recording, PyObject* real, PyObject* traced) {
  const std::vector<SizeMarks::Dynamic> marks = size_marks(real).dynamic;
  const PyRef shape = marks.empty() ? PyRef() : PyRef::steal(recording.get_attribute(traced, interned("shape")));
  if (!shape) return;
  for (const auto& [dim, least, most] : marks) {
    const auto size = dim < static_cast<size_t>(PyTuple_GET_SIZE(shape.get()))
                          ? recording.unwrap_size(PyTuple_GET_ITEM(shape.get(), dim))
                          : std::nullopt;
    if (!size || size->is_constant()) continue;
    if (least)
      recording.shapes().decide(graph::SymExpr(PyLong_AsLongLong(least.get())), graph::Relation::kLe, *size,
                                "mark_dynamic");
    if (most)
      recording.shapes().decide(*size, graph::Relation::kLe, graph::SymExpr(PyLong_AsLongLong(most.get())),
                                "mark_dynamic");
  }
  drop_error();
}

guards::Guard tensor_guard(const TensorValue* v, std::shared_ptr<const guards::TensorFacts> facts) {
  guards::Guard guard;
  guard.kind = GuardKind::tensor;
  guard.source = v->source;
  guard.object = PyRef::borrow(reinterpret_cast<PyObject*>(v->type));
  guard.facts = std::move(facts);
  return guard;
}

}  // namespace

void TracedTensors::break_at_unsupported(TensorValue* v, std::string reason) {
  if (const std::string name = dynamic_.name(v->source); !name.empty()) reason = name + ", " + reason + ",";
  GraphBreak at{Reason::unsupported_tensor, std::move(reason)};
  std::shared_ptr<const guards::TensorFacts> kind = frontend.facts_of_unsupported(v->object.get());
  if (kind && v->source != kNoSource && !facts().is_computed(v->source)) at.guard = tensor_guard(v, std::move(kind));
  throw at;
}

PyObject* TracedTensors::traced(TensorValue* v) {
  if (v->traced) return v->traced.get();
  std::string reason;
  if (frontend.classify(v->object.get(), &reason) != TensorClass::kPlain) break_at_unsupported(v, std::move(reason));
  if (v->source == kNoSource) graph_break(Reason::unsupported_tensor, "a tensor that is a constant of the program");
  const graph::DynamicExtents extents = dynamic_.extents(v->source, v->object.get(), is_parameter(heap(), v->source));
  PyObject* traced = recording().add_input(v->object.get(), dynamic_.text(v->source), extents);
  if (!traced) break_of_recording("an input tensor");
  v->traced = PyRef::steal(traced);
  v->input = static_cast<int>(recording().input_count()) - 1;
  v->type_guarded = v->value_guarded = true;
  heap().adopt(v);
  trace_.input_sources.push_back(v->source);
  trace_.input_owners.push_back(owner_of(heap(), v->source));
  facts().add_guard(tensor_guard(v, recording().facts_of_input(v->input)));
  if (!extents.empty()) decide_marked_ranges(recording(), v->object.get(), traced);
  return traced;
}

void TracedTensors::set_user_line() {
  const SymbolicFrame& user = facts().stack.user_frame();
  PyCodeObject* code = user.code->code;
  const int number = user.code->instructions[user.position].line;
  const SymbolicFrame* const of_program = facts().stack.program_frame();
  const RecordingLine line = {code, of_program ? of_program->code->code : nullptr, number,
                              of_program ? line_of_position(*of_program) : 0};
  if (std::exchange(last_line_, line) == line) return;
  recording().set_line({file_name(code), number, text_of(code->co_qualname)}, facts().stack.way_to(user));
}

Value* TracedTensors::call(PyObject* callable, PyObject* const* args, size_t positional, PyObject* names) {
  set_user_line();
  PyObject* result = recording().call(callable, args, positional, names);
  guard_number_reads(trace_, facts());
  return result ? heap().wrap_result(result) : nullptr;
}

Value* TracedTensors::lifted(PyObject* real) {
  set_user_line();
  PyObject* result = recording().lift(real);
  if (result) return heap().wrap_result(result);
  break_of_recording("a tensor of an array");
}

void TracedTensors::break_of_recording(const std::string& what) {
  if (auto b = recording().take_break()) {
    drop_error();
    graph_break(b->reason, b->message.empty() ? what : b->message);
  }
  if (!PyErr_Occurred()) graph_break(Reason::recording_failed, what);
  numbers.shadows.errors.raise_pending();
}

// ---- open floats as tensors

Value* TracedTensors::of_float(Value* number) { return held(number).tensor; }

FloatTensor& TracedTensors::held(Value* number) {
  const guards::SourceId source = numbers.source_of(number);
  if (FloatTensor* known = floats().find(number, source)) return *known;
  Value* tensor = nullptr;
  if (number->source != kNoSource) {
    std::string text = dynamic_.text(source);
    const bool is_taken =
        std::ranges::any_of(floats().all(), [&](const auto& known) { return dynamic_.text(known.first) == text; });
    if (is_taken) text += " #" + std::to_string(source);  // dict keys that are tensors have the same text
    PyRef traced = PyRef::steal(recording().add_float(PyFloat_AS_DOUBLE(number->object.get()), text));
    if (!traced) break_of_recording("a float input");
    trace_.input_sources.push_back(number->source);
    trace_.input_owners.push_back(kNoSource);
    facts().type_of(number);
    tensor = heap().wrap_result(traced.release());
  } else {
    const FloatFormula formula = trace_.float_formulas.at(number);
    const char* const function = names_of(formula.op).function;
    Value* const of[] = {formula.a, formula.b};
    Value* tensors[2];
    for (size_t k = 0; k < 2; ++k) tensors[k] = numbers.is_open_float(of[k]) ? of_float(of[k]) : nullptr;
    PyRef owned[2];
    for (size_t k = 0; k < 2; ++k)
      owned[k] = PyRef::borrow(tensors[k] ? traced(as<TensorValue>(tensors[k])) : constant_of(numbers.shadows, of[k]));
    PyObject* const args[] = {owned[0].get(), owned[1].get()};
    tensor = call(operator_function(function), args, 2, nullptr);
    if (!tensor) break_of_recording(PyErr_Occurred() ? "" : std::string("_operator.") + function);
  }
  return *floats().add(number, source, tensor);
}

Value* TracedTensors::float_number(Value* number) {
  if (!numbers.is_open_float(number)) return nullptr;
  FloatTensor& of = held(number);
  const FloatNumber made =
      recording().float_number(traced(as<TensorValue>(of.tensor)), PyFloat_AS_DOUBLE(number->object.get()));
  if (!made.object) break_of_recording("a float");
  if (!of.number) of.number = number, of.id = made.id;
  return heap().object_value(made.object.get(), kNoSource);
}

void guard_number_reads(FrameTrace& trace, Facts& facts) {
  for (const auto& [id, other, is_equal] : trace.recording->take_number_reads()) {
    const FloatTensor& read = trace.floats.with_id(id);
    if (!other) {
      facts.guard_value(read.number);
      continue;
    }
    guards::SourceTable& sources = facts.sources();
    const PyRef object = PyRef::steal(PyFloat_FromDouble(*other));
    const guards::SourceId constant = sources.add(guards::SourceKind::constant, kNoSource, 0, object.get());
    const guards::SourceId answer =
        sources.add(guards::SourceKind::computed, read.source, static_cast<int32_t>(constant),
                    operator_function(kComparisonNames[Py_EQ].function));
    facts.add_guard(GuardKind::equals, answer, is_equal ? Py_True : Py_False);
  }
}

namespace {

// Adds no guards: whoever acts on the answer then calls materialise(), which guards the contents.
bool holds_tensor(TensorFrontend& frontend, PyObject* object, int depth) {
  std::string reason;
  if (is_exact_scalar(Py_TYPE(object)) || depth > 4) return false;
  if (PyTuple_Check(object) || PyList_CheckExact(object)) {
    const Py_ssize_t n = PySequence_Fast_GET_SIZE(object);
    for (Py_ssize_t i = 0; i < n; ++i)
      if (holds_tensor(frontend, PySequence_Fast_GET_ITEM(object, i), depth + 1)) return true;
    return false;
  }
  if (PyDict_CheckExact(object)) {
    PyObject *key, *item;
    Py_ssize_t position = 0;
    while (PyDict_Next(object, &position, &key, &item))
      if (holds_tensor(frontend, item, depth + 1)) return true;
    return false;
  }
  return frontend.classify(object, &reason) != TensorClass::kNot;
}

}  // namespace

bool contains_tensor(TensorFrontend& frontend, Value* v) {
  if (!v) return false;
  auto any = [&](const std::vector<Value*>& items) {
    for (Value* item : items)
      if (item && contains_tensor(frontend, item)) return true;
    return false;
  };
  switch (v->kind) {
    case ValueKind::tensor: return true;
    case ValueKind::tuple:
      return any(as<TupleValue>(v)->items) || (v->object && holds_tensor(frontend, v->object.get(), 0));
    case ValueKind::list:
      return any(as<ListValue>(v)->items) ||
             (v->object && !as<ListValue>(v)->loaded && holds_tensor(frontend, v->object.get(), 0));
    case ValueKind::set: return any(as<SetValue>(v)->items);
    case ValueKind::slice: {
      auto* s = as<SliceValue>(v);
      return contains_tensor(frontend, s->start) || contains_tensor(frontend, s->stop) ||
             contains_tensor(frontend, s->step);
    }
    case ValueKind::dict: {
      for (const DictEntry& e : as<DictValue>(v)->entries)
        if (e.value && contains_tensor(frontend, e.value)) return true;
      return v->object && !as<DictValue>(v)->loaded && holds_tensor(frontend, v->object.get(), 0);
    }
    case ValueKind::instance: return contains_tensor(frontend, as<InstanceValue>(v)->payload);
    case ValueKind::null:
    case ValueKind::object:
    case ValueKind::sym_int:
    case ValueKind::cell:
    case ValueKind::function:
    case ValueKind::method:
    case ValueKind::iterator:
    case ValueKind::generator:
    case ValueKind::super:
    case ValueKind::view:
    case ValueKind::identity:
    case ValueKind::array: return false;
  }
  return false;
}

}  // namespace framejit::frame_hook
