// graph/graph_text.cpp — prints a graph. tests/parsers/graph_parser.cpp reads the same grammar.
//
//   graph    = "graph" "@"name "(" [%name ":" type {","}] ")" ["where" clause {","}] "{" {constant | node} {update}
//              return "}"
//   clause   = s0 "=" hint ["in" "[" low "," high "]"] | size ("==" | "!=" | "<" | "<=") size
//   constant = "constant" %name ":" type
//   type     = dtype "[" sizes [";" strides [";" offset]] "]" ["@"device] ["grad"] ["&"%value]
//   node     = [results "="] op args [":" types]
//   results  = %n | "_" | "[" results "]"
//   update   = "update" %input "=" %value
//   return   = "return" %value ["as" ("input" | "view of input" | "view of output") n]
// Strides are printed if not contiguous; `&%v` says that a value lies in the storage of the earlier %v; `# file:line`
// is a comment. Arguments stand in schema order. Values are numbered as nodes define them, so the text is canonical.
#include <set>
#include <unordered_map>

#include "graph/graph_names.h"
#include "graph/int64_range.h"
#include "graph/node_values.h"
#include "runtime/base/text.h"

namespace framejit::graph {
namespace {

std::string sanitised(const std::string& source) {
  std::string name;
  for (char c : source) {
    const bool keep = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    if (keep) name += c;
    else if (!name.empty() && name.back() != '_') name += '_';
  }
  while (!name.empty() && name.back() == '_') name.pop_back();
  if (name.empty() || (name[0] >= '0' && name[0] <= '9')) name = "_" + name;
  return name;
}

class Printer {
 public:
  explicit Printer(const Graph& graph) : graph_(graph), names_(graph.values.size()) {
    name_boundary();
    name_results();
  }
  std::vector<std::string> take_names() { return std::move(names_); }

  std::string run() {
    header();
    for (ValueId v : graph_.constants) out_ += "  constant " + name(v) + " : " + typed(v) + "\n";
    for (const Node& node : graph_.nodes) print_node(node);
    for (const auto& [input, value] : graph_.updates)
      out_ += "  update " + name(graph_.inputs[input]) + " = " + name(value) + "\n";
    out_ += "  return";
    for (size_t i = 0; i < graph_.outputs.size(); ++i)
      out_ += (i != 0 ? ", " : " ") + name(graph_.outputs[i]) + alias_text(i);
    return out_ + "\n}\n";
  }

 private:
  void name_boundary() {
    std::set<std::string> taken;
    auto unique = [&](const std::string& wish) {
      std::string name = wish;
      for (int i = 1; !taken.insert(name).second; ++i) name = wish + "_" + std::to_string(i);
      return name;
    };
    for (size_t i = 0; i < graph_.inputs.size(); ++i) {
      const std::string wish =
          i < graph_.input_names.size() ? sanitised(graph_.input_names[i]) : "in" + std::to_string(i);
      names_[index_of(graph_.inputs[i])] = unique(wish);
    }
    for (size_t i = 0; i < graph_.constants.size(); ++i)
      names_[index_of(graph_.constants[i])] = unique("constant" + std::to_string(i));
  }

  void name_results() {
    uint32_t next = 0;
    for (const Node& node : graph_.nodes)
      for (ValueId v : node.results)
        if (v != kNoValue && names_[index_of(v)].empty()) names_[index_of(v)] = std::to_string(next++);
  }

  void header() {
    out_ = "graph @" + sanitised(graph_.name) + "(";
    for (size_t i = 0; i < graph_.inputs.size(); ++i)
      out_ += (i != 0 ? ", " : "") + name(graph_.inputs[i]) + " : " + typed(graph_.inputs[i]);
    out_ += ")";
    const char* separator = " where ";
    for (SymbolId id = 0; id < graph_.shapes.symbol_count(); ++id) {
      const SymbolInfo& s = graph_.shapes.symbol(id);
      out_ += separator + SymExpr::symbol(id).text() + " = " + std::to_string(s.hint);
      if (s.low != kLeastSize || s.high < kMostSize)
        out_ += " in [" + std::to_string(s.low) + ", " + std::to_string(s.high) + "]";
      separator = ", ";
    }
    for (const SizeFact& fact : graph_.shapes.facts()) {
      out_ += separator + fact.left.text() + " " + text_of(fact.relation) + " " + fact.right.text();
      separator = ", ";
    }
    out_ += " {\n";
  }

