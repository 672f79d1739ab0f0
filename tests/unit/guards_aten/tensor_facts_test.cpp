// tests/unit/guards_aten/tensor_facts_test.cpp — tensor and mode facts with real torch: each property that must be
// distinguished.
#include "guards/aten/tensor_facts.h"

#include <gtest/gtest.h>

#include "guards/cpython/py_ref.h"
#include "guards/guard_program.h"

namespace framejit::guards {
namespace {

using graph::SymExpr;

class TensorFactsTest : public testing::Test {
 protected:
  TensorFactsTest() : globals_(PyRef::steal(PyDict_New())) {
    PyDict_SetItemString(globals_.get(), "__builtins__", PyEval_GetBuiltins());
    run("import torch");
  }
  void run(const std::string& source) {
    PyRef result = PyRef::steal(PyRun_String(source.c_str(), Py_file_input, globals_.get(), globals_.get()));
    if (!result) PyErr_Print();
    ASSERT_TRUE(result) << source;
  }
  PyRef get(const std::string& expression) {
    PyRef result = PyRef::steal(PyRun_String(expression.c_str(), Py_eval_input, globals_.get(), globals_.get()));
    if (!result) PyErr_Print();
    EXPECT_TRUE(result) << expression;
    return result;
  }
  std::vector<int64_t> ints(const PyRef& tensor, const char* method) {
    const PyRef tuple = PyRef::steal(PyObject_CallMethod(tensor.get(), method, nullptr));
    std::vector<int64_t> values;
    for (Py_ssize_t i = 0; i < PyTuple_Size(tuple.get()); ++i)
      values.push_back(PyLong_AsLongLong(PyTuple_GET_ITEM(tuple.get(), i)));
    return values;
  }
  graph::TensorMeta meta_of(const PyRef& tensor) {
    graph::TensorMeta meta;
    for (int64_t v : ints(tensor, "size")) meta.sizes.push_back(v);
    for (int64_t v : ints(tensor, "stride")) meta.strides.push_back(v);
    return meta;
  }
  // Facts of the first tensor; "" or why the second does not fit.
  std::string compare(const std::string& seen, const std::string& now) {
    const PyRef a = get(seen), b = get(now);
    const auto facts = make_tensor_facts(a.get(), meta_of(a));
    int64_t symbols[4] = {};
    EXPECT_TRUE(facts->matches(a.get(), symbols)) << facts->mismatch(a.get());
    EXPECT_EQ(facts->mismatch(a.get()), "");
    const std::string text = facts->mismatch(b.get());
    EXPECT_EQ(facts->matches(b.get(), symbols), text.empty());
    EXPECT_EQ(PyErr_Occurred(), nullptr);
    return text;
  }
  PyRef globals_;
};

TEST_F(TensorFactsTest, Sizes) {
  EXPECT_EQ(compare("torch.ones(2, 3)", "torch.zeros(2, 3)"), "");
  EXPECT_EQ(compare("torch.ones(4, 3)", "torch.ones(5, 3)"), "size(0) == 4 but is 5");
  EXPECT_EQ(compare("torch.ones(4, 3)", "torch.ones(4, 3, 1)"), "dim() == 2 but is 3");
  EXPECT_EQ(compare("torch.ones(())", "torch.ones(1)"), "dim() == 0 but is 1");
  EXPECT_EQ(compare("torch.ones(3, 3)", "torch.ones(3, 3).t()"), "stride(0) == 3 but is 1");
  EXPECT_EQ(compare("torch.ones(6, 3)[:2]", "torch.ones(6, 3)[2:4]"), "");  // the offset is not a fact
  EXPECT_EQ(compare("torch.ones(1, 2, 3, 4, 5, 6, 7)", "torch.ones(1, 2, 3, 4, 5, 6, 8)"), "size(6) == 7 but is 8");
}

TEST_F(TensorFactsTest, Properties) {
  EXPECT_EQ(compare("torch.ones(2)", "torch.ones(2, dtype=torch.float64)"),
            "dtype == torch.float32 but is torch.float64");
  EXPECT_EQ(compare("torch.ones(2)", "torch.ones(2, device='meta')"), "device == cpu but is meta");
  EXPECT_EQ(compare("torch.ones(2)", "torch.ones(2, requires_grad=True)"), "requires_grad == False but is True");
  EXPECT_EQ(compare("torch.ones(2, requires_grad=True)", "torch.ones(2, requires_grad=True) * 2"),
            "is_leaf == True but is False");
  EXPECT_EQ(compare("torch.ones(2)", "torch.nn.Parameter(torch.ones(2), requires_grad=False)"),
            "__class__ == torch.Tensor but is torch.nn.parameter.Parameter");
  EXPECT_EQ(compare("torch.nn.Parameter(torch.ones(2))", "torch.nn.Parameter(torch.zeros(2))"), "");
  EXPECT_EQ(compare("torch.ones(2, dtype=torch.cfloat)", "torch.ones(2, dtype=torch.cfloat).conj()"),
            "is_conj() == False but is True");
  EXPECT_EQ(compare("torch.ones(2)", "torch.zeros(2, dtype=torch.cfloat).conj().imag"),
            "is_neg() == False but is True");
  EXPECT_NE(compare("torch.ones(2, 2)", "torch.ones(2, 2).to_sparse()"), "");
  run("with torch.inference_mode():\n  inference = torch.ones(2)");
  EXPECT_EQ(compare("torch.ones(2)", "inference"), "is_inference() == False but is True");
  run("class Sub(torch.Tensor): pass");
  EXPECT_EQ(compare("torch.ones(2)", "torch.ones(2).as_subclass(Sub)"), "__class__ == torch.Tensor but is Sub");
  EXPECT_EQ(compare("torch.ones(2)", "3"), "__class__ == torch.Tensor but is int");
  run("import torch.autograd.forward_ad as fwAD\nctx = fwAD.dual_level()\nctx.__enter__()\ndual = "
      "fwAD.make_dual(torch.ones(2), torch.ones(2))");
  EXPECT_EQ(compare("torch.ones(2)", "dual"), "forward-mode tangent == False but is True");
  run("ctx.__exit__(None, None, None)");
}

TEST_F(TensorFactsTest, InPlaceChangesAreSeen) {
  run("p = torch.nn.Parameter(torch.ones(4, 4))");
  const PyRef p = get("p");
  const auto facts = make_tensor_facts(p.get(), meta_of(p));
  int64_t symbols[1];
  for (auto [change, undo, text] :
       {std::tuple("p.data = torch.ones(5, 4)", "p.data = torch.ones(4, 4)", "size(0) == 4 but is 5"),
        std::tuple("p.requires_grad_(False)", "p.requires_grad_()", "requires_grad == True but is False"),
        std::tuple("p.data = p.data.half()", "p.data = p.data.float()", "dtype == torch.float32 but is torch.float16"),
        std::tuple("p.data = p.data.t()", "p.data = p.data.t()", "stride(0) == 4 but is 1")}) {
    run(change);
    EXPECT_FALSE(facts->matches(p.get(), symbols)) << change;
    EXPECT_EQ(facts->mismatch(p.get()), text);
    run(undo);
    EXPECT_TRUE(facts->matches(p.get(), symbols)) << undo << facts->mismatch(p.get());
  }
}

TEST_F(TensorFactsTest, SymbolsAreBoundAndStridesFollow) {
  const PyRef seen = get("torch.ones(8, 3, 5)");
  graph::TensorMeta meta = meta_of(seen);
  const SymExpr batch = SymExpr::symbol(2), last = SymExpr::symbol(0);
  meta.sizes = {batch, 3, last};
  meta.strides = {last * 3, last, 1};
  const auto facts = make_tensor_facts(seen.get(), meta);
  int64_t symbols[3] = {-1, -1, -1};
  EXPECT_TRUE(facts->matches(get("torch.ones(11, 3, 7)").get(), symbols));
  EXPECT_EQ(symbols[2], 11);
  EXPECT_EQ(symbols[0], 7);
  EXPECT_EQ(symbols[1], -1);
  EXPECT_EQ(facts->mismatch(get("torch.ones(1, 3, 7)").get()), "size(0) >= 2 but is 1");
  EXPECT_EQ(facts->mismatch(get("torch.ones(2, 4, 7)").get()), "size(1) == 3 but is 4");
  EXPECT_EQ(facts->mismatch(get("torch.ones(2, 7, 3).transpose(1, 2)").get()), "stride(1) == s0 but is 1");
  EXPECT_EQ(facts->differing_dims(get("torch.ones(9, 4, 7)").get()), std::vector<int>{1});
  EXPECT_EQ(facts->differing_dims(get("torch.ones(9, 4, 7).double()").get()), std::vector<int>{});
  EXPECT_EQ(facts->differing_strides(get("torch.ones(9, 5, 7)[:, :3]").get()), std::vector<int>{0});
  EXPECT_EQ(facts->differing_strides(get("torch.ones(9, 4, 7)").get()), std::vector<int>{});
  EXPECT_EQ(facts->differing_strides(get("torch.ones(3, 9, 7).transpose(0, 1)").get()), std::vector<int>{});
  EXPECT_EQ(facts->text(), "torch.Tensor f32[s2, 3, s0] cpu");

  const PyRef square = get("torch.ones(4, 4)");
  graph::TensorMeta same = meta_of(square);
  same.sizes = {last, last};
  same.strides = {last, 1};
  const auto square_facts = make_tensor_facts(square.get(), same);
  EXPECT_TRUE(square_facts->matches(get("torch.ones(6, 6)").get(), symbols));
  EXPECT_EQ(square_facts->mismatch(get("torch.ones(6, 5)").get()), "size(1) == s0 but is 5");
}

TEST_F(TensorFactsTest, Modes) {
  run("torch.set_float32_matmul_precision('highest')");  // explicit from here on
  const auto facts = current_mode_facts();
  EXPECT_TRUE(facts->matches());
  EXPECT_EQ(facts->mismatch(), "");
  const auto expect = [&](const std::string& enter, const std::string& leave, const std::string& text,
                          const std::string& change = "") {
    run(enter);
    EXPECT_FALSE(facts->matches()) << enter;
    EXPECT_EQ(facts->mismatch().substr(0, text.size()), text) << enter;
    EXPECT_EQ(facts->change().substr(0, change.size()), change) << enter;
    EXPECT_NE(facts->change().find(", now "), std::string::npos) << facts->change();
    run(leave);
    EXPECT_TRUE(facts->matches()) << leave << ": " << facts->mismatch();
  };
  const auto with = [&](const std::string& manager, const std::string& text, const std::string& change = "") {
    expect("m = " + manager + "\nm.__enter__()", "m.__exit__(None, None, None)", text, change);
  };
  with("torch.no_grad()", "grad mode == 1 but is 0", "grad mode was on, now it is off");
  with("torch.inference_mode()", "grad mode == 1 but is 0");
  with("torch.autocast('cpu', dtype=torch.bfloat16)", "dispatch keys of the thread == ", "torch's dispatch keys ");
  with("torch.device('meta')", "torch-function modes == 0 but is 1");
  with("torch._C.DisableTorchFunctionSubclass()", "torch-function state == 0 but is 1");
  with("torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x)", "saved-tensor hooks == 0 but is 1");
  with("torch.autograd.graph.disable_saved_tensors_hooks('no')", "saved-tensor hooks disabled == 0 but is 1");
  run("from torch.utils._python_dispatch import TorchDispatchMode\nclass Mode(TorchDispatchMode): pass");
  with("Mode()", "dispatch keys of the thread == ");
  expect("torch.set_default_dtype(torch.float64)", "torch.set_default_dtype(torch.float32)",
         "default dtype == 6 but is 7", "default dtype was torch.float32, now it is torch.float64");
  expect("torch.use_deterministic_algorithms(True)", "torch.use_deterministic_algorithms(False)",
         "deterministic algorithms == 0 but is 1");
  expect("torch.backends.mkldnn.enabled = False", "torch.backends.mkldnn.enabled = True",
         "mkldnn enabled == 1 but is 0");
  expect("torch.set_float32_matmul_precision('medium')", "torch.set_float32_matmul_precision('highest')",
         "fp32 precision of mkldnn matmul == ");
  expect("torch._C._set_sdp_use_flash(False)", "torch._C._set_sdp_use_flash(True)",
         "flash attention enabled == 1 but is 0");
}

}  // namespace
}  // namespace framejit::guards
