#include "frame_hook/trace/types/numpy_calls.h"

#include <algorithm>
#include <cstring>

#include "frame_hook/trace/values/c_packages.h"
#include "frame_hook/trace/values/describe.h"
#include "frame_hook/trace/values/known_types.h"
#include "frame_hook/trace/values/numpy_objects.h"
#include "frame_hook/trace/values/object_kinds.h"
#include "frame_hook/trace/values/originals.h"
#include "guards/cpython/interrupts.h"

namespace framejit::frame_hook {

namespace {

constexpr int64_t kMostBytes = 1 << 20;  // of an array: a larger one is too much work for a trace, and each call copies
                                         // it

// The contents of a traced tensor, if they are the same in every call; null: not known.
PyRef known_contents(RealCalls& calls, Value* tensor) {
  const PyRef traced = calls.materialise(tensor);
  return PyRef::steal(calls.recording().known_contents(traced.get()));
}

bool is_array_type(PyTypeObject* type) { return is_known(type, KnownType::numpy_array); }

bool is_dtype(PyObject* object) {
  PyTypeObject* const dtype = known_type(KnownType::numpy_dtype);
  return dtype && PyObject_TypeCheck(object, dtype);
}

// What the callable gets, and which of them are arrays.
class Operands {
 public:
  Operands(Tracer& t, std::string name) : t_(t), name_(std::move(name)) {}

  PyRef of(Value* v) {
    v = payload_of(v);
    switch (v->kind) {
      case ValueKind::array: arrays.push_back(as<ArrayValue>(v)); return as<ArrayValue>(v)->array;
      case ValueKind::tensor: {
        PyRef contents = known_contents(t_.calls, v);
        if (!contents) graph_break(Reason::data_dependent_value, name_ + " of a tensor");
        tensors.push_back(contents);
        return contents;
      }
      case ValueKind::list: case ValueKind::tuple: {
        t_.facts.type_of(v);
        PyRef made = PyRef::steal(PyList_New(0));
        for (Value* item : t_.unpack(v)) PyList_Append(made.get(), of(item).get());
        return v->kind == ValueKind::list ? std::move(made) : PyRef::steal(PyList_AsTuple(made.get()));
      }
      case ValueKind::slice: {
        auto* s = as<SliceValue>(v);
        const PyRef start = of(s->start), stop = of(s->stop), step = of(s->step);
        return PyRef::steal(PySlice_New(start.get(), stop.get(), step.get()));
      }
      default: break;
    }
    v = without_symbols(t_.shadows, v);
    if (t_.heap.is_constant(v)) return PyRef::borrow(constant_of(t_.shadows, v));
    if (!v->object || !is_dtype(v->object.get()))
      graph_break(Reason::unknown_callable, name_ + " on " + describe(v));
    t_.facts.guard_identity(v);
    return v->object;
  }

  std::vector<ArrayValue*> arrays;
  std::vector<PyRef> tensors;  // copies of their contents

 private:
  Tracer& t_;
  const std::string name_;
};

void set_writeable(PyObject* array, bool on) {
  PyRef::steal(PyObject_CallMethod(array, "setflags", "O", on ? Py_True : Py_False));
  drop_error();
}

// Locks the arrays that are read against writes while the callable runs, whatever the arguments ask for.
class ReadOnly {
 public:
  ReadOnly(const std::vector<ArrayValue*>& arrays, const ArrayValue* written) {
    for (ArrayValue* v : arrays)
      if (v != written && is_true(attribute_of(v->array.get(), "flags").get(), "writeable"))
        locked_.push_back(v->array);
    for (const PyRef& array : locked_) set_writeable(array.get(), false);
  }
  ~ReadOnly() {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    for (const PyRef& array : locked_) set_writeable(array.get(), true);
    PyErr_Restore(type, value, traceback);
  }
  ReadOnly(const ReadOnly&) = delete;
  ReadOnly& operator=(const ReadOnly&) = delete;

