// frame_hook/trace/torch/optimizers.cpp — functions of torch.optim, and those that it calls, whose C code cannot be
// recorded as it is.
#include <algorithm>

#include "frame_hook/trace/torch/called_by_rows.h"
#include "frame_hook/trace/types/builtins.h"
#include "frame_hook/trace/types/c_arguments.h"
#include "frame_hook/trace/values/originals.h"
#include "frame_hook/trace/values/payloads.h"

namespace framejit::frame_hook::rows {

namespace {

Value* member_of(Heap& heap, const char* module_name, const char* name) {
  PyObject* const found = original(module_name, name);
  const guards::SourceId function = heap.facts.sources().add(guards::SourceKind::constant, guards::kNoSource, 0, found);
  return heap.wrap(found, function);
}

// The argument that is passed by this keyword, or null. torch.optim passes by keyword everything that the functions
// here ask for.
Value* keyword(const Arguments& args, std::string_view name) {
  for (const auto& [given, v] : args.keywords)
    if (name == text_of(given)) return v;
  return nullptr;
}

bool has_keyword(Facts& facts, const Arguments& args, std::string_view name) {
  Value* v = keyword(args, name);
  return v && !is_none(facts, v);
}

}  // namespace

// The count of steps, or a product of numbers, that an optimizer keeps in a tensor.
Value* optimizer_value(Tracer& t, const Arguments& args) {
  Value* v = parse(t.errors, args, "_get_value", {"x"}, 1)[0];
  if (v->kind != ValueKind::tensor) return v;
  Value* number = t.tensors.number_in(v);
  return number ? number : t.call(t.get_attribute(v, interned("item")), {});
}

namespace {

struct TensorGroup {
  Value *device, *dtype;
  std::vector<std::vector<Value*>> lists;
  std::vector<Value*> indices;
};

bool is_equal(Shadows& shadows, Value* a, Value* b) {
  return PyObject_RichCompareBool(constant_of(shadows, a), constant_of(shadows, b), Py_EQ) == 1;
}

TensorGroup& group_of(Tracer& t, std::vector<TensorGroup>& groups, Value* tensor, size_t lists) {
  Value* const device = t.get_attribute(tensor, interned("device"));
  Value* const dtype = t.get_attribute(tensor, interned("dtype"));
  for (TensorGroup& group : groups)
    if (is_equal(t.shadows, group.device, device) && is_equal(t.shadows, group.dtype, dtype)) return group;
  return groups.emplace_back(TensorGroup{device, dtype, std::vector<std::vector<Value*>>(lists), {}});
}

// Whether the tensor may be in the group: its tensors have one device and dtype, except those that count steps.
bool belongs_to(Tracer& t, const TensorGroup& group, Value* v) {
  if (v->kind != ValueKind::tensor) return is_none(t.facts, v);
  if (is_equal(t.shadows, group.device, t.get_attribute(v, interned("device"))) &&
      is_equal(t.shadows, group.dtype, t.get_attribute(v, interned("dtype"))))
    return true;
  Value* const dimensions = t.call(t.get_attribute(v, interned("dim")), {});
  return t.as_index(dimensions) == 0;
}

}  // namespace

// [[a, b], [x, y]] -> {(device, dtype): ([[a, b], [x, y]], [0, 1])}: the first list says which group.
Value* group_tensors(Tracer& t, const Arguments& args) {
  constexpr const char* kName = "_group_tensors_by_device_and_dtype";
  const auto refuse = [&] { graph_break(Reason::unknown_callable, std::string("torch._C.") + kName); };
  const std::vector<Value*> given = parse(t.errors, args, kName, {"tensorlistlist", "with_indices"}, 1);
  const bool with_indices = given[1] && t.truth(given[1]);
  std::vector<std::vector<Value*>> lists;
  for (Value* list : t.unpack(given[0])) lists.push_back(t.unpack(list));
  if (lists.empty() || lists[0].empty()) refuse();  // it raises
  std::vector<TensorGroup> groups;
  const size_t count = lists[0].size();
  for (size_t i = 0; i < count; ++i) {
    if (lists[0][i]->kind != ValueKind::tensor) refuse();
    TensorGroup& group = group_of(t, groups, lists[0][i], lists.size());
    for (size_t k = 0; k < lists.size(); ++k) {
      if (lists[k].empty()) continue;
      if (lists[k].size() != count || !belongs_to(t, group, lists[k][i])) refuse();
      group.lists[k].push_back(lists[k][i]);
    }
    if (with_indices) group.indices.push_back(t.heap.integer(static_cast<int64_t>(i)));
  }
  DictValue* const result = t.heap.dict();
  for (TensorGroup& group : groups) {
    std::vector<Value*> parts;
    for (std::vector<Value*>& list : group.lists) parts.push_back(t.heap.list(std::move(list)));
    Value* const indices = t.heap.list(std::move(group.indices));
    t.dicts.set(result, t.heap.tuple({group.device, group.dtype}),
                t.heap.tuple({t.heap.list(std::move(parts)), indices}));
  }
  return result;
}

namespace {

// The version counters of traced tensors, as they were.
class Versions {
 public:
  void keep(PyObject* traced) {
    const PyRef version = PyRef::steal(PyObject_GetAttrString(traced, "_version"));
    FJ_ASSERT(version, "a traced tensor without a version");
    kept_.emplace_back(PyRef::borrow(traced), version);
  }
  void restore() const {
    PyObject* const set = original("torch._C._autograd", "_unsafe_set_version_counter");
    for (const auto& [traced, version] : kept_) {
      const PyRef tensors = PyRef::steal(PyTuple_Pack(1, traced.get())),
                  versions = PyRef::steal(PyTuple_Pack(1, version.get()));
      const PyRef done = PyRef::steal(PyObject_CallFunctionObjArgs(set, tensors.get(), versions.get(), nullptr));
      FJ_ASSERT(done, "_unsafe_set_version_counter");
    }
  }

