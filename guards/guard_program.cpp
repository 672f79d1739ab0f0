// guards/guard_program.cpp — the loop that runs a guard program.
#include "guards/guard_program.h"

#include <algorithm>

#include "guards/fetch.h"
#include "guards/guard_body.h"
#include "guards/guard_functions.h"

namespace framejit::guards {

void BlockRecord::remember(uint64_t version, PyObject* const* registers) {
  if (version == 0) return;
  // A version that is already in this way may belong to another dict as well as to an older state of this one: make
  // room for both.
  while (versions_[way_of(version)] != 0 && can_grow()) {
    const std::vector<uint64_t> old_versions = std::move(versions_);
    const std::vector<PyObject*> old_values = std::move(values_);
    ++log_ways_;
    versions_.assign(1u << log_ways_, 0);
    values_.assign((size_t{1} << log_ways_) * count_, nullptr);
    for (size_t way = 0; way < old_versions.size(); ++way) {
      if (old_versions[way] == 0) continue;
      const size_t to = way_of(old_versions[way]);
      versions_[to] = old_versions[way];
      std::copy_n(old_values.begin() + way * count_, count_, values_.begin() + to * count_);
    }
  }
  const size_t way = way_of(version);
  versions_[way] = version;
  std::copy_n(registers + first_, count_, values_.begin() + way * count_);
}

int GuardProgram::Body::first_failing_step(const RunState& run, size_t start) const {
  PyObject** const registers = run.registers;
  const Step* const begin = steps.data();
  const Step* const end = begin + steps.size();
  const Step* block_end = end;  // steps up to here belong to the open block
  BlockRecord* open = nullptr;
  uint64_t open_version = 0;
  bool are_new = false;  // the objects of the distinct block, which is the last
  for (const Step* step = begin + start; step != end; ++step) {
    if (open && step == block_end) {
      open->remember(open_version, registers);
      open = nullptr;
    }
    PyObject* const base = step->base == kNoRegister ? nullptr : registers[step->base];
    bool holds = true;
    switch (step->code) {
#define SOURCE(name, text, words)                             \
  case StepCode::fetch_##name:                                \
    registers[step->target] = fetch_##name(run, base, *step); \
    holds = registers[step->target] || step->may_be_absent;   \
    break;
#include "guards/source_kinds.def"
#undef SOURCE
#define GUARD(name, flags, text) \
  case StepCode::guard_##name: holds = guard_##name(run, base, *step); break;
#include "guards/guard_kinds.def"
#undef GUARD
      case StepCode::dict_block:
      case StepCode::type_block: {
        const bool dict = step->code == StepCode::dict_block;
        holds = dict ? PyDict_Check(base) : PyType_Check(base);
        if (!holds) break;
        open_version = dict ? dict_version(base) : type_version(base);
        if (records[step->target].recall(open_version, registers)) {
          step += step->number - 1;
        } else {
          open = &records[step->target];
          block_end = step + step->number;
        }
        break;
      }
      case StepCode::distinct_block:
        if (distinct->recall(registers)) step += step->number - 1;
        else are_new = true;
        break;
    }
    if (!holds) return static_cast<int>(step - begin);
  }
  if (open) open->remember(open_version, registers);
  if (are_new) distinct->remember(registers);
  return -1;
}

GuardProgram::GuardProgram(std::unique_ptr<Body> body) : body_(std::move(body)) {}
GuardProgram::~GuardProgram() = default;

Result<std::unique_ptr<GuardProgram>> GuardProgram::compile(GuardSet guards, const std::vector<SourceId>& wanted,
                                                            PyCodeObject* code) {
  auto body = std::make_unique<Body>();
  body->set = std::move(guards);
  FJ_TRY_VOID(GuardCompiler(*body).run(wanted));
  body->code = body->weak.hold(PyRef::borrow(reinterpret_cast<PyObject*>(code)));
  return std::unique_ptr<GuardProgram>(new GuardProgram(std::move(body)));
}

bool GuardProgram::run(const FrameAccess& frame, PyObject** registers, int64_t* symbols) const {
  if (body_->weak.dead()) return false;
  if (body_->computes) forget_computed();
  if (body_->first_failing_step({frame, registers, symbols, &body_->set}) >= 0) return false;
  for (const auto& mode : body_->set.modes)
    if (!mode->matches()) return false;
  return body_->sizes.first_failure(symbols) < 0;
}

size_t GuardProgram::register_count() const { return body_->register_count; }
size_t GuardProgram::register_of(SourceId wanted) const { return body_->register_of_source.at(wanted); }
size_t GuardProgram::symbol_count() const { return body_->set.symbol_count; }
bool GuardProgram::dead() const { return body_->weak.dead(); }
const GuardSet& GuardProgram::guards() const { return body_->set; }

}  // namespace framejit::guards
