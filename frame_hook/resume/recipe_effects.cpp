// frame_hook/resume/recipe_effects.cpp — what a trace wrote to real objects, as the last steps of a recipe.
#include <algorithm>
#include <unordered_set>

#include "frame_hook/resume/recipe.h"
#include "frame_hook/trace/values/facts.h"
#include "guards/guard_functions.h"

namespace framejit::frame_hook {

void RecipeBuilder::attribute_effects(SlotId target, InstanceValue* value) {
  for (auto& [name, v] : value->attrs) {
    const SlotId to = v ? slot(v) : kUnbound;
    step(RecipeOp::set_attribute, {target, to}, 0, name.get());
  }
}

// Writes only what the trace wrote: an entry that still holds what was read from the same place is left alone. If the
// order of the keys changed, the dict is emptied and filled again.
void RecipeBuilder::dict_effect(SlotId target, DictValue* value, PyObject* real) {
  const guards::SourceId dict_source = value->source;
  if (value->owner) return;  // written as attributes of its instance
  if (value->is_globals && !value->loaded) {  // its entries are only the written keys
    for (const DictEntry& e : value->entries) {
      const SlotId k = key_slot(e.key);
      if (e.value) step(RecipeOp::assign_dict_item, {target, k, slot(e.value)});
      else step(RecipeOp::delete_dict_item, {target, k});
    }
    return;
  }
  if (!value->loaded && value->entries.empty()) return;
  std::vector<PyObject*> kept;
  const PyRef keys = guards::keys_in_order(real);
  if (!keys) graph_break(Reason::changed_container, "an OrderedDict that was written as a dict");
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keys.get()); ++i) kept.push_back(PyTuple_GET_ITEM(keys.get(), i));
  const std::unordered_set<PyObject*> real_keys(kept.begin(), kept.end());
  size_t at = 0;
  bool in_order = true;
  std::vector<PyObject*> gone;
  std::unordered_set<PyObject*> final_keys;
  for (const DictEntry& e : value->entries) final_keys.insert(e.key->object.get());
  auto final_has = [&](PyObject* k) { return final_keys.contains(k); };
  std::vector<PyObject*> remaining;
  for (PyObject* k : kept) (final_has(k) ? remaining : gone).push_back(k);
  for (const DictEntry& e : value->entries) {
    PyObject* k = e.key->object.get();
    if (at < remaining.size()) in_order = in_order && k == remaining[at];
    ++at;
  }
  // Keys that were removed or added do not change the order of the others.
  const bool own_order =
      std::all_of(value->order_from.begin(), value->order_from.end(), [&](const DictValue* v) { return v == value; });
  if (!in_order || !own_order) guard_order(trace_.guards, value->order_from);
  if (!in_order) {
    std::vector<SlotId> operands{target};
    for (const DictEntry& e : value->entries) {
      operands.push_back(key_slot(e.key));
      operands.push_back(e.value ? slot(e.value)
                                 : fetch(trace_.guards.sources.add(guards::SourceKind::dict_item, value->source, 0,
                                                                   e.key->object.get())));
    }
    step(RecipeOp::clear_dict, {target});
    step(RecipeOp::fill_dict, std::move(operands));
    return;
  }
  for (PyObject* k : gone)
    step(RecipeOp::delete_dict_item,
         {target, fetch(trace_.guards.sources.add(guards::SourceKind::constant, guards::kNoSource, 0, k))});
  for (const DictEntry& e : value->entries) {
    if (!e.value) continue;
    const bool was_there = real_keys.contains(e.key->object.get());  // the same key, not merely an equal one
    if (was_there && e.key->object && e.value->source != guards::kNoSource &&
        e.value->source ==
            trace_.guards.sources.add(guards::SourceKind::dict_item, dict_source, 0, e.key->object.get()))
      continue;
    const SlotId k = key_slot(e.key), v = slot(e.value);
    step(RecipeOp::assign_dict_item, {target, k, v});
  }
}

