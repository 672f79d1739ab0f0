// frame_hook/trace/torch/inlined.cpp — torch's functions whose work is traced in another way: one_hot, masks.
#include <algorithm>

#include "frame_hook/trace/torch/called_by_rows.h"
#include "frame_hook/trace/types/builtins.h"
#include "frame_hook/trace/types/c_arguments.h"
#include "frame_hook/trace/values/originals.h"
#include "runtime/base/result.h"

namespace framejit::frame_hook::rows {

namespace {

// The function "helper" that a function of torch makes in each call, with these values of its free variables. Null: its
// code is not the expected one.
Value* inner_helper(Heap& heap, FunctionValue* outer, const std::vector<std::pair<const char*, Value*>>& known) {
  PyObject* constants = outer->code->co_consts;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(constants); ++i) {
    auto* code = reinterpret_cast<PyCodeObject*>(PyTuple_GET_ITEM(constants, i));
    if (!PyCode_Check(code) || code->co_name != interned("helper")) continue;
    auto* function = heap.make<FunctionValue>(ValueKind::function, &PyFunction_Type);
    function->code_ref = PyRef::borrow(reinterpret_cast<PyObject*>(code));
    function->code = code;
    function->globals = outer->globals;
    function->name = heap.constant_value(code->co_name);
    function->qualname = heap.constant_value(code->co_qualname);
    function->loaded = true;
    for (int k = code->co_nlocalsplus - code->co_nfreevars; k < code->co_nlocalsplus; ++k) {
      PyObject* name = PyTuple_GET_ITEM(code->co_localsplusnames, k);
      const auto row =
          std::find_if(known.begin(), known.end(), [&](const auto& r) { return interned(r.first) == name; });
      if (row == known.end()) return nullptr;
      auto* cell = heap.make<CellValue>(ValueKind::cell, &PyCell_Type);
      cell->contents = row->second;
      cell->loaded = true;
      function->closure.push_back(cell);
    }
    return function;
  }
  return nullptr;
}

}  // namespace

// (operation, input, mask, ...). Besides its helper, which does the work for plain tensors, the function makes an
// autograd.Function class in each call. Only a torch.masked.MaskedTensor needs that.
Value* combine_input_and_mask(Tracer& t, const Arguments& args) {
  PyObject* real = original("torch.masked._ops", "_combine_input_and_mask");
  Value* outer = t.heap.find(real);
  const auto& given = args.positional;
  if (!outer || outer->kind != ValueKind::function || given.size() < 3 || !args.keywords.empty()) return nullptr;
  if (given[1]->kind != ValueKind::tensor ||
      reinterpret_cast<PyObject*>(t.facts.type_of(given[1])) != original("torch", "Tensor"))
    return nullptr;
  Value* rest = t.heap.tuple({given.begin() + 3, given.end()});
  Value* helper = inner_helper(t.heap, as<FunctionValue>(outer), {{"op", given[0]}, {"args", rest}});
  return helper ? t.call(helper, {given[1], given[2]}) : nullptr;
}

Value* one_hot(Tracer& t, const Arguments& args) {
  std::vector<Value*> a = parse(t.errors, args, "one_hot", {"tensor", "num_classes"}, 1);
  Value* indices = a[0];
  std::vector<Value*> shape = t.unpack(t.get_attribute(indices, interned("shape")));
  bool simple = a[1] && same_object(t.shadows, t.get_attribute(indices, interned("dtype")),
                                    t.heap.constant_value(original("torch", "int64")));
  for (Value* size : shape) simple = simple && !(size->kind == ValueKind::object && t.as_index(size) == 0);
  const auto classes = simple ? t.as_size(a[1]) : std::nullopt;
  if (!classes || !t.recording().shapes().decide(0, graph::Relation::kLt, *classes, t.stack.here()))
    return t.calls.recorded(original("torch._C._nn", "one_hot"), args);
  shape.push_back(a[1]);
  Value* result = method(t, indices, "new_empty", {t.heap.tuple(std::move(shape))});
  method(t, result, "zero_", {});  // a write of its own, as in torch's: it counts in the version
  method(t, result, "scatter_",
         {t.heap.integer(-1), method(t, indices, "unsqueeze", {t.heap.integer(-1)}), t.heap.integer(1)});
  return result;
}

}  // namespace framejit::frame_hook::rows
