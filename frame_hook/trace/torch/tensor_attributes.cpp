#include "frame_hook/trace/torch/tensor_attributes.h"

#include <algorithm>

#include "frame_hook/trace/protocol/descriptors.h"
#include "frame_hook/trace/protocol/own_dict.h"
#include "frame_hook/trace/values/marks.h"
#include "frame_hook/trace/values/originals.h"
#include "frame_hook/trace/values/payloads.h"
#include "guards/cpython/interrupts.h"

namespace framejit::frame_hook {

using guards::GuardKind;
using guards::SourceKind;

namespace {

enum class Reading : uint8_t { recorded, fact, member, gradient, no_view, breaks };

// False: plain Python has to make the write.
using Writing = bool (*)(Tracer& t, TensorValue* v, Value* to);

// p.grad = None, or a tensor of the same kind: the exit writes it.
bool write_gradient(Tracer& t, TensorValue* v, Value* to) {
  if (!v->object && !t.shadows.tables().gradients.new_leaves.contains(v)) return false;
  if (!t.truth(t.get_attribute(v, interned("is_leaf")))) return false;
  if (!is_none(t.facts, to)) {
    if (to->kind != ValueKind::tensor || to == v) return false;
    if (t.truth(t.get_attribute(to, interned("requires_grad")))) return false;
    for (const char* fact : {"dtype", "device", "shape"})
      if (!t.dicts.equal(t.get_attribute(v, interned(fact)), t.get_attribute(to, interned(fact)))) return false;
  }
  t.shadows.tables().gradients.set(v, to ? to : t.heap.none());
  return true;
}

bool write_requires_grad(Tracer& t, TensorValue* v, Value* to) {
  if (!to || t.facts.type_of(to) != &PyBool_Type || !t.truth(t.get_attribute(v, interned("is_leaf")))) return false;
  t.call(t.get_attribute(v, interned("requires_grad_")), {to});
  return true;
}

bool write_data(Tracer&, TensorValue* v, Value* to) { return to == v; }

constexpr Writing breaks = nullptr;

struct Row {
  const char* path;
  Reading of_result, of_input;
  Writing write;
};
constexpr Row kRows[] = {
#define TENSOR_ATTRIBUTE(name, of_result, of_input, write, why) \
  {"Tensor." #name, Reading::of_result, Reading::of_input, write},
#include "frame_hook/trace/torch/tensor_attributes.def"
#undef TENSOR_ATTRIBUTE
};

// Null: no row.
const Row* find_row(PyObject* descriptor) {
  static PyObject* descriptors[std::size(kRows)];
  static bool found = false;
  if (!found && find_original_type("torch", "Tensor")) {
    found = true;
    for (size_t i = 0; i < std::size(kRows); ++i) descriptors[i] = find_original("torch", kRows[i].path);
  }
  const auto* const at = std::ranges::find(descriptors, descriptor);
  return descriptor && at != std::end(descriptors) ? &kRows[at - descriptors] : nullptr;
}

[[noreturn]] void refuse(PyObject* name) {
  graph_break(Reason::unknown_attribute, std::string("Tensor.") + text_of(name));
}

Value* recorded(Shadows& shadows, PyObject* traced, PyObject* name) {
  PyObject* result = shadows.heap.recording().get_attribute(traced, name);
  if (!result) {
    if (auto stop = shadows.heap.recording().take_break()) graph_break(stop->reason, stop->message);
    shadows.errors.raise_pending();
  }
  return shadows.heap.wrap_result(result);
}

Value* none_guarded(Heap& heap, TensorValue* v, PyObject* name) {
  const guards::SourceId source = heap.facts.sources().add(SourceKind::attribute, v->source, 0, name);
  heap.facts.guard_if_real(GuardKind::is, source, Py_None);
  return heap.none();
}

// An attribute of a real tensor that the trace has not written.
Value* read_real(Shadows& shadows, TensorValue* v, PyObject* name, bool is_fact) {
  PyRef real = PyRef::steal(PyObject_GetAttr(v->object.get(), name));
  if (!real) shadows.errors.raise_pending();
  if (is_fact && is_plain(real.get())) return shadows.heap.constant_value(real.get());
  if (real.get() == Py_None) return none_guarded(shadows.heap, v, name);
  if (is_fact) refuse(name);
  return shadows.heap.wrap(real.get(), shadows.facts.sources().add(SourceKind::attribute, v->source, 0, name));
}

Value* base_of(Heap& heap, TensorValue* v, PyObject* name, PyObject* traced) {
  const PyRef base = PyRef::steal(PyObject_GetAttr(v->object ? v->object.get() : traced, name));
  if (base.get() != Py_None) graph_break(Reason::unknown_attribute, "_base of a view");
  return v->object ? none_guarded(heap, v, name) : heap.none();
}

bool is_address_mark(PyObject* name) { return std::string_view(text_of(name)) == kTorchStaticAddressMark; }

// The mark of mark_static_address is set on the tensor at the exit.
bool leave_mark(Shadows& shadows, Value* tensor, PyObject* name, Value* to) {
  if (!is_address_mark(name) || !to || !is_plain(shadows, to)) return false;
  shadows.tables().calls_at_exit.emplace_back(shadows.heap.constant_value(builtin_function("setattr")),
                                              Arguments{{tensor, shadows.heap.constant_value(name), to}, {}});
  return true;
}

// Null: none was set in the trace.
Value* written_mark(const SideTables& tables, Value* tensor, PyObject* name) {
  if (!is_address_mark(name)) return nullptr;
  const auto& calls = tables.calls_at_exit;
  const auto mark = std::find_if(calls.rbegin(), calls.rend(), [&](const auto& call) {
    return call.first->object.get() == builtin_function("setattr") && call.second.positional[0] == tensor &&
           std::string_view(text_of(call.second.positional[1]->object.get())) == text_of(name);
  });
  return mark == calls.rend() ? nullptr : mark->second.positional[2];
}

// descriptor: the getset descriptor that its class has under the name.
Value* kept_by_torch(TracedTensors& tensors, TensorValue* v, PyObject* descriptor, PyObject* name) {
  Shadows& shadows = tensors.numbers.shadows;
  if (std::string_view(text_of(name)) == "__class__")
    return shadows.heap.constant_value(reinterpret_cast<PyObject*>(shadows.facts.type_of(v)));
  const Row* const row = find_row(descriptor);
  Reading how = !row ? Reading::recorded : v->object ? row->of_input : row->of_result;
  if (how == Reading::breaks) refuse(name);
  if (how == Reading::gradient) {
    if (Value* written = shadows.tables().gradients.find(v)) return written;
    if (shadows.tables().gradients.new_leaves.contains(v)) return shadows.heap.none();
    if (!v->object) refuse(name);
  }
  PyObject* const traced = tensors.traced(v);
  if (how == Reading::no_view) return base_of(shadows.heap, v, name, traced);
  if (how == Reading::recorded || v->mutated) return recorded(shadows, traced, name);
  return read_real(shadows, v, name, how == Reading::fact);
}

}  // namespace

Value* tensor_attribute(Tracer& t, TensorValue* v, PyObject* name) {
  if (Value* mark = written_mark(t.shadows.tables(), v, name)) return mark;
  const Found d = look_up(t.shadows, v, name);
  if (d.object && Py_TYPE(d.object) == &PyGetSetDescr_Type) return kept_by_torch(t.tensors, v, d.object, name);
  if (d.object && Py_TYPE(d.object)->tp_descr_set) return bind(t, d, v, v->type, nullptr);
  if (v->object && v->source != guards::kNoSource)
    if (Value* own = own_attribute(t.heap, v, name)) return own;
  return d.object ? bind(t, d, v, v->type, nullptr) : nullptr;
}

void set_tensor_attribute(Tracer& t, TensorValue* v, PyObject* name, Value* to) {
  if (leave_mark(t.shadows, v, name, to)) return;
  const Row* const row = find_row(look_up(t.shadows, v, name).object);
  if (row && row->write && row->write(t, v, to)) return;
  graph_break(Reason::unsupported_write, std::string("a write to Tensor.") + text_of(name));
}

}  // namespace framejit::frame_hook
