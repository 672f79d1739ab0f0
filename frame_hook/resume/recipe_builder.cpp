// frame_hook/resume/recipe_builder.cpp — values of a trace to steps of a recipe.
//
// Three rules keep identity and cycles right. A Value has one slot. A value with a real object is fetched, never
// rebuilt. Lists, dicts, cells and instances are made empty when first met, and filled after the value graph has been
// walked. A container with an iterator is filled before the iterator is made, because the iterator depends on what the
// container holds then.

#include "frame_hook/resume/recipe.h"
#include "frame_hook/trace/types/containers.h"
#include "frame_hook/trace/values/exception_members.h"
#include "frame_hook/trace/values/known_types.h"
#include "frame_hook/trace/values/object_kinds.h"
#include "frame_hook/trace/values/originals.h"
#include "runtime/base/result.h"

namespace framejit::frame_hook {

namespace {

bool is_real(const Value* v) { return v->object && v->source != guards::kNoSource; }

}  // namespace

RecipeBuilder::RecipeBuilder(FrameTrace& trace, TensorFrontend& frontend) : trace_(trace), frontend_(frontend) {
  for (Value* v : trace.values.values()) {
    if (v->kind != ValueKind::instance || v->object) continue;
    Value* payload = as<InstanceValue>(v)->payload;
    if (payload && !payload->object && PyType_IsSubtype(v->type, payload->type)) holders_.emplace(payload, v);
  }
}

Value* RecipeBuilder::holder_of(Value* payload) {
  const bool is_container =
      payload->kind == ValueKind::list || payload->kind == ValueKind::dict || payload->kind == ValueKind::set;
  if (!is_container || payload->type == &PyFrozenSet_Type) return payload;  // its items are values of their own
  const auto at = holders_.find(payload);
  return at == holders_.end() ? payload : at->second;
}

SlotId RecipeBuilder::step(RecipeOp op, std::vector<SlotId> operands, int64_t number, PyObject* object) {
  RecipeStep s;
  s.op = op;
  s.operands = std::move(operands);
  s.number = number;
  s.object = PyRef::borrow(object);
  s.result = static_cast<SlotId>(recipe_.slot_count_++);
  recipe_.steps_.push_back(std::move(s));
  return recipe_.steps_.back().result;
}

SlotId RecipeBuilder::fetch(guards::SourceId source) {
  auto [it, fresh] = fetched_.try_emplace(source, kUnbound);
  if (fresh) {
    wanted_.push_back(source);
    it->second = step(RecipeOp::fetch, {}, source);
  }
  return it->second;
}

SlotId RecipeBuilder::constant(PyObject* object) { return step(RecipeOp::constant, {}, 0, object); }

SlotId RecipeBuilder::call(const char* builtin, std::vector<SlotId> operands) {
  return step(RecipeOp::call, std::move(operands), 0, builtin_function(builtin));
}

SlotId RecipeBuilder::slot(Value* value) {
  if (!value || value->kind == ValueKind::null) return kUnbound;
  value = holder_of(value);
  if (auto it = slots_.find(value); it != slots_.end()) return it->second;
  if (is_real(value)) return slots_[value] = fetch(value->source);
  const SlotId made = build(value);
  slots_[value] = made;
  return made;
}

SlotId RecipeBuilder::slot_if_at_hand(Value* value) {
  if (value && value->kind == ValueKind::object) return slot(value);
  const auto known = slots_.find(value);
  return known == slots_.end() ? kUnbound : known->second;
}

SlotId RecipeBuilder::build(Value* value) {
  switch (value->kind) {
    case ValueKind::null: return kUnbound;
    case ValueKind::tensor: return build_tensor(as<TensorValue>(value));
    case ValueKind::sym_int: {
      recipe_.sizes_.push_back(as<SymIntValue>(value)->expr);
      return step(RecipeOp::size, {}, static_cast<int64_t>(recipe_.sizes_.size()) - 1);
    }
    default: break;
  }
  if (value->object) return build_constant(value);
  switch (value->kind) {
    case ValueKind::tuple: return build_tuple(as<TupleValue>(value));
    case ValueKind::list: return build_list(as<ListValue>(value));
    case ValueKind::dict: return build_dict(as<DictValue>(value));
    case ValueKind::set: return build_set(as<SetValue>(value));
    case ValueKind::slice: {
      auto* s = as<SliceValue>(value);
      const SlotId start = slot(s->start), stop = slot(s->stop), stride = slot(s->step);
      return step(RecipeOp::slice, {start, stop, stride});
    }
    case ValueKind::cell: {
      const SlotId made = step(RecipeOp::cell);
      slots_[value] = made;
      pending_.push_back(value);
      return made;
    }
    case ValueKind::function: return build_function(as<FunctionValue>(value));
    case ValueKind::method: {
      const SlotId function = slot(as<MethodValue>(value)->function), self = slot(as<MethodValue>(value)->self);
      return step(RecipeOp::method, {function, self});
    }
    case ValueKind::instance: return build_instance(as<InstanceValue>(value));
    case ValueKind::iterator: return build_iterator(as<IteratorValue>(value));
    case ValueKind::generator: return build_generator(as<GeneratorValue>(value));
    case ValueKind::array: return build_array(as<ArrayValue>(value));
    case ValueKind::super: {
      const SlotId type = slot(as<SuperValue>(value)->start_type), self = slot(as<SuperValue>(value)->self);
      return step(RecipeOp::call, {type, self}, 0, reinterpret_cast<PyObject*>(&PySuper_Type));
    }
    case ValueKind::view: {
      static const char* const names[] = {"keys", "values", "items"};
      auto* view = as<ViewValue>(value);
      const SlotId dict = slot(view->dict);
      const Value* held = view->dict->object ? view->dict : holder_of(view->dict);
      const bool is_linked = PyType_IsSubtype(held->object ? Py_TYPE(held->object.get()) : held->type,
                                              &PyODict_Type);  // its views follow an order of its own
      PyRef method = PyRef::steal(PyObject_GetAttrString(
          reinterpret_cast<PyObject*>(is_linked ? &PyODict_Type : &PyDict_Type), names[static_cast<int>(view->what)]));
      return step(RecipeOp::call, {dict}, 0, method.get());
    }
    default: break;
  }
  graph_break(Reason::escaped_traced,
              std::string("an object of type ") + (value->type ? value->type->tp_name : "?"));
}

// A float that is computed from floats that vary is computed again in each call.
SlotId RecipeBuilder::build_constant(Value* value) {
  if (value->kind == ValueKind::object && !value->value_guarded) {
    const auto at = trace_.float_formulas.find(value);
    if (at != trace_.float_formulas.end())
      return step(RecipeOp::call, {slot(at->second.a), slot(at->second.b)}, 0,
                  operator_function(names_of(at->second.op).function));
  }
  return constant(value->object.get());
}

SlotId RecipeBuilder::build_tensor(TensorValue* value) {
  if (value->object && !value->traced) return constant(value->object.get());
  PyObject* traced = value->traced.get();
  FJ_ASSERT(traced, "a tensor value without a tensor");
  auto [it, fresh] = output_index_.try_emplace(traced, outputs_.size());
  if (fresh) outputs_.push_back(traced);
  return step(RecipeOp::output, {}, static_cast<int64_t>(it->second));
}

SlotId RecipeBuilder::build_tuple(TupleValue* value) {
  std::vector<SlotId> items;
  for (Value* v : value->items) items.push_back(slot(v));
  return step(RecipeOp::tuple, std::move(items));
}

SlotId RecipeBuilder::build_list(ListValue* value) {
  const SlotId made = step(RecipeOp::list);
  slots_[value] = made;
  pending_.push_back(value);
  return made;
}

SlotId RecipeBuilder::build_dict(DictValue* value) {
  if (value->owner) return step(RecipeOp::instance_dict, {slot(value->owner)});
  const SlotId made = step(RecipeOp::dict);
  slots_[value] = made;
  pending_.push_back(value);
  return made;
}

SlotId RecipeBuilder::build_function(FunctionValue* value) {
  SlotId closure = kUnbound;
  if (!value->closure.empty()) {
    std::vector<SlotId> cells;
    for (Value* cell : value->closure) cells.push_back(slot(cell));
    closure = step(RecipeOp::tuple, std::move(cells));
  }
  const SlotId globals = slot(value->globals), defaults = slot(value->defaults), kwdefaults = slot(value->kwdefaults);
  const SlotId name = slot(value->name), qualname = slot(value->qualname);
  const SlotId made = step(RecipeOp::function, {globals, closure, defaults, kwdefaults, name, qualname}, 0,
                           reinterpret_cast<PyObject*>(value->code));
  slots_[value] = made;
  if (!value->attrs.empty()) pending_.push_back(value);
  return made;
}

namespace {

// C classes whose tp_new, given the payload, makes an object that filling and attributes complete.
bool is_rebuildable(PyTypeObject* base, const Value* payload) {
  if (base == &PyBaseObject_Type || is_exception_type(base) || is_known(base, KnownType::name_space) ||
      is_known(base, KnownType::partial))
    return true;
  if (!payload) return false;
  if (base == &PyDictProxy_Type || base == &PyList_Type || base == &PySet_Type || base == &PyFrozenSet_Type)
    return true;
  if (is_known(base, KnownType::deque)) return payload->kind == ValueKind::list;
  if (base == &PyDict_Type || base == &PyODict_Type || is_known(base, KnownType::default_dict)) return true;
  if (PyType_IsSubtype(base, &PyTuple_Type)) return payload->kind == ValueKind::tuple;
  return (payload->kind == ValueKind::object || payload->kind == ValueKind::sym_int) && payload->type == base;
}

// Whether tp_new does not simply keep its arguments: OSError derives its class and members from them.
bool takes_other_arguments(PyTypeObject* base) {
  return has_known_members(base) && base->tp_new != reinterpret_cast<PyTypeObject*>(PyExc_BaseException)->tp_new;
}

Value* attribute_of(InstanceValue* value, const char* name) {
  bool known = false;
  Value* v = value->find_attr(interned(name), &known);
  FJ_ASSERT(v, name);
  return v;
}

}  // namespace

// A partial may hold itself, so __setstate__ sets its state after it is made.
SlotId RecipeBuilder::build_partial(InstanceValue* value) {
  const SlotId nothing = constant(reinterpret_cast<PyObject*>(&PyBaseObject_Type));
  const SlotId made = step(RecipeOp::instance, {nothing}, 0, reinterpret_cast<PyObject*>(value->type));
  slots_[value] = made;
  pending_.push_back(value);
  return made;
}

void RecipeBuilder::fill_partial(SlotId target, InstanceValue* value) {
  const SlotId function = slot(attribute_of(value, "func")), arguments = slot(attribute_of(value, "args")),
               keywords = slot(attribute_of(value, "keywords"));
  const SlotId state = step(RecipeOp::tuple, {function, arguments, keywords, constant(Py_None)});
  PyRef set_state =
      PyRef::steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(builtin_base(value->type)), "__setstate__"));
  step(RecipeOp::call, {target, state}, 0, set_state.get());
  for (auto& [name, v] : value->attrs)
    if (const std::string_view text = text_of(name.get()); text != "func" && text != "args" && text != "keywords")
      step(RecipeOp::set_attribute, {target, v ? slot(v) : kUnbound}, 0, name.get());
}

