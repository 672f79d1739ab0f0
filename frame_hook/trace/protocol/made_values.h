// frame_hook/trace/protocol/made_values.h — methods, instances and proxies that the protocol makes.
//
// Nothing here runs code of the program: an instance is made, not initialised.
#pragma once

#include "frame_hook/trace/values/heap.h"

namespace framejit::frame_hook {

PyTypeObject* method_wrapper_type();                            // of object().__str__
MethodValue* make_method(Heap& heap, Value* function, Value* self);
InstanceValue* make_instance(Heap& heap, PyTypeObject* type);
Value* mapping_proxy(Heap& heap, Value* mapping);

}  // namespace framejit::frame_hook
