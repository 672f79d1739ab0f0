#include "inductor/cpu/accumulators.h"

namespace framejit::inductor {

using llvm::Value;

void emit_carrying(FunctionState& s, Value* from, Value* to, Value* step, const Sets& sets, LoopBody body) {
  std::vector<Value**> carried;
  for (Accumulators* set : sets)
    for (Accumulator& a : *set)
      for (Value** v : {&a.value, &a.position, &a.lost})
        if (*v != nullptr) carried.push_back(v);
  emit_loop(s, from, to, carried, [&](Value* index) {
    body(index);
    return step;
  });
}

}  // namespace framejit::inductor
