// frame_hook/resume/recipe_arrays.cpp — NumPy arrays that a trace made: each call gets new copies, and views of those.
#include "frame_hook/resume/recipe.h"
#include "frame_hook/trace/values/numpy_objects.h"
#include "guards/cpython/interrupts.h"

namespace framejit::frame_hook {

namespace {

int64_t address(PyObject* array) {
  const PyRef interface = attribute_of(array, "__array_interface__");
  PyObject* data = interface ? PyDict_GetItemString(interface.get(), "data") : nullptr;
  return data ? static_cast<int64_t>(PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(data, 0))) : 0;
}

}  // namespace

SlotId RecipeBuilder::build_array(ArrayValue* value) {
  PyObject *array = value->array.get(), *type = reinterpret_cast<PyObject*>(Py_TYPE(array)),
           *memory = value->root->array.get();
  if (!lies_in_order(memory)) graph_break(Reason::numpy_array, "an array that is not C-contiguous");
  if (value->root == value) return step(RecipeOp::call, {constant(array)}, 0, attribute_of(type, "copy").get());
  const SlotId root = slot(value->root);
  const PyRef shape = attribute_of(array, "shape"), dtype = attribute_of(array, "dtype"),
              strides = attribute_of(array, "strides");
  const PyRef offset = PyRef::steal(PyLong_FromLongLong(address(array) - address(memory)));
  if (!shape || !dtype || !strides || !offset) graph_break(Reason::escaped_traced, "an array");
  const SlotId sizes = constant(shape.get()), kind = constant(dtype.get()), at = constant(offset.get()),
               steps = constant(strides.get());
  return step(RecipeOp::call, {sizes, kind, root, at, steps}, 0, type);
}

}  // namespace framejit::frame_hook
