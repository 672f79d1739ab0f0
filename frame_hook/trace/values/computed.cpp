// frame_hook/trace/values/computed.cpp — results of pure C functions of numbers that differ from call to call: 1 - beta
// ** step, math.cos(step), x.shape[1] ** 0.5, scale > 1.0, f"{rate:.2f}".
//
// Such a value has its own kind of source (computed): the guard program calls the function again. If some code needs
// the value, the value is guarded, not its operands; a float stays open, an int becomes a symbol.

#include "frame_hook/trace/values/open_numbers.h"
#include "frame_hook/trace/values/originals.h"
#include "guards/cpython/interrupts.h"
#include "guards/guard_functions.h"

namespace framejit::frame_hook {

using guards::kNoSource;
using guards::SourceId;
using guards::SourceKind;

namespace {

constexpr size_t kMostComputed = 2048;  // of one trace: a loop would make an endless guard program

}  // namespace

bool OpenNumbers::is_open(Value* v) {
  if (v->kind == ValueKind::sym_int) return !as<SymIntValue>(v)->expr.as_constant();
  return is_open_float(v) ||
         (v->kind == ValueKind::object && !v->value_guarded && shadows.facts.is_computed(v->source));
}

SourceId OpenNumbers::source_of(Value* v) {
  guards::SourceTable& sources = shadows.facts.sources();
  if (v->kind == ValueKind::sym_int) {
    const graph::SymExpr& size = as<SymIntValue>(v)->expr;
    if (v->source != kNoSource) return v->source;  // it already has its int_range guard
    const std::string text = size.text();
    std::vector<graph::SymExpr>& sizes = trace_.guards.sizes;
    size_t index = 0;
    while (index < sizes.size() && !(sizes[index] == size)) ++index;
    if (index == sizes.size()) sizes.push_back(size);
    const PyRef key = PyRef::steal(PyUnicode_FromString(text.c_str()));
    return sources.add(SourceKind::size, kNoSource, static_cast<int32_t>(index), key.get());
  }
  if (is_open(v) && v->source == kNoSource) {
    FloatFormula& formula = trace_.float_formulas.at(v);
    if (formula.source != kNoSource) return formula.source;
    const SourceId a = source_of(formula.a), b = source_of(formula.b);
    PyObject* const function = operator_function(names_of(formula.op).function);
    return formula.source = sources.add(SourceKind::computed, a, static_cast<int32_t>(b), function);
  }
  if (is_open(v)) {
    shadows.facts.type_of(v);
    return v->source;
  }
  return sources.add(SourceKind::constant, kNoSource, 0, constant_of(shadows, v));
}

Value* OpenNumbers::computed(PyObject* function, std::initializer_list<Value*> operands) {
  bool open = false;
  PyRef objects[2];
  PyObject* now[2];
  size_t count = 0;
  for (Value* v : operands) {
    open = open || is_open(v);
    if (v->kind == ValueKind::sym_int)
      objects[count] =
          PyRef::steal(PyLong_FromLongLong(shadows.heap.recording().shapes().hint(as<SymIntValue>(v)->expr)));
    else if (v->kind == ValueKind::object && v->object && guards::is_number_or_text(v->object.get()))
      objects[count] = v->object;
    else return nullptr;
    now[count] = objects[count].get();
    ++count;
  }
  if (!open || computed_ >= kMostComputed) return nullptr;
  const PyRef result = PyRef::steal(PyObject_Vectorcall(function, now, count, nullptr));
  if (!result) drop_error();  // the call on constants raises it again
  if (!result || !guards::is_number_or_text(result.get())) return nullptr;
  const size_t known = shadows.facts.sources().size();
  const SourceId first = source_of(*operands.begin());
  const int32_t second = count > 1 ? static_cast<int32_t>(source_of(operands.begin()[1])) : -1;
  const SourceId source = shadows.facts.sources().add(SourceKind::computed, first, second, function);
  computed_ += shadows.facts.sources().size() > known ? 1 : 0;
  return shadows.heap.wrap(result.get(), source);
}

Value* OpenNumbers::computed(PyObject* function, const Arguments& args) {
  const std::vector<Value*>& given = args.positional;
  if (!args.keywords.empty() || given.empty() || given.size() > 2) return nullptr;
  return given.size() == 1 ? computed(function, {payload_of(given[0])})
                           : computed(function, {payload_of(given[0]), payload_of(given[1])});
}

}  // namespace framejit::frame_hook
