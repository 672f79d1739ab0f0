// runtime/executable_text.cpp — an executable and its plans as text, for the log channel `steps` and for tests. Kernels
// are c0, c1; derived and saved values d0, v0; buffers b0, b1; size slots z0, z1. executable_parser.cpp reads it back.
#include <algorithm>

#include "runtime/base/text.h"
#include "runtime/executable.h"

namespace framejit::runtime {
namespace {

template <class T, class F> std::string joined(const std::vector<T>& items, F text) {
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) out += (i ? ", " : "") + text(items[i]);
  return out;
}
template <class T, class F>
std::string list(const std::vector<T>& items, F text) {
  return "[" + joined(items, text) + "]";
}
// The text of an argument; an empty list names the type of its items.
template <class T, class F> std::string list_of(const char* what, const std::vector<T>& items, F text) {
  return items.empty() ? std::string("[") + what + "]" : list(items, text);
}
std::string name_text(const std::string& name) {
  const auto is_word = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  const bool is_bare =
      !name.empty() && (name[0] < '0' || name[0] > '9') && std::all_of(name.begin(), name.end(), is_word);
  return is_bare ? name : text::quoted_text(name);
}

std::string text_of(const Size& size) {
  return size.slot < 0 ? std::to_string(size.constant) : "z" + std::to_string(size.slot);
}
std::string buffer_name(BufferId buffer) { return buffer == kNoBuffer ? "none" : "b" + std::to_string(buffer); }
std::string flag(bool b) { return b ? "true" : "false"; }

bool is_row_major(const Buffer& buffer) {
  if (buffer.strides.size() != buffer.sizes.size()) return false;  // in a text that nobody has verified
  int64_t expected = 1;
  for (size_t i = buffer.sizes.size(); i-- > 0;) {
    if (buffer.sizes[i].slot >= 0) return false;
    if (buffer.strides[i].slot >= 0 || buffer.strides[i].constant != expected) return false;
    if (i > 0 && __builtin_mul_overflow(expected, buffer.sizes[i].constant, &expected)) return false;
  }
  return true;
}

std::string device_text(DeviceId device) { return device.is_cpu() ? "" : " device " + text_of(device); }
std::string place_text(const Place& place) {
  return device_text(place.device) + (place.stream != 0 ? " stream " + std::to_string(place.stream) : "");
}

std::string text_of(const Buffer& buffer) {
  std::string out;
  switch (buffer.storage) {
    case Storage::kInput: out = "input " + std::to_string(buffer.index); break;
    case Storage::kConstant: out = "constant " + std::to_string(buffer.index); break;
    case Storage::kDerived: out = "derived " + std::to_string(buffer.index); break;
    case Storage::kSaved: out = "saved " + std::to_string(buffer.index); break;
    case Storage::kArena:
      out = "arena " + (buffer.index != 0 ? std::to_string(buffer.index) + ":" : "") + text_of(buffer.offset);
      break;
    case Storage::kTensor: out = "tensor"; break;
  }
  const std::string dtype =
      buffer.dtype == DType::kOther ? "dtype" + std::to_string(buffer.torch_dtype) : row_of(buffer.dtype).text;
  out += buffer.is_packed ? " packed " : " ";
  out += dtype + "[" + joined(buffer.sizes, [](const Size& s) { return text_of(s); });
  if (!is_row_major(buffer)) out += "; " + joined(buffer.strides, [](const Size& s) { return text_of(s); });
  out += "]";
  if (buffer.storage != Storage::kArena && (buffer.offset.slot >= 0 || buffer.offset.constant != 0))
    out += " + " + text_of(buffer.offset);
  return out + device_text(buffer.device);
}

std::string text_of(const SizeOp& op) {
  const std::string left = "z" + std::to_string(op.left), right = "z" + std::to_string(op.right);
  switch (op.opcode) {
    case SizeOpcode::kSymbol: return "s" + std::to_string(op.constant);
    case SizeOpcode::kConstant: return std::to_string(op.constant);
    case SizeOpcode::kAdd: return left + " + " + right;
    case SizeOpcode::kMul: return left + "*" + right;
    case SizeOpcode::kFloorDiv: return left + " // " + right;
    case SizeOpcode::kMod: return left + " % " + right;
    case SizeOpcode::kMin: return "min(" + left + ", " + right + ")";
    case SizeOpcode::kMax: return "max(" + left + ", " + right + ")";
  }
  return "";
}

struct ArgText {
  std::string operator()(const None&) const { return "none"; }
  std::string operator()(BufferId b) const { return b == kNoBuffer ? "no_buffer" : buffer_name(b); }
  std::string operator()(const std::vector<BufferId>& v) const { return list_of("buffers", v, buffer_name); }
  std::string operator()(const Size& s) const { return text_of(s); }
  std::string operator()(const std::vector<Size>& v) const {
    return list_of("sizes", v, [](const Size& s) { return text_of(s); });
  }
  std::string operator()(double d) const { return text::float_text(d); }
  std::string operator()(const std::vector<double>& v) const {
    return list_of("floats", v, [](double d) { return text::float_text(d); });
  }
  std::string operator()(bool b) const { return flag(b); }
  std::string operator()(const std::vector<bool>& v) const {
    std::string out = v.empty() ? "[bools" : "[";
    for (size_t i = 0; i < v.size(); ++i) out += (i ? ", " : "") + flag(v[i]);
    return out + "]";
  }
  std::string operator()(const std::string& s) const { return text::quoted_text(s); }
  std::string operator()(const TorchDType& t) const {
    const DType dtype = dtype_of_torch(t.scalar_type);
    return dtype == DType::kOther ? "@dtype" + std::to_string(t.scalar_type) : std::string("@") + row_of(dtype).text;
  }
  std::string operator()(const TorchDevice& d) const {
    return "@device " + std::to_string(d.type) + ":" + std::to_string(d.index);
  }
  std::string operator()(const TorchEnum& e) const { return std::string("@") + e.kind + std::to_string(e.value); }
  std::string operator()(const OpaqueSlot& o) const { return "@o" + std::to_string(o.index); }
};

std::string text_of(const DerivedValue& value) {
  const std::string operands = list(value.operands, [](uint32_t s) { return std::to_string(s); });
  return text_of(value.buffer) + " by " + std::to_string(value.derivation) + " from " + operands;
}

struct StepText {
  std::string operator()(const KernelStep& s) const {
    std::string out =
        "kernel " + name_text(s.name) + "(" + joined(s.buffers, buffer_name) + ") runs c" + std::to_string(s.kernel);
    if (!s.offsets.empty())
      out += " offsets " +
             list(s.offsets, [](const auto& o) { return std::to_string(o.first) + ": " + std::to_string(o.second); });
    if (!s.sizes.empty()) out += " sizes " + list(s.sizes, [](const Size& z) { return text_of(z); });
    out += " extent " + text_of(s.extent);
    if (s.grain != 0) out += " grain " + std::to_string(s.grain);
    if (s.unit != 1) out += " unit " + std::to_string(s.unit);
    if (s.together != 1) out += " together " + std::to_string(s.together);
    return out + place_text(s.place);
  }
  std::string operator()(const ExternStep& s) const {
    std::string out = s.results.empty() ? "call " : joined(s.results, buffer_name) + " = ";
    out += s.op + "(" + joined(s.args, [](const PlanArg& a) { return std::visit(ArgText{}, a.payload); }) + ")";
    if (!s.result_lists.empty()) out += " lists " + list(s.result_lists, [](int16_t n) { return std::to_string(n); });
    if (s.line != 0) out += " line " + std::to_string(s.line);
    return out + place_text(s.place);
  }
  std::string operator()(const AllocateStep& s) const {
    return "allocate " + buffer_name(s.buffer) + (s.over == kNoBuffer ? "" : " over " + buffer_name(s.over));
  }
  std::string operator()(const ViewStep& s) const { return buffer_name(s.result) + " = view " + buffer_name(s.base); }
  std::string operator()(const FreeStep& s) const { return "free " + buffer_name(s.buffer); }
  std::string operator()(const TakeStep& s) const { return "take arena " + std::to_string(s.block); }
  std::string operator()(const GiveStep& s) const { return "give arena " + std::to_string(s.block); }
};

}  // namespace

