// guards/change_text.cpp — a failed guard as a sentence for users: its row of changes.def, filled.
#include <algorithm>
#include <cctype>

#include "graph/int64_range.h"
#include "guards/describe.h"
#include "guards/guard_body.h"
#include "guards/guard_functions.h"

namespace framejit::guards {
namespace {

struct ChangeRow {
  std::string_view text, hint;
};
constexpr ChangeRow kRows[] = {
#define CHANGE(name, text, hint) {text, hint},
#include "guards/changes.def"
#undef CHANGE
};

constexpr ChangeKind kOfGuards[] = {
#define GUARD(name, flags, text) ChangeKind::name,
#include "guards/guard_kinds.def"
#undef GUARD
};

struct Values {  // of the fields of a row
  std::string source, other, owner, was, now, what, dim;
};

std::string filled(std::string_view row, const Values& values) {
  const std::pair<std::string_view, const std::string*> fields[] = {
      {"{source}", &values.source}, {"{other}", &values.other}, {"{owner}", &values.owner}, {"{was}", &values.was},
      {"{now}", &values.now},       {"{what}", &values.what},   {"{dim}", &values.dim}};
  std::string out;
  while (!row.empty()) {
    const auto field = std::ranges::find_if(fields, [&](const auto& f) { return row.starts_with(f.first); });
    if (field != std::end(fields)) out += *field->second;
    else out += row.front();
    row.remove_prefix(field != std::end(fields) ? field->first.size() : 1);
  }
  return out;
}

Change made(ChangeKind kind, const Values& values) {
  const ChangeRow& row = kRows[static_cast<size_t>(kind)];
  return {kind, filled(row.text, values), filled(row.hint, values)};
}

bool is_number(PyObject* object) { return object && (PyLong_CheckExact(object) || PyFloat_CheckExact(object)); }

ChangeKind kind_of(const Guard& guard, PyObject* object, const Values& values, SourceKind source) {
  PyObject* const was = guard.object.get();
  switch (guard.kind) {
    case GuardKind::is:
      if (was == nullptr) return ChangeKind::is;
      if (PyBool_Check(was) && PyBool_Check(object)) return ChangeKind::flag;
      if (was == Py_None || object == Py_None) return ChangeKind::none;
      return values.was == values.now ? ChangeKind::is_another : ChangeKind::is;
    case GuardKind::equals:
      if (is_number(was) && is_number(object) && Py_TYPE(was) == Py_TYPE(object)) return ChangeKind::number;
      return values.was == values.now ? ChangeKind::is_another : ChangeKind::equals;
    case GuardKind::dict_has:
      if (source == SourceKind::instance_dict) return ChangeKind::attribute_is_gone;
      return source == SourceKind::globals || source == SourceKind::function_globals ? ChangeKind::name_is_gone
                                                                                     : ChangeKind::dict_has;
    case GuardKind::dict_lacks:
      if (source == SourceKind::instance_dict) return ChangeKind::attribute_is_new;
      return source == SourceKind::globals || source == SourceKind::function_globals ? ChangeKind::name_is_new
                                                                                     : ChangeKind::dict_lacks;
    default: return kOfGuards[static_cast<size_t>(guard.kind)];
  }
}

std::string was_of(const Guard& guard) {
  const bool counts = guard.kind == GuardKind::length || guard.kind == GuardKind::iterator_has ||
                      guard.kind == GuardKind::iterator_ends;
  return counts ? std::to_string(guard.number) : describe(guard.object.get());
}

// An expression of symbols, with the user's words in their place.
std::string with_names(const std::string& text, const GuardSet& set, const UserNames& names) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) || text[end] == '_')) ++end;
    if (end == at) {
      out += text[at++];
      continue;
    }
    const std::string word = text.substr(at, end - at);
    at = end;
    size_t id = 0;
    while (id < set.symbol_count && graph::SymExpr::symbol(static_cast<graph::SymbolId>(id)).text() != word) ++id;
    const auto place = id < set.symbol_count ? find_symbol(set, id) : std::nullopt;
    out += place ? set.sources.words(place->source, names) + place->suffix() : word;
  }
  return out;
}

