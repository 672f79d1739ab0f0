// tests/unit/frame_hook/fake_torch.h — a module `torch` for tests without torch: tensors consist of names and sizes.
//
// A fake tensor's name is the expression that made it ("add(x, 2)"), in eager and in traced execution alike, so that
// the repr of an eager result can be compared with what a trace returned. Ops run while a FakeRecording is active are
// listed in it.
#pragma once

#include <Python.h>

#include <cstddef>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "frame_hook/trace/torch/tensor_frontend.h"

namespace framejit::frame_hook::fake {

struct State {
  std::vector<std::string>* ops = nullptr;   // of the active recording
  std::optional<Error> reason;
  bool grad = true;                          // the only mode
};
inline State& state() {
  static State s;
  return s;
}

struct Tensor {
  PyObject_HEAD
  std::string* name;
  graph::SymSizes* sizes;
  bool traced;
};
struct SymInt {
  PyObject_HEAD
  graph::SymExpr* size;
};
inline PyTypeObject*& tensor_type() { static PyTypeObject* type = nullptr; return type; }
inline PyTypeObject*& sym_int_type() { static PyTypeObject* type = nullptr; return type; }
inline bool is_tensor(PyObject* o) { return PyObject_TypeCheck(o, tensor_type()); }
inline Tensor* as_tensor(PyObject* o) { return reinterpret_cast<Tensor*>(o); }

inline PyObject* make_tensor(const std::string& name, graph::SymSizes sizes, bool traced,
                             PyTypeObject* type = nullptr) {
  if (!type) type = tensor_type();
  auto* t = reinterpret_cast<Tensor*>(type->tp_alloc(type, 0));
  t->name = new std::string(name);
  t->sizes = new graph::SymSizes(std::move(sizes));
  t->traced = traced;
  return reinterpret_cast<PyObject*>(t);
}

inline PyObject* size_object(const graph::SymExpr& size) {
  if (auto c = size.as_constant()) return PyLong_FromLongLong(*c);
  auto* o = reinterpret_cast<SymInt*>(sym_int_type()->tp_alloc(sym_int_type(), 0));
  o->size = new graph::SymExpr(size);
  return reinterpret_cast<PyObject*>(o);
}

inline std::string text_of(PyObject* o) {
  if (is_tensor(o)) return *as_tensor(o)->name;
  if (Py_TYPE(o) == sym_int_type()) return reinterpret_cast<SymInt*>(o)->size->text();
  PyRef r = PyRef::steal(PyObject_Repr(o));
  return r ? PyUnicode_AsUTF8(r.get()) : "?";
}

inline PyObject* run(const char* op, std::vector<PyObject*> args, const graph::SymSizes* sizes = nullptr) {
  std::string text = std::string(op) + "(";
  bool traced = false;
  for (PyObject* arg : args) {
    text += (arg == args[0] ? "" : ", ") + text_of(arg);
    if (!is_tensor(arg)) continue;
    traced = traced || as_tensor(arg)->traced;
    if (!sizes || as_tensor(arg)->sizes->size() > sizes->size()) sizes = as_tensor(arg)->sizes;
  }
  text += ")";
  if (state().ops) state().ops->push_back(text);
  return make_tensor(text, sizes ? *sizes : graph::SymSizes{}, traced || state().ops);
}

// ---- type slots

inline PyObject* repr(PyObject* o) { return PyUnicode_FromString(as_tensor(o)->name->c_str()); }
inline void dealloc(PyObject* o) {
  PyTypeObject* type = Py_TYPE(o);
  delete as_tensor(o)->name;
  delete as_tensor(o)->sizes;
  PyObject_GC_UnTrack(o);
  type->tp_free(o);
  Py_DECREF(type);
}
inline int traverse(PyObject* o, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(o));
  return 0;
}
inline void dealloc_sym_int(PyObject* o) {
  delete reinterpret_cast<SymInt*>(o)->size;
  Py_TYPE(o)->tp_free(o);
}
inline PyObject* add(PyObject* a, PyObject* b) { return run("add", {a, b}); }
inline PyObject* sub(PyObject* a, PyObject* b) { return run("sub", {a, b}); }
inline PyObject* mul(PyObject* a, PyObject* b) { return run("mul", {a, b}); }
inline PyObject* matmul(PyObject* a, PyObject* b) { return run("matmul", {a, b}); }
inline PyObject* negative(PyObject* a) { return run("neg", {a}); }
inline PyObject* subscript(PyObject* a, PyObject* key) { return run("getitem", {a, key}); }
inline PyObject* compare(PyObject* a, PyObject* b, int op) {
  static const char* const names[] = {"lt", "le", "eq", "ne", "gt", "ge"};
  return run(names[op], {a, b});
}
inline Py_hash_t hash(PyObject* a) { return _Py_HashPointer(a); }
inline int truth(PyObject*) {
  PyErr_SetString(PyExc_RuntimeError, "a fake tensor has no truth");
  return -1;
}
inline PyObject* get_shape(PyObject* o, void*) {
  const graph::SymSizes& sizes = *as_tensor(o)->sizes;
  PyObject* shape = PyTuple_New(static_cast<Py_ssize_t>(sizes.size()));
  for (size_t i = 0; i < sizes.size(); ++i) PyTuple_SET_ITEM(shape, i, size_object(sizes[i]));
  return shape;
}
inline PyObject* relu(PyObject* self, PyObject*) { return run("relu", {self}); }
inline PyObject* size(PyObject* self, PyObject* dim) {
  return size_object(as_tensor(self)->sizes->at(static_cast<size_t>(PyLong_AsLong(dim))));
}