std::string print(const CallPlan& plan) {
  std::string out = "plan @" + name_text(plan.name) + " inputs " + std::to_string(plan.input_count) + " symbols " +
                    std::to_string(plan.symbol_count) + " {\n";
  for (size_t i = 0; i < plan.size_program.size(); ++i)
    out += "  z" + std::to_string(i) + " = " + text_of(plan.size_program[i]) + "\n";
  for (size_t i = 0; i < plan.arena.size(); ++i)
    out += "  arena " + std::to_string(i) + ": " + text_of(plan.arena[i].bytes) + " bytes" +
           device_text(plan.arena[i].device) + "\n";
  for (size_t i = 0; i < plan.buffers.size(); ++i)
    out += "  b" + std::to_string(i) + ": " + text_of(plan.buffers[i]) + "\n";
  for (const Step& step : plan.steps) out += "  " + std::visit(StepText{}, step) + "\n";
  for (const auto& [input, buffer] : plan.updates)
    out += "  update input " + std::to_string(input) + " from " + buffer_name(buffer) + "\n";
  if (!plan.saves.empty()) out += "  save " + joined(plan.saves, buffer_name) + "\n";
  const auto output = [](const Output& o) {
    return o.kind == Output::kInput ? "input " + std::to_string(o.index) : buffer_name(o.index);
  };
  return out + "  return " + joined(plan.outputs, output) + "\n}\n";
}

std::string print(const Executable& executable) {
  std::string out = "executable @" + name_text(executable.name) + " {\n";
  for (size_t i = 0; i < executable.kernels.size(); ++i) {
    const KernelCode& code = *executable.kernels[i];
    out += "code c" + std::to_string(i) + " = " + text::quoted_text(code.id.text()) + " for " +
           text::quoted_text(code.target) + " named " + text::quoted_text(code.name) + "\n";
  }
  for (size_t i = 0; i < executable.derived.size(); ++i)
    out += "value d" + std::to_string(i) + ": " + text_of(executable.derived[i]) + "\n";
  for (size_t i = 0; i < executable.saved.size(); ++i)
    out += "value v" + std::to_string(i) + ": " + text_of(executable.saved[i]) + "\n";
  for (const CallPlan& plan : executable.derive) out += "derive " + print(plan);
  out += "forward " + print(executable.forward);
  for (const CallPlan& plan : executable.backward) out += "backward " + print(plan);
  return out + "}\n";
}

std::string content_hash(const Executable& executable) { return content_id("executable", print(executable)).text(); }

}  // namespace framejit::runtime
