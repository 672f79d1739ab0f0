// graph/aten/sym_node.cpp — the SymNodeImpl over SymExpr.
#include "graph/aten/sym_node.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>

#include "graph/aten/capture_break.h"

namespace framejit::graph {
namespace {

using c10::SymNode;

// The truth of a relation between expressions, or of a combination of relations; computed lazily.
struct Truth {
  enum class Kind : uint8_t { kConstant, kRelation, kNot, kAnd, kOr } kind = Kind::kConstant;
  bool value = false;
  SymExpr left, right;
  Relation relation = Relation::kEq;
  SymNode first, second;
};

class ExprNode final : public c10::SymNodeImpl {
 public:
  enum class Kind : uint8_t { kInt, kBool, kFloat };

  ExprNode(std::shared_ptr<SymOwner> owner, SymExpr expr)
      : owner_(std::move(owner)), kind_(Kind::kInt), expr_(std::move(expr)) {}
  ExprNode(std::shared_ptr<SymOwner> owner, Truth truth)
      : owner_(std::move(owner)), kind_(Kind::kBool), truth_(std::move(truth)) {}
  ExprNode(std::shared_ptr<SymOwner> owner, double number)
      : owner_(std::move(owner)), kind_(Kind::kFloat), number_(number) {}
  ExprNode(std::shared_ptr<SymOwner> owner, OpenFloat open)
      : owner_(std::move(owner)), kind_(Kind::kFloat), number_(open.now), open_(open.value) {}

  static const ExprNode& of(const SymNode& node) {
    const auto* ours = dynamic_cast<const ExprNode*>(node.get());
    if (ours == nullptr)
      throw CaptureBreakError({Reason::unsupported_operand, "a symbolic number of another tracer: " + node->str()});
    return *ours;
  }
  const SymExpr& expr() const { return expr_; }
  std::optional<OpenFloat> open() const { return open_ ? std::optional(OpenFloat{*open_, number_}) : std::nullopt; }
  bool is_equal(double other) const {
    FJ_ASSERT(open_.has_value(), "a float that is not open is compared as one");
    owner_->float_is_read({*open_, other, number_ == other});
    return number_ == other;
  }

  bool is_int() override { return kind_ == Kind::kInt; }
  bool is_bool() override { return kind_ == Kind::kBool; }
  bool is_float() override { return kind_ == Kind::kFloat; }

  SymNode add(const SymNode& other) override { return arithmetic(other, '+'); }
  SymNode sub(const SymNode& other) override { return arithmetic(other, '-'); }
  SymNode mul(const SymNode& other) override { return arithmetic(other, '*'); }
  SymNode floordiv(const SymNode& other) override { return arithmetic(other, '/'); }
  SymNode int_floordiv(const SymNode& other) override { return arithmetic(other, '/'); }
  SymNode mod(const SymNode& other) override { return arithmetic(other, '%'); }
  SymNode truediv(const SymNode& other) override { return make(number() / of(other).number()); }
  SymNode pow(const SymNode& other) override { return make(std::pow(number(), of(other).number())); }
  SymNode pow_by_natural(const SymNode& other) override {
    const int64_t exponent = of(other).constant();
    SymExpr product = 1;
    for (int64_t i = 0; i < exponent; ++i) product = product * expr_;
    return make(std::move(product));
  }
  SymNode neg() override { return kind_ == Kind::kFloat ? make(-number()) : make(SymExpr(0) - expr_); }
  SymNode ceil() override {
    return kind_ == Kind::kFloat ? make(SymExpr(static_cast<int64_t>(std::ceil(number())))) : self();
  }
  SymNode floor() override {
    return kind_ == Kind::kFloat ? make(SymExpr(static_cast<int64_t>(std::floor(number())))) : self();
  }
  SymNode sym_float() override { return make(number()); }
  SymNode sym_min(const SymNode& other) override { return extreme(other, true); }
  SymNode sym_max(const SymNode& other) override { return extreme(other, false); }
  SymNode clone() override { return self(); }

  SymNode eq(const SymNode& other) override { return relation(other, Relation::kEq, false); }
  SymNode ne(const SymNode& other) override { return relation(other, Relation::kNe, false); }
  SymNode lt(const SymNode& other) override { return relation(other, Relation::kLt, false); }
  SymNode le(const SymNode& other) override { return relation(other, Relation::kLe, false); }
  SymNode gt(const SymNode& other) override { return relation(other, Relation::kLt, true); }
  SymNode ge(const SymNode& other) override { return relation(other, Relation::kLe, true); }

