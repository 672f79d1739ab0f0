// tests/unit/guards/source_kinds_test.cpp — each kind of source is fetched, and gives null when its object is gone.
#include "guard_fixture.h"
#include "guards/guard_functions.h"

namespace framejit::guards {
namespace {

class SourceTest : public GuardTest {
 protected:
  // Fetches the source as a wanted register.
  PyObject* fetch(SourceId source) {
    text_ = set_.sources.text(source, code_);
    compile({source});
    found_ = program_->run(frame(), registers_.data(), symbols_.data());
    EXPECT_EQ(PyErr_Occurred(), nullptr);
    PyObject* object = found_ ? registers_[program_->register_of(source)] : nullptr;
    set_ = GuardSet();
    return object;
  }
  std::string text_;
  bool found_ = false;
};

TEST_F(SourceTest, OfTheFrame) {
  set(0, "[1]");
  EXPECT_EQ(fetch(local()), locals_[0]);
  EXPECT_EQ(text_, "L['a']");
  EXPECT_EQ(fetch(from(SourceKind::stack, kNoSource, 0)), locals_[0]);
  EXPECT_EQ(fetch(from(SourceKind::stack, kNoSource, 1)), nullptr);
  EXPECT_EQ(fetch(from(SourceKind::globals, kNoSource)), globals_.get());
  EXPECT_EQ(fetch(from(SourceKind::builtins, kNoSource)), PyEval_GetBuiltins());
  EXPECT_EQ(fetch(from(SourceKind::frame_function, kNoSource)), function_.get());
  EXPECT_EQ(fetch(from(SourceKind::sys_modules, kNoSource)), PyImport_GetModuleDict());
  EXPECT_EQ(fetch(local(1)), nullptr);  // unbound
}

TEST_F(SourceTest, Items) {
  set(0, "{'k': [10, (20, 30)], 3: 'three'}");
  const SourceId list = keyed(SourceKind::dict_item, local(), str("k"));
  const SourceId tuple = from(SourceKind::list_item, list, 1);
  const SourceId last = from(SourceKind::tuple_item, tuple, 1);
  EXPECT_EQ(PyLong_AsLong(fetch(last)), 30);
  EXPECT_EQ(text_, "L['a']['k'][1][1]");
  EXPECT_EQ(fetch(from(SourceKind::list_item, keyed(SourceKind::dict_item, local(), str("k")), 2)), nullptr);
  EXPECT_EQ(fetch(keyed(SourceKind::dict_item, local(), str("gone"))), nullptr);
  EXPECT_EQ(fetch(from(SourceKind::list_item, local(), 0)), nullptr);
  EXPECT_NE(fetch(keyed(SourceKind::dict_item, local(), get("1 + 2"))), nullptr);
  EXPECT_EQ(text_, "L['a'][3]");
}

TEST_F(SourceTest, Attributes) {
  run("import types\nclass S:\n  __slots__ = ('w', 'v')\nclass A:\n  def f(self): pass\n  @property\n  def p(self): "
      "return 1\nx = A()\nx.y = 5\ns = S()\ns.w = 6\nm = x.f");
  set(0, "x");
  set(1, "s");
  set(2, "m");
  const SourceId dict = from(SourceKind::instance_dict, local());
  EXPECT_EQ(PyLong_AsLong(fetch(keyed(SourceKind::dict_item, dict, str("y")))), 5);
  EXPECT_EQ(text_, "L['a'].y");
  EXPECT_EQ(PyLong_AsLong(fetch(keyed(SourceKind::member, local(1), str("w")))), 6);
  EXPECT_EQ(text_, "L['b'].w");
  EXPECT_EQ(fetch(keyed(SourceKind::member, local(1), str("v"))), nullptr);
  EXPECT_EQ(fetch(keyed(SourceKind::member, local(0), str("w"))), nullptr);
  EXPECT_EQ(fetch(from(SourceKind::type_of, local())), get("A").get());
  const SourceId type = from(SourceKind::type_of, local());
  EXPECT_EQ(fetch(keyed(SourceKind::type_lookup, type, str("f"))), get("A.__dict__['f']").get());
  EXPECT_EQ(text_, "type(L['a']).f");
  const SourceId property = keyed(SourceKind::type_lookup, from(SourceKind::type_of, local()), str("p"));
  EXPECT_EQ(fetch(keyed(SourceKind::member, property, str("fget"))), get("A.p.fget").get());
  EXPECT_EQ(fetch(from(SourceKind::method_self, local(2))), get("x").get());
  EXPECT_EQ(fetch(from(SourceKind::method_function, local(2))), get("A.f").get());
  // C getters only: a property would run Python code.
  EXPECT_NE(fetch(keyed(SourceKind::attribute, from(SourceKind::type_of, local()), str("__name__"))), nullptr);
  EXPECT_EQ(fetch(keyed(SourceKind::attribute, local(), str("p"))), nullptr);
}

TEST_F(SourceTest, FreshAttributeLivesUntilTheNextOne) {
  set(0, "slice(1, 2, 3)");
  run("class A: pass\nA.__qualname__ = 'Long' * 3");
  set(1, "A");
  PyObject* name = fetch(keyed(SourceKind::attribute, local(1), str("__module__")));
  ASSERT_NE(name, nullptr);
  EXPECT_TRUE(PyUnicode_Check(name));
  EXPECT_EQ(PyLong_AsLong(fetch(keyed(SourceKind::attribute, local(), str("stop")))), 2);
}

TEST_F(SourceTest, InstanceDictOfSlotsIsNothing) {
  set(0, "3");
  EXPECT_EQ(fetch(from(SourceKind::instance_dict, local())), nullptr);
  run("class A: pass\nx = A()");
  set(0, "x");
  EXPECT_NE(fetch(from(SourceKind::instance_dict, local())), nullptr);
}

TEST_F(SourceTest, Functions) {
  run("def outer():\n  n = 7\n  def f(a, b=2, *, k=3): return n\n  return f\nf = outer()\ng = lambda: 0");
  set(0, "f");
  set(1, "g");
  EXPECT_EQ(fetch(from(SourceKind::function_defaults, local())), get("f.__defaults__").get());
  EXPECT_EQ(fetch(from(SourceKind::function_kwdefaults, local())), get("f.__kwdefaults__").get());
  EXPECT_EQ(fetch(from(SourceKind::function_globals, local())), globals_.get());
  EXPECT_EQ(fetch(from(SourceKind::function_defaults, local(1))), Py_None);
  const SourceId cell = from(SourceKind::tuple_item, from(SourceKind::function_closure, local()), 0);
  EXPECT_EQ(PyLong_AsLong(fetch(from(SourceKind::cell_contents, cell))), 7);
  EXPECT_EQ(text_, "L['a'].__closure__[0].cell_contents");
}

TEST_F(SourceTest, WeakReferences) {
  run("import weakref\nclass A: pass\nx = A()\nr = weakref.ref(x)");
  set(0, "r");
  set(1, "x");
  EXPECT_EQ(fetch(from(SourceKind::referent, local())), get("x").get());
  EXPECT_EQ(text_, "L['a']()");
  EXPECT_EQ(fetch(from(SourceKind::weak_reference, local(1))), get("r").get());  // the shared one
  EXPECT_EQ(text_, "weakref.ref(L['b'])");
  EXPECT_EQ(fetch(from(SourceKind::referent, local(1))), nullptr);  // no weak reference
  set(1, "3");
  EXPECT_EQ(fetch(from(SourceKind::weak_reference, local(1))), nullptr);  // none can be made
  values_.clear();  // they hold x
  run("del x");
  EXPECT_EQ(fetch(from(SourceKind::referent, local())), Py_None);
}

TEST_F(SourceTest, ContextVariables) {
  run("import contextvars\nv = contextvars.ContextVar('v')\nd = contextvars.ContextVar('d', default='x')");
  set(0, "v");
  set(1, "d");
  EXPECT_EQ(fetch(from(SourceKind::context_value, local())), nullptr);
  EXPECT_EQ(fetch(from(SourceKind::context_value, local(1))), get("d.get()").get());
  add(GuardKind::is, from(SourceKind::context_value, local()));  // nothing is set
  compile();
  EXPECT_TRUE(holds());
  run("token = v.set([1])");
  EXPECT_FALSE(holds());
  EXPECT_EQ(why(), "L['a'].get() is nothing but is [1]");
  set_ = GuardSet();
  EXPECT_EQ(fetch(from(SourceKind::context_value, local())), get("v.get()").get());
}

TEST_F(SourceTest, ModuleAttributesReadAsUsersWriteThem) {
  run("import math");
  const SourceId globals = from(SourceKind::globals, kNoSource);
  const SourceId module = keyed(SourceKind::dict_item, globals, str("math"));
  const SourceId pi = keyed(SourceKind::dict_item, from(SourceKind::instance_dict, module), str("pi"));
  EXPECT_EQ(set_.sources.text(pi, code_), "G['math'].pi");
  EXPECT_EQ(fetch(pi), get("math.pi").get());
}

TEST_F(SourceTest, WhatIteratorsGiveNext) {
  for (const char* made : {"iter([10, 20, 30])", "iter((10, 20, 30))", "iter({'a': 10, 'b': 20, 'c': 30}.values())",
                           "reversed([30, 20, 10])", "iter(range(10, 40, 10))"}) {
    set(0, made);
    EXPECT_EQ(PyLong_AsLong(fetch(from(SourceKind::iterator_item, local(), 1))), 20) << made;
    EXPECT_EQ(text_, "next(L['a'], 1)");
    EXPECT_EQ(fetch(from(SourceKind::iterator_item, local(), 3)), nullptr);
    PyRef taken = PyRef::steal(PyIter_Next(locals_[0]));
    EXPECT_EQ(PyLong_AsLong(fetch(from(SourceKind::iterator_item, local(), 1))), 30) << made;
  }
  run("items = {'x': 1, 'y': 2}\nfirst = iter([3])\npairs = zip(first, 'ab')\nnumbered = enumerate(first, 70000)");
  set(0, "iter(items.items())");
  EXPECT_EQ(fetch(from(SourceKind::iterator_key, local(), 1)), str("y").get());
  EXPECT_EQ(fetch(from(SourceKind::iterator_container, local())), get("items").get());
  set(0, "pairs");
  EXPECT_EQ(fetch(from(SourceKind::iterator_part, local(), 0)), get("first").get());
  EXPECT_EQ(fetch(from(SourceKind::iterator_part, local(), 2)), nullptr);
  EXPECT_EQ(fetch(from(SourceKind::iterator_part, local(), -1)), Py_False);
  set(0, "numbered");
  EXPECT_EQ(fetch(from(SourceKind::iterator_part, local(), 1)), nullptr);  // too far from zero
  set(0, "map(abs, first)");
  EXPECT_EQ(fetch(from(SourceKind::iterator_part, local(), -1)), get("abs").get());
  set(0, "(i for i in items)");
  EXPECT_EQ(fetch(from(SourceKind::iterator_item, local(), 0)), nullptr);
}

TEST_F(SourceTest, CachesOfFunctions) {
  run("import functools\n@functools.lru_cache(maxsize=2)\ndef f(n): return [n]\n@functools.lru_cache(None)\ndef g(n): "
      "return [n]\nkept, also = f(7), g(7)");
  for (const char* name : {"f", "g"}) {
    set(0, name);
    const SourceId entry = keyed(SourceKind::dict_item, from(SourceKind::lru_cache, local()), get("7"));
    EXPECT_EQ(fetch(from(SourceKind::lru_result, entry)), get(name == std::string("f") ? "kept" : "also").get());
  }
  set(0, "len");
  EXPECT_EQ(fetch(from(SourceKind::lru_cache, local())), nullptr);
}

TEST_F(SourceTest, EqualSourcesAreOne) {
  const PyRef key = get("'some key of a dict'"), equal = get("'some key' + ' of a dict'");
  EXPECT_EQ(keyed(SourceKind::dict_item, local(), key), keyed(SourceKind::dict_item, local(), equal));
  EXPECT_NE(keyed(SourceKind::dict_item, local(), get("1")), keyed(SourceKind::dict_item, local(), get("True")));
  EXPECT_NE(local(0), local(1));
  EXPECT_EQ(set_.sources.text(keyed(SourceKind::constant, kNoSource, get("int")), code_), "int");
  EXPECT_EQ(set_.sources.text(keyed(SourceKind::constant, kNoSource, get("len")), code_), "const(len)");
}

TEST_F(SourceTest, ComputedOfOthers) {
  run("import math, operator\nx, n = 2.25, 7");
  set(0, "x");
  set(1, "n");
  auto computed = [&](const char* function, SourceId a, int b = -1) {
    return set_.sources.add(SourceKind::computed, a, b, get(function).get());
  };
  auto constant = [&](const char* value) {
    return static_cast<int>(set_.sources.add(SourceKind::constant, kNoSource, 0, get(value).get()));
  };
  EXPECT_EQ(PyFloat_AsDouble(fetch(computed("math.sqrt", local()))), 1.5);
  EXPECT_EQ(text_, "sqrt(L['a'])");
  EXPECT_EQ(
      PyFloat_AsDouble(fetch(computed("operator.mul", computed("math.sqrt", local()), static_cast<int>(local(1))))),
      10.5);
  EXPECT_EQ(text_, "mul(sqrt(L['a']), L['b'])");
  EXPECT_STREQ(PyUnicode_AsUTF8(fetch(computed("format", local(), constant("'.1f'")))), "2.2");
  set(0, "0.0");
  EXPECT_EQ(fetch(computed("operator.truediv", local(1), static_cast<int>(local()))), nullptr);  // raises
  run("class Number(float):\n  def __float__(self): raise SystemError\nx = Number(1.0)");
  set(0, "x");
  EXPECT_EQ(fetch(computed("math.sqrt", local())), nullptr);  // may run Python code
  EXPECT_EQ(fetch(computed("divmod", local(1), constant("3"))), nullptr);  // no number
}

TEST_F(SourceTest, NumbersInTensors) {  // a float stands for the tensor that holds it
  set_number_reader([](PyObject* object, double& number) {
    if (!PyFloat_CheckExact(object)) return false;
    number = PyFloat_AS_DOUBLE(object);
    return true;
  });
  run("x, y = 2.25, 'none'");
  set(0, "x");
  const auto number = [&] { return set_.sources.add(SourceKind::tensor_number, local()); };
  PyObject* const fetched = fetch(number());
  ASSERT_NE(fetched, nullptr);
  EXPECT_EQ(PyFloat_AsDouble(fetched), 2.25);
  EXPECT_EQ(text_, "L['a'].item()");
  set(0, "y");
  EXPECT_EQ(fetch(number()), nullptr);
  set_number_reader(nullptr);
}

TEST_F(SourceTest, ComputedOfSymbols) {
  run("import operator, math");
  set(0, "6");
  const auto bind = [&] {
    add(GuardKind::int_range, local(), "", 0);
    set_.symbol_count = 1;
    set_.sizes = {graph::SymExpr::symbol(0) * graph::SymExpr(3)};
  };
  bind();
  const SourceId size = set_.sources.add(SourceKind::size, kNoSource, 0, str("3*s0").get());
  EXPECT_EQ(PyLong_AsLong(fetch(size)), 18);
  EXPECT_EQ(text_, "3*s0");
  bind();  // a computed value may bind a symbol, from which later sizes are computed
  const SourceId root =
      set_.sources.add(SourceKind::computed, set_.sources.add(SourceKind::size, kNoSource, 0, str("3*s0").get()), -1,
                       get("math.isqrt").get());
  add(GuardKind::int_range, root, "", 1);
  set_.symbol_count = 2;
  set_.sizes.push_back(graph::SymExpr::symbol(1) + graph::SymExpr::symbol(0));
  EXPECT_EQ(PyLong_AsLong(fetch(set_.sources.add(SourceKind::size, kNoSource, 1, str("s0 + s1").get()))), 10);
}

}  // namespace
}  // namespace framejit::guards
