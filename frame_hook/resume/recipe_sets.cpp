// frame_hook/resume/recipe_sets.cpp — from sets of a trace to steps of a recipe, in the order of iteration.
#include <algorithm>

#include "frame_hook/resume/recipe.h"
#include "frame_hook/trace/types/set_order.h"

namespace framejit::frame_hook {

SlotId RecipeBuilder::set_step(RecipeOp op, std::vector<SlotId> operands, SetValue* set) {
  PyRef order;
  for (Value* v : items_to_rebuild(set, &order)) operands.push_back(key_slot(v));
  return step(op, std::move(operands), 0, order.get());
}

// An item may hold the set. The set exists, empty, when its items are built.
SlotId RecipeBuilder::build_set(SetValue* set) {
  if (set->type == &PyFrozenSet_Type) return set_step(RecipeOp::frozenset, {}, set);
  if (std::all_of(set->items.begin(), set->items.end(), [](const Value* item) { return item->object; }))
    return set_step(RecipeOp::set, {}, set);
  const SlotId made = step(RecipeOp::set);
  slots_[set] = made;
  set_step(RecipeOp::fill_set, {made}, set);
  return made;
}

}  // namespace framejit::frame_hook
