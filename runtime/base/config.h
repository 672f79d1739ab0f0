// runtime/base/config.h — every environment knob is a row of config.def: type, default, accepted words, doc.
//
// A bad value, or an unknown FRAMEJIT_* name, is an error that says what is accepted. config() is read from the
// environment once; a bad environment is reported by read_config(), which the package calls at import.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/result.h"

namespace framejit {

struct Config {
  using flag = bool;
  using integer = int64_t;
  using text = std::string;
  using pattern = std::string;
#define KNOB(field, type, environment, default_value, choices, doc) type field = default_value;
#include "runtime/base/config.def"
#undef KNOB
};

struct KnobRow {
  const char* field;
  const char* type;
  const char* environment;
  const char* choices;
  const char* doc;
};
const std::vector<KnobRow>& knobs();

// `environment` is a list of "NAME=value" that ends with nullptr, like environ.
Result<Config> read_config(const char* const* environment);
// Sets one knob by its environment name.
Result<void> set_knob(Config& config, const std::string& environment, const std::string& value);
// The configuration of this process, with defaults for values that read_config() refuses.
const Config& config();

}  // namespace framejit
