// graph/passes/functionalize.cpp — in-place ops and aliasing views become pure ops; writes to inputs become updates.
//
// In: a recorded graph, where values with the same storage alias.  Out: a graph without writes. Its `updates` say what
// each written input holds in the end, and its outputs say what they alias.
// Every storage has a root value that holds its whole content. A view is not computed where it was recorded. It is
// replayed from the root's current value when it is read, so dead views cost nothing; a version per storage tells
// whether an earlier replay is still valid. A write becomes the op's functional form, and the inverse of each view on
// the way carries the new content up to the root. Replayed views keep the recorded metas if the root's layout is the
// recorded one; otherwise shape rules infer them again.
// Outputs are replayed last. If they are views of an input, they are replayed from the input itself, so that its update
// is visible through them; otherwise from the root, so that outputs of one storage alias each other.
#include <algorithm>
#include <deque>
#include <unordered_map>

#include "graph/passes/passes.h"
#include "graph/passes/rebuild.h"
#include "graph/passes/view_inverse.h"
#include "graph/shape_rule.h"

namespace framejit::graph {
namespace {

struct Storage {
  ValueId root = kNoValue;     // recorded value that spans the storage
  ValueId content = kNoValue;  // its present value in the new graph
  int version = 0;
  int writes = 0;
  int input = -1;
  bool is_constant = false, is_lifted = false, is_shared_by_inputs = false;
};

struct View {
  ValueId parent = kNoValue;
  const Node* node = nullptr;  // of the recorded graph, or of rooted_
  const OpDef* op = nullptr;   // functional form of an in-place change of sizes
  size_t result = 0;
  int version = -1;           // of the storage at the time the value was made
  int replay = -1;            // number of the output replay that made it
};

// Whether no two indices name the same element. False for a symbolic layout, because it is not known.
bool has_distinct_elements(const TensorMeta& meta) {
  std::vector<std::pair<int64_t, int64_t>> dims;  // stride, size
  for (size_t d = 0; d < meta.ndim(); ++d) {
    if (!meta.sizes[d].is_constant() || !meta.strides[d].is_constant()) return false;
    if (meta.sizes[d].constant() == 0) return true;
    if (meta.sizes[d].constant() > 1) dims.emplace_back(meta.strides[d].constant(), meta.sizes[d].constant());
  }
  std::ranges::sort(dims);
  int64_t last = 0;  // offset of the last element over the faster dimensions
  for (const auto& [stride, size] : dims) {
    if (stride <= last) return false;
    last += stride * (size - 1);
  }
  return true;
}

class Functionalizer {
 public:
  Functionalizer(const Graph& graph, bool views_are_of_bases)
      : g_(graph), r_(graph, false), out_(r_.out()), views_are_of_bases_(views_are_of_bases) {}

  Result<Graph> run() {
    for (size_t i = 0; i < g_.inputs.size(); ++i) add_boundary(g_.inputs[i], static_cast<int>(i));
    for (ValueId v : g_.constants) add_boundary(v, -1);
    for (const Node& node : g_.nodes) {
      r_.begin(node);
      FJ_TRY_VOID(node.op->has(kMutates) && !changes_sizes(node) ? write_node(node) : plain_node(node));
    }
    return build();
  }

 private:
  Storage& storage_of(ValueId v) { return storages_[g_.values[index_of(v)].storage]; }

  void add_boundary(ValueId v, int input) {
    Storage& s = storage_of(v);
    if (s.root != kNoValue) {
      s.is_shared_by_inputs = true;
      return;
    }
    s.root = v;
    s.content = r_.get(v);
    s.input = input;
    s.is_constant = input < 0;
  }

  // t_, squeeze_, ...: a new value on the old storage, but no write.
  static bool changes_sizes(const Node& node) {
    const ValueId* self = node.args.empty() ? nullptr : node.args[0].get<ValueId>();
    return node.op->has(kView) && node.results.size() == 1 && self != nullptr && node.results[0] != *self;
  }

  // ------------------------------------------------------------ reading

  Result<ValueId> get(ValueId v) {
    if (v == kNoValue) return v;
    const auto found = views_.find(v);
    Storage& s = storage_of(v);
    if (found == views_.end()) return s.root == v ? s.content : r_.get(v);
    View& view = found->second;
    if (view.version == s.version && (view.replay == replay_ || s.writes == 0)) return r_.get(v);
    if (is_as_strided(*view.op)) FJ_TRY_VOID(lay_out_content(s));
    FJ_TRY(const ValueId parent, get(view.parent));
    FJ_TRY_VOID(replay(v, view, parent));
    return r_.get(v);
  }

