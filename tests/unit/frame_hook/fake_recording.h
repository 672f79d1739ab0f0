// tests/unit/frame_hook/fake_recording.h — a tensor frontend without torch, over the fake torch of fake_torch.h.
#pragma once

#include <algorithm>

#include "fake_torch.h"
#include "frame_hook/trace/torch/tensor_frontend.h"

namespace framejit::frame_hook::fake {

class Facts : public guards::TensorFacts {
 public:
  explicit Facts(graph::SymSizes sizes) : sizes_(std::move(sizes)) {}
  bool matches(PyObject* tensor, int64_t*) const override {
    return is_tensor(tensor) && *as_tensor(tensor)->sizes == sizes_;
  }
  std::optional<guards::TensorDifference> difference(PyObject*) const override {
    return guards::TensorDifference{guards::ChangeKind::size, "sizes", "some", "others"};
  }
  std::string text() const override {
    std::string out = "f32[";
    for (const graph::SymExpr& s : sizes_) out += (out.back() == '[' ? "" : ", ") + s.text();
    return out + "]";
  }
  std::vector<int> differing_dims(PyObject*) const override { return {}; }
  std::vector<int> differing_strides(PyObject*) const override { return {}; }

 private:
  graph::SymSizes sizes_;
};

class FakeRecording : public Recording {
 public:
  graph::ShapeEnv& shapes() override { return shapes_; }
  PyObject* add_input(PyObject* tensor, const std::string& source, const graph::DynamicExtents& extents) override {
    const std::vector<bool>& dynamic = extents.sizes;
    graph::SymSizes sizes = *as_tensor(tensor)->sizes;
    for (size_t i = 0; i < std::min(dynamic.size(), sizes.size()); ++i)
      if (dynamic[i] && sizes[i].constant() > 1)
        sizes[i] = graph::SymExpr::symbol(shapes_.add_symbol(sizes[i].constant()));
    inputs_.push_back(std::make_shared<Facts>(sizes));
    input_names.push_back(source);
    return make_tensor(*as_tensor(tensor)->name, sizes, true);
  }
  std::shared_ptr<const guards::TensorFacts> facts_of_input(size_t input) override { return inputs_[input]; }
  size_t input_count() const override { return inputs_.size(); }
  bool is_traced(PyObject* object) const override { return is_tensor(object) && as_tensor(object)->traced; }
  PyObject* call(PyObject* callable, PyObject* const* args, size_t positional, PyObject* kwnames) override {
    const size_t before = ops.size();
    state().ops = &ops;
    PyObject* result = PyObject_Vectorcall(callable, args, positional, kwnames);
    state().ops = nullptr;
    if (!result) ops.resize(before);
    for (size_t i = before; i < ops.size(); ++i) lines.push_back(line_.file + ":" + std::to_string(line_.number));
    return result;
  }
  PyObject* get_attribute(PyObject* traced, PyObject* name) override { return PyObject_GetAttr(traced, name); }
  std::optional<Error> take_break() override { return std::exchange(state().reason, std::nullopt); }
  void set_line(const graph::Line& line, const std::string&) override { line_ = line; }
  PyObject* wrap_size(const graph::SymExpr& size) override { return size_object(size); }
  std::optional<graph::SymExpr> unwrap_size(PyObject* o) override {
    if (Py_TYPE(o) != sym_int_type()) return std::nullopt;
    return *reinterpret_cast<SymInt*>(o)->size;
  }
  PyObject* add_float(double, const std::string&) override { return nullptr; }
  FloatBeside float_beside(PyObject*) override { return FloatBeside::kConstant; }
  FloatNumber float_number(PyObject*, double) override { return {}; }
  std::string text() const override { return ""; }
  size_t op_count() const override { return ops.size(); }
  Result<graph::CapturedGraph> build(const std::vector<PyObject*>&) override {
    return Error{Reason::not_verified, "nothing is compiled"};
  }
  std::unique_ptr<CompiledCall> bind(graph::CompiledGraph, PyObject*, Deriving) override { return nullptr; }

  std::vector<std::string> ops, lines, input_names;

 private:
  graph::ShapeEnv shapes_;
  std::vector<std::shared_ptr<const Facts>> inputs_;
  graph::Line line_;
};

class FakeFrontend : public TensorFrontend {
 public:
  TensorClass classify(PyObject* object, std::string* reason) override {
    if (!is_tensor(object)) return TensorClass::kNot;
    if (Py_TYPE(object) == fake::tensor_type()) return TensorClass::kPlain;
    *reason = "a subclass";
    return TensorClass::kUnsupported;
  }
  std::unique_ptr<Recording> begin() override { return std::make_unique<FakeRecording>(); }
  std::shared_ptr<const guards::ModeFacts> current_modes() override { return nullptr; }
  std::shared_ptr<void> save_modes() override { return std::make_shared<bool>(state().grad); }
  void restore_modes(const std::shared_ptr<void>& m) override { state().grad = *static_cast<bool*>(m.get()); }
  bool same_modes(const std::shared_ptr<void>& a, const std::shared_ptr<void>& b) override {
    return *static_cast<bool*>(a.get()) == *static_cast<bool*>(b.get());
  }
  bool may_overlap(PyObject* const*, size_t, size_t) override { return false; }
  bool is_pure_without_tensors(PyObject*) override { return false; }
  bool answers_true_while_compiling(PyObject*) override { return false; }
};

}  // namespace framejit::frame_hook::fake
