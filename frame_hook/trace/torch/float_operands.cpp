// frame_hook/trace/torch/float_operands.cpp — calls of torch functions with floats that differ from call to call.
//
// float_operands.def says where such a float may stand: as a 0-dim tensor, or as a number that the op reads when it
// runs. Ops on lists of tensors take a list of numbers too, one for each tensor. If all are one number, the op takes
// that; otherwise each tensor gets its own op.
#include <algorithm>

#include "frame_hook/trace/torch/special.h"
#include "frame_hook/trace/torch/tensor_operands.h"

namespace framejit::frame_hook {

namespace {

struct FloatOperand {
  std::string_view name;
  size_t beside, position;
  bool promotes;
};
constexpr FloatOperand kFloatOperands[] = {
#define FLOAT(name, beside, position, promotes) {#name, beside, position, promotes},
#define NUMBER(name, position, keyword)
#define NAMED(name, position, keyword)
#define EITHER(name, position, keyword)
#include "frame_hook/trace/torch/float_operands.def"
#undef EITHER
#undef NAMED
#undef NUMBER
#undef FLOAT
};

struct NumberOperand {
  std::string_view name;
  size_t position;
  std::string_view keyword;
  bool takes_tensors = false;
  bool is_named = false;  // by the method of one tensor
};
constexpr NumberOperand kNumberOperands[] = {
#define FLOAT(name, beside, position, promotes)
#define NUMBER(name, position, keyword) {#name, position, #keyword},
#define NAMED(name, position, keyword) {#name, position, #keyword, false, true},
#define EITHER(name, position, keyword) {#name, position, #keyword, true},
#include "frame_hook/trace/torch/float_operands.def"
#undef EITHER
#undef NAMED
#undef NUMBER
#undef FLOAT
};

constexpr std::string_view kOfLists = "_foreach_";

bool any_open_float(OpenNumbers& numbers, const Arguments& args) {
  return std::any_of(args.positional.begin(), args.positional.end(),
                     [&](Value* v) { return numbers.is_open_float(v); }) ||
         std::any_of(args.keywords.begin(), args.keywords.end(),
                     [&](const auto& named) { return numbers.is_open_float(named.second); });
}

bool is_sequence(Value* v) { return v->kind == ValueKind::list || v->kind == ValueKind::tuple; }

// The numbers of a list if at least one of them is open; otherwise nothing.
std::vector<Value*> open_numbers(Tracer& t, Value* v) {
  if (!is_sequence(v) || contains_tensor(t.frontend(), v)) return {};
  std::vector<Value*> items = t.unpack(v);
  const bool any = std::any_of(items.begin(), items.end(), [&](Value* item) { return t.numbers.is_open_float(item); });
  return any ? items : std::vector<Value*>{};
}

const char* own_name(PyObject* callable) {
  if (PyCFunction_Check(callable)) return reinterpret_cast<PyCFunctionObject*>(callable)->m_ml->ml_name;
  if (Py_TYPE(callable) == &PyMethodDescr_Type)
    return reinterpret_cast<PyMethodDescrObject*>(callable)->d_method->ml_name;
  return nullptr;
}

// If torch needs a number and is given a tensor, it reads the tensor. If guards can compute the number in the tensor,
// that is an open float.
void read_tensors(TracedTensors& tensors, std::string_view name, Arguments& args) {
  for (auto& [keyword, v] : args.keywords) {
    if (v->kind != ValueKind::tensor) continue;
    const bool is_number = std::any_of(std::begin(kNumberOperands), std::end(kNumberOperands), [&](const auto& row) {
      return !row.takes_tensors && row.name == name && row.keyword == text_of(keyword);
    });
    if (Value* number = is_number ? tensors.number_in(v) : nullptr) v = number;
  }
}

// _foreach_add_([a, b], [x, y]) is a.add_(x), b.add_(y).
Value* call_each(Tracer& t, std::string_view name, const Arguments& args) {
  const std::vector<Value*> first = t.unpack(args.positional.at(0));
  const std::string single(name.substr(kOfLists.size()));
  std::vector<Value*> results;
  for (size_t k = 0; k < first.size(); ++k) {
    const auto item = [&](Value* v) -> Value* {
      if (!is_sequence(v)) return v;
      const std::vector<Value*> items = t.unpack(v);
      if (items.size() != first.size())
        graph_break(Reason::unsupported_operand, "lists of different lengths passed to torch." + std::string(name));
      return items[k];
    };
    Arguments own;
    for (Value* v : args.positional) own.positional.push_back(item(v));
    for (const auto& [keyword, v] : args.keywords) own.keywords.emplace_back(keyword, item(v));
    for (const NumberOperand& row : kNumberOperands)
      if (row.is_named && row.name == name && row.position + 1 == own.positional.size()) {
        own.keywords.emplace_back(interned(row.keyword), own.positional.back());
        own.positional.pop_back();
      }
    Value* const method = t.get_attribute(own.positional[0], interned(single));
    own.positional.erase(own.positional.begin());
    results.push_back(t.call(method, own));
  }
  return single.ends_with('_') ? t.heap.none() : t.heap.tuple(std::move(results));
}

// Puts one number in place of a list of equal ones. False: the numbers differ.
bool join_numbers(Tracer& t, Value*& list) {
  const std::vector<Value*> numbers = open_numbers(t, list);
  if (numbers.empty()) return true;
  if (!std::all_of(numbers.begin(), numbers.end(),
                   [&](Value* v) { return t.numbers.is_same_open_float(v, numbers[0]); }))
    return false;
  list = numbers[0];
  return true;
}

}  // namespace

Value* call_torch(Tracer& t, PyObject* callable, Arguments args) {
  const char* const name = own_name(callable);
  if (!name) return t.calls.recorded(callable, args);
  auto& given = args.positional;
  if (std::string_view(name).starts_with(kOfLists)) {
    bool is_joined = true;
    for (Value*& v : given) is_joined = is_joined && join_numbers(t, v);
    for (auto& [keyword, v] : args.keywords) is_joined = is_joined && join_numbers(t, v);
    if (!is_joined) return call_each(t, name, args);
  }
  read_tensors(t.tensors, name, args);
  if (!any_open_float(t.numbers, args)) return t.calls.recorded(callable, args);
  for (const FloatOperand& row : kFloatOperands) {
    if (row.name != name || !args.keywords.empty() || row.position >= given.size() || row.beside >= given.size() ||
        given[row.beside]->kind != ValueKind::tensor)
      continue;
    if (Value* input = float_input(t, given[row.position], given[row.beside], row.promotes))
      given[row.position] = input;
  }
  for (const NumberOperand& row : kNumberOperands) {
    if (row.name != name) continue;
    if (Value* number = row.position < given.size() ? t.tensors.float_number(given[row.position]) : nullptr)
      given[row.position] = number;
    for (auto& [keyword, v] : args.keywords)
      if (row.keyword == text_of(keyword))
        if (Value* number = t.tensors.float_number(v)) v = number;
  }
  return t.calls.recorded(callable, args);
}

}  // namespace framejit::frame_hook