 private:
  std::vector<PyRef> locked_;
};

ArrayValue* wrap_array(Shadows& shadows, PyObject* array, const std::string& made_by) {
  if (const auto known = shadows.tables().arrays.find(array); known != shadows.tables().arrays.end())
    return known->second;
  const PyRef dtype = attribute_of(array, "dtype"), kind = attribute_of(dtype.get(), "kind"),
              bytes = attribute_of(array, "nbytes"), base = attribute_of(array, "base");
  const bool numbers = kind && std::strchr("biuf", *text_of(kind.get())) && is_true(dtype.get(), "isnative");
  const bool has_root = base && (base.get() == Py_None || is_array_type(Py_TYPE(base.get())));
  if (!numbers || !has_root || PyLong_AsLongLong(bytes.get()) > kMostBytes)
    graph_break(Reason::numpy_array, "an array that " + made_by + " makes");
  if (!is_true(attribute_of(array, "flags").get(), "writeable"))
    set_writeable(array, true);  // a view of a locked array
  auto* v = shadows.heap.make<ArrayValue>(ValueKind::array, Py_TYPE(array));
  v->type_guarded = true;
  v->array = PyRef::borrow(array);
  v->root = base.get() == Py_None ? v : wrap_array(shadows, base.get(), made_by)->root;
  return shadows.tables().arrays[array] = v;
}

Value* wrap_answer(Shadows& shadows, PyObject* object, const std::string& made_by) {
  if (is_array_type(Py_TYPE(object))) return wrap_array(shadows, object, made_by);
  if (PyTuple_CheckExact(object) || PyList_CheckExact(object)) {
    std::vector<Value*> items;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); ++i)
      items.push_back(wrap_answer(shadows, PySequence_Fast_GET_ITEM(object, i), made_by));
    return PyTuple_CheckExact(object) ? static_cast<Value*>(shadows.heap.tuple(std::move(items)))
                                      : shadows.heap.list(std::move(items));
  }
  if (!is_exact_scalar(Py_TYPE(object)) && !is_numpy_scalar(object) && !is_dtype(object))
    graph_break(Reason::numpy_array,
                std::string("an object of type ") + Py_TYPE(object)->tp_name + " that " + made_by + " makes");
  return shadows.heap.constant_value(object);
}

PyRef memory_of(PyObject* tensor) {
  const PyRef storage = PyRef::steal(PyObject_CallMethod(tensor, "untyped_storage", nullptr));
  PyRef address = PyRef::steal(storage ? PyObject_CallMethod(storage.get(), "data_ptr", nullptr) : nullptr);
  drop_error();
  return address;
}

// A tensor that NumPy made from tensors, through their __array_wrap__. If it is a view of theirs, the trace cannot make
// the same.
Value* wrap_tensor(TracedTensors& tensors, PyObject* made, const Operands& operands, const std::string& made_by) {
  const PyRef memory = memory_of(made);
  for (const PyRef& tensor : operands.tensors) {
    const PyRef other = memory_of(tensor.get());
    if (!memory || !other || PyObject_RichCompareBool(memory.get(), other.get(), Py_EQ) != 0)
      graph_break(Reason::numpy_array, "a view that " + made_by + " makes");
  }
  return tensors.lifted(made);
}

void share(RealCalls& calls, ArrayValue* array, Value* tensor) {
  if (!std::exchange(array->root->is_shared, true)) array->root->shared_at = calls.attempts.resumable_step();
  const PyRef traced = calls.materialise(tensor);
  calls.recording().keep_unwritten(traced.get());
}

void refuse_shared(ArrayValue* array) {
  if (array->root->is_shared)
    graph_break(Reason::numpy_array, "a write to an array that shares memory with a tensor");
}

}  // namespace

Value* call_numpy(Tracer& t, PyObject* callable, const Arguments& args, ArrayValue* written) {
  const std::string name = name_of_callable(callable);
  Operands operands(t, name);
  std::vector<PyRef> owned;
  for (Value* v : args.positional) owned.push_back(operands.of(v));
  PyRef names =
      args.keywords.empty() ? PyRef() : PyRef::steal(PyTuple_New(static_cast<Py_ssize_t>(args.keywords.size())));
  for (size_t i = 0; i < args.keywords.size(); ++i) {
    PyTuple_SET_ITEM(names.get(), i, Py_NewRef(args.keywords[i].first));
    owned.push_back(operands.of(args.keywords[i].second));
  }
  std::vector<PyObject*> given;
  for (const PyRef& object : owned) given.push_back(object.get());
  PyRef result;
  {
    const NumpyWarnings raised(true);
    const ReadOnly locked(operands.arrays, written);
    result = PyRef::steal(PyObject_Vectorcall(callable, given.data(), args.positional.size(), names.get()));
  }
  if (result && !operands.tensors.empty() && Py_IS_TYPE(result.get(), Py_TYPE(operands.tensors[0].get())))
    return wrap_tensor(t.tensors, result.get(), operands, name);
  if (result) return wrap_answer(t.shadows, result.get(), name);
  if (PyErr_ExceptionMatches(PyExc_FloatingPointError)) {
    drop_error();
    graph_break(Reason::outside_effect, "a floating-point warning of NumPy");
  }
  if (operands.arrays.empty() && operands.tensors.empty()) t.errors.constant_steal(nullptr);
  drop_error();
  graph_break(Reason::unknown_callable, name + " of an array, which raises");
}

