// runtime/aten/torch_words.h — what an error of torch says to people.
#pragma once

#include <c10/util/Exception.h>

#include <exception>
#include <string>

namespace framejit::runtime {

// Without the C++ stack that what() of torch's errors ends in.
inline std::string torch_words(const std::exception& e) {
  const auto* error = dynamic_cast<const c10::Error*>(&e);
  return error ? error->what_without_backtrace() : e.what();
}

}  // namespace framejit::runtime