  SymNode sym_not() override {
    if (const auto known = constant_bool()) return truth(!*known);
    return make(Truth{Truth::Kind::kNot, false, {}, {}, Relation::kEq, self(), {}});
  }
  SymNode sym_and(const SymNode& other) override { return combine(other, Truth::Kind::kAnd, false); }
  SymNode sym_or(const SymNode& other) override { return combine(other, Truth::Kind::kOr, true); }
  SymNode sym_ite(const SymNode& then_value, const SymNode& else_value) override {
    return decide() ? then_value : else_value;
  }

  SymNode wrap_int(int64_t value) override { return make(SymExpr(value)); }
  SymNode wrap_bool(bool value) override { return truth(value); }
  SymNode wrap_float(double value) override { return make(value); }

  int64_t guard_int(const char*, int64_t) override { return constant(); }
  bool guard_bool(const char*, int64_t) override { return decide(); }
  double guard_float(const char*, int64_t) override { return number(); }
  // If the answer is not known, the default would be right for values, but not for shared memory: reshape() would copy
  // where eager makes a view.
  bool guard_or_false(const char*, int64_t) override { return decide(); }
  bool guard_or_true(const char*, int64_t) override { return decide(); }
  bool guard_size_oblivious(const char*, int64_t) override { return decide(); }
  bool statically_known_true(const char*, int64_t) override { return known().value_or(false); }
  bool expect_true(const char*, int64_t) override { return decide(); }
  int64_t int_() override { return constant(); }
  bool bool_() override { return decide(); }
  bool has_hint() override { return true; }
  std::string str() override;
  std::optional<int64_t> constant_int() override { return kind_ == Kind::kInt ? expr_.as_constant() : std::nullopt; }
  std::optional<bool> constant_bool() override {
    return kind_ == Kind::kBool && truth_.kind == Truth::Kind::kConstant ? std::optional<bool>(truth_.value)
                                                                         : std::nullopt;
  }
  std::optional<int64_t> maybe_as_int() override { return constant_int(); }

  // Layout questions of SymbolicShapeMeta, about the given sizes and strides.
  SymNode is_contiguous(c10::ArrayRef<SymNode> sizes, c10::ArrayRef<SymNode> strides) override;
  SymNode is_channels_last_contiguous_2d(c10::ArrayRef<SymNode> sizes, c10::ArrayRef<SymNode> strides) override {
    return in_order(sizes, strides, {1, 3, 2, 0});
  }
  SymNode is_channels_last_contiguous_3d(c10::ArrayRef<SymNode> sizes, c10::ArrayRef<SymNode> strides) override {
    return in_order(sizes, strides, {1, 4, 3, 2, 0});
  }
  SymNode is_channels_last_strides_2d(c10::ArrayRef<SymNode> sizes, c10::ArrayRef<SymNode> strides) override {
    return in_order(sizes, strides, {1, 3, 2, 0});
  }
  SymNode is_channels_last_strides_3d(c10::ArrayRef<SymNode> sizes, c10::ArrayRef<SymNode> strides) override {
    return in_order(sizes, strides, {1, 4, 3, 2, 0});
  }
  SymNode is_non_overlapping_and_dense(c10::ArrayRef<SymNode> sizes, c10::ArrayRef<SymNode> strides) override {
    return truth(decide_dense(env(), exprs(sizes), exprs(strides), owner_->why()));
  }

 private:
  ShapeEnv& env() const { return owner_->shapes(); }
  SymNode self() const { return c10::intrusive_ptr<c10::SymNodeImpl>::reclaim_copy(const_cast<ExprNode*>(this)); }
  template <class T> SymNode make(T payload) const { return c10::make_intrusive<ExprNode>(owner_, std::move(payload)); }
  SymNode truth(bool value) const { return make(Truth{Truth::Kind::kConstant, value, {}, {}, Relation::kEq, {}, {}}); }
  static SymSizes exprs(c10::ArrayRef<SymNode> nodes) {
    SymSizes result;
    for (const SymNode& n : nodes) result.push_back(of(n).expr_);
    return result;
  }

  int64_t constant() const {
    if (kind_ != Kind::kInt) return static_cast<int64_t>(number());
    const size_t known = env().facts().size();
    const int64_t value = env().specialise(expr_, "torch takes this number as a constant");
    env().add_line(known, owner_->why());
    return value;
  }
  double number() const {
    if (open_) owner_->float_is_read({*open_});
    if (kind_ == Kind::kFloat) return number_;
    return kind_ == Kind::kInt ? static_cast<double>(constant()) : static_cast<double>(decide());
  }

