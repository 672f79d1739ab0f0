// frame_hook/resume/recipe.h — how the Python objects of a trace's exit are rebuilt after its graph has run.
//
// In: the values of a FrameTrace (returned value, frames at a break, mutated objects). Out: a flat program over slots:
// fetch a guarded source, take a graph output, build a container, an instance, a function, an iterator; then the
// warnings, then the effects, in order of first write; then what the exit needs. Each Value has one slot, so identity
// inside containers is kept. Containers and instances are made empty and filled later, so cycles are legal. Running a
// recipe executes no user code except where plain Python would (a class's tp_alloc, hashing of user keys).
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "frame_hook/trace/machine/frame_trace.h"

namespace framejit::frame_hook {

using SlotId = int32_t;
inline constexpr SlotId kUnbound = -1;   // an unbound local, a NULL on the value stack
inline constexpr SlotId kAsItIs = -2;    // a local of the live frame that stays as it is, bound or not

enum class RecipeOp : uint8_t {
#define RECIPE_OP(name, makes, number, object) name,
#include "frame_hook/resume/recipe_ops.def"
#undef RECIPE_OP
};

std::string slot_text(SlotId slot);  // "s3", "unbound"

struct RecipeStep {
  RecipeOp op;
  SlotId result = kUnbound;
  int64_t number = 0;
  PyRef object;
  std::vector<SlotId> operands;
};

// What running a recipe needs from the segment.
struct RecipeInputs {
  PyObject* const* registers;
  PyObject* const* outputs;   // graph outputs, borrowed
  const int64_t* symbols;
};

class Recipe {
 public:
  // Fills slots (new references), but not those that only the end of a frame needs. False with a Python error set:
  // slots made so far are released, effects may be partial.
  bool run(const RecipeInputs& inputs, std::vector<PyRef>& slots) const;
  bool run_end(const RecipeInputs& inputs, std::vector<PyRef>& slots) const;  // after run(): the slots left
  const std::vector<RecipeStep>& steps() const { return steps_; }
  std::string text() const;  // for the log: a step a line

 private:
  friend class RecipeBuilder;
  bool run_step(const RecipeStep& step, const RecipeInputs& inputs, std::vector<PyRef>& slots) const;
  bool run_steps(size_t from, size_t to, const RecipeInputs& inputs, std::vector<PyRef>& slots) const;
  std::vector<RecipeStep> steps_;
  std::optional<size_t> end_begins_;  // the first step that only the end needs; nothing: all are needed
  std::vector<graph::SymExpr> sizes_;
  std::vector<std::shared_ptr<void>> modes_;
  TensorFrontend* frontend_ = nullptr;
  size_t slot_count_ = 0;
};

class RecipeBuilder {
 public:
  RecipeBuilder(FrameTrace& trace, TensorFrontend& frontend);

  SlotId slot(Value* value);                 // what rebuilds `value`; kUnbound for null
  SlotId slot_if_at_hand(Value* value);  // of a constant, or of what has a slot already; kUnbound for others
  void add_effects();                        // effects and modes of the trace
  // Whatever gets a slot from here on is for the frame at its end, which is shown only if something holds it.
  void begin_end() { recipe_.end_begins_ = recipe_.steps_.size(); }
  const std::vector<PyObject*>& traced_outputs() const { return outputs_; }  // borrowed: for Recording::build
  const std::vector<guards::SourceId>& wanted_sources() const { return wanted_; }
  // After the guard program exists: source ids become registers.
  Recipe build(const std::function<size_t(guards::SourceId)>& register_of);

 private:
  // ---- steps
  SlotId step(RecipeOp op, std::vector<SlotId> operands = {}, int64_t number = 0, PyObject* object = nullptr);
  SlotId set_step(RecipeOp op, std::vector<SlotId> operands,
                  SetValue* set);  // the operands given, the items of `set`, its order
  SlotId fetch(guards::SourceId source);
  SlotId constant(PyObject* object);
  SlotId call(const char* builtin, std::vector<SlotId> operands);
  SlotId call_with(SlotId callable, std::vector<SlotId> positional,
                   const std::vector<std::pair<PyObject*, SlotId>>& keywords);
  void restore_modes(std::shared_ptr<void> modes);

  // ---- values without a real object
  SlotId build(Value* value);
  SlotId build_constant(Value* value);
  SlotId build_tensor(TensorValue* value);
  SlotId build_tuple(TupleValue* value);
  SlotId build_list(ListValue* value);
  SlotId build_set(SetValue* set);
  SlotId build_dict(DictValue* value);
  SlotId build_function(FunctionValue* value);
  SlotId build_instance(InstanceValue* value);
  SlotId build_partial(InstanceValue* value);
  SlotId build_deque(InstanceValue* value);
  SlotId build_token(InstanceValue* token);  // of a context variable
  SlotId build_array(ArrayValue* value);
  SlotId build_mode_guard(InstanceValue* value, const ModeGuard& guard);
  SlotId build_exhausted(PyTypeObject* type);
  SlotId build_iterator(IteratorValue* value);
  SlotId build_generator(GeneratorValue* value);
  Value* holder_of(Value* payload);          // the instance made in the trace whose items these are, or `payload`
                                             // itself

  // ---- what was made empty
  SlotId settled(Value* container);
  SlotId key_slot(Value* key);               // of a key, which is hashable by the time the slot is used
  void complete(Value* value);
  void fill(Value* value);
  void fill_items(SlotId target, Value* container);
  void fill_instance(SlotId target, InstanceValue* value);
  void fill_partial(SlotId target, InstanceValue* value);
  void fill_pending();

  // ---- effects
  void give_warnings();
  void effect_of(Value* value);
  void dict_effect(SlotId target, DictValue* value, PyObject* real);
  void attribute_effects(SlotId target, InstanceValue* value);
  void set_context(PyObject* variable, SlotId value, InstanceValue* token);

  FrameTrace& trace_;
  TensorFrontend& frontend_;
  Recipe recipe_;
  std::unordered_map<Value*, SlotId> slots_;
  std::vector<PyObject*> outputs_;
  std::unordered_map<PyObject*, size_t> output_index_;
  std::vector<guards::SourceId> wanted_;
  std::unordered_map<guards::SourceId, SlotId> fetched_;
  bool enters_modes_ = false;                // a step before the last one changes modes
  std::vector<Value*> pending_;              // made empty, to be filled
  std::unordered_map<Value*, Value*> holders_;  // items of an instance made in the trace -> the instance
  std::unordered_set<Value*> filled_;        // filled, or written as effects
  std::unordered_set<Value*> in_progress_;   // iterators whose containers are being settled
};

}  // namespace framejit::frame_hook