  // as_strided of a view reaches elements around the view: the whole content needs the recorded layout.
  Result<void> lay_out_content(Storage& s) {
    if (s.writes == 0 || s.root == kNoValue) return {};
    FJ_TRY(const ValueId settled, as_recorded(s.content, s.root));
    if (settled == s.content) return {};
    s.content = settled;
    ++s.version;
    return {};
  }

  // as_strided needs the recorded layout. A layout with gaps cannot be restored.
  Result<ValueId> as_recorded(ValueId made, ValueId recorded) {
    const ValueId v = with_layout(out_, made, g_.meta(recorded));
    if (!same_layout(out_.meta(v), g_.meta(recorded)))
      return Error{Reason::no_functional_form, "as_strided of a written tensor whose layout has gaps"};
    return v;
  }

  Result<void> replay(ValueId v, View& view, ValueId parent) {
    const int version = storage_of(v).version;
    if (is_identity_view(*view.op)) {
      r_.set(v, parent);
      view.version = version;
      view.replay = replay_;
      return {};
    }
    std::vector<Arg> args = r_.map_args(*view.node);
    args[0] = parent;
    Node like = *view.node;
    like.op = view.op;
    if (is_as_strided(*view.op)) {
      FJ_TRY(const ValueId base, as_recorded(parent, view.parent));
      args[0] = base;
    }
    if (has_own_offset(*view.node)) args[0] = in_own_memory(*args[0].get<ValueId>());
    if (view.op->is(KnownOp::view)) {
      TensorMeta meta = g_.meta(v);
      if (!same_layout(out_.meta(parent), g_.meta(view.parent))) {
        args[0] = parent;
        remember(v, view, reshaped(out_, parent, meta.sizes), version);
        return {};
      }
    }
    const std::vector<ValueId> made = r_.emit_like(like, view.op, std::move(args));
    for (size_t i = 0; i < made.size(); ++i) {
      const auto sibling = views_.find(like.results[i]);
      if (sibling != views_.end()) remember(like.results[i], sibling->second, made[i], version);
    }
    return {};
  }

  void remember(ValueId v, View& view, ValueId made, int version) {
    r_.set(v, made);
    view.version = version;
    view.replay = replay_;
  }

  Result<std::vector<Arg>> read_args(const Node& node, bool drop_written) {
    std::vector<Arg> args;
    for (size_t i = 0; i < node.args.size(); ++i) {
      const auto& written = node.op->write_args;
      if (drop_written && std::find(written.begin(), written.end(), static_cast<int8_t>(i)) != written.end()) continue;
      Arg arg = node.args[i];
      if (auto* v = std::get_if<ValueId>(&arg.payload)) {
        FJ_TRY(*v, get(*v));
      }
      if (auto* list = std::get_if<std::vector<ValueId>>(&arg.payload))
        for (ValueId& v : *list) {
          FJ_TRY(v, get(v));
        }
      args.push_back(std::move(arg));
    }
    return args;
  }

  // ------------------------------------------------------------ nodes that write nothing

  ValueId parent_of(const Node& node, ValueId result) const {
    const uint32_t storage = g_.values[index_of(result)].storage;
    for (const Arg& arg : node.args) {
      const ValueId* v = arg.get<ValueId>();
      if (v != nullptr && *v != result && g_.values[index_of(*v)].storage == storage) return *v;
    }
    return kNoValue;
  }

  // as_strided sees the whole storage, including elements outside its argument. If its place in the storage is
  // known, it is taken from the root. The offset of an input is not known, but the recorder lets nothing depend on it.
  View view_of_root(const Node& node, const OpDef* op, ValueId parent) {
    const Storage& s = storage_of(parent);
    const ValueId result = node.results[0];
    const bool known = s.input < 0 && !s.is_constant && s.root != kNoValue && g_.meta(s.root).offset == SymExpr(0);
    if (!known) return View{parent, &node, op, 0};
    Node& rooted = rooted_.emplace_back(node);
    rooted.args = {s.root, g_.meta(result).sizes, g_.meta(result).strides, g_.meta(result).offset};
    return View{s.root, &rooted, op, 0};
  }

  // The same value and layout at the beginning of its own memory.
  ValueId in_own_memory(ValueId v) {
    const ValueId memory = memory_of(out_.peek(), v);
    const auto is_memory = [&](const std::vector<ValueId>& boundary) {
      return std::find(boundary.begin(), boundary.end(), memory) != boundary.end();
    };
    if (memory == v && !is_memory(out_.peek().inputs) && !is_memory(out_.peek().constants)) return v;
    const TensorMeta layout = out_.meta(v);
    return with_layout(out_, contiguous_clone(out_, v), layout);
  }

