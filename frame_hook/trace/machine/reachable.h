// frame_hook/trace/machine/reachable.h — the values that are reached from a value of the trace.
#pragma once

#include <functional>
#include <unordered_set>
#include <vector>

#include "frame_hook/trace/values/object_kinds.h"
#include "frame_hook/trace/values/value.h"

namespace framejit::frame_hook {

// Values that an exit would have to rebuild, and real iterators, each once.
class Reachable {
 public:
  explicit Reachable(std::function<void(Value*)> visit) : visit_(std::move(visit)) {}
  void walk(Value* root) {
    add(root);
    while (!pending_.empty()) {
      Value* v = pending_.back();
      pending_.pop_back();
      visit_(v);
      add_parts(v);
    }
  }

 private:
  void add(Value* v) {
    if (v && v->kind != ValueKind::null && (v->kind != ValueKind::object || may_be_half_way(v->type)) &&
        seen_.insert(v).second)
      pending_.push_back(v);
  }
  void add(const std::vector<Value*>& values) {
    for (Value* v : values) add(v);
  }
  void add_parts(Value* v);

  std::function<void(Value*)> visit_;
  std::unordered_set<Value*> seen_;
  std::vector<Value*> pending_;
};

}  // namespace framejit::frame_hook
