// frame_hook/trace/types/context_variables.cpp — context variables: values set in the trace are kept aside, and set for
// real at the exit.
#include <algorithm>

#include "frame_hook/trace/protocol/made_values.h"
#include "frame_hook/trace/types/builtins.h"
#include "frame_hook/trace/types/c_arguments.h"

namespace framejit::frame_hook::rows {

Value* context_get(Shadows& shadows, const Arguments& args) {
  only_positional(shadows.errors, args, "get", 1, 2);
  Value* variable = args.positional[0];
  shadows.facts.guard_identity(variable);
  PyObject* real = variable->object.get();
  if (auto it = shadows.tables().context_values.find(real);
      it != shadows.tables().context_values.end() && !it->second.empty())
    return it->second.back().value;
  PyObject* value = nullptr;
  if (PyContextVar_Get(real, nullptr, &value) < 0) shadows.errors.raise_pending();
  const guards::SourceId source =
      shadows.facts.sources().add(guards::SourceKind::context_value, shadows.facts.source_of(variable));
  PyRef owned = PyRef::steal(value);
  if (owned) return shadows.heap.wrap(owned.get(), source);
  graph_break(Reason::exception_raised, "LookupError of a context variable without a value");
}

Value* context_set(Shadows& shadows, const Arguments& args) {
  only_positional(shadows.errors, args, "set", 2, 2);
  Value* variable = args.positional[0];
  shadows.facts.guard_identity(variable);
  InstanceValue* token = make_instance(shadows.heap, &PyContextToken_Type);
  token->attrs.emplace_back(PyRef::borrow(interned("var")), variable);
  shadows.tables().context_values[variable->object.get()].push_back({args.positional[1], token});
  return token;
}

Value* context_reset(Shadows& shadows, const Arguments& args) {
  only_positional(shadows.errors, args, "reset", 2, 2);
  Value *variable = args.positional[0], *token = args.positional[1];
  shadows.facts.guard_identity(variable);
  auto& sets = shadows.tables().context_values[variable->object.get()];
  const auto at = std::ranges::find(sets, token, &SideTables::ContextSet::token);
  if (at == sets.end()) graph_break(Reason::outside_effect, "ContextVar.reset");
  sets.erase(at, sets.end());
  return shadows.heap.none();
}

}  // namespace framejit::frame_hook::rows
