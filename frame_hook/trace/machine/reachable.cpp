// frame_hook/trace/machine/reachable.cpp — the parts of each kind of value.
#include "frame_hook/trace/machine/reachable.h"

#include "frame_hook/trace/machine/symbolic_frame.h"

namespace framejit::frame_hook {

void Reachable::add_parts(Value* v) {
  switch (v->kind) {
    case ValueKind::tuple: add(as<TupleValue>(v)->items); break;
    case ValueKind::list: add(as<ListValue>(v)->items); break;
    case ValueKind::set: add(as<SetValue>(v)->items); break;
    case ValueKind::dict:
      for (const DictEntry& e : as<DictValue>(v)->entries) {
        add(e.key);
        add(e.value);
      }
      break;
    case ValueKind::cell: add(as<CellValue>(v)->contents); break;
    case ValueKind::function:
      add(as<FunctionValue>(v)->closure);
      add(as<FunctionValue>(v)->defaults);
      break;
    case ValueKind::method:
      add(as<MethodValue>(v)->function);
      add(as<MethodValue>(v)->self);
      break;
    case ValueKind::instance:
      add(as<InstanceValue>(v)->payload);
      for (const auto& [name, attribute] : as<InstanceValue>(v)->attrs) add(attribute);
      for (const auto& [descriptor, member] : as<InstanceValue>(v)->members) add(member);
      break;
    case ValueKind::iterator: add(as<IteratorValue>(v)->operands); break;
    case ValueKind::view: add(as<ViewValue>(v)->dict); break;
    case ValueKind::super: add(as<SuperValue>(v)->self); break;
    case ValueKind::generator:
      if (as<GeneratorValue>(v)->state == GeneratorValue::State::created) add(as<GeneratorValue>(v)->frame->locals);
      break;
    case ValueKind::null:
    case ValueKind::object:
    case ValueKind::tensor:
    case ValueKind::sym_int:
    case ValueKind::slice:
    case ValueKind::identity:
    case ValueKind::array: break;
  }
}

}  // namespace framejit::frame_hook
