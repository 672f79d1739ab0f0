#include "frame_hook/trace/types/c_arguments.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "guards/cpython/names.h"

namespace framejit::frame_hook {

void only_positional(Errors& errors, const Arguments& args, const char* function, size_t least, size_t most) {
  if (!args.keywords.empty())
    errors.raise_new(PyExc_TypeError, std::string(function) + "() takes no keyword arguments");
  const size_t n = args.positional.size();
  if (n >= least && n <= most) return;
  const char* how = least == most ? "exactly" : n < least ? "at least" : "at most";
  const size_t want = n < least ? least : most;
  errors.raise_new(PyExc_TypeError, std::string(function) + " expected " + how + " " + std::to_string(want) +
                                        " argument" + (want == 1 ? "" : "s") + ", got " + std::to_string(n));
}

std::vector<Value*> parse(Errors& errors, const Arguments& args, const char* function,
                          std::initializer_list<const char*> names, size_t required) {
  std::vector<Value*> bound;
  std::vector<std::string_view> known;
  size_t most_positional = SIZE_MAX;
  for (const char* name : names) {
    if (*name == '$') most_positional = std::min(most_positional, known.size());
    known.push_back(*name == '$' ? name + 1 : name);
  }
  bound.resize(known.size(), nullptr);
  if (args.positional.size() > std::min(most_positional, known.size()))
    errors.raise_new(PyExc_TypeError, std::string(function) + "() takes at most " + std::to_string(known.size()) +
                                          " arguments (" + std::to_string(args.positional.size()) + " given)");
  std::copy(args.positional.begin(), args.positional.end(), bound.begin());
  for (const auto& [name, v] : args.keywords) {
    auto it = std::find(known.begin(), known.end(), text_of(name));
    if (it == known.end())
      errors.raise_new(PyExc_TypeError,
                       std::string("'") + exact_text(name) + "' is an invalid keyword argument for " + function + "()");
    const auto at = it - known.begin();
    if (bound[at])
      errors.raise_new(PyExc_TypeError, "argument for " + std::string(function) + "() given by name ('" +
                                            exact_text(name) + "') and position (" + std::to_string(at + 1) + ")");
    bound[at] = v;
  }
  for (size_t i = 0; i < required; ++i)
    if (!bound[i])
      errors.raise_new(PyExc_TypeError, std::string(function) + "() missing required argument '" +
                                            std::string(known[i]) + "' (pos " + std::to_string(i + 1) + ")");
  return bound;
}

}  // namespace framejit::frame_hook