void RecipeBuilder::restore_modes(std::shared_ptr<void> modes) {
  recipe_.modes_.push_back(std::move(modes));
  step(RecipeOp::restore_modes, {}, static_cast<int64_t>(recipe_.modes_.size()) - 1);
}

// A guard that has been entered remembers the modes that its exit restores. So the recipe sets those modes first, and
// then enters it.
SlotId RecipeBuilder::build_mode_guard(InstanceValue* value, const ModeGuard& guard) {
  const SlotId argument = slot(guard.argument);
  if (guard.before) restore_modes(guard.before);
  const SlotId made = step(RecipeOp::call, {argument}, 0, reinterpret_cast<PyObject*>(value->type));
  if (!guard.before) return made;
  enters_modes_ = true;
  PyRef enter = PyRef::steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(value->type), "__enter__"));
  step(RecipeOp::call, {made}, 0, enter.get());
  return made;
}

SlotId RecipeBuilder::build_deque(InstanceValue* value) {
  if (!in_progress_.insert(value).second) graph_break(Reason::escaped_traced, "a deque that holds itself");
  const SlotId limit = slot(attribute_of(value, "maxlen"));
  return step(RecipeOp::call, {settled(value->payload), limit}, 0, reinterpret_cast<PyObject*>(value->type));
}

