// tests/unit/guards/guard_kinds_test.cpp — each kind of guard holds, fails, and says why.
#include "guard_fixture.h"
#include "guards/guard_functions.h"

namespace framejit::guards {
namespace {

TEST_F(GuardTest, Identity) {
  run("class A: pass\nx = A()\ny = A()");
  expect(GuardKind::is, "None", 0, "None", "3", "L['a'] is None but is 3");
  expect(GuardKind::is, "x", 0, "x", "y", "L['a'] is <A object> but is another A");
  expect(GuardKind::is, "len", 0, "len", "abs", "L['a'] is len but is abs");
  expect(GuardKind::is, "True", 0, "True", "1", "L['a'] is True but is 1");
}

TEST_F(GuardTest, ExactType) {
  run("class MyInt(int): pass\nclass MyStr(str): pass");
  expect(GuardKind::type_is, "int", 0, "5", "True", "type(L['a']) is int but is bool");
  expect(GuardKind::type_is, "int", 0, "5", "MyInt(5)", "type(L['a']) is int but is MyInt");
  expect(GuardKind::type_is, "str", 0, "'a'", "MyStr('a')", "type(L['a']) is str but is MyStr");
}

TEST_F(GuardTest, UnchangedTypeSeesNewMethodsAndBases) {
  run("class B: pass\nclass A(B):\n  count = 0\n  def f(self): pass\nx = A()");
  set(0, "x");
  add(GuardKind::type_unchanged, from(SourceKind::type_of, local()), "A");
  compile();
  EXPECT_TRUE(holds());
  run("x.anything = 1");
  EXPECT_TRUE(holds());
  for (int i = 0; i < 3; ++i) {
    run("A.count = " + std::to_string(i));
    EXPECT_TRUE(holds());
    EXPECT_TRUE(holds());
  }
  run("B.g = lambda self: 1");
  EXPECT_FALSE(holds());
  EXPECT_EQ(why(), "type(L['a']) unchanged but was changed");
}

TEST_F(GuardTest, Relations) {
  run("x = []\ny = []");
  set(0, "x");
  set(1, "x");
  set(2, "y");
  Guard same = guard(GuardKind::same, local(0)), distinct = guard(GuardKind::distinct, local(0));
  same.other = local(1);
  distinct.other = local(2);
  set_.add(same);
  set_.add(distinct);
  compile();
  EXPECT_TRUE(holds());
  set(1, "y");
  EXPECT_EQ(why(), "L['a'] is L['b'] but is another object");
  set(1, "x");
  set(2, "x");
  EXPECT_EQ(why(), "L['a'] is not L['c'] but is the same object");
}

TEST_F(GuardTest, NumbersInTensors) {  // a float stands for the tensor that holds it
  set_number_reader([](PyObject* object, double& number) {
    if (!PyFloat_CheckExact(object)) return false;
    number = PyFloat_AS_DOUBLE(object);
    return true;
  });
  run("x, y, zero, minus_zero, nan, other_nan = 2.5, 5 / 2, 0.0, -0.0, float('nan'), float('nan')");
  set(0, "x");
  set(1, "y");
  Guard equal = guard(GuardKind::same_number, local(0));
  equal.other = local(1);
  set_.add(equal);
  compile();
  EXPECT_TRUE(holds());
  set(0, "nan");
  set(1, "other_nan");
  EXPECT_TRUE(holds());
  set(0, "zero");
  set(1, "minus_zero");
  EXPECT_EQ(why(), "L['a'].item() == L['b'].item() but is another number");
  set(0, "'none'");
  EXPECT_FALSE(holds());
  set_number_reader(nullptr);
}

TEST_F(GuardTest, Length) {
  for (auto [good, bad, text] : {std::tuple("[1, 2]", "[1]", "len(L['a']) == 2 but is 1"),
                                 std::tuple("(1, 2)", "(1, 2, 3)", "len(L['a']) == 2 but is 3"),
                                 std::tuple("{1: 1, 2: 2}", "{}", "len(L['a']) == 2 but is 0"),
                                 std::tuple("{1, 2}", "{1}", "len(L['a']) == 2 but is 1"),
                                 std::tuple("frozenset((1, 2))", "frozenset()", "len(L['a']) == 2 but is 0"),
                                 std::tuple("'ab'", "'abc'", "len(L['a']) == 2 but is 3"),
                                 std::tuple("[1, 2]", "7", "len(L['a']) == 2 but is -1")})
    expect(GuardKind::length, "", 2, good, bad, text);
}

TEST_F(GuardTest, EqualsTellsLiteralsApart) {
  expect(GuardKind::equals, "4", 0, "2 + 2", "5", "L['a'] == 4 but is 5");
  expect(GuardKind::equals, "1", 0, "1", "True", "L['a'] == 1 but is True");
  expect(GuardKind::equals, "1", 0, "1", "1.0", "L['a'] == 1 but is 1.0");
  expect(GuardKind::equals, "0.0", 0, "0.0 * 1", "-0.0", "L['a'] == 0.0 but is -0.0");
  expect(GuardKind::equals, "float('nan')", 0, "float('nan')", "1.0", "L['a'] == nan but is 1.0");
  expect(GuardKind::equals, "10**40", 0, "10**39 * 10", "10**40 + 1", "L['a'] == <int of 133 bits> but is another int");
  expect(GuardKind::equals, "2**63", 0, "2**62 * 2", "-2**63",
         "L['a'] == <int of 64 bits> but is -9223372036854775808");
  expect(GuardKind::equals, "'h\\xe9\\u4e2d'", 0, "'h\\xe9' + '\\u4e2d'", "'he'",
         "L['a'] == 'h\xc3\xa9\xe4\xb8\xad' but is 'he'");
  expect(GuardKind::equals, "b'ab'", 0, "bytes([97, 98])", "b'ac'", "L['a'] == b'ab' but is b'ac'");
  expect(GuardKind::equals, "complex(0.0, -0.0)", 0, "complex(0.0, -0.0)", "complex(0.0, 0.0)",
         "L['a'] == -0j but is 0j");
  expect(GuardKind::equals, "(1, ('a', 2.0))", 0, "tuple([1, ('a', 2.0)])", "(1, ('a', 2))",
         "L['a'] == (1, ('a', 2.0)) but is (1, ('a', 2))");
  expect(GuardKind::equals, "(1,)", 0, "tuple([1])", "[1]", "L['a'] == (1,) but is [1]");
  expect(GuardKind::equals, "frozenset((1, 'a'))", 0, "frozenset(('a', 1))", "frozenset((True, 'a'))",
         "L['a'] == <frozenset object> but is another frozenset");
  expect(GuardKind::equals, "slice(1, None, 2)", 0, "slice(1, None, 2)", "slice(1, 3, 2)",
         "L['a'] == <slice object> but is another slice");
  expect(GuardKind::equals, "range(1, 9, 3)", 0, "range(1, 9, 3)", "range(1, 8, 3)",
         "L['a'] == range(1, 9, 3) but is range(1, 8, 3)");  // the same items
}

TEST_F(GuardTest, HoldsLooksIntoInstancesOfSubclasses) {
  run("def refuse(*_): raise AssertionError\nclass Real(float): __eq__ = refuse\nclass Whole(int): __eq__ = __index__ "
      "= refuse\nclass Text(str): __eq__ = refuse");
  expect(GuardKind::holds, "-0.0", 0, "Real(-0.0)", "Real(0.0)", "L['a'] holds -0.0 but is <Real object>");
  expect(GuardKind::holds, "10**40", 0, "Whole(10**40)", "Whole(10**40 + 1)",
         "L['a'] holds <int of 133 bits> but is <Whole object>");
  expect(GuardKind::holds, "7", 0, "Whole(7)", "Real(7)", "L['a'] holds 7 but is <Real object>");
  expect(GuardKind::holds, "'ab'", 0, "Text('ab')", "Text('ac')", "L['a'] holds 'ab' but is <Text object>");
}

TEST_F(GuardTest, EqualsRunsNoPythonCode) {
  run("calls = []\nclass Liar(str):\n  def __eq__(self, other): calls.append(1); return True\n  __hash__ = "
      "str.__hash__");
  expect(GuardKind::equals, "'x'", 0, "'x'", "Liar('x')", "L['a'] == 'x' but is <Liar object>");
  EXPECT_EQ(PyList_GET_SIZE(get("calls").get()), 0);
}

TEST_F(GuardTest, FunctionCode) {
  run("def f(): return 1\ndef g(): return 2\ndef make():\n  def h(): pass\n  return h\na, b = make(), make()");
  expect(GuardKind::function_code, "a.__code__", 0, "b", "f",
         "L['a'].__code__ is <code make.<locals>.h> but is <code f>");
  expect(GuardKind::function_code, "f.__code__", 0, "f", "len", "L['a'].__code__ is <code f> but is len");
  set_ = GuardSet();
  set(0, "f");
  add(GuardKind::function_code, local(), "f.__code__");
  compile();
  EXPECT_TRUE(holds());
  run("f.__code__ = g.__code__");
  EXPECT_FALSE(holds());
}

TEST_F(GuardTest, DictKeys) {
  expect(GuardKind::dict_has, "'k'", 0, "{'k': 1}", "{'l': 1}", "'k' in L['a'] but it is not there");
  expect(GuardKind::dict_lacks, "'k'", 0, "{'l': 1}", "{'k': 1}", "'k' not in L['a'] but it is there");
  expect(GuardKind::dict_key_set, "('x', 'y')", 0, "{'y': 1, 'x': 2}", "{'x': 1, 'z': 2}",
         "set(L['a']) == set(('x', 'y')) but is ('x', 'z')");
  expect(GuardKind::dict_key_set, "('x', 'y')", 0, "{'x': 1, 'y': 2}", "{'x': 1, 'y': 2, 'z': 3}",
         "set(L['a']) == set(('x', 'y')) but is ('x', 'y', 'z')");
  expect(GuardKind::dict_keys, "('x', 'y')", 0, "{'x': 1, 'y': 2}", "{'y': 1, 'x': 2}",
         "list(L['a']) == ('x', 'y') but is ('y', 'x')");
  expect(GuardKind::dict_keys, "(1,)", 0, "{1: 1}", "{True: 1}", "list(L['a']) == (1,) but is (True)");
  expect(GuardKind::dict_has, "'k'", 0, "{'k': 1}", "[1]", "L['a'] is not a dict");
  run("from collections import OrderedDict");
  expect(GuardKind::dict_has, "'k'", 0, "OrderedDict(k=1)", "OrderedDict(l=1)", "'k' in L['a'] but it is not there");
}

TEST_F(GuardTest, BoundNumbers) {
  expect(GuardKind::int_range, "", 0, "41", "True", "L['a'] is an int in range but is True");
  expect(GuardKind::int_range, "", 0, "-2**63", "2**63", "L['a'] is an int in range but is <int of 64 bits>");
  EXPECT_EQ(symbols_[0], INT64_MIN);
}

TEST_F(GuardTest, SizeFactsOverBoundSymbols) {
  using graph::Relation;
  using graph::SymExpr;
  set(0, "10");
  set(1, "4");
  add(GuardKind::int_range, local(0), "", 0);
  add(GuardKind::int_range, local(1), "", 1);
  const SymExpr a = SymExpr::symbol(0), b = SymExpr::symbol(1);
  set_.size_facts = {{b, a, Relation::kLt, "model.py:3 f"},
                     {SymExpr::mod(a, b), 2, Relation::kEq, ""},
                     {SymExpr::floor_div(a * 3 + 2, b), 8, Relation::kEq, ""},
                     {SymExpr::max(a, b), SymExpr::min(a * b, 40), Relation::kLe, ""},
                     {a, 12, Relation::kNe, ""}};
  compile();
  EXPECT_TRUE(holds()) << why();
  set(1, "12");
  EXPECT_EQ(why(), "s1 < s0 but s1 is 12 and s0 is 10 where s0 = L['a'], s1 = L['b']");
  EXPECT_EQ(program_->explain(frame())->because, "model.py:3 f");
  EXPECT_EQ(program_->explain(frame())->size_fact, 0);
  set(1, "3");
  EXPECT_EQ(why(), "s0 % s1 == 2 but s0 % s1 is 1 where s0 = L['a'], s1 = L['b']");
  set(1, "0");
  EXPECT_EQ(why(), "s0 % s1 == 2 but s0 % s1 is not a 64-bit integer where s0 = L['a'], s1 = L['b']");
}

TEST_F(GuardTest, SizesThatFit) {
  set(0, "-2**63+1");
  add(GuardKind::int_range, local(0), "", 0);
  set_.size_facts = {{INT64_MIN, graph::SymExpr(0) - graph::SymExpr::symbol(0), graph::Relation::kLe, "model.py:3 f"}};
  compile();
  EXPECT_TRUE(holds()) << why();
  set(0, "-2**63");
  EXPECT_EQ(why(), "-s0 fits in 64 bits but does not where s0 = L['a']");
}

TEST_F(GuardTest, ModesFail) {
  struct Switch : ModeFacts {
    bool on = true;
    bool matches() const override { return on; }
    std::string mismatch() const override { return "grad mode == 1 but is 0"; }
  };
  auto mode = std::make_shared<Switch>();
  set_.modes = {mode};
  compile();
  EXPECT_TRUE(holds());
  mode->on = false;
  EXPECT_EQ(why(), "grad mode == 1 but is 0");
  EXPECT_EQ(program_->explain(frame())->mode, 0);
}

TEST_F(GuardTest, ItemsLeftInIterators) {
  expect(GuardKind::iterator_has, "", 2, "iter([1, 2, 3])", "iter([1])", "L['a'] has 2 items left or more but has 1");
  expect(GuardKind::iterator_ends, "", 2, "iter({'x': 1, 'y': 2})", "iter({1, 2, 3})",
         "L['a'] has 2 items left but has 3");
  run("d = {'x': 1, 'y': 2}\ni = iter(d)\nnext(i)");
  set_ = GuardSet();
  set(0, "i");
  add(GuardKind::iterator_has, local(), "", 1);
  compile();
  EXPECT_TRUE(holds());
  run("d['z'] = 3");  // its next step raises
  EXPECT_FALSE(holds());
}

TEST_F(GuardTest, ResultsOfCachedFunctions) {
  run("import functools\n@functools.lru_cache\ndef f(n): return n + 1\nempty = functools.lru_cache(abs)\nother = "
      "functools.lru_cache(str)\nf(3); other(3)");
  expect(GuardKind::cache_agrees, "(3, 4)", 0, "f", "other",
         "L['a'] has nothing cached but (3, 4) but has another result");
  set(0, "empty");
  EXPECT_TRUE(holds());
  set(0, "3");
  EXPECT_FALSE(holds());
}

TEST_F(GuardTest, TensorFactsBindAndExplain) {
  struct Even : TensorFacts {  // stands for a tensor: an even int, whose value is bound
    bool matches(PyObject* o, int64_t* symbols) const override {
      return PyLong_Check(o) && (symbols[0] = PyLong_AsLong(o)) % 2 == 0;
    }
    std::optional<TensorDifference> difference(PyObject* o) const override {
      if (PyLong_AsLong(o) % 2 == 0) return std::nullopt;
      return TensorDifference{ChangeKind::size, "size(0)", "4", "5", "==", 0};
    }
    std::string text() const override { return "f32[s0]"; }
    std::vector<int> differing_dims(PyObject*) const override { return {0}; }
    std::vector<int> differing_strides(PyObject*) const override { return {}; }
  };
  set(0, "8");
  Guard g = guard(GuardKind::tensor, local());
  g.facts = std::make_shared<Even>();
  g.line = set_.add_line("model.py:31 Net.forward");
  set_.symbol_count = 1;
  set_.size_facts = {{graph::SymExpr::symbol(0), 100, graph::Relation::kLt, "model.py:32 Net.forward"}};
  set_.add(g);
  compile();
  EXPECT_TRUE(holds());
  EXPECT_EQ(symbols_[0], 8);
  EXPECT_EQ(program_->texts(),
            (std::vector<std::string>{"L['a'] matches f32[s0]  # model.py:31 Net.forward",
                                      "s0 < 100 where s0 = L['a'].size(0)  # model.py:32 Net.forward"}));
  set(0, "5");
  const auto failure = program_->explain(frame());
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->text, "L['a'].size(0) == 4 but is 5");
  EXPECT_EQ(failure->because, "model.py:31 Net.forward");
  EXPECT_EQ(failure->guard->facts, g.facts);
  EXPECT_EQ(failure->object, locals_[0]);
  EXPECT_EQ(failure->source, "L['a']");
}

}  // namespace
}  // namespace framejit::guards