 private:
  std::vector<std::pair<PyRef, PyRef>> kept_;
};

// The fused op computes what the ops on lists compute, and those become kernels. Null: it does something else too, or
// the tensors are not on the CPU. Unlike the ops on lists, it does not advance the versions of what it writes, except
// those of the step counts (argument number `counted`), which a separate op writes. Nor does it write to its gradients:
// where the ops on lists do, argument number `copied` is a copy.
Value* on_lists(Tracer& t, const char* module, const char* name, const Arguments& args, size_t counted,
                size_t copied = SIZE_MAX) {
  for (const char* other : {"differentiable", "has_sparse_grad", "has_complex"})
    if (Value* v = keyword(args, other); v && t.truth(v)) return nullptr;
  for (const char* other : {"grad_scale", "found_inf"})
    if (has_keyword(t.facts, args, other)) return nullptr;
  if (args.positional.empty()) return nullptr;
  for (Value* p : t.unpack(args.positional[0])) {
    Value* const on_cpu = p->kind == ValueKind::tensor ? t.get_attribute(p, interned("is_cpu")) : nullptr;
    if (!on_cpu || !t.truth(on_cpu)) return nullptr;
  }
  Arguments numbers = args;
  for (auto& [key, v] : numbers.keywords) {
    if (v->kind != ValueKind::tensor) continue;
    v = t.tensors.number_in(v);
    if (!v) return nullptr;
  }
  if (copied < args.positional.size()) {
    std::vector<Value*> tensors = t.unpack(args.positional[copied]);
    for (Value*& tensor : tensors) tensor = t.call(t.get_attribute(tensor, interned("clone")), {});
    numbers.positional[copied] = t.heap.list(std::move(tensors));
  }
  Versions versions;
  for (size_t i = 0; i < args.positional.size(); ++i) {
    if (i == counted || is_none(t.facts, args.positional[i])) continue;
    for (Value* v : t.unpack(args.positional[i]))
      if (v->kind == ValueKind::tensor) versions.keep(t.tensors.traced(static_cast<TensorValue*>(v)));
  }
  Value* const result = t.call(member_of(t.heap, module, name), numbers);
  versions.restore();
  return result;
}

bool are_some_none(Facts& facts, const std::vector<Value*>& values) {
  const auto none = std::ranges::count_if(values, [&](Value* v) { return is_none(facts, v); });
  return none != 0 && none != std::ssize(values);
}

}  // namespace

// Of parameters, gradients and momenta. The fused op raises if only some parameters have a momentum.
Value* fused_sgd(Tracer& t, const Arguments& args) {
  const auto is_on = [&](const char* name) {
    Value* const v = keyword(args, name);
    return v && t.truth(v);
  };
  if (is_on("momentum") && args.positional.size() > 2 && are_some_none(t.facts, t.unpack(args.positional[2])))
    return nullptr;
  return on_lists(t, "torch.optim.sgd", "_multi_tensor_sgd", args, SIZE_MAX, is_on("nesterov") ? 1 : SIZE_MAX);
}
Value* fused_adam(Tracer& t, const Arguments& args) {
  return on_lists(t, "torch.optim.adam", "_multi_tensor_adam", args, 5);
}
Value* fused_adagrad(Tracer& t, const Arguments& args) {
  return on_lists(t, "torch.optim.adagrad", "_multi_tensor_adagrad", args, 3);
}

namespace {

// Guards that no profiler records ranges and ops; false: one does.
bool relies_on_no_listener(Shadows& shadows, TensorFrontend& frontend) {
  if (shadows.tables().relies_on_no_listener) return true;
  const auto facts = frontend.no_listener();
  if (!facts) return false;
  shadows.facts.rely_on_mode(facts);
  return shadows.tables().relies_on_no_listener = true;
}

PyObject* method_of(Value* v, const char* name) { return _PyType_Lookup(v->type, interned(name)); }

// The call of record_function.__enter__ for this object that the exit of the trace would make.
auto pending_range(Shadows& shadows, Value* self) {
  auto& calls = shadows.tables().calls_at_exit;
  return std::find_if(calls.begin(), calls.end(), [&](const auto& call) {
    return call.second.positional.size() == 1 && call.second.positional[0] == self &&
           call.first->object.get() == method_of(self, "__enter__");
  });
}

}  // namespace

// No profiler records the range. If the trace ends inside of it, the exit enters it.
Value* enter_range(TracedTensors& tensors, const Arguments& args) {
  Shadows& shadows = tensors.numbers.shadows;
  if (args.positional.size() != 1 || args.positional[0]->object || !relies_on_no_listener(shadows, tensors.frontend))
    return nullptr;
  Value* const self = args.positional[0];
  shadows.tables().calls_at_exit.emplace_back(shadows.heap.constant_value(method_of(self, "__enter__")),
                                              Arguments{{self}, {}});
  return self;
}

Value* leave_range(Shadows& shadows, const Arguments& args) {
  if (args.positional.empty()) return nullptr;
  const auto pending = pending_range(shadows, args.positional[0]);
  if (pending == shadows.tables().calls_at_exit.end()) return nullptr;
  shadows.tables().calls_at_exit.erase(pending);
  return shadows.heap.none();
}

}  // namespace framejit::frame_hook::rows
