// guards/cpython/weak_objects.cpp — weak references with one callback that marks the whole set dead.
#include "guards/cpython/weak_objects.h"

#include "guards/cpython/interrupts.h"

namespace framejit::guards {
namespace {

bool is_mortal_with_weak_references(PyObject* object) {
  if (PyType_Check(object)) return reinterpret_cast<PyTypeObject*>(object)->tp_flags & Py_TPFLAGS_HEAPTYPE;
  return PyType_SUPPORTS_WEAKREFS(Py_TYPE(object));
}

using Flag = std::shared_ptr<bool>;
void drop_flag(PyObject* capsule) { delete static_cast<Flag*>(PyCapsule_GetPointer(capsule, nullptr)); }

}  // namespace

PyObject* weak_target(PyObject* reference) {
#if PY_VERSION_HEX >= 0x030D0000
  PyObject* target = nullptr;
  if (PyWeakref_GetRef(reference, &target) <= 0) return nullptr;
  Py_DECREF(target);  // somebody else holds it: the GIL is held, and no code runs before the caller looks at it
  return target;
#else
  PyObject* target = PyWeakref_GET_OBJECT(reference);
  return target == Py_None ? nullptr : target;
#endif
}

PyMethodDef WeakObjects::on_death_definition = {"on_death", WeakObjects::on_death, METH_O, nullptr};

PyObject* WeakObjects::on_death(PyObject* self, PyObject*) {
  auto* dead = static_cast<Flag*>(PyCapsule_GetPointer(self, nullptr));
  if (!dead) return nullptr;
  **dead = true;
  Py_RETURN_NONE;
}

// A program may have weak references of its own, as keys of a dict, say: only ours have our callback.
PyObject* held_object(PyObject* kept) {
  if (!PyWeakref_CheckRefExact(kept)) return kept;
  PyObject* const callback = reinterpret_cast<PyWeakReference*>(kept)->wr_callback;
  const bool is_ours = callback && PyCFunction_CheckExact(callback) &&
                       reinterpret_cast<PyCFunctionObject*>(callback)->m_ml == &WeakObjects::on_death_definition;
  return is_ours ? weak_target(kept) : kept;
}

PyRef WeakObjects::hold(const PyRef& object) {
  if (!object || !is_mortal_with_weak_references(object.get())) return object;
  auto [it, fresh] = references_.try_emplace(object.get());
  if (!fresh) return it->second;
  if (!callback_) {
    auto flag = std::make_unique<Flag>(dead_);
    PyRef capsule = PyRef::steal(PyCapsule_New(flag.get(), nullptr, drop_flag));
    if (capsule) flag.release();
    if (capsule) callback_ = PyRef::steal(PyCFunction_New(&on_death_definition, capsule.get()));
  }
  PyRef reference = callback_ ? PyRef::steal(PyWeakref_NewRef(object.get(), callback_.get())) : PyRef();
  if (!reference) {  // the type refuses after all: hold the object strongly
    drop_error();
    references_.erase(it);
    return object;
  }
  it->second = reference;
  return reference;
}

}  // namespace framejit::guards
