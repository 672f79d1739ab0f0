// graph/graph_text.cpp — prints a graph and reads it back; printer and parser of one grammar, side by side.
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
#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <unordered_map>

#include "graph/graph_names.h"
#include "graph/int64_range.h"
#include "graph/node_values.h"
#include "graph/sym_text.h"

namespace framejit::graph {
namespace {

// ---------------------------------------------------------------- printing

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
  Printer(const Graph& graph, bool decorated) : graph_(graph), decorated_(decorated), names_(graph.values.size()) {
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
          decorated_ && i < graph_.input_names.size() ? sanitised(graph_.input_names[i]) : "in" + std::to_string(i);
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
    out_ = "graph @" + (decorated_ ? sanitised(graph_.name) : std::string("f")) + "(";
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
    if (decorated_ && node.line != 0 && node.line < graph_.lines.size()) {
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
  std::string payload_text(const Device& d) const {
    static constexpr const char* kNames[] = {"cpu", "cuda", "meta", "other"};
    return std::string("@") + kNames[static_cast<int>(d.type)] + (d.index >= 0 ? ":" + std::to_string(d.index) : "");
  }
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
  bool decorated_;  // names and lines
  std::vector<std::string> names_;
  std::unordered_map<uint32_t, ValueId> storages_;
  std::string out_;
};

// ---------------------------------------------------------------- parsing

class Parser {
 public:
  explicit Parser(std::string_view source) : at_(source) {}

  Result<Graph> run() {
    FJ_TRY_VOID(header());
    bool returned = false;
    while (!returned) {
      if (at_.peek_is("return")) {
        FJ_TRY_VOID(return_line());
        returned = true;
      } else if (at_.peek_is("update")) {
        FJ_TRY_VOID(update_line());
      } else if (at_.accept("constant")) {
        FJ_TRY(const ValueId v, new_typed_value());
        graph_.constants.push_back(v);
      } else {
        FJ_TRY_VOID(node_line());
      }
    }
    FJ_TRY_VOID(at_.expect("}"));
    if (!at_.at_end()) return at_.error("text after the graph");
    return std::move(graph_);
  }

 private:
  Result<std::string> value_name() {
    FJ_TRY_VOID(at_.expect("%"));
    if (const std::string_view word = at_.word(); !word.empty()) return std::string(word);
    FJ_TRY(const int64_t number, at_.integer());
    return std::to_string(number);
  }

  Result<ValueId> known_value() {
    const size_t start = (at_.peek(), at_.position());
    FJ_TRY(const std::string name, value_name());
    const auto found = by_name_.find(name);
    if (found != by_name_.end()) return found->second;
    at_.rewind(start);
    return at_.error("unknown value %" + name);
  }

  Result<ValueId> define(const std::string& name, TensorMeta meta, std::optional<uint32_t> storage) {
    const ValueId v{static_cast<uint32_t>(graph_.values.size())};
    if (!by_name_.emplace(name, v).second) return at_.error("%" + name + " is defined twice");
    graph_.values.push_back({std::move(meta), -1, storage ? *storage : next_storage_++});
    return v;
  }

  Result<ValueId> new_typed_value() {
    FJ_TRY(const std::string name, value_name());
    FJ_TRY_VOID(at_.expect(":"));
    std::optional<uint32_t> storage;
    FJ_TRY(TensorMeta meta, type(storage));
    return define(name, std::move(meta), storage);
  }

  Result<void> header() {
    FJ_TRY_VOID(at_.expect("graph"));
    FJ_TRY_VOID(at_.expect("@"));
    graph_.name = at_.word();
    FJ_TRY_VOID(at_.expect("("));
    while (!at_.accept(")")) {
      if (!graph_.inputs.empty()) FJ_TRY_VOID(at_.expect(","));
      const size_t start = (at_.peek(), at_.position());
      FJ_TRY(const std::string name, value_name());
      at_.rewind(start);
      FJ_TRY(const ValueId v, new_typed_value());
      graph_.inputs.push_back(v);
      graph_.input_names.push_back(name);
    }
    if (at_.accept("where")) {
      FJ_TRY_VOID(clause());
      while (at_.accept(",")) FJ_TRY_VOID(clause());
    }
    return at_.expect("{");
  }

  Result<void> clause() {
    FJ_TRY(const SymExpr left, parse_sym_expr(at_));
    for (const Relation relation : {Relation::kEq, Relation::kNe, Relation::kLe, Relation::kLt}) {
      if (!at_.accept(text_of(relation))) continue;
      FJ_TRY(const SymExpr right, parse_sym_expr(at_));
      graph_.shapes.add_fact({left, right, relation, ""});
      return {};
    }
    SymbolId id = 0;
    if (!left.is_symbol(&id) || id != graph_.shapes.symbol_count())
      return at_.error("symbols are declared in order, s0 first");
    FJ_TRY_VOID(at_.expect("="));
    FJ_TRY(const int64_t hint, at_.integer());
    SymbolInfo info{hint, kLeastSize, kMostSize};
    if (at_.accept("in")) {
      FJ_TRY_VOID(at_.expect("["));
      FJ_TRY(info.low, at_.integer());
      FJ_TRY_VOID(at_.expect(","));
      FJ_TRY(info.high, at_.integer());
      FJ_TRY_VOID(at_.expect("]"));
    }
    graph_.shapes.add_symbol(hint, info.low, info.high);
    return {};
  }

  Result<SymSizes> sizes_until(std::string_view ends) {
    SymSizes list;
    while (ends.find(at_.peek()) == std::string_view::npos) {
      if (!list.empty()) FJ_TRY_VOID(at_.expect(","));
      FJ_TRY(SymExpr size, parse_sym_expr(at_));
      list.push_back(std::move(size));
    }
    return list;
  }

  Result<TensorMeta> type(std::optional<uint32_t>& storage) {
    TensorMeta meta;
    const std::string_view word = at_.word();
    const auto dtype = find_dtype(word);
    if (!dtype) return at_.error("unknown dtype '" + std::string(word) + "'");
    meta.dtype = *dtype;
    FJ_TRY_VOID(at_.expect("["));
    FJ_TRY(meta.sizes, sizes_until(";]"));
    meta.strides = contiguous_strides(meta.sizes);
    if (at_.accept(";")) {
      FJ_TRY(meta.strides, sizes_until(";]"));
      if (meta.strides.size() != meta.sizes.size()) return at_.error("as many strides as sizes");
      if (at_.accept(";")) {
        FJ_TRY(meta.offset, parse_sym_expr(at_));
      }
    }
    FJ_TRY_VOID(at_.expect("]"));
    if (at_.accept("@")) {
      FJ_TRY(const Arg device, at_token(at_.word()));
      if (device.get<Device>() == nullptr) return at_.error("expected a device");
      meta.device = *device.get<Device>();
    }
    meta.requires_grad = at_.accept("grad");
    meta.is_packed = at_.accept("packed");
    if (at_.accept("&")) {
      FJ_TRY(const ValueId base, known_value());
      storage = graph_.values[index_of(base)].storage;
    }
    return meta;
  }

  // The word after '@' in an argument: dtype, device, enumeration, opaque slot.
  Result<Arg> at_token(std::string_view word) {
    static const std::map<std::string_view, DeviceType> kDevices = {{"cpu", DeviceType::kCpu},
                                                                    {"cuda", DeviceType::kCuda},
                                                                    {"meta", DeviceType::kMeta},
                                                                    {"other", DeviceType::kOther}};
    if (const auto found = kDevices.find(word); found != kDevices.end() && !(word == "other" && !at_.peek_is(":"))) {
      Device device{found->second, -1};
      const size_t before = at_.position();
      if (at_.accept(":")) {
        // "@cuda : f32[...]" is a device and the type after it.
        if (at_.peek() < '0' || at_.peek() > '9') at_.rewind(before);
        else {
          FJ_TRY(const int64_t index, at_.integer());
          device.index = static_cast<int8_t>(index);
        }
      }
      return Arg(device);
    }
    if (const auto dtype = find_dtype(word)) return Arg(*dtype);
    int number = 0;
    const char* const last = word.data() + word.size();
    const bool numbered = word.size() > 1 && std::from_chars(word.data() + 1, last, number).ptr == last;
    if (numbered && word[0] == 'o') {
      graph_.opaque_count = std::max(graph_.opaque_count, static_cast<uint32_t>(number) + 1);
      return Arg(OpaqueSlot{static_cast<uint32_t>(number)});
    }
    if (numbered && std::string_view("lmqx").find(word[0]) != std::string_view::npos)
      return Arg(TorchEnum{word[0], static_cast<int8_t>(number)});
    return at_.error("unknown '@" + std::string(word) + "'");
  }

  Result<Arg> argument() {
    if (at_.peek() == '[') return list();
    if (at_.accept("values[]")) return Arg(std::vector<ValueId>{});
    if (at_.accept("floats[]")) return Arg(std::vector<double>{});
    if (at_.accept("bools[]")) return Arg(std::vector<bool>{});
    if (at_.accept("none")) return Arg();
    if (at_.accept("true")) return Arg(true);
    if (at_.accept("false")) return Arg(false);
    if (at_.accept("@")) return at_token(at_.word());
    if (at_.peek() == '"') {
      FJ_TRY(std::string text, at_.quoted());
      return Arg(std::move(text));
    }
    if (at_.peek() == '%') {
      FJ_TRY(const ValueId v, known_value());
      return Arg(v);
    }
    if (at_.next_is_float()) {
      FJ_TRY(const double value, at_.floating());
      return Arg(value);
    }
    FJ_TRY(SymExpr size, parse_sym_expr(at_));
    return Arg(std::move(size));
  }

  Result<Arg> list() {
    FJ_TRY_VOID(at_.expect("["));
    std::vector<Arg> items;
    while (!at_.accept("]")) {
      if (!items.empty()) FJ_TRY_VOID(at_.expect(","));
      FJ_TRY(Arg item, argument());
      items.push_back(std::move(item));
    }
    if (items.empty()) return Arg(SymSizes{});
    auto all = [&](auto test) { return std::all_of(items.begin(), items.end(), test); };
    if (all([](const Arg& a) { return a.is_none() || a.get<ValueId>() != nullptr; }))
      return gather<ValueId>(items, kNoValue);
    if (all([](const Arg& a) { return a.get<SymExpr>() != nullptr; })) return gather<SymExpr>(items, 0);
    if (all([](const Arg& a) { return a.get<double>() != nullptr; })) return gather<double>(items, 0);
    if (all([](const Arg& a) { return a.get<bool>() != nullptr; })) return gather<bool>(items, false);
    return at_.error("a list holds values, sizes, floats or bools");
  }

  template <class T>
  static Arg gather(const std::vector<Arg>& items, T absent) {
    std::vector<T> list;
    for (const Arg& item : items) list.push_back(item.get<T>() != nullptr ? *item.get<T>() : absent);
    return Arg(std::move(list));
  }

  // Result names before the '='; "_" is an undefined one.
  Result<void> results(std::vector<std::string>& names, std::vector<int16_t>& lists) {
    bool any_list = false;
    do {
      if (at_.accept("[")) {
        any_list = true;
        int16_t length = 0;
        while (!at_.accept("]")) {
          if (length != 0) FJ_TRY_VOID(at_.expect(","));
          FJ_TRY_VOID(one_result(names));
          ++length;
        }
        lists.push_back(length);
      } else {
        FJ_TRY_VOID(one_result(names));
        lists.push_back(-1);
      }
    } while (at_.accept(","));
    if (!any_list) lists.clear();
    return at_.expect("=");
  }

  Result<void> one_result(std::vector<std::string>& names) {
    if (at_.accept("_")) {
      names.emplace_back();
      return {};
    }
    FJ_TRY(std::string name, value_name());
    names.push_back(std::move(name));
    return {};
  }

  Result<void> node_line() {
    Node node;
    std::vector<std::string> names;
    if (const char c = at_.peek(); c == '%' || c == '[' || at_.peek_is("_"))
      FJ_TRY_VOID(results(names, node.result_lists));
    const size_t start = (at_.peek(), at_.position());
    const std::string_view op = at_.dotted_word();
    node.op = find_op(op);
    if (node.op == nullptr) {
      at_.rewind(start);
      return at_.error(op.empty() ? "expected an op" : "unknown op " + std::string(op));
    }
    FJ_TRY_VOID(arguments(node));
    const auto index = static_cast<int32_t>(graph_.nodes.size());
    bool first = true;
    for (const std::string& name : names) {
      if (name.empty()) {
        node.results.push_back(kNoValue);
        continue;
      }
      FJ_TRY_VOID(at_.expect(first ? ":" : ","));
      first = false;
      std::optional<uint32_t> storage;
      FJ_TRY(TensorMeta meta, type(storage));
      if (const auto known = by_name_.find(name); known != by_name_.end() && has_argument(node, known->second)) {
        node.results.push_back(known->second);  // written in place and returned
        continue;
      }
      FJ_TRY(const ValueId v, define(name, std::move(meta), storage));
      graph_.values[index_of(v)].node = index;
      node.results.push_back(v);
    }
    graph_.nodes.push_back(std::move(node));
    return {};
  }

  Result<void> arguments(Node& node) {
    static constexpr std::string_view kStarts = "%[@\"-(0123456789";
    auto begins = [&] {
      if (kStarts.find(at_.peek()) != std::string_view::npos) return true;
      for (std::string_view word : {"none", "true", "false", "values", "floats", "bools", "inf", "nan", "min", "max"})
        if (at_.peek_is(word)) return true;
      const size_t start = at_.position();
      const std::string_view word = at_.word();
      at_.rewind(start);
      return word.size() > 1 && word[0] == 's' && word.find_first_not_of("0123456789", 1) == std::string_view::npos;
    };
    if (!begins() || starts_next_node()) return {};
    do {
      FJ_TRY(Arg arg, argument());
      node.args.push_back(std::move(arg));
    } while (at_.accept(","));
    return {};
  }

  // Whether the next token begins a new node ("%5 = ..."): only then can an op without arguments come before it.
  bool starts_next_node() {
    const size_t start = at_.position();
    std::vector<std::string> names;
    std::vector<int16_t> lists;
    const bool is_node = results(names, lists).ok() && !at_.peek_is("=");
    at_.rewind(start);
    return is_node;
  }

  Result<void> update_line() {
    FJ_TRY_VOID(at_.expect("update"));
    FJ_TRY(const ValueId input, known_value());
    FJ_TRY_VOID(at_.expect("="));
    FJ_TRY(const ValueId value, known_value());
    const auto found = std::find(graph_.inputs.begin(), graph_.inputs.end(), input);
    if (found == graph_.inputs.end()) return at_.error("update of a value that is not an input");
    graph_.updates.emplace_back(static_cast<uint32_t>(found - graph_.inputs.begin()), value);
    return {};
  }

  Result<void> return_line() {
    FJ_TRY_VOID(at_.expect("return"));
    if (at_.peek() == '}') return {};
    do {
      ValueId v = kNoValue;
      if (!at_.accept("_")) {
        FJ_TRY(v, known_value());
      }
      OutputAlias alias;
      if (at_.accept("as")) {
        const bool view = at_.accept("view");
        if (view) FJ_TRY_VOID(at_.expect("of"));
        const bool of_output = view && at_.accept("output");
        if (!of_output) FJ_TRY_VOID(at_.expect("input"));
        FJ_TRY(const int64_t of, at_.integer());
        alias = {of_output ? OutputKind::kViewOfOutput
                 : view    ? OutputKind::kViewOfInput
                           : OutputKind::kInput,
                 static_cast<uint32_t>(of)};
      }
      graph_.outputs.push_back(v);
      graph_.output_aliases.push_back(alias);
    } while (at_.accept(","));
    return {};
  }

  text::Cursor at_;
  Graph graph_;
  std::unordered_map<std::string, ValueId> by_name_;
  uint32_t next_storage_ = 1;
};

}  // namespace

std::string print(const Graph& graph) { return Printer(graph, true).run(); }
std::vector<std::string> value_names(const Graph& graph) { return Printer(graph, true).take_names(); }

Result<Graph> parse_graph(std::string_view text) { return Parser(text).run(); }

uint64_t structural_hash(const Graph& graph) {
  uint64_t h = 0xcbf29ce484222325ULL;
  for (const char c : Printer(graph, false).run()) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return h;
}

}  // namespace framejit::graph