  std::string name(ValueId v) const {
    if (v == kNoValue) return "_";
    const std::string& known = names_[index_of(v)];
    return "%" + (known.empty() ? "?" + std::to_string(index_of(v)) : known);
  }

  // The type; if a value shares the storage of an earlier printed value, it names that one.
  std::string typed(ValueId v) {
    const ValueInfo& info = graph_.values[index_of(v)];
    const auto [first, is_new] = storages_.emplace(info.storage, v);
    return text_of(info.meta) + (is_new || first->second == v ? "" : " &" + name(first->second));
  }

  void print_node(const Node& node) {
    std::string line = "  ", types;
    size_t at = 0;
    auto result = [&] {
      const ValueId v = node.results[at++];
      if (v != kNoValue) types += (types.empty() ? " : " : ", ") + typed(v);
      return name(v);
    };
    const bool single = node.result_lists.empty();
    const size_t groups = single ? node.results.size() : node.result_lists.size();
    for (size_t g = 0; g < groups; ++g) {
      if (g != 0) line += ", ";
      const int16_t length = single ? -1 : node.result_lists[g];
      if (length < 0) {
        line += result();
        continue;
      }
      line += "[";
      for (int16_t i = 0; i < length; ++i) line += (i != 0 ? ", " : "") + result();
      line += "]";
    }
    if (groups != 0) line += " = ";
    line += node.op->name;
    for (size_t i = 0; i < node.args.size(); ++i) line += (i != 0 ? ", " : " ") + arg_text(node.args[i]);
    line += types;
    if (node.line != 0 && node.line < graph_.lines.size()) {
      const Line& user = graph_.lines[node.line];
      line += "   # " + user.file.substr(user.file.rfind('/') + 1) + ":" + std::to_string(user.number);
    }
    out_ += line + "\n";
  }

  std::string arg_text(const Arg& arg) const {
    return std::visit([&](const auto& value) { return payload_text(value); }, arg.payload);
  }
  std::string payload_text(const None&) const { return "none"; }
  std::string payload_text(ValueId v) const { return name(v); }
  std::string payload_text(const SymExpr& e) const { return e.text(); }
  std::string payload_text(double d) const { return text::float_text(d); }
  std::string payload_text(bool b) const { return b ? "true" : "false"; }
  std::string payload_text(const std::string& s) const { return text::quoted_text(s); }
  std::string payload_text(DType d) const { return std::string("@") + row_of(d).text; }
  std::string payload_text(const Device& d) const { return "@" + text_of(d); }
  std::string payload_text(const TorchEnum& e) const { return std::string("@") + e.kind + std::to_string(e.value); }
  std::string payload_text(const OpaqueSlot& o) const { return "@o" + std::to_string(o.index); }
  template <class T>
  std::string payload_text(const std::vector<T>& list) const {
    if (list.empty()) return empty_list(list);
    std::string text;
    for (const auto& item : list) text += (text.empty() ? "[" : ", ") + item_text(static_cast<const T&>(item));
    return text + "]";
  }
  std::string item_text(ValueId v) const { return v == kNoValue ? "none" : name(v); }
  template <class T>
  std::string item_text(const T& item) const { return payload_text(item); }
  static std::string empty_list(const std::vector<SymExpr>&) { return "[]"; }
  static std::string empty_list(const std::vector<ValueId>&) { return "values[]"; }
  static std::string empty_list(const std::vector<double>&) { return "floats[]"; }
  static std::string empty_list(const std::vector<bool>&) { return "bools[]"; }

  std::string alias_text(size_t output) const {
    if (output >= graph_.output_aliases.size()) return "";
    const OutputAlias& alias = graph_.output_aliases[output];
    switch (alias.kind) {
      case OutputKind::kFresh: return "";
      case OutputKind::kInput: return " as input " + std::to_string(alias.of);
      case OutputKind::kViewOfInput: return " as view of input " + std::to_string(alias.of);
      case OutputKind::kViewOfOutput: return " as view of output " + std::to_string(alias.of);
    }
    return "";
  }

  const Graph& graph_;
  std::vector<std::string> names_;
  std::unordered_map<uint32_t, ValueId> storages_;
  std::string out_;
};

}  // namespace

std::string print(const Graph& graph) { return Printer(graph).run(); }
std::vector<std::string> value_names(const Graph& graph) { return Printer(graph).take_names(); }

}  // namespace framejit::graph
