// frame_hook/resume/segment.cpp — the hit path: guards, graph, recipe.
#include "frame_hook/resume/segment.h"

#include <alloca.h>

#include <new>

#include "frame_hook/hook/live_frame.h"
#include "guards/cpython/interrupts.h"

namespace framejit::frame_hook {

namespace {

// Registers only borrow. While the graph runs without the GIL, another thread may drop the objects that they name.
class Kept {
 public:
  Kept(PyObject* const* registers, const std::vector<size_t>& which) : registers_(registers), which_(which) {
    for (size_t i : which_) Py_XINCREF(registers_[i]);
  }
  ~Kept() {
    for (size_t i : which_) Py_XDECREF(registers_[i]);
  }
  Kept(const Kept&) = delete;

 private:
  PyObject* const* registers_;
  const std::vector<size_t>& which_;
};

// Graph outputs live exactly as long as the recipe runs.
struct Outputs {
  PyObject** objects;
  size_t count;
  ~Outputs() {
    for (size_t i = 0; i < count; ++i) Py_XDECREF(objects[i]);
  }
};

// The locks that the program takes: held from before the graph until the effects are done.
class HeldLocks {
 public:
  HeldLocks(PyObject* const* registers, const std::vector<size_t>& which) : registers_(registers), which_(which) {
    while (taken_ < which_.size() && take(registers_[which_[taken_]])) ++taken_;
  }
  ~HeldLocks() {
    if (taken_ == 0) return;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    while (taken_ > 0)
      if (!PyRef::steal(PyObject_CallMethod(registers_[which_[--taken_]], "release", nullptr))) drop_error();
    PyErr_Restore(type, value, traceback);
  }
  HeldLocks(const HeldLocks&) = delete;
  bool all() const { return taken_ == which_.size(); }

 private:
  static bool take(PyObject* lock) {  // does not wait, and so does not let other threads run
    const PyRef taken = PyRef::steal(PyObject_CallMethod(lock, "acquire", "O", Py_False));
    if (!taken) drop_error();
    return taken.get() == Py_True;
  }

  PyObject* const* registers_;
  const std::vector<size_t>& which_;
  size_t taken_ = 0;
};

// Larger arrays are on the heap: a segment with many guards must not use up a stack that deep recursions share.
constexpr size_t kMostWordsOnStack = 2048;

// Hands out parts of one block of words, all zero.
class Words {
 public:
  explicit Words(uint64_t* block) : free_(block) {}
  template <class T>
  T* take(size_t count) {
    static_assert(sizeof(T) == sizeof(uint64_t));
    T* const array = reinterpret_cast<T*>(free_);
    for (size_t i = 0; i < count; ++i) array[i] = T{};
    free_ += count;
    return array;
  }

 private:
  uint64_t* free_;
};

// The graph has run and effects may have been applied: plain Python would repeat them.
RunStatus recipe_failed() {
  if (PyErr_ExceptionMatches(PyExc_MemoryError) || error_is_interrupt()) return RunStatus::raised;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  const PyRef kinds[] = {PyRef::steal(type), PyRef::steal(traceback)};
  PyRef error = PyRef::steal(PyObject_CallFunction(
      PyExc_SystemError, "s",
      "framejit: an effect of compiled code failed after others had been applied; please report it"));
  if (error) PyException_SetCause(error.get(), value);
  else Py_XDECREF(value);
  if (error) PyErr_SetObject(PyExc_SystemError, error.get());
  return RunStatus::raised;
}

}  // namespace

const char* Segment::why_dead() const {
  if (guards->dead()) return guards::kObjectIsGone;
  return is_wrong ? "a shape function was wrong" : nullptr;
}

RunStatus Segment::run(const LiveFrame& live, const guards::FrameAccess& frame, SegmentRun& out) {
  const size_t registers_needed = guards->register_count(), symbols_needed = guards->symbol_count();
  const size_t output_count = call ? call->output_count : 0;
  const size_t needed = registers_needed + symbols_needed + memory_registers.size() + output_count +
                        input_registers.size() + owner_registers.size() + 1;
  const std::unique_ptr<uint64_t[]> on_heap(needed > kMostWordsOnStack ? new (std::nothrow) uint64_t[needed] : nullptr);
  if (needed > kMostWordsOnStack && !on_heap) return PyErr_NoMemory(), RunStatus::failed;
  Words words(on_heap ? on_heap.get() : static_cast<uint64_t*>(alloca(needed * sizeof(uint64_t))));
  auto* registers = words.take<PyObject*>(registers_needed);
  auto* symbols = words.take<int64_t>(symbols_needed);
  if (is_wrong || !guards->run(frame, registers, symbols)) return RunStatus::missed;
  if (written_count > 0) {
    auto** tensors = words.take<PyObject*>(memory_registers.size());
    for (size_t i = 0; i < memory_registers.size(); ++i) tensors[i] = registers[memory_registers[i]];
    if (tensor_frontend()->may_overlap(tensors, written_count, memory_registers.size()) != overlapping)
      return RunStatus::missed;
  }

  const Kept kept(registers, kept_registers);
  Outputs outputs{words.take<PyObject*>(output_count), output_count};
  const HeldLocks locks(registers, lock_registers);  // released before dropping objects here can run code
  if (!locks.all()) return RunStatus::busy;
  if (call) {
    const size_t n = input_registers.size();
    auto** inputs = words.take<PyObject*>(n);
    for (size_t i = 0; i < n; ++i) inputs[i] = registers[input_registers[i]];
    const size_t held = owner_registers.size();
    auto** objects = words.take<PyObject*>(held);
    for (size_t i = 0; i < held; ++i) objects[i] = registers[owner_registers[i]];
    WeightOwners owners{objects, held, nullptr};
    const CallResult ran = call->run(inputs, symbols, outputs.objects, owners);
    if (ran.status == CallStatus::wrong) is_wrong = true;
    if (ran.status != CallStatus::done) {
      out.stopped_by = ran.stopped_by;
      return ran.status == CallStatus::raised ? RunStatus::raised : RunStatus::failed;
    }
    out.due = std::move(owners.due);
  }
  const RecipeInputs inputs{registers, outputs.objects, symbols};
  if (!recipe.run(inputs, out.slots)) return recipe_failed();
  const bool shows_end = exit == ExitKind::returned && live.is_entered() && live.is_held();
  if (shows_end && !recipe.run_end(inputs, out.slots)) return recipe_failed();
  return RunStatus::done;
}

}  // namespace framejit::frame_hook