SlotId RecipeBuilder::build_instance(InstanceValue* value) {
  if (auto guard = trace_.side_tables.mode_guards.find(value); guard != trace_.side_tables.mode_guards.end())
    return build_mode_guard(value, guard->second);
  if (value->type == &PyContextToken_Type) return build_token(value);
  PyTypeObject* base = builtin_base(value->type);
  Value* payload = value->payload;
  if (!is_rebuildable(base, payload))
    graph_break(Reason::escaped_traced, std::string("an object of type ") + value->type->tp_name);
  if (base == &PyDictProxy_Type) return step(RecipeOp::call, {slot(payload)}, 0, reinterpret_cast<PyObject*>(base));
  if (is_known(base, KnownType::partial)) return build_partial(value);
  if (is_known(base, KnownType::deque)) return build_deque(value);
  std::vector<SlotId> arguments;
  if (payload && payload->kind == ValueKind::tuple && PyType_IsSubtype(base, &PyTuple_Type)) {
    arguments.push_back(build_tuple(as<TupleValue>(payload)));
  } else if (payload && payload->kind == ValueKind::tuple && is_exception_type(base)) {
    if (!takes_other_arguments(base))
      for (Value* v : as<TupleValue>(payload)->items) arguments.push_back(slot(v));
  } else if (payload &&
             (base == &PyFrozenSet_Type || payload->kind == ValueKind::object || payload->kind == ValueKind::sym_int)) {
    arguments.push_back(slot(payload));
  }
  const bool initialises = is_exception_type(base) && !has_known_members(base);
  const SlotId made =
      step(RecipeOp::instance, std::move(arguments), initialises, reinterpret_cast<PyObject*>(value->type));
  slots_[value] = made;
  pending_.push_back(value);
  return made;
}

