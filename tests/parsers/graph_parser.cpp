#include "tests/parsers/graph_parser.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <unordered_map>

#include "graph/int64_range.h"
#include "graph/node_values.h"
#include "tests/parsers/sym_parser.h"

namespace framejit::graph {
namespace {

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
    const auto dtype = text::find_dtype(word);
    if (!dtype) return at_.error("unknown dtype '" + std::string(word) + "'");
    meta.dtype = *dtype;
    FJ_TRY_VOID(at_.expect("["));
    FJ_TRY(meta.sizes, sizes_until(";]"));
    meta.strides = contiguous_strides(meta.sizes);
    if (at_.accept(";")) {
      FJ_TRY(meta.strides, sizes_until(";]"));
      if (meta.strides.size() != meta.sizes.size()) return at_.error("as many strides as sizes");
      if (at_.accept(";")) { FJ_TRY(meta.offset, parse_sym_expr(at_)); }
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
    if (const auto dtype = text::find_dtype(word)) return Arg(*dtype);
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
      if (!at_.accept("_")) { FJ_TRY(v, known_value()); }
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

  text::Reader at_;
  Graph graph_;
  std::unordered_map<std::string, ValueId> by_name_;
  uint32_t next_storage_ = 1;
};

}  // namespace

Result<Graph> parse_graph(std::string_view text) { return Parser(text).run(); }

}  // namespace framejit::graph
