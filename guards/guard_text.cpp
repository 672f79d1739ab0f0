// guards/guard_text.cpp — guards as text, and why one does not hold: from its row and a second fetch.
#include <cctype>

#include "guards/cpython/weak_objects.h"
#include "guards/describe.h"
#include "guards/guard_body.h"
#include "guards/guard_functions.h"

namespace framejit::guards {
namespace {

constexpr const char* kGuardTexts[] = {
#define GUARD(name, flags, text) text,
#include "guards/guard_kinds.def"
#undef GUARD
};

std::string keys_text(PyObject* dict) {
  std::string text = "(";
  Py_ssize_t position = 0;
  PyObject *key, *value;
  while (PyDict_Check(dict) && PyDict_Next(dict, &position, &key, &value)) {
    if (text.size() > 80) return text + ", ...)";
    if (text.size() > 1) text += ", ";
    text += describe(key);
  }
  return text + ")";
}

}  // namespace

std::string text_of_now(const Guard& guard, PyObject* object) {
  switch (guard.kind) {
    case GuardKind::is:
    case GuardKind::equals:
    case GuardKind::holds:
    case GuardKind::int_range: return describe(object);
    case GuardKind::type_is: return type_name(Py_TYPE(object));
    case GuardKind::length: return std::to_string(builtin_length(object));
    case GuardKind::iterator_has:
    case GuardKind::iterator_ends: return std::to_string(items_left(object));
    case GuardKind::function_code: return describe(PyFunction_Check(object) ? PyFunction_GET_CODE(object) : object);
    case GuardKind::dict_key_set:
    case GuardKind::dict_keys: return keys_text(object);
    default: return "";
  }
}

namespace {

// The actual value, for the text after " but "; one line per kind.
std::string actual(const Guard& guard, PyObject* object) {
  const std::string now = text_of_now(guard, object);
  switch (guard.kind) {
    case GuardKind::is:
    case GuardKind::equals:
    case GuardKind::holds:
      if (guard.object && now == describe(guard.object.get())) return "is another " + type_name(Py_TYPE(object));
      return "is " + now;
    case GuardKind::type_unchanged: return "was changed";
    case GuardKind::same: return "is another object";
    case GuardKind::distinct: return "is the same object";
    case GuardKind::same_number: return "is another number";
    case GuardKind::iterator_has:
    case GuardKind::iterator_ends: return "has " + now;
    case GuardKind::cache_agrees: return "has another result";
    case GuardKind::dict_has: return "it is not there";
    case GuardKind::dict_lacks: return "it is there";
    case GuardKind::linked_order: return "is in another";
    case GuardKind::tensor: return "";
    case GuardKind::type_is:
    case GuardKind::length:
    case GuardKind::function_code:
    case GuardKind::dict_key_set:
    case GuardKind::dict_keys:
    case GuardKind::int_range: return "is " + now;
  }
  return "";
}

}  // namespace

std::string text_of(const Guard& guard, const SourceTable& sources, PyCodeObject* code) {
  std::string out;
  for (const char* p = kGuardTexts[static_cast<size_t>(guard.kind)]; *p;) {
    const std::string_view rest(p);
    auto field = [&](std::string_view name, auto&& value) {
      if (rest.substr(0, name.size()) != name) return false;
      out += value();
      p += name.size();
      return true;
    };
    if (field("{source}", [&] { return sources.text(guard.source, code); })) continue;
    if (field("{object}", [&] { return guard.facts ? guard.facts->text() : describe(guard.object.get()); })) continue;
    if (field("{number}", [&] { return std::to_string(guard.number); })) continue;
    if (field("{other}", [&] { return sources.text(guard.other, code); })) continue;
    out += *p++;
  }
  return out;
}

std::string text_of_failure(const Guard& guard, PyObject* object, const SourceTable& sources, PyCodeObject* code) {
  if (guard.kind == GuardKind::tensor) return sources.text(guard.source, code) + "." + guard.facts->mismatch(object);
  return text_of(guard, sources, code) + " but " + actual(guard, object);
}

// An int, or a size in the text of a tensor's facts ("torch.Tensor f32[s0, 4; ...] cpu").
std::optional<SymbolPlace> find_symbol(const GuardSet& set, size_t id) {
  const std::string symbol = graph::SymExpr::symbol(static_cast<graph::SymbolId>(id)).text();
  for (const Guard& guard : set.guards()) {
    if (guard.kind == GuardKind::int_range && guard.number == static_cast<int64_t>(id))
      return SymbolPlace{guard.source, -1};
    if (guard.kind != GuardKind::tensor) continue;
    const std::string text = guard.facts->text();
    const size_t end = text.find_first_of(";]");
    size_t at = text.find('[');
    for (int dim = 0; at != std::string::npos && at < end; ++dim) {
      const size_t next = text.find_first_of(",;]", at + 1), begin = text[at + 1] == ' ' ? at + 2 : at + 1;
      if (next != std::string::npos && text.substr(begin, next - begin) == symbol)
        return SymbolPlace{guard.source, dim};
      at = next;
    }
  }
  return std::nullopt;
}

namespace {

// Whether `symbol` ("s0") is a word of `text`.
bool names_symbol(const std::string& text, const std::string& symbol) {
  auto is_word = [&](size_t i) {
    return i < text.size() && (std::isalnum(static_cast<unsigned char>(text[i])) || text[i] == '_');
  };
  for (size_t at = text.find(symbol); at != std::string::npos; at = text.find(symbol, at + 1))
    if ((at == 0 || !is_word(at - 1)) && !is_word(at + symbol.size())) return true;
  return false;
}

// " where s0 = L['x'].size(0)": where the symbols of a size fact come from.
std::string symbols_text(const std::string& fact, const GuardSet& set, PyCodeObject* code) {
  std::string text;
  for (size_t id = 0; id < set.symbol_count; ++id) {
    const std::string symbol = graph::SymExpr::symbol(static_cast<graph::SymbolId>(id)).text();
    if (!names_symbol(fact, symbol)) continue;
    if (const auto place = find_symbol(set, id))
      text +=
          (text.empty() ? " where " : ", ") + symbol + " = " + set.sources.text(place->source, code) + place->suffix();
  }
  return text;
}

}  // namespace

PyCodeObject* GuardProgram::Body::live_code() const {
  PyObject* object = code.get();
  if (object && PyWeakref_CheckRefExact(object)) object = weak_target(object);
  return reinterpret_cast<PyCodeObject*>(object);
}

std::vector<std::string> GuardProgram::texts() const {
  std::vector<std::string> texts;
  PyCodeObject* code = body_->live_code();
  for (const Guard& guard : body_->set.guards()) {
    std::string text = text_of(guard, body_->set.sources, code);
    if (guard.line != kNoLine) text += "  # " + body_->set.line(guard.line);
    texts.push_back(std::move(text));
  }
  for (const graph::SizeFact& fact : body_->set.size_facts)
    texts.push_back(text_of(fact) + symbols_text(text_of(fact), body_->set, code) +
                    (fact.why.empty() ? "" : "  # " + fact.why) + (fact.rule.empty() ? "" : " (" + fact.rule + ")"));
  if (!body_->set.modes.empty())
    texts.push_back("modes of torch (grad, autocast, default dtype and device, ...) as they were");
  return texts;
}

namespace {

bool goes_through(const SourceTable& sources, SourceId id, SourceKind kind) {
  for (; id != kNoSource; id = sources[id].base)
    if (sources[id].kind == kind) return true;
  return false;
}

// A function, module or class is found where it was.
bool finds_code(const Guard& guard, const SourceTable& sources) {
  PyObject* object = guard.object.get();
  if (object && PyWeakref_CheckRefExact(object)) object = weak_target(object);
  if (guard.kind == GuardKind::function_code) return true;
  if (object && (PyModule_Check(object) || PyCFunction_Check(object))) return true;
  if (guard.kind == GuardKind::type_is && object) {
    auto* type = reinterpret_cast<PyTypeObject*>(object);
    if (type == &PyModule_Type || type == &PyFunction_Type || sources[guard.source].kind == SourceKind::stack)
      return true;
  }
  const SourceKind source = sources[guard.source].kind;
  if (source == SourceKind::function_globals || source == SourceKind::function_defaults) return true;
  if (guard.kind == GuardKind::same && goes_through(sources, guard.source, SourceKind::function_globals)) return true;
  return goes_through(sources, guard.source, SourceKind::builtins);
}

bool is_plumbing(const Guard& guard, const GuardSet& set) {
  const bool is_argument =
      guard.kind == GuardKind::tensor && !goes_through(set.sources, guard.source, SourceKind::instance_dict);
  if (set.is_of_torch(guard.line) && !is_argument) return true;
  return guard.kind == GuardKind::dict_has || guard.kind == GuardKind::dict_lacks ||
         guard.kind == GuardKind::type_unchanged || finds_code(guard, set.sources);
}

}  // namespace

std::vector<bool> GuardProgram::are_plumbing() const {
  std::vector<bool> all;
  for (const Guard& guard : body_->set.guards()) all.push_back(is_plumbing(guard, body_->set));
  all.resize(all.size() + body_->set.size_facts.size() + (body_->set.modes.empty() ? 0 : 1), false);
  return all;
}

namespace {

// False: something other than numbers differs.
bool add_changed_numbers(PyObject* before, PyObject* now, const std::string& source,
                         std::vector<std::string>& changed) {
  if (same_value(before, now)) return true;
  if (Py_TYPE(before) != Py_TYPE(now)) return false;
  if (PyLong_CheckExact(now) || PyFloat_CheckExact(now)) return changed.push_back(source), true;
  if (!PyTuple_CheckExact(now) || PyTuple_GET_SIZE(now) != PyTuple_GET_SIZE(before)) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(now); ++i)
    if (!add_changed_numbers(PyTuple_GET_ITEM(before, i), PyTuple_GET_ITEM(now, i),
                             source + "[" + std::to_string(i) + "]", changed))
      return changed.clear(), false;
  return true;
}

// The parts of a failed guard's value that could become symbols: the int or float itself, those of a tuple, or sizes of
// the tensor. No guard after it relies on such a value, so the rest can still be checked.
std::vector<std::string> changed_numbers(const Guard& guard, PyObject* now, const std::string& source) {
  std::vector<std::string> changed;
  if (guard.kind == GuardKind::tensor) {
    for (int dim : guard.facts->differing_dims(now)) changed.push_back(source + ".size(" + std::to_string(dim) + ")");
    for (int dim : guard.facts->differing_strides(now))
      changed.push_back(source + ".stride(" + std::to_string(dim) + ")");
  }
  if (guard.kind == GuardKind::equals) add_changed_numbers(guard.object.get(), now, source, changed);
  return changed;
}

const char* what_is_amiss(StepCode fetch) {
  switch (fetch) {
    case StepCode::dict_block: return " is not a dict";
    case StepCode::type_block: return " is not a type";
    case StepCode::fetch_computed: return " cannot be computed";
    default: return " is gone";
  }
}

bool is_guard(const Step& step) { return step.code >= StepCode::guard_is && step.code < StepCode::dict_block; }

}  // namespace

