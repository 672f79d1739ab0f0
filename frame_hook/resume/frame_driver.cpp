// frame_hook/resume/frame_driver.cpp — the loop of frame_driver.h.
#include "frame_hook/resume/frame_driver.h"

#include <algorithm>
#include <new>
#include <optional>
#include <utility>

#include "frame_hook/resume/call_settings.h"
#include "frame_hook/resume/compiling_answers.h"
#include "frame_hook/resume/entries.h"
#include "frame_hook/resume/frame_names.h"
#include "frame_hook/resume/global_mode.h"
#include "frame_hook/resume/loop_hints.h"
#include "frame_hook/resume/misses.h"
#include "frame_hook/resume/one_compile.h"
#include "frame_hook/resume/stance.h"
#include "frame_hook/resume/stats.h"
#include "guards/cpython/interpreter_end.h"
#include "guards/cpython/interrupts.h"
#include "guards/cpython/running_compile.h"
#include "guards/describe.h"
#include "runtime/base/c_stack.h"
#include "runtime/base/config.h"
#include "runtime/base/log.h"
#include "runtime/base/warn_once.h"

namespace framejit::frame_hook {

namespace {

PyObject* g_graph_break_error = nullptr;
thread_local bool t_enabled = true;
uint64_t g_uses = 0;                      // of entries so far: orders their last uses
constexpr int kMostVainTries = 3;

// Takes over the references that a slot table holds for one frame. A slot is empty if only the end of the frame needs
// it and something holds the frame only since its recipe ran: that local is unbound then.
struct FrameContents {
  std::vector<PyObject*> locals, stack;
  FrameContents(const LiveFrame& frame, const FramePlan& plan, const SegmentRun& run) {
    auto take = [&](SlotId slot) { return slot == kUnbound ? nullptr : Py_XNewRef(run.slots[slot].get()); };
    for (SlotId s : plan.locals) locals.push_back(s == kAsItIs ? Py_XNewRef(frame.locals()[locals.size()]) : take(s));
    for (SlotId s : plan.stack) stack.push_back(take(s));
  }
};

// What the drive loop does next.
struct Next {
  bool leave = false;
  PyObject* result = nullptr;             // of a leaving function
  static Next left(PyObject* r) { return {true, r}; }
};

class Drive final {
 public:
  // `refusal`: if given, a frame that has not started is left to the caller and does not run plainly.
  Drive(LiveFrame& frame, const Options& options, CompilingAnswers& answers, bool* refusal = nullptr)
      : frame_(frame), options_(options), answers_(answers), refusal_(refusal) {}

  PyObject* run() {
    for (;;) {
      const Next next = round();
      if (next.leave) return next.result;
    }
  }

  // The frame is frame `level` of a segment's exit: it gets the state it has there, and continues what it was doing.
  Next resume(const Segment& segment, SegmentRun& run, size_t level);

 private:
  // Each level of a recursion in compiled code takes several of these C++ frames: keep whatever a hit does not need out
  // of them.
  Next round();
  [[gnu::noinline]] Next miss(const guards::FrameAccess& access, int index);
  [[gnu::noinline]] void place_contents(const FramePlan& plan, const SegmentRun& run);
  [[gnu::noinline]] Next resume_callee(const Segment& segment, SegmentRun& run, size_t level);
  [[gnu::noinline]] Next run_plain(const Segment& segment);
  [[gnu::noinline]] Next no_result(RunStatus status, const Segment& segment, Reason stopped_by);
  [[gnu::noinline]] Next plainly_because(Reason reason, const std::string& detail = "");
  [[gnu::noinline]] void count_hit_without_graph(const Segment& segment);
  bool count_failure(Reason reason, const std::string& detail);
  std::shared_ptr<Segment> compile(const guards::FrameAccess& access, int index, Next& next);
  bool may_compile(const guards::FrameAccess& access, Site& site, std::vector<std::unique_ptr<EntryBase>>& evicted,
                   Next& next);
  std::optional<CompileOutcome> try_compile(const guards::FrameAccess& access, int index, Site& site);
  bool gives_segment(const CompileOutcome& outcome, Next& next);
  std::shared_ptr<Segment> install(CompileOutcome outcome, Site& site);
  Next apply(const Segment& segment, SegmentRun& run);
  Next run_break();
  [[gnu::noinline]] Next run_under_mode();
  Next after(const EvalResult& result);
  Next plainly();
  int here() const;
  Next leave_with_error(int at);
  void run_prologue();
  Next raise_interrupt(int index);
  [[gnu::noinline]] Next miss_under(Stance stance, const guards::FrameAccess& access, int index);
  PyObject* self() const { return self_of(frame_); }
  Misses misses(const guards::FrameAccess& access, Site& site) const { return {frame_, options_, access, site}; }
  void log_loss(Site& site);
  void log_eviction(const Segment& segment);
  void count_vain_try(const CompileOutcome& outcome);
  bool derive(std::unique_ptr<DueDerivation> due);

