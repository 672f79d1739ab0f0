// tests/golden/golden.h — golden cases: text in, a list of stages, text out.
//
//   === name
//   run: functionalize, dce        stages of the folder that the file lies in
//   --- in
//   ...
//   --- out                        left out when the stages are expected to change nothing
//   ...
// UPDATE_GOLDEN=1 rewrites the out parts in place. Files are found by glob in tests/golden/<folder>/*.txt.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/base/result.h"

namespace framejit::golden {

struct Case {
  std::string name;
  std::vector<std::string> stages;
  std::string in, out;
  bool has_out = false;
};

// The meaning of a folder's cases: runs the stages on the text of `in`. May add its own expectations (round trip,
// verifier).
using Runner = std::function<Result<std::string>(const Case&)>;

struct Folder {
  Folder(std::string name, Runner runner);  // a static object registers a folder
};

std::vector<Case> read_cases(const std::string& text);
std::string write_cases(const std::vector<Case>& cases,
                        const std::string& head);  // head: comment lines before the first case

}  // namespace framejit::golden