  SymNode arithmetic(const SymNode& other, char op) const {
    const ExprNode& right = of(other);
    if (kind_ != Kind::kInt || right.kind_ != Kind::kInt) return float_arithmetic(right, op);
    if ((op == '/' || op == '%') && env().decide(right.expr_, Relation::kEq, 0, owner_->why()))
      TORCH_CHECK(false, "integer division or modulo by zero");
    switch (op) {
      case '+': return make(expr_ + right.expr_);
      case '-': return make(expr_ - right.expr_);
      case '*': return make(expr_ * right.expr_);
      case '/': return make(SymExpr::floor_div(expr_, right.expr_));
      default: return make(SymExpr::mod(expr_, right.expr_));
    }
  }
  SymNode float_arithmetic(const ExprNode& right, char op) const {
    const double a = number(), b = right.number();
    switch (op) {
      case '+': return make(a + b);
      case '-': return make(a - b);
      case '*': return make(a * b);
      case '/': return make(std::floor(a / b));
      default: return make(a - std::floor(a / b) * b);
    }
  }
  SymNode extreme(const SymNode& other, bool smallest) const {
    const ExprNode& right = of(other);
    if (kind_ != Kind::kInt || right.kind_ != Kind::kInt)
      return make(smallest ? std::min(number(), right.number()) : std::max(number(), right.number()));
    if (const auto below = env().known(expr_, Relation::kLe, right.expr_)) return *below == smallest ? self() : other;
    return make(smallest ? SymExpr::min(expr_, right.expr_) : SymExpr::max(expr_, right.expr_));
  }
  SymNode relation(const SymNode& other, Relation kind, bool swapped) const {
    const ExprNode& right = of(other);
    const auto is_either = [&](Kind k) { return kind_ == k || right.kind_ == k; };
    if (is_either(Kind::kFloat) || is_either(Kind::kBool))
      return truth(swapped ? holds(right.number(), kind, number()) : holds(number(), kind, right.number()));
    const SymExpr &a = swapped ? right.expr_ : expr_, &b = swapped ? expr_ : right.expr_;
    if (const auto answer = env().known(a, kind, b)) return truth(*answer);
    return make(Truth{Truth::Kind::kRelation, false, a, b, kind, {}, {}});
  }
  SymNode combine(const SymNode& other, Truth::Kind kind, bool dominant) const {
    const ExprNode& right = of(other);
    if (const auto value = known()) return *value == dominant ? truth(dominant) : other;
    if (const auto value = right.known()) return *value == dominant ? truth(dominant) : self();
    return make(Truth{kind, false, {}, {}, Relation::kEq, self(), other});
  }

  std::optional<bool> known() const {
    if (kind_ != Kind::kBool) return std::nullopt;
    switch (truth_.kind) {
      case Truth::Kind::kConstant: return truth_.value;
      case Truth::Kind::kRelation: return env().known(truth_.left, truth_.relation, truth_.right);
      case Truth::Kind::kNot: {
        const auto inner = of(truth_.first).known();
        return inner ? std::optional<bool>(!*inner) : std::nullopt;
      }
      default: break;
    }
    const bool dominant = truth_.kind == Truth::Kind::kOr;
    const auto a = of(truth_.first).known(), b = of(truth_.second).known();
    if (a == dominant || b == dominant) return dominant;
    return a && b ? std::optional<bool>(!dominant) : std::nullopt;
  }
  bool decide() const {
    if (kind_ != Kind::kBool) return number() != 0;
    if (const auto answer = known()) return *answer;
    switch (truth_.kind) {
      case Truth::Kind::kConstant: return truth_.value;
      case Truth::Kind::kRelation: return env().decide(truth_.left, truth_.relation, truth_.right, owner_->why());
      case Truth::Kind::kNot: return !of(truth_.first).decide();
      case Truth::Kind::kAnd: return of(truth_.first).decide() && of(truth_.second).decide();
      case Truth::Kind::kOr: return of(truth_.first).decide() || of(truth_.second).decide();
    }
    return false;
  }
  SymNode in_order(c10::ArrayRef<SymNode> sizes, c10::ArrayRef<SymNode> strides,
                   const std::vector<size_t>& order) const {
    if (sizes.size() != order.size()) return truth(false);
    return truth(decide_contiguous(env(), exprs(sizes), exprs(strides), order, owner_->why()));
  }