// An exhausted iterator of the same type, if a builtin container makes that type.
SlotId RecipeBuilder::build_exhausted(PyTypeObject* type) {
  // Never freed: a static destructor would run after the interpreter has ended.
  static PyObject* const samples = [] {
    PyObject* range = PyObject_CallFunction(reinterpret_cast<PyObject*>(&PyRange_Type), "i", 0);
    PyObject* items = PyObject_CallMethod(PyRef::steal(PyDict_New()).get(), "items", nullptr);
    PyObject* values = PyObject_CallMethod(PyRef::steal(PyDict_New()).get(), "values", nullptr);
    return Py_BuildValue("([](){}NNNNsy)", PySet_New(nullptr), range, items, values, "", "");
  }();
  for (Py_ssize_t i = 0; samples && i < PyTuple_GET_SIZE(samples); ++i) {
    PyObject* sample = PyTuple_GET_ITEM(samples, i);
    const PyRef iterator = PyRef::steal(PyObject_GetIter(sample));
    if (!iterator || Py_TYPE(iterator.get()) != type) continue;
    if (PyList_CheckExact(sample)) return call("iter", {step(RecipeOp::list)});  // nobody adds to it
    return call("iter", {constant(sample)});
  }
  return call("iter", {step(RecipeOp::tuple)});
}

