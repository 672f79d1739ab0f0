// guards/source.h — access paths: how to find an object of the trace again from the live frame. L['x'].w[0]
//
// Sources are hash-consed in one table per capture; a SourceId is an index. Texts look as users write them: an
// instance_dict followed by dict_item of a str prints as base.name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "guards/cpython/py_ref.h"
#include "guards/user_names.h"
#include "runtime/base/hash_index.h"

namespace framejit::guards {

enum class SourceKind : uint8_t {
#define SOURCE(name, text, words) name,
#include "guards/source_kinds.def"
#undef SOURCE
};

using SourceId = uint32_t;
inline constexpr SourceId kNoSource = UINT32_MAX;

struct Source {
  SourceKind kind;
  SourceId base = kNoSource;
  int32_t index = 0;
  PyRef key;
};

class SourceTable {
 public:
  // Equal kind, base, index and key (identity, or equality for exact str and int) give the same id.
  SourceId add(SourceKind kind, SourceId base = kNoSource, int32_t index = 0, PyObject* key = nullptr);
  const Source& operator[](SourceId id) const { return sources_[id]; }
  size_t size() const { return sources_.size(); }
  std::string text(SourceId id, PyCodeObject* code) const;
  std::string words(SourceId id, const UserNames& names) const;  // what the user's code calls it

 private:
  struct Reader;  // who the text is for
  void append_text(SourceId id, const Reader& reader, std::string& out) const;
  // The user's short form of an item; false if it has none.
  bool append_name(const Source& source, const Reader& reader, std::string& out) const;

  friend class GuardCompiler;  // makes references to mortal objects weak
  std::vector<Source> sources_;
  HashIndex index_;
};

}  // namespace framejit::guards
