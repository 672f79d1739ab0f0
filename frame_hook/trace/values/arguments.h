// frame_hook/trace/values/arguments.h — the arguments of a call.
#pragma once

#include <utility>
#include <vector>

#include "frame_hook/trace/values/value.h"

namespace framejit::frame_hook {

struct Keywords : std::vector<std::pair<PyObject*, Value*>> {  // borrowed interned names
  using std::vector<std::pair<PyObject*, Value*>>::vector;
  std::vector<DictValue*> order_from;     // as in DictValue: code that looks at the order guards it
};

struct Arguments {                        // of a call: positional ones, then those with keywords
  std::vector<Value*> positional;
  Keywords keywords;
};

// With one more in front.
inline Arguments with_first(Value* first, const Arguments& args) {
  Arguments all;
  all.positional.reserve(args.positional.size() + 1);
  all.positional.push_back(first);
  all.positional.insert(all.positional.end(), args.positional.begin(), args.positional.end());
  all.keywords = args.keywords;
  return all;
}

}  // namespace framejit::frame_hook