  LiveFrame& frame_;
  const Options& options_;                // the settings object lives as long as the call
  CompilingAnswers& answers_;
  bool* const refusal_;
};

// Resumes an inlined callee: the hook hands its fresh frame to on_frame with this context. Segment and run belong to
// the round that resumes, further up this C stack.
class CalleeFiller final : public FrameFiller {
 public:
  CalleeFiller(const Segment& segment, SegmentRun& run, size_t level, const Options& options, CompilingAnswers& answers)
      : segment_(segment), run_(run), level_(level), options_(options), answers_(answers) {}
  PyObject* fill(LiveFrame& frame) override {
    if (!frame.enter()) return nullptr;
    Drive drive(frame, options_, answers_);
    answers_.enters_callee();
    const Next next = drive.resume(segment_, run_, level_);
    PyObject* const result = next.leave ? next.result : drive.run();
    answers_.leaves_callee();
    return result;
  }

 private:
  const Segment& segment_;
  SegmentRun& run_;
  size_t level_;
  const Options& options_;
  CompilingAnswers& answers_;
};

Next Drive::plainly() {
  if (refusal_ && !frame_.is_entered()) return *refusal_ = true, Next::left(nullptr);
  if (options_->every_frame)
    return frame_.is_entered() || frame_.enter() ? Next::left(frame_.conclude(frame_.run())) : Next::left(nullptr);
  const OutsideOfModules outside;
  return Next::left(frame_.is_entered() ? frame_.hand_over() : frame_.pass_through());
}

Next Drive::plainly_because(Reason reason, const std::string& detail) {
  count_fallback(reason, place(frame_), detail);
  return plainly();
}

void Drive::count_hit_without_graph(const Segment& segment) {
  if (segment.failed) return count_again(segment.reason, frame_);
  stats().plain_hits += 1;
  if (segment.exit != ExitKind::returned) stats().breaks_of_plain_hits[static_cast<size_t>(segment.reason)] += 1;
}

// An entry that fitted gave no result. The error that is set is the user's, or says why plain Python has to run.
Next Drive::no_result(RunStatus status, const Segment& segment, Reason stopped_by) {
  if (segment.answer == CompilingAnswer::yes) answers_.only_no();
  if (status == RunStatus::missed) return plainly_because(Reason::guards_moved);
  if (status == RunStatus::busy) return plainly_because(Reason::lock_taken);
  if (status == RunStatus::raised || error_is_interrupt()) return leave_with_error(here());
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  const PyRef kinds[] = {PyRef::steal(type), PyRef::steal(value), PyRef::steal(traceback)};
  const PyRef text = PyRef::steal(value ? PyObject_Str(value) : nullptr);
  drop_error();
  const std::string detail = text ? guards::text_of_str(text.get()) : "";
  // Later calls would fail for these reasons again. Other errors are the program's, and plain Python raises them.
  const bool is_lasting = stopped_by == Reason::no_backward || stopped_by == Reason::unsupported_op;
  if (is_lasting) log::warn_reason(stopped_by, detail, place(frame_));
  if (!is_failure(stopped_by)) return plainly_because(stopped_by, detail);
  return count_failure(stopped_by, detail) ? plainly() : leave_with_error(here());
}

Next Drive::after(const EvalResult& result) {
  if (result.stop == EvalStop::reached) return {};
  return Next::left(frame_.conclude(result));
}

Next Drive::run_break() { return after(frame_.run_one()); }

// The frame has entered a mode under which nothing can be traced. Only a call can leave the mode, so this checks after
// each call.
Next Drive::run_under_mode() {
  std::vector<uint8_t> stops(frame_.decoded()->unit_count + 1, 0);
  for (const Instruction& i : frame_.decoded()->instructions)
    if (i.op == Op::call || i.op == Op::call_function_ex || i.op == Op::with_except_start) stops[i.next_index] = 1;
  while (tensor_frontend()->records_nothing()) {
    const EvalResult result = frame_.run({stops.data(), -1});
    if (result.stop != EvalStop::reached) return Next::left(frame_.conclude(result));
  }
  return {};
}

Next Drive::run_plain(const Segment& segment) {
  if (segment.plain_until < 0) return plainly();
  if (!frame_.is_entered() && !frame_.enter()) return Next::left(nullptr);
  if (frame_.next_index() != segment.plain_until) {
    std::vector<uint8_t> stops(frame_.decoded()->unit_count, 0);
    stops[segment.plain_until] = 1;
    const EvalResult result = frame_.run({stops.data(), -1});
    if (result.stop != EvalStop::reached) return Next::left(frame_.conclude(result));
  }
  return run_break();
}

Next Drive::apply(const Segment& segment, SegmentRun& run) {
  stats().segment_instructions += segment.steps;
  if (segment.answer != CompilingAnswer::nothing) answers_.runs(segment, frame_.code());
  if (segment.exit == ExitKind::plain) return run_plain(segment);
  if (segment.exit == ExitKind::returned) {
    if (segment.leaves_handler)
      frame_.set_handled(segment.handled == kUnbound ? nullptr : Py_NewRef(run.slots[segment.handled].get()));
    if (frame_.is_entered() && frame_.is_held() && !segment.frames.empty()) {
      place_contents(segment.frames[0], run);
      frame_.set_current(segment.frames[0].index);
    }
    return Next::left(frame_.return_value(run.slots[segment.returned].release()));
  }
  if (!frame_.is_entered() && !frame_.enter()) return Next::left(nullptr);
  return resume(segment, run, 0);
}

void Drive::place_contents(const FramePlan& plan, const SegmentRun& run) {
  FrameContents contents(frame_, plan, run);
  frame_.replace(contents.locals, contents.stack, plan.index);
  if (plan.writes_handled)
    frame_.set_handled(plan.handled == kUnbound ? nullptr : Py_NewRef(run.slots[plan.handled].get()));
}

Next Drive::resume(const Segment& segment, SegmentRun& run, size_t level) {
  const FramePlan& plan = segment.frames[level];
  place_contents(plan, run);
  if (level + 1 < segment.frames.size()) return resume_callee(segment, run, level);
  run.slots.clear();  // the frames hold what they need: nothing lives longer than in plain Python
  if (segment.reason == Reason::trace_too_long) return plainly();
  const Code& code = *frame_.decoded();
  if (frame_.poll()) return run_break();
  frame_.set_current(code.instructions[code.position_at(plan.index)].opcode_index);
  return after(frame_.raise_and_run({nullptr, 0}));
}

Next Drive::resume_callee(const Segment& segment, SegmentRun& run, size_t level) {
  const FramePlan& plan = segment.frames[level];
  frame_.set_current(plan.index);
  CalleeFiller filler(segment, run, level + 1, options_, answers_);
  const bool makes_object = plan.on_return == OnReturn::push_object;
  const PyRef function = run.slots[segment.frames[level + 1].function],
              object = makes_object ? run.slots[plan.pending_object] : PyRef();
  PyRef value = PyRef::steal(call_into(function.get(), filler));
  if (value && makes_object) {
    if (value.get() != Py_None)
      PyErr_Format(PyExc_TypeError, "__init__() should return None, not '%.200s'", Py_TYPE(value.get())->tp_name);
    value = value.get() == Py_None ? object : PyRef();
  }
  if (!value) return after(frame_.raise_and_run({nullptr, 0}));
  frame_.push(value.release());
  frame_.set_next(plan.next_index);
  return {};
}

void Drive::log_eviction(const Segment& segment) {
  if (!log::enabled(log::Kind::Entry)) return;
  const std::string detail =
      segment.id + " made room for another: least recently used, after " + std::to_string(segment.hits) + " hits";
  log::emit(log::Kind::Entry, place(frame_),
            {{"action", "evict"},
             {"detail", detail},
             {"hint", "nothing, or raise FRAMEJIT_ENTRIES (" + std::to_string(config().entries) + ")"},
             {"entry", segment.id}});
}

// Says, once, that compiling here does not pay.
void Drive::log_loss(Site& site) {
  if (std::exchange(account_of(site, options_).loss_is_said, true)) return;
  stats().left_alone += 1;
  if (!log::enabled(log::Kind::LeftAlone)) return;
  log::emit(log::Kind::LeftAlone, place(frame_),
            {{"reason", "many compiled entries in a row died before " + std::to_string(kHitsThatPay) +
                            " calls had used them: " + guards::kObjectIsGone},
             {"hint", row_of(Reason::does_not_pay).hint}});
}

// A function that FRAMEJIT=1 found is compiled as a whole, to its return, or not at all.
void Drive::count_vain_try(const CompileOutcome& outcome) {
  CodeNote& note = note_of(frame_.state());
  if (++note.vain_tries < kMostVainTries || std::exchange(note.functions_left_alone, true)) return;
  stats().left_alone += 1;
  if (!log::enabled(log::Kind::LeftAlone)) return;
  const std::string why =
      outcome.broke ? std::string(row_of(outcome.reason).name) + " at " + outcome.where : "no tensor work";
  log::emit(
      log::Kind::LeftAlone, place(frame_),
      {{"reason", std::to_string(kMostVainTries) + " tries in a row did not compile this function as a whole: " + why},
       {"hint", (outcome.broke ? std::string(row_of(outcome.reason).hint) + "; or " : "nothing; or ") +
                    "framejit.compile() on the function, which compiles its parts"}});
}

// Where the segment begins. Before its first line, a frame has no place in tracebacks.
int Drive::here() const { return std::max(frame_.next_index(), frame_.code()->_co_firsttraceable); }

// Before its first line, a frame gets the cells of its closure. Anyone who looks at a traceback may read them.
void Drive::run_prologue() {
  const int first = frame_.code()->_co_firsttraceable;
  if (frame_.next_index() >= first) return;
  std::vector<uint8_t> stops(frame_.decoded()->unit_count, 0);
  stops[first] = 1;
  if (frame_.run({stops.data(), -1}).stop == EvalStop::raised) drop_error();
}

// The error that is set leaves the frame, past the frame's own handlers, because it is about the compile. at: f_lasti
// of its traceback entry.
Next Drive::leave_with_error(int at) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  if (!frame_.is_entered() && !frame_.enter()) {
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    return Next::left(nullptr);
  }
  if (frame_.is_fresh()) run_prologue();
  PyErr_Restore(type, value, traceback);
  if (at >= 0) frame_.set_current(at);
  if (PyRef frame = PyRef::steal(reinterpret_cast<PyObject*>(PyThreadState_GetFrame(frame_.thread()))))
    PyTraceBack_Here(reinterpret_cast<PyFrameObject*>(frame.get()));
  return Next::left(frame_.raise());
}

// Raises inside the frame, so that its handlers see the interrupt. The compile has changed nothing in the program.
Next Drive::raise_interrupt(int index) {
  const bool in_frame = frame_.is_entered() || frame_.enter();
  restore_interrupt();
  if (!in_frame) return Next::left(nullptr);
  const Code& code = *frame_.decoded();
  frame_.set_current(std::max(code.instructions[code.position_at(index)].opcode_index, here()));
  return after(frame_.raise_and_run({nullptr, 0}));
}

// A compile was refused, usually by code generation, or a device did not run what was compiled. False: an error is set,
// as FRAMEJIT_STRICT asks.
bool Drive::count_failure(Reason reason, const std::string& detail) {
  const bool raises = config().strict || PyErr_Occurred();
  raises ? count_raised(reason, place(frame_), detail) : count_fallback(reason, place(frame_), detail);
  if (PyErr_Occurred()) return false;
  if (config().strict)
    PyErr_Format(PyExc_SystemError, "framejit: %s: %s", name_of(reason), sentence(reason, detail).c_str());
  return !config().strict;
}

std::shared_ptr<Segment> Drive::compile(const guards::FrameAccess& access, int index, Next& next) {
  Site& site = frame_.state().site(index);
  const char* died = nullptr;
  std::vector<std::unique_ptr<EntryBase>> evicted, dead = take_dead_entries(site, options_, died);
  if (!may_compile(access, site, evicted, next)) return nullptr;
  if (!evicted.empty()) log_eviction(segment_of(evicted.front()));
  const log::CompileScope scope(next_id(note_of(frame_.state())), place_itself(frame_));
  misses(access, site).explain(died);
  const Compiling compiling(options_->user_backend != nullptr);
  const KeepsInterrupts keeps;
  std::optional<CompileOutcome> outcome = try_compile(access, index, site);
  if (!outcome || interrupt_is_kept() || !gives_segment(*outcome, next)) return nullptr;
  return install(std::move(*outcome), site);
}

// Whether the account of this place allows one more entry.
bool Drive::may_compile(const guards::FrameAccess& access, Site& site, std::vector<std::unique_ptr<EntryBase>>& evicted,
                        Next& next) {
  const EntryLimit limit = ask_account(site, options_, self(), evicted);
  if (limit == EntryLimit::none) return true;
  if (options_->fullgraph) {
    const std::string text = misses(access, site).limit_error(limit);
    PyErr_SetString(g_graph_break_error ? g_graph_break_error : PyExc_RuntimeError, text.c_str());
    next = leave_with_error(here());
    return false;
  }
  if (limit != EntryLimit::does_not_pay) return misses(access, site).count_limit(limit), false;
  log_loss(site);
  count_fallback(Reason::does_not_pay, place(frame_));
  return false;
}

// Nothing: a defect was counted, and nothing more is compiled here. An empty outcome: something else stopped the
// compile, and may have set an error.
std::optional<CompileOutcome> Drive::try_compile(const guards::FrameAccess& access, int index, Site& site) {
  try {
    TraceHints hints = note_of(frame_.state()).hints;
    const FrameNames names(frame_);
    hints.names = &names;
    hints.answers_compiling = answers_.answers_yes(frame_.state());
    add_loop_hints(*frame_.decoded(), index, hints.dynamic_sources);
    return stays_if_python_ends([&] { return compile_segment(access, frame_.decoded(), index, options_, hints); });
  } catch (const Interrupted&) { count_interrupted("a signal handler", place(frame_)); } catch (const std::bad_alloc&) {
    count_break(Reason::no_memory, "the trace and its passes", place(frame_), "");
  } catch (const std::exception& e) {
    drop_error();  // of the defect
    if (!config().strict) {
      count_fallback(Reason::internal_error, place(frame_), e.what());
      account_of(site, options_).failed = true;
      return std::nullopt;
    }
    count_raised(Reason::internal_error, place(frame_), e.what());
    PyErr_SetString(PyExc_SystemError, (std::string("framejit: ") + e.what()).c_str());
  }
  return CompileOutcome{};
}

// False: this call runs plainly, or leaves with an error.
bool Drive::gives_segment(const CompileOutcome& outcome, Next& next) {
  const bool is_of_program = outcome.reason == Reason::exception_raised || outcome.reason == Reason::interrupted;
  if (options_->fullgraph && outcome.broke && !is_of_program && !PyErr_Occurred())
    PyErr_Format(g_graph_break_error ? g_graph_break_error : PyExc_RuntimeError,
                 "%s: graph break with fullgraph=True: %s: %s\n%s\nhint: %s", outcome.where.c_str(),
                 row_of(outcome.reason).name, sentence(outcome.reason, outcome.detail).c_str(),
                 outcome.caret.c_str(), row_of(outcome.reason).hint);
  if ((outcome.failed && !count_failure(outcome.reason, outcome.detail)) || PyErr_Occurred()) {
    next = leave_with_error(outcome.at);
    return false;
  }
  if (options_->whole && (!outcome.segment || !outcome.segment->call)) return count_vain_try(outcome), false;
  return outcome.segment != nullptr;
}

std::shared_ptr<Segment> Drive::install(CompileOutcome outcome, Site& site) {
  if (options_->whole) note_of(frame_.state()).vain_tries = 0;
  if (outcome.reason == Reason::interrupted || outcome.reason == Reason::no_memory)
    return std::move(outcome.segment);  // not kept: the next call need not stop at this place
  auto entry = std::make_unique<SegmentEntry>(std::move(outcome.segment));
  auto segment = entry->segment;
  segment->id = log::current_id();
  segment->known_symbols = note_of(frame_.state()).hints.dynamic_sources.size();
  segment->last_use = ++g_uses;
  segment->request = requests();
  if (PyObject* module = self()) segment->self = PyRef::steal(PyWeakref_NewRef(module, nullptr));
  if (PyErr_Occurred()) drop_error();  // its class has no weak references
  site.entries.insert(site.entries.begin(), std::move(entry));
  return segment;
}

Next Drive::round() {
  if (c_stack_is_low()) return plainly_because(Reason::stack_low);
  if (frame_.is_entered() && !frame_.is_fresh() && tensor_frontend() && tensor_frontend()->records_nothing())
    return run_under_mode();
  const int index = frame_.next_index();
  const guards::FrameAccess access = frame_.access();
  Site* site = frame_.state().find_site(index);
  if (!site) return miss(access, index);
  SegmentRun run;
  for (auto& entry : site->entries) {
    const std::shared_ptr<Segment> segment = static_cast<SegmentEntry&>(*entry).segment;
    if (segment->options != options_ ||
        (segment->answer != CompilingAnswer::nothing && !answers_.fits(*segment, frame_.state())))
      continue;
    const RunStatus status = stays_if_python_ends([&] { return segment->run(frame_, access, run); });
    if (status == RunStatus::missed) continue;
    if (status != RunStatus::done) return no_result(status, *segment, run.stopped_by);
    if (segment->call) stats().hits += 1;
    else count_hit_without_graph(*segment);
    segment->hits += 1;
    segment->last_use = ++g_uses;
    if (run.due && !derive(std::move(run.due))) return leave_with_error(here());
    return apply(*segment, run);
  }
  if (has_failed(*site, options_)) return count_again(Reason::internal_error, frame_), plainly();
  return miss(access, index);
}

// Derives values for later calls. If Ctrl-C arrives meanwhile, it is raised at the next instruction, because this call
// has its results. False: a defect is an error under FRAMEJIT_STRICT.
bool Drive::derive(std::unique_ptr<DueDerivation> due) {
  if (g_compiling) return true;
  std::string defect;
  {
    const Compiling compiling(false);
    const KeepsInterrupts keeps;
    const log::CompileScope scope(next_id(note_of(frame_.state())), place_itself(frame_));
    try {
      stays_if_python_ends([&] { due->derive(); });
    } catch (const GraphBreak& b) {
      count_fallback(b.reason, place(frame_), b.detail);
      defect = sentence(b.reason, b.detail);
    } catch (const std::exception& e) { count_fallback(Reason::internal_error, place(frame_), defect = e.what()); }
  }
  if (interrupt_is_kept()) {
    restore_interrupt();
    drop_error();
  }
  if (defect.empty() || !config().strict) return true;
  PyErr_Format(PyExc_SystemError, "framejit: %s", defect.c_str());
  return false;
}

// No entry fits, and torch's stance decides what happens. If the result does not leave the frame, the caller compiles.
Next Drive::miss_under(Stance stance, const guards::FrameAccess& access, int index) {
  if (stance == Stance::keep) return plainly();
  if (stance == Stance::fail) {
    Site& site = frame_.state().site(index);
    const bool has_entries = entries_with(site, options_, self()) > 0;
    const std::string text = place(frame_) +
                             ": would compile, and torch.compiler.set_stance(\"fail_on_recompile\") forbids it. " +
                             (has_entries ? misses(access, site).failing_guards() : "Nothing is compiled here yet.");
    PyErr_SetString(PyExc_RuntimeError, text.c_str());
    return leave_with_error(here());
  }
  if (stance == Stance::second_call && frame_.is_fresh() && !std::exchange(note_of(frame_.state()).was_called, true))
    return plainly();
  return {};
}

Next Drive::miss(const guards::FrameAccess& access, int index) {
  if (!tensor_frontend()) return plainly();
  if (options_->whole && note_of(frame_.state()).functions_left_alone) return plainly();
  if (const Stance stance = stance_now(); stance != Stance::compile)
    if (const Next next = miss_under(stance, access, index); next.leave) return next;
  if (g_compiling)
    return PyThread_get_thread_ident() == g_own_code_thread ? plainly() : plainly_because(Reason::compile_running);
  Next next;
  const std::shared_ptr<Segment> segment = compile(access, index, next);
  if (interrupt_is_kept()) return raise_interrupt(index);
  if (!segment) return next.leave ? next : plainly();
  SegmentRun run;
  const RunStatus status = stays_if_python_ends([&] { return segment->run(frame_, access, run); });
  // A new entry does not fit if another thread changed something guarded while the compile ran without the GIL.
  if (status != RunStatus::done) return no_result(status, *segment, run.stopped_by);
  if (run.due && !derive(std::move(run.due))) return leave_with_error(here());
  return apply(*segment, run);
}

bool is_left_alone(LiveFrame& frame) {
  stats().frames += 1;
  if (!t_enabled || stance_now() == Stance::plain) return true;
  if (frame.is_generator() || (frame.code()->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR)))
    return true;
  const guards::FrameAccess access = frame.access();
  const bool has_odd_globals = !PyDict_CheckExact(access.globals) || !PyDict_CheckExact(access.builtins);
  if (!has_odd_globals && !frame.is_observed() && frame.decoded()) return false;
  drop_error();
  count_fallback(has_odd_globals       ? Reason::odd_globals
                 : frame.is_observed() ? Reason::observed
                                       : Reason::undecodable,
                 place(frame));
  return true;
}

}  // namespace