// Continues after the failed step as long as only numbers changed.
std::vector<std::string> GuardProgram::Body::all_changed(const RunState& run, int failed) const {
  std::vector<std::string> all;
  PyCodeObject* names = live_code();
  while (failed >= 0 && is_guard(steps[failed])) {
    const Guard& guard = set.guards()[steps[failed].origin];
    const std::vector<std::string> changed =
        changed_numbers(guard, run.registers[steps[failed].base], set.sources.text(guard.source, names));
    if (changed.empty()) break;
    all.insert(all.end(), changed.begin(), changed.end());
    failed = first_failing_step(run, failed + 1);
  }
  return all;
}

std::optional<GuardFailure> GuardProgram::explain(const FrameAccess& frame) const {
  const Body& body = *body_;
  GuardFailure failure;
  if (body.weak.dead()) {
    failure.text = kObjectIsGone;
    return failure;
  }
  std::vector<PyObject*> registers(body.register_count + 1);
  std::vector<int64_t> symbols(body.set.symbol_count + 1);
  const RunState run{frame, registers.data(), symbols.data(), &body.set};
  const int failed = body.first_failing_step(run);
  PyCodeObject* code = body.live_code();
  if (failed >= 0) {
    const Step& step = body.steps[failed];
    failure.held = static_cast<size_t>(failed);
    if (is_guard(step)) {
      failure.guard = &body.set.guards()[step.origin];
      failure.object = registers[step.base];
      failure.source_id = failure.guard->source;
      failure.source = body.set.sources.text(failure.source_id, code);
      failure.text = text_of_failure(*failure.guard, failure.object, body.set.sources, code);
      failure.because = body.set.line(failure.guard->line);
      failure.changed = body.all_changed(run, failed);
    } else {
      failure.source_id = step.origin;
      failure.source = body.set.sources.text(failure.source_id, code);
      failure.text = failure.source + what_is_amiss(step.code);
    }
    return failure;
  }
  failure.held = body.steps.size();
  for (size_t i = 0; i < body.set.modes.size(); ++i) {
    if (body.set.modes[i]->matches()) continue;
    failure.mode = static_cast<int>(i);
    failure.text = body.set.modes[i]->mismatch();
    return failure;
  }
  failure.size_fact = body.sizes.first_failure(symbols.data());
  if (failure.size_fact < 0) return std::nullopt;
  const graph::SizeFact& fact = body.set.size_facts[failure.size_fact];
  failure.text = text_of_failure(fact, symbols) + symbols_text(text_of(fact), body.set, code);
  failure.because = fact.why;
  failure.symbols = std::move(symbols);
  return failure;
}

}  // namespace framejit::guards