  Result<void> plain_node(const Node& node) {
    bool is_view = false;
    for (size_t i = 0; i < node.results.size(); ++i) {
      if (node.results[i] == kNoValue) continue;
      const ValueId parent = parent_of(node, node.results[i]);
      if (parent == kNoValue || views_.contains(node.results[i])) continue;
      const OpDef* op = node.op;
      if (op->has(kMutates) || !op->functional.empty()) op = find_op(op->functional);
      if (op == nullptr) return Error{Reason::no_functional_form, "no functional form of " + node.op->name};
      if (const ValueId root = storage_of(parent).root;
          is_as_strided(*op) && root != kNoValue && g_.meta(root).dtype != g_.meta(node.results[i]).dtype)
        return Error{Reason::no_functional_form,
                     "as_strided of a view of another dtype"};  // its offset counts elements of another size
      views_[node.results[i]] = is_as_strided(*op) ? view_of_root(node, op, parent) : View{parent, &node, op, i};
      if (op->is(KnownOp::lift_fresh)) storage_of(parent).is_lifted = true;
      is_view = true;
    }
    if (is_view) return {};
    if (trains_batch_norm(node)) return batch_norm(node);
    FJ_TRY(std::vector<Arg> args, read_args(node, false));
    if (has_own_offset(node) && !views_.contains(*node.args[0].get<ValueId>()))
      args[0] = in_own_memory(*args[0].get<ValueId>());
    const std::vector<ValueId> made = r_.emit_like(node, node.op, std::move(args));
    for (size_t i = 0; i < made.size(); ++i) {
      const ValueId old = node.results[i];
      if (old == kNoValue) continue;
      const bool returns_argument = std::any_of(node.args.begin(), node.args.end(), [&](const Arg& a) {
        return a.get<ValueId>() != nullptr && *a.get<ValueId>() == old;
      });
      if (!returns_argument) new_root(old, made[i]);
    }
    return {};
  }

  void new_root(ValueId old, ValueId made) {
    r_.set(old, made);
    Storage& s = storage_of(old);
    s.root = old;
    s.content = made;
    ++s.version;
  }

  // native_batch_norm writes the running statistics, although its schema does not say so.
  bool trains_batch_norm(const Node& node) const {
    if (!node.op->is(KnownOp::native_batch_norm) || node.args.size() < 6) return false;
    const bool* training = node.args[5].get<bool>();
    return training != nullptr && *training && node.args[3].get<ValueId>() != nullptr &&
           node.args[4].get<ValueId>() != nullptr;
  }

  Result<void> batch_norm(const Node& node) {
    const ValueId mean = *node.args[3].get<ValueId>(), variance = *node.args[4].get<ValueId>();
    FJ_TRY(std::vector<Arg> args, read_args(node, false));
    Node like = node;
    like.results.push_back(mean);
    like.results.push_back(variance);
    const std::vector<ValueId> made =
        r_.emit_like(like, find_op("_native_batch_norm_legit_functional"), std::move(args));
    for (size_t i = 0; i < 3; ++i)
      if (node.results[i] != kNoValue) new_root(node.results[i], made[i]);
    FJ_TRY_VOID(write(mean, made[3]));
    return write(variance, made[4]);
  }

  // ------------------------------------------------------------ nodes that write

  Result<void> write_node(const Node& node) {
    if (node.op->is(KnownOp::copy_in_place)) return copy_node(node);
    const OpDef* functional = node.op->functional.empty() ? nullptr : find_op(node.op->functional);
    if (functional == nullptr) return Error{Reason::no_functional_form, "no functional form of " + node.op->name};
    const bool drops = node.op->drops_out_args;
    FJ_TRY(std::vector<Arg> args, read_args(node, drops));
    Node like = node;
    const size_t fresh = keep_fresh_results(like);
    for (const int8_t w : node.op->write_args) {
      const Arg& arg = node.args[static_cast<size_t>(w)];
      if (const ValueId* v = arg.get<ValueId>()) {
        like.results.push_back(*v);
        like.result_lists.push_back(-1);
      } else if (const auto* list = arg.get<std::vector<ValueId>>()) {
        like.results.insert(like.results.end(), list->begin(), list->end());
        like.result_lists.push_back(static_cast<int16_t>(list->size()));
      }
    }
    const std::vector<ValueId> made = r_.emit_like(like, functional, std::move(args));
    for (size_t i = 0; i < made.size(); ++i) {
      if (like.results[i] == kNoValue) continue;
      const ValueId resized = i < fresh ? like.results[i] : resized_result(node, like.results[i]);
      const ValueId content = converted(out_, made[i], g_.meta(like.results[i]).dtype);
      if (resized != kNoValue) new_root(resized, content);
      else FJ_TRY_VOID(write(like.results[i], content));
    }
    return {};
  }

