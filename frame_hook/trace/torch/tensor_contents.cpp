// frame_hook/trace/torch/tensor_contents.cpp — tensors made from numbers and arrays, and numbers and arrays read from
// tensors.
#include <algorithm>

#include "frame_hook/trace/torch/called_by_rows.h"
#include "frame_hook/trace/torch/special.h"
#include "frame_hook/trace/types/builtins.h"
#include "frame_hook/trace/types/c_arguments.h"
#include "frame_hook/trace/types/numpy_calls.h"
#include "frame_hook/trace/values/originals.h"
#include "frame_hook/trace/values/payloads.h"
#include "guards/cpython/interrupts.h"

namespace framejit::frame_hook::rows {

namespace {

PyObject* torch_function(const char* name) { return original("torch", name); }

[[noreturn]] void method_reads_data(const char* method) {
  graph_break(Reason::data_dependent_value, std::string("Tensor.") + method + "()");
}

}  // namespace

Value* tensor_data_ptr(NoPart&, const Arguments&) { method_reads_data("data_ptr"); }
Value* tensor_const_data_ptr(NoPart&, const Arguments&) { method_reads_data("const_data_ptr"); }
// A traced tensor is not referenced as often as the tensor of the program.
Value* tensor_use_count(NoPart&, const Arguments&) {
  graph_break(Reason::memory_address, "Tensor._use_count(), the number of references to a tensor,");
}
Value* tensor_untyped_storage(NoPart&, const Arguments&) { method_reads_data("untyped_storage"); }
Value* tensor_is_set_to(NoPart&, const Arguments&) { method_reads_data("is_set_to"); }

// For a setting that an optimizer keeps in a tensor. Other programs would recompile for each number that they act on.
Value* tensor_item(RealCalls& calls, const Arguments& args) {
  Value* const self = args.positional.at(0);
  Value* const number = is_optimizer_calling(calls.dicts.facts.stack) ? calls.tensors.number_in(self) : nullptr;
  return number ? number : calls.recorded(_PyType_Lookup(self->type, interned("item")), args);
}

Value* tensor_tolist(RealCalls& calls, const Arguments& args) {
  only_positional(calls.dicts.errors, args, "tolist", 1, 1);
  static PyObject* const tolist =
      PyObject_GetAttrString(reinterpret_cast<PyObject*>(args.positional[0]->type), "tolist");
  Value* known =
      args.positional[0]->kind == ValueKind::tensor ? of_known_tensor(calls, tolist, args.positional[0]) : nullptr;
  if (!known) method_reads_data("tolist");
  return known;
}

Value* tensor_numpy(RealCalls& calls, const Arguments& args) {
  Value* known =
      args.positional.size() == 1 && args.keywords.empty() ? array_of_tensor(calls, args.positional[0]) : nullptr;
  if (!known) method_reads_data("numpy");
  return known;
}

Value* torch_from_numpy(RealCalls& calls, const Arguments& args) {
  const bool made_here =
      args.positional.size() == 1 && args.keywords.empty() && args.positional[0]->kind == ValueKind::array;
  return made_here ? tensor_of_array(calls, as<ArrayValue>(args.positional[0]), true)
                   : calls.recorded(torch_function("from_numpy"), args);
}

Value* tensor_is_view(Tracer& t, const Arguments& args) {
  Value* self = args.positional.at(0);
  if (self->kind != ValueKind::tensor || !self->object)
    return t.calls.recorded(_PyType_Lookup(self->type, interned("_is_view")), args);
  t.get_attribute(self, interned("_base"));  // a view breaks here
  return t.heap.boolean(false);
}

namespace {

void specialise_ints(Tracer& t, Value* v) {
  v = payload_of(v);
  if (v->kind == ValueKind::sym_int) constant_of(t.shadows, v);
  else if (v->kind == ValueKind::list || v->kind == ValueKind::tuple)
    for (Value* item : t.unpack(v)) specialise_ints(t, item);
}

bool is_floating(PyObject* dtype) {
  const PyRef answer = PyRef::steal(PyObject_GetAttrString(dtype, "is_floating_point"));
  if (!answer) drop_error();
  return answer.get() == Py_True;
}

// torch.tensor of a number that differs between calls, or of a list of such numbers: torch.full() takes them unchanged.
// Null: treat them as constants.
Value* tensor_of_open_numbers(Tracer& t, const Arguments& args) {
  constexpr size_t kMost = 16;
  PyObject* dtype = nullptr;
  for (const auto& [name, v] : args.keywords) {
    if (std::string_view(text_of(name)) != "dtype" || !t.heap.is_constant(v)) return nullptr;
    if (PyObject* given = constant_of(t.shadows, v); given != Py_None) dtype = given;
  }
  if (args.positional.size() != 1) return nullptr;
  Value* data = payload_of(args.positional[0]);
  const bool is_row = data->kind == ValueKind::list || data->kind == ValueKind::tuple;
  std::vector<Value*> items = is_row ? t.unpack(data) : std::vector<Value*>{data};
  bool open = false, any_float = dtype && is_floating(dtype);
  for (Value* item : items) {
    const bool is_float = item->kind == ValueKind::object && item->object && PyFloat_CheckExact(item->object.get());
    const bool is_int = item->kind == ValueKind::sym_int ||
                        (item->kind == ValueKind::object && item->object && PyLong_CheckExact(item->object.get()));
    if (!is_float && !is_int) return nullptr;
    any_float = any_float || is_float;
    open = open || t.numbers.is_open(item);
  }
  if (!open || items.size() > kMost || (dtype && dtype != torch_function("int64") && !is_floating(dtype)))
    return nullptr;
  if (any_float && dtype && !is_floating(dtype)) return nullptr;
  auto* to_float = reinterpret_cast<PyObject*>(&PyFloat_Type);
  for (Value*& item : items)  // as torch.tensor() reads them
    if (any_float && item->type == &PyLong_Type)
      item = t.numbers.is_open(item) ? t.numbers.computed(to_float, {item})
                                     : t.call(t.heap.constant_value(to_float), {item});
  if (std::find(items.begin(), items.end(), nullptr) != items.end()) return nullptr;
  Value* full = t.heap.constant_value(torch_function("full"));
  std::vector<Value*> parts;
  for (Value* item : items)
    parts.push_back(t.call(
        full, Arguments{{t.heap.tuple(is_row ? std::vector<Value*>{t.heap.integer(1)} : std::vector<Value*>{}), item},
                        args.keywords}));
  return is_row ? t.call(t.heap.constant_value(torch_function("cat")), {t.heap.list(std::move(parts))}) : parts[0];
}

// torch.tensor() and as_tensor(), which shares memory, of an array, with at most a dtype and a device. Null: any other
// call.
Value* tensor_of_numpy(Tracer& t, const Arguments& args, bool shares_memory) {
  if (args.positional.size() != 1 || args.positional[0]->kind != ValueKind::array) return nullptr;
  Arguments rest;
  for (const auto& [name, v] : args.keywords) {
    const std::string_view text = text_of(name);
    if (text != "dtype" && text != "device") return nullptr;
    if (!t.heap.is_constant(v) || constant_of(t.shadows, v) != Py_None) rest.keywords.emplace_back(name, v);
  }
  Value* made = tensor_of_array(t.calls, as<ArrayValue>(args.positional[0]), shares_memory);
  return rest.keywords.empty() ? made : t.call(t.get_attribute(made, interned("to")), rest);
}

Value* recorded_of_constants(Tracer& t, const char* function, const Arguments& args) {
  for (Value* v : args.positional) specialise_ints(t, v);
  for (const auto& [name, v] : args.keywords) specialise_ints(t, v);
  return t.calls.recorded(torch_function(function), args);
}

}  // namespace

Value* torch_tensor(Tracer& t, const Arguments& args) {
  if (Value* made = tensor_of_numpy(t, args, /*shares_memory=*/false)) return made;
  if (Value* made = tensor_of_open_numbers(t, args)) return made;
  return recorded_of_constants(t, "tensor", args);
}

Value* torch_as_tensor(Tracer& t, const Arguments& args) {
  if (Value* made = tensor_of_numpy(t, args, /*shares_memory=*/true)) return made;
  if (args.positional.size() == 1 && t.numbers.is_open(args.positional[0]))
    if (Value* made = tensor_of_open_numbers(t, args)) return made;
  return recorded_of_constants(t, "as_tensor", args);
}

Value* torch_asarray(Tracer& t, const Arguments& args) { return recorded_of_constants(t, "asarray", args); }

// A call of the class: a list or a tuple makes elements of the default dtype. A call with sizes, which leaves memory
// uninitialised, breaks.
Value* tensor_class(Tracer& t, const Arguments& args) {
  Value* data = args.positional.size() == 1 && args.keywords.empty() ? args.positional[0] : nullptr;
  if (!data || (data->kind != ValueKind::list && data->kind != ValueKind::tuple))
    graph_break(Reason::unknown_callable, "class Tensor");
  Value* dtype = t.call(t.heap.constant_value(torch_function("get_default_dtype")), {});
  return torch_tensor(t, Arguments{{data}, {{interned("dtype"), dtype}}});
}

Value* tensor_new_tensor(Tracer& t, const Arguments& args) {
  std::vector<Value*> a =
      parse(t.errors, args, "new_tensor", {"self", "data", "$dtype", "$device", "$requires_grad"}, 2);
  Arguments call{{a[1]}, {}};
  auto given = [&](Value* v) { return !is_none(t.facts, v); };
  call.keywords.emplace_back(interned("dtype"), given(a[2]) ? a[2] : t.get_attribute(a[0], interned("dtype")));
  call.keywords.emplace_back(interned("device"), given(a[3]) ? a[3] : t.get_attribute(a[0], interned("device")));
  if (a[4]) call.keywords.emplace_back(interned("requires_grad"), a[4]);
  return torch_tensor(t, call);
}

}  // namespace framejit::frame_hook::rows