// ---- module functions

inline PyObject* tensor(PyObject*, PyObject* args) {  // torch.tensor(name, size...)
  graph::SymSizes sizes;
  for (Py_ssize_t i = 1; i < PyTuple_GET_SIZE(args); ++i) sizes.push_back(PyLong_AsLongLong(PyTuple_GET_ITEM(args, i)));
  return make_tensor(PyUnicode_AsUTF8(PyTuple_GET_ITEM(args, 0)), sizes, false);
}
inline PyObject* function_relu(PyObject*, PyObject* x) { return run("relu", {x}); }
inline PyObject* function_cat(PyObject*, PyObject* list) {
  std::vector<PyObject*> items;
  PyRef fast = PyRef::steal(PySequence_Fast(list, "a sequence"));
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(fast.get()); ++i)
    items.push_back(PySequence_Fast_GET_ITEM(fast.get(), i));
  return run("cat", items);
}
inline PyObject* function_fail(PyObject*, PyObject* x) {  // an op that raises
  PyRef unused = PyRef::steal(run("fail", {x}));
  PyErr_SetString(PyExc_ValueError, "this op fails");
  return nullptr;
}
inline PyObject* function_size_of_data(PyObject*, PyObject* x) {  // an op that cannot be captured
  if (!state().ops) return run("nonzero", {x});
  state().reason = Error{Reason::data_dependent_size, "nonzero"};
  return nullptr;
}

inline PyObject* function_interrupt(PyObject*, PyObject* x) {  // Ctrl-C arrives while this op runs
  PyErr_SetInterrupt();
  return run("interrupt", {x});
}

inline PyObject* make_module() {
  static PyMethodDef methods[] = {
      {"relu", relu, METH_NOARGS, nullptr}, {"size", size, METH_O, nullptr}, {nullptr, nullptr, 0, nullptr}};
  static PyGetSetDef getters[] = {{"shape", get_shape, nullptr, nullptr, nullptr},
                                  {nullptr, nullptr, nullptr, nullptr, nullptr}};
  static PyType_Slot slots[] = {{Py_tp_repr, reinterpret_cast<void*>(repr)},
                                {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
                                {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
                                {Py_nb_add, reinterpret_cast<void*>(add)},
                                {Py_nb_subtract, reinterpret_cast<void*>(sub)},
                                {Py_nb_multiply, reinterpret_cast<void*>(mul)},
                                {Py_nb_matrix_multiply, reinterpret_cast<void*>(matmul)},
                                {Py_nb_negative, reinterpret_cast<void*>(negative)},
                                {Py_nb_bool, reinterpret_cast<void*>(truth)},
                                {Py_mp_subscript, reinterpret_cast<void*>(subscript)},
                                {Py_tp_richcompare, reinterpret_cast<void*>(compare)},
                                {Py_tp_hash, reinterpret_cast<void*>(hash)},
                                {Py_tp_methods, methods},
                                {Py_tp_getset, getters},
                                {0, nullptr}};
  static PyType_Spec spec = {"torch.Tensor", sizeof(Tensor), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE, slots};
  static PyType_Slot size_slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(dealloc_sym_int)}, {0, nullptr}};
  static PyType_Spec size_spec = {"torch.SymInt", sizeof(SymInt), 0, Py_TPFLAGS_DEFAULT, size_slots};
  static PyMethodDef functions[] = {{"tensor", tensor, METH_VARARGS, nullptr},
                                    {"relu", function_relu, METH_O, nullptr},
                                    {"cat", function_cat, METH_O, nullptr},
                                    {"fail", function_fail, METH_O, nullptr},
                                    {"nonzero", function_size_of_data, METH_O, nullptr},
                                    {"interrupt", function_interrupt, METH_O, nullptr},
                                    {nullptr, nullptr, 0, nullptr}};
  static PyModuleDef definition = {
      PyModuleDef_HEAD_INIT, "torch", nullptr, -1, functions, nullptr, nullptr, nullptr, nullptr};
  PyObject* module = PyModule_Create(&definition);
  tensor_type() = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  sym_int_type() = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&size_spec));
  PyModule_AddObjectRef(module, "Tensor", reinterpret_cast<PyObject*>(tensor_type()));
  return module;
}

inline void import_module() { PyDict_SetItemString(PyImport_GetModuleDict(), "torch", make_module()); }

}  // namespace framejit::frame_hook::fake
