// frame_hook/trace/protocol/own_dict.h — the dict of an instance, a module or a function: its items, and itself as a
// value.
//
// A real one is guarded by key: the item that was read, or that the name is absent. Writes go to the value's shadow.
// Instances may share one real __dict__, and the program may reach it as a value, before or after. So a real dict has
// one owner: an instance whose attributes stand for its items, however they are reached.
#pragma once

#include <vector>

#include "frame_hook/trace/machine/drops.h"
#include "frame_hook/trace/values/open_numbers.h"

namespace framejit::frame_hook {

bool has_own_dict(Facts& facts, Value* v);
Value* own_attribute(Heap& heap, Value* v, PyObject* name);  // null: absent
// To null: delete.
void set_own_attribute(Drops& drops, OpenNumbers& numbers, Value* v, PyObject* name, Value* to);
// Notes what the trace writes; what was there stays undropped.
void write_overlay(Shadows& shadows, InstanceValue* v, PyObject* name, Value* to);
// Names in order. Those of a real dict are guarded.
std::vector<PyObject*> own_names(Heap& heap, InstanceValue* v);
// The instance that keeps the attributes of v's __dict__. That v has this very dict is guarded.
InstanceValue* dict_owner(Heap& heap, InstanceValue* v);

// ---- the value of __dict__
Value* instance_dict(Errors& errors, InstanceValue* v);
DictValue* module_dict(Heap& heap, Value* module);
DictValue* function_dict(Errors& errors, FunctionValue* f);

}  // namespace framejit::frame_hook
