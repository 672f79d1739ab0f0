// frame_hook/hook/code_state.cpp — the co_extra record and the list of all of them.
#include "frame_hook/hook/code_state.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "frame_hook/hook/pyver.h"
#include "guards/cpython/py_ref.h"

namespace framejit::frame_hook {
namespace {

Py_ssize_t extra_index = -1;
CodeState* all_states = nullptr;

struct Retired {
  std::unique_ptr<EntryBase> entry;
  const PyCodeObject* code;
};

// Never destroyed: code objects die during interpreter exit, after static destructors of this library may have run.
std::vector<Retired>& retired_entries() {
  static auto* entries = new std::vector<Retired>;
  return *entries;
}

void free_state(void* state) { delete static_cast<CodeState*>(state); }

}  // namespace

// Frames of `code` may still use the entry; null: frames of any code may.
void retire_entry(std::unique_ptr<EntryBase> entry, const PyCodeObject* code) {
  if (!entry) return;
  if (!EntryUse::is_used(code)) return;  // freed here
  retired_entries().push_back({std::move(entry), code});
  EntryUse::has_retired_ = true;
}

bool EntryUse::is_used(const PyCodeObject* code) {
  const EntryUse* use = newest_;
  while (use && code && use->code_ != code) use = use->older_;
  return use != nullptr;
}

void EntryUse::free_retired() {
  std::vector<Retired>& all = retired_entries();
  const auto unused =
      std::partition(all.begin(), all.end(), [](const Retired& retired) { return is_used(retired.code); });
  const std::vector<Retired> freed(std::make_move_iterator(unused), std::make_move_iterator(all.end()));
  all.erase(unused, all.end());
  has_retired_ = !all.empty();
}  // the destructors of what is freed may run Python code, which may retire more entries

CodeState::CodeState(PyCodeObject* code) : code_(code), next_(all_states) {
  if (next_) next_->previous_ = this;
  all_states = this;
}

CodeState::~CodeState() {
  (previous_ ? previous_->next_ : all_states) = next_;
  if (next_) next_->previous_ = previous_;
  clear();
}

CodeState* CodeState::find(PyCodeObject* code) {
  return static_cast<CodeState*>(pyver::extra_get(code, extra_index));
}

CodeState* CodeState::of(PyCodeObject* code) {
  if (CodeState* state = find(code)) return state;
  auto* state = new CodeState(code);
  if (pyver::extra_set(code, extra_index, state) == 0) return state;
  delete state;
  return nullptr;
}

const std::shared_ptr<const Code>& CodeState::decoded() {
  if (!decoded_) decoded_ = Code::decode(code_);
  return decoded_;
}

Site* CodeState::find_site(int unit) const {
  return static_cast<size_t>(unit) < sites_.size() ? sites_[unit].get() : nullptr;
}

Site& CodeState::site(int unit) {
  if (sites_.empty()) sites_.resize(static_cast<size_t>(Py_SIZE(code_)));
  if (!sites_[unit]) sites_[unit] = std::make_unique<Site>();
  return *sites_[unit];
}

void CodeState::clear() {
  skip = false;
  auto sites = std::exchange(sites_, {});  // the destructors of entries may run Python code, which must not see them
  for (auto& site : sites) retire_entry(std::move(site), code_);
  retire_entry(std::move(note), code_);
}

void CodeState::take_entries(const std::function<bool(const EntryBase&)>& which,
                             std::vector<std::unique_ptr<EntryBase>>& taken) {
  for (const auto& site : sites_) {
    if (!site) continue;
    for (auto& entry : site->entries)
      if (which(*entry)) taken.push_back(std::move(entry));
    std::erase(site->entries, nullptr);
  }
}

void for_each_code_state(const std::function<void(CodeState&)>& visit) {
  for (CodeState* state = all_states; state;) {
    CodeState* next = state->next();
    visit(*state);
    state = next;
  }
}

void reset_code_states() {
  // Dropping entries may free code objects and so CodeStates: hold all code objects meanwhile.
  std::vector<PyRef> codes;
  for_each_code_state(
      [&](CodeState& state) { codes.push_back(PyRef::borrow(reinterpret_cast<PyObject*>(state.code()))); });
  for (const PyRef& code : codes)
    if (CodeState* state = CodeState::find(reinterpret_cast<PyCodeObject*>(code.get()))) state->clear();
}

void drop_entries(const std::function<bool(const EntryBase&)>& which) {
  std::vector<std::unique_ptr<EntryBase>> taken;
  for_each_code_state([&](CodeState& state) { state.take_entries(which, taken); });
  for (auto& entry : taken) retire_entry(std::move(entry), nullptr);
}

bool initialise_code_states() {
  if (extra_index >= 0) return true;
  const Py_ssize_t index = pyver::extra_request(free_state);
  if (index < 0) return false;
  PyCodeObject* probe = PyCode_NewEmpty("<framejit>", "probe", 1);
  if (!probe) return false;
  extra_index = index;
  CodeState* state = CodeState::of(probe);
  void* by_api = nullptr;
  const bool agrees = state && pyver::extra_get_by_api(probe, index, &by_api) == 0 && by_api == state &&
                      CodeState::find(probe) == state;
  Py_DECREF(probe);
  if (!agrees || all_states != nullptr) extra_index = -1;
  PyErr_Clear();
  return extra_index >= 0;
}

}  // namespace framejit::frame_hook
