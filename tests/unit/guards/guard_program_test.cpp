// tests/unit/guards/guard_program_test.cpp — the program as a whole: dict versions, weak objects, merging, no
// allocation.
#include "guard_fixture.h"

namespace framejit::guards {
namespace {

TEST_F(GuardTest, EqualGuardsMerge) {
  add(GuardKind::type_is, local(), "int");
  add(GuardKind::type_is, local(), "int");
  EXPECT_EQ(set_.guards().size(), 1u);
  add(GuardKind::equals, local(), "7");
  add(GuardKind::equals, local(), "3 + 4");
  EXPECT_EQ(set_.guards().size(), 2u);
  add(GuardKind::equals, local(), "7.0");
  EXPECT_EQ(set_.guards().size(), 3u);
}

// Every way to change a dict or an attribute at the end of an unchanged path is noticed, whatever its version says.
class DictVersions : public GuardTest {
 protected:
  void SetUp() override {
    run("class Child: pass\nclass A: pass\nx = A()\nx.child = Child()\nx.child.flag = True\nx.n = 3\nfor i in "
        "range(200): x.n = 3\nold = x.child");
    set(0, "x");
    const SourceId dict = from(SourceKind::instance_dict, local());
    child_ = keyed(SourceKind::dict_item, dict, str("child"));
    add(GuardKind::type_is, child_, "Child");
    add(GuardKind::is, keyed(SourceKind::dict_item, from(SourceKind::instance_dict, child_), str("flag")), "True");
    add(GuardKind::equals, keyed(SourceKind::dict_item, dict, str("n")), "3");
    add(GuardKind::dict_lacks, dict, "'extra'");
    compile({child_});
    EXPECT_TRUE(holds()) << why();
    EXPECT_TRUE(holds());
  }
  void expect_change(const std::string& change, const std::string& undo, const std::string& text) {
    run(change);
    EXPECT_FALSE(holds()) << change;
    EXPECT_EQ(why(), text);
    run(undo);
    EXPECT_TRUE(holds()) << undo << ": " << why();
    EXPECT_TRUE(holds());
  }
  SourceId child_;
};

TEST_F(DictVersions, ChangesAreSeen) {
  expect_change("x.n = 4", "x.n = 3", "L['a'].n == 3 but is 4");
  expect_change("x.__dict__['n'] = 5", "x.__dict__['n'] = 3", "L['a'].n == 3 but is 5");
  expect_change("setattr(x, 'n', 3.0)", "x.n = 3", "L['a'].n == 3 but is 3.0");
  expect_change("x.extra = 1", "del x.extra", "'extra' not in L['a'].__dict__ but it is there");
  expect_change("x.child.flag = False", "x.child.flag = True", "L['a'].child.flag is True but is False");
  expect_change("del x.n", "x.n = 3", "L['a'].n is gone");
  expect_change("x.__dict__ = {}", "x.__dict__ = {'child': old, 'n': 3}", "L['a'].child is gone");
  expect_change("x.__dict__.update(n=9)", "x.__dict__ |= dict(n=3)", "L['a'].n == 3 but is 9");
  expect_change("x.__dict__.pop('n')", "x.__dict__.setdefault('n', 3)", "L['a'].n is gone");
  expect_change("x.child.__class__ = A", "x.child.__class__ = Child", "type(L['a'].child) is Child but is A");
  run("def loop(v):\n  for i in range(50): x.n = v");
  expect_change("loop(8)", "loop(3)", "L['a'].n == 3 but is 8");
}

TEST_F(DictVersions, WantedItemFollowsTheDict) {
  EXPECT_EQ(registers_[program_->register_of(child_)], get("x.child").get());
  run("x.child = Child()\nx.child.flag = True");
  EXPECT_TRUE(holds());
  EXPECT_EQ(registers_[program_->register_of(child_)], get("x.child").get());
  EXPECT_TRUE(holds());
  EXPECT_EQ(registers_[program_->register_of(child_)], get("x.child").get());
}

TEST_F(DictVersions, ServesManyInstances) {
  run("xs = []\nfor i in range(40):\n  y = A(); y.child = Child(); y.child.flag = True; y.n = 3; xs.append(y)");
  for (int round = 0; round < 3; ++round)
    for (int i = 0; i < 40; ++i) {
      set(0, "xs[" + std::to_string(i) + "]");
      EXPECT_TRUE(holds()) << why();
      EXPECT_EQ(registers_[program_->register_of(child_)], get("xs[" + std::to_string(i) + "].child").get());
    }
  run("xs[17].child.flag = False\nxs[18].n = 4");
  for (int i = 0; i < 40; ++i) {
    set(0, "xs[" + std::to_string(i) + "]");
    EXPECT_EQ(holds(), i != 17 && i != 18);
  }
}

// A dict that changes in every call never passes because of an outdated record.
TEST_F(DictVersions, AlwaysChangingDict) {
  for (int i = 0; i < 1000; ++i) {
    run("x.counter = " + std::to_string(i) + "\nx.n = " + (i % 7 == 3 ? "4" : "3"));
    EXPECT_EQ(holds(), i % 7 != 3) << i;
  }
}

// Guards on the class of many instances are checked once; but per instance if the class is not known exactly.
TEST_F(GuardTest, InstancesOfAClassShareItsGuards) {
  run("class B: pass\nclass A(B):\n  limit = 5\n  def f(self): pass\nx, y = A(), A()");
  set(0, "x");
  set(1, "y");
  SourceId last = kNoSource;
  for (int i : {0, 1}) {
    add(GuardKind::type_is, local(i), "A");
    const SourceId type = from(SourceKind::type_of, local(i));
    add(GuardKind::type_unchanged, type, "A");
    add(GuardKind::function_code, keyed(SourceKind::type_lookup, type, str("f")), "A.f.__code__");
    last = keyed(SourceKind::type_lookup, type, str("limit"));
    add(GuardKind::equals, last, "5");
  }
  Guard same = guard(GuardKind::same, from(SourceKind::type_of, local(0)));
  same.other = from(SourceKind::type_of, local(1));
  set_.add(same);
  compile({last});
  EXPECT_EQ(program_->texts(),
            (std::vector<std::string>{"type(L['a']) is A", "A unchanged", "A.f.__code__ is <code A.f>", "A.limit == 5",
                                      "type(L['b']) is A"}));
  EXPECT_TRUE(holds()) << why();
  EXPECT_EQ(PyLong_AsLong(registers_[program_->register_of(last)]), 5);
  EXPECT_TRUE(holds());
  EXPECT_EQ(PyLong_AsLong(registers_[program_->register_of(last)]), 5);
  run("code = A.f.__code__\nA.f.__code__ = (lambda self: 1).__code__");
  EXPECT_FALSE(holds());
  run("A.f.__code__ = code");
  EXPECT_TRUE(holds());
  set(1, "B()");
  EXPECT_EQ(why(), "type(L['b']) is A but is B");
}

// Without a guard on the class as a whole, each lookup has its own guard; the class may change elsewhere.
TEST_F(GuardTest, ClassAttributesFollowTheClass) {
  run("class B: pass\nclass A(B):\n  limit = 5\nx = A()");
  set(0, "x");
  add(GuardKind::equals, keyed(SourceKind::type_lookup, from(SourceKind::type_of, local()), str("limit")), "5");
  compile();
  for (int round = 0; round < 2; ++round) {
    EXPECT_TRUE(holds());
    run("A.limit = 6");
    EXPECT_EQ(why(), "type(L['a']).limit == 5 but is 6");
    run("del A.limit");
    EXPECT_EQ(why(), "type(L['a']).limit is gone");
    run("B.limit = 5");
    EXPECT_TRUE(holds());
    run("A.__bases__ = (type('C', (), {'limit': 7}),)");
    EXPECT_FALSE(holds());
    run("A.__bases__ = (B,); A.other = 3; A.limit = 5; del B.limit");
  }
}

// Sets are equal by their elements, so an unchanged dict says nothing about them.
TEST_F(GuardTest, SetInADictIsComparedEachTime) {
  run("d = {'s': {1, 'a'}}");
  set(0, "d");
  add(GuardKind::equals, keyed(SourceKind::dict_item, local(), str("s")), "{'a', 1}");
  compile();
  EXPECT_TRUE(holds());
  EXPECT_TRUE(holds());
  run("d['s'].add(2)");
  EXPECT_FALSE(holds());
  run("d['s'].remove(2)");
  EXPECT_TRUE(holds());
}

TEST_F(GuardTest, NamedObjectsAreHeldWeakly) {
  run("import gc, weakref\nclass Gone: pass\nx = Gone()\nw = weakref.ref(Gone)");
  set(0, "x");
  add(GuardKind::type_is, local(), "Gone");
  keyed(SourceKind::constant, kNoSource, get("Gone"));
  compile();
  EXPECT_TRUE(holds());
  EXPECT_FALSE(program_->dead());
  EXPECT_EQ(program_->texts(), (std::vector<std::string>{"type(L['a']) is Gone"}));
  locals_[0] = nullptr;
  values_.clear();
  run("del x, Gone\nfor _ in range(3): gc.collect()");
  EXPECT_EQ(get("w()").get(), Py_None);
  EXPECT_TRUE(program_->dead());
  EXPECT_EQ(program_->texts(), (std::vector<std::string>{"type(L['a']) is <dead object>"}));
  set(0, "3");
  EXPECT_FALSE(holds());
}

TEST_F(GuardTest, KeysAreHeldWeakly) {
  run("import gc, weakref\nclass Key: pass\nk = Key()\nd = {'s': 1, k: 2, (3, 4): 5}\nw = weakref.ref(k)");
  set(0, "d");
  add(GuardKind::dict_keys, local(), "tuple(d)");
  add(GuardKind::dict_has, local(), "k");
  add(GuardKind::equals, keyed(SourceKind::dict_item, local(), get("k")), "2");
  compile();
  EXPECT_TRUE(holds());
  run("d[k] = 3");
  EXPECT_FALSE(holds());
  run("d = {'s': 1, w: 2, (3, 4): 5}");  // another key: a reference of the program to the same object
  set(0, "d");
  EXPECT_FALSE(holds());
  run("d = {'s': 1, k: 2, (3, 4): 5}");
  set(0, "d");
  EXPECT_TRUE(holds());
  locals_[0] = nullptr;
  values_.clear();
  run("del k, d\ngc.collect()");
  EXPECT_EQ(get("w()").get(), Py_None);
  EXPECT_TRUE(program_->dead());
  EXPECT_EQ(program_->texts()[0], "list(L['a']) == ('s', <dead object>, (3, 4))");
}

TEST_F(GuardTest, CodeObjectsAreHeldWeakly) {
  run("import gc\ndef f(): pass");
  set(0, "f");
  add(GuardKind::function_code, local(), "f.__code__");
  compile();
  EXPECT_TRUE(holds());
  program_.reset();  // the program may die first
  set_ = GuardSet();
  add(GuardKind::function_code, local(), "f.__code__");
  compile();
  locals_[0] = nullptr;
  values_.clear();
  run("del f\ngc.collect()");
  EXPECT_TRUE(program_->dead());
}

TEST_F(GuardTest, ReferencesAreBalanced) {
  run("class A: pass\nx = A()\nx.d = {'k': (1, 2)}");
  const PyRef type = get("A");
  set(0, "x");
  const Py_ssize_t before = Py_REFCNT(type.get());
  for (int i = 0; i < 10; ++i) {
    set_ = GuardSet();
    add(GuardKind::type_is, local(), "A");
    add(GuardKind::type_unchanged, from(SourceKind::type_of, local()), "A");
    add(GuardKind::dict_has, keyed(SourceKind::dict_item, from(SourceKind::instance_dict, local()), str("d")), "'k'");
    compile();
    for (int j = 0; j < 100; ++j) EXPECT_TRUE(holds());
  }
  program_.reset();
  EXPECT_EQ(Py_REFCNT(type.get()), before);
}

TEST_F(GuardTest, PathThatBreaksIsNamed) {
  run("class A: pass\nx = A()\nx.a = A()\nx.a.b = 1");
  set(0, "x");
  const SourceId a = keyed(SourceKind::dict_item, from(SourceKind::instance_dict, local()), str("a"));
  add(GuardKind::equals, keyed(SourceKind::dict_item, from(SourceKind::instance_dict, a), str("b")), "1");
  compile();
  EXPECT_TRUE(holds());
  run("del x.a.b");
  EXPECT_EQ(why(), "L['a'].a.b is gone");
  run("del x.a");
  EXPECT_EQ(why(), "L['a'].a is gone");
  set(0, "3");
  EXPECT_EQ(why(), "L['a'].__dict__ is gone");
  locals_[0] = nullptr;
  EXPECT_EQ(why(), "L['a'] is gone");
}

TEST_F(GuardTest, RunAllocatesNothing) {
  run("import sys\nclass A: pass\nx = A()\nx.t = tuple(range(2))\nx.s = 'abc'\nx.f = 1.5");
  set(0, "x");
  const SourceId dict = from(SourceKind::instance_dict, local());
  add(GuardKind::equals, keyed(SourceKind::dict_item, dict, str("t")), "(0, 1)");
  add(GuardKind::equals, keyed(SourceKind::dict_item, dict, str("s")), "'a' + 'bc'");
  add(GuardKind::equals, keyed(SourceKind::dict_item, dict, str("f")), "3 / 2");
  add(GuardKind::type_unchanged, from(SourceKind::type_of, local()), "A");
  compile();
  EXPECT_TRUE(holds());
  const PyRef count = get("sys.getallocatedblocks");
  const auto blocks = [&] { return PyLong_AsLong(PyRef::steal(PyObject_CallNoArgs(count.get())).get()); };
  blocks();
  const long before = blocks();
  for (int i = 0; i < 1000; ++i) program_->run(frame(), registers_.data(), symbols_.data());
  EXPECT_EQ(blocks(), before);
}

}  // namespace
}  // namespace framejit::guards
