// frame_hook/resume/segment.h — one compiled entry of a code object: from one instruction to a break or a return.
//
// A segment is immutable once installed, except for the driver's counts and `is_wrong`, with the GIL held. run()
// fetches and checks (guards), runs the graph, rebuilds what the exit needs, and only then applies effects. It touches
// no frame: the driver writes the exit state into the live frame.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "frame_hook/resume/recipe.h"
#include "frame_hook/trace/machine/frame_trace.h"
#include "guards/guard_program.h"

namespace framejit::frame_hook {

class LiveFrame;

// Settings of a compile() call; one object per distinct set of options, compared by address.
struct CompileOptions {
  bool fullgraph = false;
  int dynamic = -1;               // -1 automatic, 0 never, 1 always
  bool every_frame = false;  // FRAMEJIT_TRACE_ALL: segments without tensor work are kept, traces are short, and the
                             // rest runs natively, counted
  bool whole = false;             // FRAMEJIT=1, functions: compiled to their return or not at all
  std::string backend = "framejit";  // the backend that compiles; "eager" if the user's backend is a callable
  // A callable, borrowed from the settings object, which lives while one of its calls runs.
  PyObject* user_backend = nullptr;
  Deriving deriving;
  bool autotune = false;          // the backend may choose by time, on the inputs of the call
};

enum class ExitKind : uint8_t {
  returned,  // the frame's result is a slot
  broke,     // `frames` stand before a break
  plain,     // no tensor work from here up to `plain_until`, or to the end (-1): the frame runs natively
};

struct FramePlan {                // the state of one frame at the exit, outermost frame first
  SlotId function = kUnbound;     // of an inlined frame
  int index = 0;                  // code unit: innermost: the next instruction; outer frames: the calling instruction
  int next_index = 0;             // outer frames: where execution continues after the callee has returned
  std::vector<SlotId> locals, stack;
  OnReturn on_return = OnReturn::push;
  SlotId pending_object = kUnbound;
  bool writes_handled = false;    // the exception being handled differs from the one at entry
  SlotId handled = kUnbound;
};

struct SegmentRun {               // results of one run, on the caller's C stack
  std::vector<PyRef> slots;
  std::unique_ptr<DueDerivation> due;
  Reason stopped_by = Reason::run_failed;  // with RunStatus::failed: of the graph
};

enum class RunStatus : uint8_t {
  missed,
  done,
  failed,  // nothing committed; the Python error that is set says what stopped the graph
  busy,    // another thread has a lock that the program takes; nothing committed
  raised,  // the error that is set is the user's: it comes from what a user's backend made
};

class Segment {
 public:
  // live: the frame that `frame` is a view of.
  RunStatus run(const LiveFrame& live, const guards::FrameAccess& frame, SegmentRun& out);
  const char* why_dead() const;  // null: it may still fit later

  std::unique_ptr<guards::GuardProgram> guards;
  std::unique_ptr<CompiledCall> call;      // null: no tensor work
  Recipe recipe;
  std::vector<size_t> input_registers;
  std::vector<size_t> kept_registers;  // used by the graph and the recipe: kept alive, because the graph runs without
                                       // the GIL and effects drop objects
  std::vector<size_t> memory_registers;    // when the graph writes inputs: the written ones, then the others
  std::vector<size_t> owner_registers;     // of the modules that hold weights
  std::vector<size_t> lock_registers;      // of locks that the program takes and releases
  size_t written_count = 0;
  bool overlapping = false;  // fits only if the memory of a written input overlaps another input's; if false, only if
                             // none does
  std::string id;  // "1.3": of the compile, as in the log
  size_t known_symbols = 0;  // TraceHints::dynamic_sources when it was compiled
  ExitKind exit = ExitKind::returned;
  SlotId returned = kUnbound;
  bool leaves_handler = false;             // after a return: the exception being handled is then the object of a slot
  SlotId handled = kUnbound;
  // When it broke. When it returned from a frame that had broken before: that frame, as its frame object shows it then.
  std::vector<FramePlan> frames;
  Reason reason{};
  std::string where;                       // of the break
  bool failed = false;  // plain because of `reason`, which nothing in the program asks for
  CompilingAnswer answer = CompilingAnswer::nothing;
  std::shared_ptr<const CompileOptions> options;
  int plain_until = -1;                    // code unit of the break, for ExitKind::plain
  uint64_t hits = 0, last_use = 0;         // the driver's, with the GIL held
  bool is_wrong = false;  // a run has shown it: CallStatus::wrong
  PyRef self;                              // weak: the nn.Module whose method this is, or null
  uint64_t request = 0;                    // how often framejit.compile() had been called by then
  uint64_t steps = 0;                      // instructions that one run stands for; 0 for ExitKind::plain
};

struct CompileOutcome {
  std::unique_ptr<Segment> segment;        // null with a Python error set: a user's backend raised
  bool broke = false;
  bool failed = false;  // for a reason that nothing in the program asks for: the caller counts it
  Reason reason{};
  std::string detail, where, caret;
  int at = -1;                             // code unit (f_lasti) of the break in the traced frame; -1: none
};

// Traces from the instruction at code unit `index`, and compiles. Logs and counts. Throws InternalError for our bugs.
CompileOutcome compile_segment(const guards::FrameAccess& frame, std::shared_ptr<const Code> code, int index,
                               const std::shared_ptr<const CompileOptions>& options, const TraceHints& hints);

}  // namespace framejit::frame_hook