SlotId RecipeBuilder::build_iterator(IteratorValue* value) {
  std::vector<SlotId> operands;
  if (value->exhausted) return build_exhausted(value->type);
  if (!in_progress_.insert(value).second)
    graph_break(Reason::escaped_traced, "an iterator that is part of its own container");
  using Over = IteratorValue::Over;
  // If it were made over the changed container, it would not notice the change.
  if (changed_while_iterated(value))
    graph_break(Reason::changed_container, "an iterator over a container that has changed");
  switch (value->over) {
    case Over::sequence:
    case Over::text:
    case Over::snapshot: {
      if (value->over == Over::snapshot && value->operands.size() == 1)
        break;  // items that an itertools function would find one by one
      const SlotId made = call("iter", {settled(value->operands.back())});
      if (value->over == Over::snapshot) return step(RecipeOp::consume, {made}, value->position);
      return step(RecipeOp::advance, {made}, value->position);
    }
    case Over::reversed: {
      if (value->operands[0]->kind == ValueKind::instance) break;  // a deque, which is made in one step
      const SlotId made = call("reversed", {settled(value->operands[0])});
      return step(RecipeOp::advance, {made}, value->position);
    }
    case Over::dict_view: {
      auto* view = as<ViewValue>(value->operands[0]);
      settled(view->dict);
      const SlotId made = call(value->step < 0 ? "reversed" : "iter", {slot(view)});
      return step(RecipeOp::consume, {made}, value->position);
    }
    case Over::range: {
      PyRef range = PyRef::steal(PyObject_CallFunction(reinterpret_cast<PyObject*>(&PyRange_Type), "LLL",
                                                       (long long)value->position, (long long)value->stop,
                                                       (long long)value->step));
      return call("iter", {constant(range.get())});
    }
    case Over::enumerate: {
      const SlotId inner = slot(value->operands[0]);
      PyRef start = PyRef::steal(PyLong_FromLongLong(value->position));
      return call("enumerate", {inner, constant(start.get())});
    }
    case Over::zip:
    case Over::map:
    case Over::filter:
    case Over::starmap:
    case Over::takewhile:
    case Over::dropwhile:
      // The objects that these are made from are all of their state, except for a strict zip and for a predicate that
      // has already answered.
      if ((value->over == Over::zip && value->stop == 1) || (value->over != Over::zip && value->position != 0)) break;
      for (Value* v : value->operands) operands.push_back(slot(v));
      return step(RecipeOp::call, std::move(operands), 0, reinterpret_cast<PyObject*>(value->type));
    default: break;
  }
  graph_break(Reason::escaped_traced, std::string("a running ") + value->type->tp_name);
}

// The slot of a container, filled with what it holds at the exit.
SlotId RecipeBuilder::settled(Value* container) {
  const SlotId target = slot(container);
  container = holder_of(container);
  if (!is_real(container)) fill(container);
  else if (container->mutated) effect_of(container);
  return target;
}

SlotId RecipeBuilder::call_with(SlotId callable, std::vector<SlotId> positional,
                                const std::vector<std::pair<PyObject*, SlotId>>& keywords) {
  positional.insert(positional.begin(), callable);
  PyRef names = keywords.empty() ? PyRef() : PyRef::steal(PyTuple_New(static_cast<Py_ssize_t>(keywords.size())));
  for (size_t i = 0; i < keywords.size(); ++i) {
    PyTuple_SET_ITEM(names.get(), i, Py_NewRef(keywords[i].first));
    positional.push_back(keywords[i].second);
  }
  return step(RecipeOp::call_slot, std::move(positional), 0, names.get());
}

// Only a generator that has not started, or has ended, can be made again. Its function is called with the bound
// arguments. If it has ended, the new generator is closed before it starts.
SlotId RecipeBuilder::build_generator(GeneratorValue* value) {
  const bool ended = value->state == GeneratorValue::State::finished;
  if (!ended && value->state != GeneratorValue::State::created)
    graph_break(Reason::escaped_traced, "a generator that has started");
  PyCodeObject* code = value->function->code;
  const auto& locals = value->frame->locals;
  auto bound = [&](int local) { return ended ? constant(Py_None) : slot(locals[local]); };
  std::vector<SlotId> positional;
  std::vector<std::pair<PyObject*, SlotId>> keywords;
  const SlotId function = slot(value->function);
  int next = 0;
  for (; next < code->co_argcount; ++next) positional.push_back(bound(next));
  for (; next < code->co_argcount + code->co_kwonlyargcount; ++next)
    keywords.emplace_back(PyTuple_GET_ITEM(code->co_localsplusnames, next), bound(next));
  if (!ended && (code->co_flags & CO_VARARGS))
    for (Value* v : as<TupleValue>(locals[next++])->items) positional.push_back(slot(v));
  if (!ended && (code->co_flags & CO_VARKEYWORDS)) {
    auto* given = as<DictValue>(locals[next]);
    guard_order(trace_.guards, given->order_from);
    for (const DictEntry& e : given->entries) keywords.emplace_back(e.key->object.get(), slot(e.value));
  }
  const SlotId made = call_with(function, std::move(positional), keywords);
  if (!ended) return made;
  PyRef close = PyRef::steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(&PyGen_Type), "close"));
  step(RecipeOp::call, {made}, 0, close.get());
  return made;
}