void RecipeBuilder::effect_of(Value* value) {
  if (!filled_.insert(value).second) return;
  const SlotId target = slot(value);
  if (PyObject* type = real_type(value)) {
    for (const ClassData& written : trace_.side_tables.class_data.values)
      if (reinterpret_cast<PyObject*>(written.type) == type)
        step(RecipeOp::set_attribute, {target, slot(written.value)}, 0, written.name.get());
    return;
  }
  switch (value->kind) {
    case ValueKind::list: {
      std::vector<SlotId> operands{target};
      for (Value* v : as<ListValue>(value)->items) operands.push_back(slot(v));
      step(as<ListValue>(value)->loaded ? RecipeOp::assign_list : RecipeOp::extend_list, std::move(operands));
      break;
    }
    case ValueKind::dict: dict_effect(target, as<DictValue>(value), value->object.get()); break;
    case ValueKind::set: set_step(RecipeOp::change_set, {target}, as<SetValue>(value)); break;
    case ValueKind::cell: {
      auto* cell = as<CellValue>(value);
      step(RecipeOp::assign_cell, {target, cell->contents ? slot(cell->contents) : kUnbound});
      break;
    }
    case ValueKind::function:
      for (auto& [name, v] : as<FunctionValue>(value)->attrs)
        step(RecipeOp::set_attribute, {target, v ? slot(v) : kUnbound}, 0, name.get());
      break;
    case ValueKind::instance: {
      auto* instance = as<InstanceValue>(value);
      if (instance->payload && instance->payload->mutated) effect_of(instance->payload);
      attribute_effects(target, instance);
      break;
    }
    case ValueKind::iterator: {
      auto* iterator = as<IteratorValue>(value);
      if (iterator->over == IteratorValue::Over::enumerate) step(RecipeOp::skip, {target}, iterator->step);
      else step(RecipeOp::consume, {target}, iterator->position + (iterator->exhausted ? 1 : 0));
      break;
    }
    default:
      graph_break(Reason::unsupported_write,
                  std::string("a write to an object of type ") + (value->type ? value->type->tp_name : "?"));
  }
}

void RecipeBuilder::set_context(PyObject* variable, SlotId value, InstanceValue* token) {
  const PyRef set = PyRef::steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(&PyContextVar_Type), "set"));
  slots_[token] = step(RecipeOp::call, {constant(variable), value}, 0, set.get());
}

// A token knows what was set before it, so the earlier tokens are made first. A token that the trace has used is made
// and then used.
SlotId RecipeBuilder::build_token(InstanceValue* token) {
  bool known = false;
  Value* const variable = token->find_attr(interned("var"), &known);
  PyObject* const real = variable->object.get();
  const auto& sets = trace_.side_tables.context_values[real];
  const bool is_used = std::ranges::find(sets, token, &SideTables::ContextSet::token) == sets.end();
  if (is_used) {
    set_context(real, constant(Py_None), token);
    const PyRef reset = PyRef::steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(&PyContextVar_Type), "reset"));
    step(RecipeOp::call, {constant(real), slots_[token]}, 0, reset.get());
    return slots_[token];
  }
  for (size_t i = 0; !slots_.contains(token); ++i)
    if (!slots_.contains(sets[i].token)) set_context(real, slot(sets[i].value), sets[i].token);
  return slots_[token];
}

// Warnings come first: an effect may change how they are shown, but no such effect came before them in the trace
// (rows::warn).
void RecipeBuilder::give_warnings() {
  for (const GivenWarning& given : trace_.side_tables.warnings) {
    const SlotId category = slot(given.category), message = slot(given.message), globals = slot(given.globals);
    step(RecipeOp::warn, {category, message, globals}, given.line, given.file.get());
  }
}

void RecipeBuilder::add_effects() {
  give_warnings();
  for (size_t i = 0; i < trace_.effects.size(); ++i)
    if (trace_.effects[i]->object) effect_of(trace_.effects[i]);
  for (auto& [variable, sets] : trace_.side_tables.context_values)
    if (!sets.empty() && !slots_.contains(sets.back().token))
      set_context(variable, slot(sets.back().value), sets.back().token);
  for (const auto& [tensor, gradient] : trace_.side_tables.gradients.values)
    if (tensor->object) step(RecipeOp::set_attribute, {slot(tensor), slot(gradient)}, 0, interned("grad"));
  fill_pending();
  for (auto& [callable, arguments] : trace_.side_tables.calls_at_exit) {
    std::vector<SlotId> positional;
    std::vector<std::pair<PyObject*, SlotId>> keywords;
    for (Value* v : arguments.positional) positional.push_back(slot(v));
    for (auto& [name, v] : arguments.keywords) keywords.emplace_back(name, slot(v));
    const SlotId called = slot(callable);
    fill_pending();
    call_with(called, std::move(positional), keywords);
  }
  if (trace_.modes_at_exit) restore_modes(trace_.modes_at_exit);
  else if (enters_modes_) restore_modes(frontend_.save_modes());
}

}  // namespace framejit::frame_hook