PyObject* FrameDriver::on_frame(LiveFrame& frame, PyObject* options) {
  if (is_left_alone(frame)) return frame.pass_through();
  const Options* known = options_of(options);
  if (!known) return frame.is_entered() || frame.enter() ? frame.raise() : nullptr;
  CompilingAnswers answers;
  return answers.leaves(Drive(frame, *known, answers).run());
}

PyObject* FrameDriver::on_frame(LiveFrame& frame, const Options& options) {
  const bool is_of_compile = g_compiling;  // an import of the tracer
  if (is_of_compile || is_left_alone(frame)) return frame.pass_through();
  CompilingAnswers answers;
  return answers.leaves(Drive(frame, options, answers).run());
}

std::optional<PyObject*> FrameDriver::try_frame(LiveFrame& frame, const Options& options) {
  if (is_left_alone(frame)) return std::nullopt;
  bool refusal = false;
  CompilingAnswers answers;
  PyObject* const result = answers.leaves(Drive(frame, options, answers, &refusal).run());
  return refusal ? std::nullopt : std::optional(result);
}

void FrameDriver::on_request() { count_request(); }

void FrameDriver::on_stack_end(PyCodeObject* code) {
  count_fallback(Reason::stack_low, place_of(code, code->co_firstlineno));
}

void FrameDriver::reset() {
  reset_code_states();
  log::reset_warn_once();
  stats() = Stats{};
}

FrameDriver& frame_driver() {
  static FrameDriver driver;
  return driver;
}

void set_graph_break_error(PyObject* type) { Py_XSETREF(g_graph_break_error, Py_XNewRef(type)); }

bool set_thread_enabled(bool enabled) { return std::exchange(t_enabled, enabled); }

void forget_running_compile() {
  g_compiling = false;
  after_fork_in_child();
  if (PyGILState_Check()) CollectorWaits::end();
}

}  // namespace framejit::frame_hook