void RecipeBuilder::fill_items(SlotId target, Value* container) {
  std::vector<SlotId> operands{target};
  if (container->kind == ValueKind::list) {
    for (Value* v : as<ListValue>(container)->items) operands.push_back(slot(v));
    step(RecipeOp::fill_list, std::move(operands));
  } else if (container->kind == ValueKind::dict) {
    guard_order(trace_.guards, as<DictValue>(container)->order_from);
    for (const DictEntry& e : as<DictValue>(container)->entries) {
      operands.push_back(key_slot(e.key));
      operands.push_back(slot(e.value));
    }
    step(RecipeOp::fill_dict, std::move(operands));
  } else if (container->kind == ValueKind::set && container->type == &PySet_Type) {
    set_step(RecipeOp::fill_set, std::move(operands), as<SetValue>(container));
  }
}

void RecipeBuilder::fill_instance(SlotId target, InstanceValue* value) {
  if (is_known(builtin_base(value->type), KnownType::partial)) return fill_partial(target, value);
  if (value->payload) fill_items(target, value->payload);
  const auto write = [&](PyObject* descriptor, Value* to) {  // whatever the class says of the name
    const PyRef set = PyRef::steal(PyObject_GetAttrString(descriptor, "__set__"));
    const SlotId held = slot(to);
    step(RecipeOp::call, {target, held}, 0, set.get());
  };
  if (is_exception_type(value->type) && value->payload && takes_other_arguments(builtin_base(value->type)))
    write(_PyType_Lookup(reinterpret_cast<PyTypeObject*>(PyExc_BaseException), interned("args")), value->payload);
  for (const auto& [descriptor, member] : value->members) write(descriptor.get(), member);
  attribute_effects(target, value);
}

void RecipeBuilder::fill(Value* value) {
  if (!filled_.insert(value).second) return;
  const SlotId target = slots_.at(value);
  switch (value->kind) {
    case ValueKind::list:
    case ValueKind::dict:
      if (value->kind == ValueKind::list || !as<DictValue>(value)->owner) fill_items(target, value);
      break;
    case ValueKind::cell:
      if (as<CellValue>(value)->contents) step(RecipeOp::fill_cell, {target, slot(as<CellValue>(value)->contents)});
      break;
    case ValueKind::function:
      for (auto& [name, v] : as<FunctionValue>(value)->attrs)
        step(RecipeOp::set_attribute, {target, slot(v)}, 0, name.get());
      break;
    case ValueKind::instance: fill_instance(target, as<InstanceValue>(value)); break;
    default: break;
  }
}

// A __hash__ in Python reads the contents of its object, so they are filled now, not with the rest.
void RecipeBuilder::complete(Value* value) {
  if (!value || is_real(value) || filled_.contains(value)) return;
  slot(value);
  std::vector<Value*> parts;
  if (value->kind == ValueKind::tuple) {
    parts = as<TupleValue>(value)->items;
  } else if (value->kind == ValueKind::instance) {
    for (auto& [name, v] : as<InstanceValue>(value)->attrs) parts.push_back(v);
    for (auto& [descriptor, v] : as<InstanceValue>(value)->members) parts.push_back(v);
    if (Value* payload = as<InstanceValue>(value)->payload) parts.push_back(payload);
  } else if (value->kind == ValueKind::list) {
    parts = as<ListValue>(value)->items;
  } else if (value->kind == ValueKind::dict) {
    for (const DictEntry& e : as<DictValue>(value)->entries) parts.push_back(e.value);
  }
  fill(value);
  for (Value* part : parts) complete(part);
}

SlotId RecipeBuilder::key_slot(Value* key) {
  complete(key);
  return slot(key);
}

void RecipeBuilder::fill_pending() {
  for (size_t k = 0; k < pending_.size(); ++k) fill(pending_[k]);  // filling may add more to the list
  pending_.clear();
}

Recipe RecipeBuilder::build(const std::function<size_t(guards::SourceId)>& register_of) {
  FJ_ASSERT(pending_.empty(), "add_effects() comes last");
  for (RecipeStep& s : recipe_.steps_)
    if (s.op == RecipeOp::fetch) s.number = static_cast<int64_t>(register_of(static_cast<guards::SourceId>(s.number)));
  recipe_.frontend_ = &frontend_;
  return std::move(recipe_);
}

}  // namespace framejit::frame_hook
