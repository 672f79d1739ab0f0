// frame_hook/trace/types/writes.h — writes to shadows.
//
// The first write registers a real object as an effect; from then on only the shadow counts.
#pragma once

#include "frame_hook/trace/values/shadows.h"

namespace framejit::frame_hook {

void will_mutate(Shadows& shadows, Value* v);  // registers the effect of a real object
void list_append(Shadows& shadows, ListValue* list, Value* item);
// dict: the real one of an instance; whether the trace writes to that instance.
bool wrote_attributes_in(const Shadows& shadows, PyObject* dict);

}  // namespace framejit::frame_hook
