// frame_hook/trace/machine/parts.h — puts handlers that take one part of the tracer into tables of functions that take
// all of it.
#pragma once

#include <type_traits>

#include "frame_hook/trace/machine/tracer.h"

namespace framejit::frame_hook {

struct NoPart {};  // for a handler that needs nothing of the tracer

template <class Part = Tracer>
using HandlerPart = Part;  // the column of a table that may be left out

template <class Part>
decltype(auto) part_of(Tracer& t) {
  if constexpr (std::is_same_v<Part, NoPart>) return NoPart{};
  else if constexpr (std::is_same_v<Part, CallStack>) return (t.stack);
  else if constexpr (std::is_same_v<Part, Facts>) return (t.facts);
  else if constexpr (std::is_same_v<Part, Heap>) return (t.heap);
  else if constexpr (std::is_same_v<Part, Errors>) return (t.errors);
  else if constexpr (std::is_same_v<Part, Drops>) return (t.drops);
  else if constexpr (std::is_same_v<Part, Shadows>) return (t.shadows);
  else if constexpr (std::is_same_v<Part, OpenNumbers>) return (t.numbers);
  else if constexpr (std::is_same_v<Part, TracedTensors>) return (t.tensors);
  else if constexpr (std::is_same_v<Part, Attempts>) return (t.attempts);
  else if constexpr (std::is_same_v<Part, Machine>) return (t.machine);
  else if constexpr (std::is_same_v<Part, Dicts>) return (t.dicts);
  else if constexpr (std::is_same_v<Part, RealCalls>) return (t.calls);
}

// on_part(&handler) is a function that calls the handler with its part of a tracer.
template <auto handler>
struct OnPart;
template <class Result, class Part, class... Operands, Result (*handler)(Part&, Operands...)>
struct OnPart<handler> {
  static Result call(Tracer& t, Operands... operands) {
    decltype(auto) part = part_of<Part>(t);
    return handler(part, operands...);
  }
};
template <auto handler>
inline constexpr auto on_part = &OnPart<handler>::call;
template <class Result, class... Operands, Result (*handler)(Tracer&, Operands...)>
inline constexpr auto on_part<handler> = handler;

}  // namespace framejit::frame_hook