  // A functional form returns the op's own results first, then the written tensors in order. Keeps the own results and
  // counts them.
  static size_t keep_fresh_results(Node& node) {
    std::vector<ValueId> results;
    std::vector<int16_t> lists;
    size_t at = 0;
    for (size_t r = 0; r < node.op->result_alias.size() && at < node.results.size(); ++r) {
      const int16_t length = r < node.result_lists.size() ? node.result_lists[r] : int16_t{-1};
      const size_t count = length < 0 ? 1 : static_cast<size_t>(length);
      if (node.op->result_alias[r] < 0) {
        for (size_t i = at; i < at + count; ++i) results.push_back(node.results[i]);
        lists.push_back(length);
      }
      at += count;
    }
    node.results = std::move(results);
    node.result_lists = std::move(lists);
    return node.results.size();
  }

  // out= with a resize: the result is a new value that replaces the root of its storage.
  ValueId resized_result(const Node& node, ValueId written) const {
    for (ValueId v : node.results)
      if (v != kNoValue && v != written && g_.values[index_of(v)].storage == g_.values[index_of(written)].storage)
        return v;
    return kNoValue;
  }

  // copy_(self, src): the new content is src in self's dtype and sizes; strides are decided where they matter.
  Result<void> copy_node(const Node& node) {
    const ValueId self = *node.args[0].get<ValueId>();
    FJ_TRY(ValueId source, copied_value(node));
    const TensorMeta& meta = g_.meta(self);
    if (out_.meta(source).device != meta.device) {
      source = out_.emit("_to_copy", {source, meta.dtype, Arg{}, meta.device, Arg{}, false, Arg{}});
    }
    source = converted(out_, source, meta.dtype);
    if (out_.meta(source).sizes != meta.sizes) source = out_.emit("expand", {source, meta.sizes, false});
    return write(self, source);
  }

  // A number is written as a tensor of its own dtype is: its conversion wraps.
  Result<ValueId> copied_value(const Node& copy) {
    const Arg& source = copy.args[1];
    if (const ValueId* v = source.get<ValueId>()) return get(*v);
    const DType dtype = source.get<double>() != nullptr ? DType::kFloat64
                        : source.get<bool>() != nullptr ? DType::kBool
                                                        : DType::kInt64;
    const Device device = g_.meta(*copy.args[0].get<ValueId>()).device;
    return out_.emit("full", {SymSizes{}, source, dtype, Arg{}, device, Arg{}});
  }

  Result<void> write(ValueId v, ValueId content) {
    const ValueId leaf = v, leaf_content = content;
    FJ_TRY_VOID(shows_each_element_once(leaf));
    for (auto view = views_.find(v); view != views_.end(); view = views_.find(v)) {
      const View made = view->second;
      FJ_TRY(ValueId base, get(made.parent));
      if (is_as_strided(*made.op)) {
        FJ_TRY_VOID(stays_inside(made, g_.meta(v)));
        FJ_TRY(base, as_recorded(base, made.parent));
        if (has_own_offset(*made.node)) base = in_own_memory(base);
      }
      FJ_TRY(content, inverse_of_view(out_, *made.node, made.result, base, content));
      v = made.parent;
    }
    Storage& s = storage_of(v);
    // A lifted constant is a tensor that the program makes in each call (torch.tensor): its writes end with the call.
    if (s.is_constant && !s.is_lifted) return Error{Reason::no_functional_form, "a captured constant is written"};
    if (s.is_shared_by_inputs) return Error{Reason::no_functional_form, "inputs that share memory are written"};
    if (s.root != v) return Error{Reason::no_functional_form, "a value that is not known to be a view is written"};
    s.content = content;
    ++s.version;
    ++s.writes;
    if (const auto view = views_.find(leaf); view != views_.end() && !views_are_of_bases_)
      remember(leaf, view->second, leaf_content, s.version);
    return {};
  }

