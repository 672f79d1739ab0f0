// guards/cpython/weak_objects.h — objects that guards name without keeping them alive.
//
// hold() replaces a strong reference by a weak one if the type allows it. When one of the objects dies, dead() is true
// for good, so that a reused address is never compared. The GIL must be held.
#pragma once

#include <memory>
#include <unordered_map>

#include "guards/cpython/py_ref.h"

namespace framejit::guards {

class WeakObjects {
 public:
  WeakObjects() = default;
  WeakObjects(const WeakObjects&) = delete;
  WeakObjects& operator=(const WeakObjects&) = delete;

  // Types made by the user, functions, code and instances are held weakly; builtin types, and objects without weak
  // references, stay as they are. Returns what to keep in place of `object`.
  PyRef hold(const PyRef& object);
  bool holds(PyObject* object) const { return references_.contains(object); }  // weakly
  bool dead() const { return *dead_; }

 private:
  static PyObject* on_death(PyObject* self, PyObject* reference);
  static PyMethodDef on_death_definition;
  friend PyObject* held_object(PyObject* kept);

  const std::shared_ptr<bool> dead_ = std::make_shared<bool>(false);  // shared with the callback: a program that finds
                                                                      // a reference may keep it longer than we do
  PyRef callback_;
  std::unordered_map<PyObject*, PyRef> references_;
};

PyObject* weak_target(PyObject* reference);  // borrowed, or null when it is dead
PyObject* held_object(PyObject* kept);  // borrowed: what hold() took when it returned `kept`; null when it is dead

}  // namespace framejit::guards