Value* array_operator(Tracer& t, const char* function, Value* a, Value* b, bool in_place) {
  if (in_place && a->kind != ValueKind::array)
    graph_break(Reason::numpy_array, std::string(function) + " with an array on the right");
  if (in_place) refuse_shared(as<ArrayValue>(a));
  return call_numpy(t, operator_function(function), Arguments{{a, b}, {}}, in_place ? as<ArrayValue>(a) : nullptr);
}

Value* array_attribute(Shadows& shadows, ArrayValue* array, PyObject* name) {
  static constexpr std::string_view kRead[] = {"shape", "ndim",     "dtype",  "size",   "T",
                                               "real",  "itemsize", "nbytes", "strides"};
  const std::string text = text_of(name);
  const bool is_read = std::find(std::begin(kRead), std::end(kRead), text) != std::end(kRead);
  const PyRef found = is_read ? attribute_of(array->array.get(), text.c_str()) : PyRef();
  if (!found) graph_break(Reason::unknown_attribute, "numpy.ndarray." + text);
  return wrap_answer(shadows, found.get(), "numpy.ndarray." + text);
}

Value* array_item(Tracer& t, ArrayValue* array, Value* key) {
  const std::optional<int64_t> n = t.length(array);
  Value* plain = payload_of(key);
  if (plain->kind == ValueKind::sym_int) plain = specialised(t.heap, plain);
  if (n && plain->kind == ValueKind::object && plain->object && PyLong_CheckExact(plain->object.get())) {
    const int64_t i = t.as_index(plain);
    if (i >= *n || i < -*n)
      t.errors.raise_new(PyExc_IndexError,
                         "index " + std::to_string(i) + " is out of bounds for axis 0 with size " + std::to_string(*n));
  }
  return call_numpy(t, operator_function("getitem"), Arguments{{array, plain}, {}});
}

void write_array_item(Tracer& t, ArrayValue* array, Value* key, Value* to) {
  refuse_shared(array);
  call_numpy(t, operator_function("setitem"), Arguments{{array, key, to}, {}}, array);
}

Value* of_known_tensor(RealCalls& calls, PyObject* function, Value* tensor) {
  const PyRef contents = known_contents(calls, tensor);
  if (!contents) return nullptr;
  PyObject* result = PyObject_CallOneArg(function, contents.get());
  return result ? calls.dicts.heap.wrap_result(result) : calls.dicts.errors.constant_steal(nullptr);
}

Value* array_of_tensor(RealCalls& calls, Value* tensor) {
  if (tensor->kind != ValueKind::tensor) return nullptr;
  const PyRef contents = known_contents(calls, tensor);
  const PyRef real = contents ? PyRef::steal(PyObject_CallMethod(contents.get(), "numpy", nullptr)) : PyRef();
  const PyRef own =
      real && lies_in_order(real.get()) ? PyRef::steal(PyObject_CallMethod(real.get(), "copy", nullptr)) : PyRef();
  if (!own) return drop_error(), nullptr;
  ArrayValue* made = wrap_array(calls.dicts.shadows, own.get(), "Tensor.numpy");
  share(calls, made, tensor);
  return made;
}

Value* tensor_of_array(RealCalls& calls, ArrayValue* array, bool shares) {
  if (!lies_in_order(array->array.get()))
    graph_break(Reason::numpy_array, "a tensor of an array that is not C-contiguous");
  PyObject* const make = original("torch", "from_numpy");
  const PyRef copy = PyRef::steal(PyObject_CallMethod(array->array.get(), "copy", nullptr));
  const PyRef real = PyRef::steal(copy && make ? PyObject_CallOneArg(make, copy.get()) : nullptr);
  if (!real) drop_error(), graph_break(Reason::numpy_array, "a tensor of an array of this dtype");
  Value* tensor = calls.tensors.lifted(real.get());
  if (shares) share(calls, array, tensor);
  return tensor;
}

}  // namespace framejit::frame_hook