Change change_of_size(const GuardSet& set, const graph::SizeFact& fact, const std::vector<int64_t>& symbols,
                      const UserNames& names) {
  Values values;
  if (graph::is_any_int64(fact)) {
    values.was = with_names(fact.right.text(), set, names);
    return made(ChangeKind::range_of_size, values);
  }
  values.was = with_names(text_of(fact), set, names);
  if (!fact.rule.empty()) values.was += " (" + fact.rule + ")";
  for (const graph::SymExpr* side : {&fact.left, &fact.right}) {
    if (side->is_constant()) continue;
    const std::optional<int64_t> value = graph::value_of(*side, symbols);
    values.now += (values.now.empty() ? "" : " and ") + with_names(side->text(), set, names) + " is " +
                  (value ? std::to_string(*value) : "not a 64-bit integer");
  }
  return made(ChangeKind::size_fact, values);
}

ChangeKind with_symbols(ChangeKind kind, Symbols symbols) {
  if (symbols == Symbols::possible || (kind != ChangeKind::size && kind != ChangeKind::number)) return kind;
  if (symbols == Symbols::refused) return kind == ChangeKind::size ? ChangeKind::size_again : ChangeKind::number_again;
  return kind == ChangeKind::size ? ChangeKind::size_is_fixed : ChangeKind::number_is_fixed;
}

Change change_of_tensor(const TensorDifference& difference, const GuardSet& set, Values values, const UserNames& names,
                        Symbols symbols) {
  values.what = difference.what;
  values.was = with_names(difference.was, set, names);
  if (difference.relation == ">=") values.was += " or more";
  values.now = difference.now;
  values.dim = std::to_string(difference.dim);
  return made(with_symbols(difference.kind, symbols), values);
}

}  // namespace

std::string hint_of(ChangeKind kind) { return std::string(kRows[static_cast<size_t>(kind)].hint); }

Change GuardProgram::change(const GuardFailure& failure, const UserNames& names, Symbols symbols) const {
  const GuardSet& set = body_->set;
  Values values;
  if (failure.mode >= 0) {
    values.now = set.modes[static_cast<size_t>(failure.mode)]->change();
    return made(ChangeKind::mode, values);
  }
  if (failure.size_fact >= 0)
    return change_of_size(set, set.size_facts[static_cast<size_t>(failure.size_fact)], failure.symbols, names);
  if (failure.source_id == kNoSource) return made(ChangeKind::gone, values);
  std::optional<TensorDifference> difference;
  if (failure.guard) {  // before names are asked for: source files may be read for them
    const Guard& guard = *failure.guard;
    if (guard.facts) difference = guard.facts->difference(failure.object);
    values.was = was_of(guard);
    values.now = text_of_now(guard, failure.object);
  }
  const Source& source = set.sources[failure.source_id];
  const ChangeKind kind =
      failure.guard ? kind_of(*failure.guard, failure.object, values, source.kind) : ChangeKind::unreachable;
  values.source = set.sources.words(failure.source_id, names);
  // Of these, only enumerate has a number: the count of its next item.
  if (kind == ChangeKind::number && source.kind == SourceKind::iterator_part) {
    values.source = "the count of " + set.sources.words(source.base, names);
    return made(ChangeKind::count, values);
  }
  if (source.kind == SourceKind::local && names.are_arguments(source.index)) {
    if (kind == ChangeKind::length) return made(ChangeKind::argument_count, values);
    if (kind == ChangeKind::dict_keys || kind == ChangeKind::dict_key_set)
      return made(ChangeKind::keyword_arguments, values);
  }
  if (source.base != kNoSource) values.owner = set.sources.words(source.base, names);
  if (failure.guard && failure.guard->other != kNoSource) values.other = set.sources.words(failure.guard->other, names);
  return difference ? change_of_tensor(*difference, set, values, names, symbols)
                    : made(with_symbols(kind, symbols), values);
}

}  // namespace framejit::guards