  // as_strided can make views that show an element twice. The result of a write to such a view depends on its order.
  // (unfold makes them too, but has no inverse, so it is not written here.)
  Result<void> shows_each_element_once(ValueId v) const {
    const TensorMeta& meta = g_.meta(v);
    bool is_strided = false;
    for (auto view = views_.find(v); view != views_.end(); view = views_.find(view->second.parent))
      is_strided |= is_as_strided(*view->second.op);
    if (!is_strided || has_distinct_elements(meta)) return {};
    return Error{Reason::no_functional_form, "a view that may show an element twice is written"};
  }

  // as_strided may only write elements of its argument: its scatter would lose writes to others.
  Result<void> stays_inside(const View& view, const TensorMeta& written) const {
    const TensorMeta& base = g_.meta(view.parent);
    SymExpr last = written.offset - base.offset;
    for (size_t d = 0; d < written.ndim(); ++d) last = last + (written.sizes[d] - 1) * written.strides[d];
    const SymExpr room = base.numel() - last;
    if (base.is_contiguous() && room.is_constant() && room.constant() > 0) return {};
    return Error{Reason::no_functional_form, "as_strided writes beyond its argument"};
  }

  // ------------------------------------------------------------ outputs

  Result<Graph> build() {
    std::vector<std::pair<uint32_t, ValueId>> updates;
    for (const auto& [input, value] : g_.updates) {
      FJ_TRY(const ValueId content, get(value));
      updates.emplace_back(input, content);
    }
    for (size_t i = 0; i < g_.inputs.size(); ++i) {
      Storage& s = storage_of(g_.inputs[i]);
      if (s.writes == 0 || s.root != g_.inputs[i]) continue;
      updates.emplace_back(static_cast<uint32_t>(i), s.content);
      // From here on the input stands for itself: an output that is a view of it sees the update.
      s.content = r_.get(g_.inputs[i]);
    }
    ++replay_;
    std::vector<ValueId> outputs;
    std::vector<OutputAlias> aliases;
    std::unordered_map<uint32_t, uint32_t> first_output;
    for (size_t i = 0; i < g_.outputs.size(); ++i) {
      const ValueId old = g_.outputs[i];
      if (old != kNoValue) settle_layout(storage_of(old));
      FJ_TRY(const ValueId value, get(old));
      outputs.push_back(value);
      aliases.push_back(alias_of(i, old, first_output));
      if (old != kNoValue && aliases[i].kind == OutputKind::kFresh) outputs[i] = with_layout(out_, value, g_.meta(old));
    }
    return r_.build(std::move(outputs), std::move(aliases), std::move(updates));
  }

  // Outputs must have the recorded layout. If the root has another layout now, the recorded one is restored, and views
  // are made from the result.
  void settle_layout(Storage& s) {
    if (s.input >= 0 || s.is_constant || s.root == kNoValue) return;
    const ValueId settled = with_layout(out_, s.content, g_.meta(s.root));
    if (settled == s.content) return;
    s.content = settled;
    ++s.version;
    ++s.writes;
  }

  OutputAlias alias_of(size_t output, ValueId old, std::unordered_map<uint32_t, uint32_t>& first_output) {
    if (old == kNoValue || g_.output_aliases[output].kind != OutputKind::kFresh) return g_.output_aliases[output];
    const Storage& s = storage_of(old);
    if (s.input >= 0 && s.root == g_.inputs[static_cast<size_t>(s.input)]) {
      const bool is_input = old == s.root;
      return {is_input ? OutputKind::kInput : OutputKind::kViewOfInput, static_cast<uint32_t>(s.input)};
    }
    const auto input = std::find(g_.inputs.begin(), g_.inputs.end(), old);
    if (input != g_.inputs.end()) return {OutputKind::kInput, static_cast<uint32_t>(input - g_.inputs.begin())};
    const auto [first, is_new] = first_output.emplace(g_.values[index_of(old)].storage, static_cast<uint32_t>(output));
    return is_new ? OutputAlias{} : OutputAlias{OutputKind::kViewOfOutput, first->second};
  }

  const Graph& g_;
  Rebuild r_;
  GraphBuilder& out_;
  std::unordered_map<uint32_t, Storage> storages_;
  std::unordered_map<ValueId, View> views_;
  std::deque<Node> rooted_;  // as_strided of a part of a storage, rewritten as as_strided of its root
  const bool views_are_of_bases_;  // written views too: otherwise such a view is the value that was written
  int replay_ = 0;
};

}  // namespace

Result<Graph> functionalize(Graph recorded) { return Functionalizer(recorded, false).run(); }

Result<Graph> functionalize_histories(Graph recorded) { return Functionalizer(recorded, true).run(); }

}  // namespace framejit::graph