  std::shared_ptr<SymOwner> owner_;
  Kind kind_;
  SymExpr expr_;
  Truth truth_;
  double number_ = 0;
  std::optional<uint32_t> open_;  // the graph's value that holds the number
};

SymNode ExprNode::is_contiguous(c10::ArrayRef<SymNode> sizes, c10::ArrayRef<SymNode> strides) {
  std::vector<size_t> order(sizes.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = order.size() - 1 - i;
  return truth(decide_contiguous(env(), exprs(sizes), exprs(strides), order, owner_->why()));
}

std::string ExprNode::str() {
  if (kind_ == Kind::kInt) return expr_.text();
  if (kind_ == Kind::kFloat) return std::to_string(number_);
  switch (truth_.kind) {
    case Truth::Kind::kConstant: return truth_.value ? "True" : "False";
    case Truth::Kind::kRelation: return truth_.left.text() + " " + text_of(truth_.relation) + " " + truth_.right.text();
    case Truth::Kind::kNot: return "not (" + truth_.first->str() + ")";
    case Truth::Kind::kAnd: return "(" + truth_.first->str() + ") and (" + truth_.second->str() + ")";
    case Truth::Kind::kOr: return "(" + truth_.first->str() + ") or (" + truth_.second->str() + ")";
  }
  return "";
}

}  // namespace

c10::SymInt sym_int_of(const SymExpr& e, const std::shared_ptr<SymOwner>& owner) {
  if (const auto constant = e.as_constant()) return c10::SymInt(*constant);
  return c10::SymInt(SymNode(c10::make_intrusive<ExprNode>(owner, e)));
}

std::vector<c10::SymInt> sym_ints_of(const SymSizes& sizes, const std::shared_ptr<SymOwner>& owner) {
  std::vector<c10::SymInt> result;
  result.reserve(sizes.size());
  for (const SymExpr& e : sizes) result.push_back(sym_int_of(e, owner));
  return result;
}

c10::SymFloat open_float(uint32_t value, double now, const std::shared_ptr<SymOwner>& owner) {
  return c10::SymFloat(SymNode(c10::make_intrusive<ExprNode>(owner, OpenFloat{value, now})));
}

namespace {
std::atomic<WrappedNodeFn> g_wrapped_node_reader = nullptr;
}

void set_wrapped_node_reader(WrappedNodeFn reader) { g_wrapped_node_reader = reader; }

namespace {
const ExprNode* find_ours(const SymNode& node) {
  const auto* ours = dynamic_cast<const ExprNode*>(node.get());
  if (ours == nullptr && g_wrapped_node_reader != nullptr)
    ours = dynamic_cast<const ExprNode*>(g_wrapped_node_reader.load()(*node));
  return ours;
}
}  // namespace

std::optional<OpenFloat> as_open_float(const c10::SymFloat& number) {
  if (!number.is_symbolic()) return std::nullopt;
  const SymNode node = number.toSymNodeImpl();
  const ExprNode* ours = find_ours(node);
  return ours == nullptr ? std::nullopt : ours->open();
}

bool is_open_float_equal(const c10::SymFloat& open, double other) {
  const SymNode node = open.toSymNodeImpl();
  const ExprNode* ours = find_ours(node);
  FJ_ASSERT(ours != nullptr, "a float of another tracer is compared");
  return ours->is_equal(other);
}

SymExpr expr_of(const c10::SymInt& value) {
  if (const auto constant = value.maybe_as_int()) return *constant;
  return ExprNode::of(value.toSymNode()).expr();
}

bool decide_contiguous(ShapeEnv& env, const SymSizes& sizes, const SymSizes& strides, const std::vector<size_t>& order,
                       const std::string& why) {
  for (const SymExpr& size : sizes)
    if (env.decide(size, Relation::kEq, 0, why)) return true;
  SymExpr expected = 1;
  for (size_t d : order) {
    if (env.decide(sizes[d], Relation::kEq, 1, why)) continue;
    if (!env.decide(strides[d], Relation::kEq, expected, why)) return false;
    expected = expected * sizes[d];
  }
  return true;
}

bool decide_dense(ShapeEnv& env, const SymSizes& sizes, const SymSizes& strides, const std::string& why) {
  std::vector<size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return env.hint(strides[a]) < env.hint(strides[b]); });
  return decide_contiguous(env, sizes, strides, order, why);
}

}  // namespace framejit::graph
