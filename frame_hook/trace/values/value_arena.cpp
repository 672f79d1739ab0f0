// frame_hook/trace/values/value_arena.cpp — the memory of a trace's values: chunks that are freed together.
#include <utility>

#include "frame_hook/trace/values/value.h"

namespace framejit::frame_hook {

ValueArena& ValueArena::operator=(ValueArena&& other) {
  clear();
  chunks_ = std::move(other.chunks_);
  values_ = std::move(other.values_);
  return *this;
}

void ValueArena::clear() {
  for (Value* v : values_) v->~Value();
  values_.clear();
  chunks_.clear();
}

void* ValueArena::allocate(size_t size) {
  constexpr size_t kAlign = alignof(std::max_align_t);
  size = (size + kAlign - 1) / kAlign * kAlign;
  if (chunks_.empty() || chunks_.back().used + size > kChunk)
    chunks_.push_back({std::make_unique_for_overwrite<std::byte[]>(kChunk), 0});
  Chunk& chunk = chunks_.back();
  return chunk.data.get() + std::exchange(chunk.used, chunk.used + size);
}

}  // namespace framejit::frame_hook
