// tests/unit/guards/class_state_test.cpp — which changes of a class make a new state, and which do not.
#include "guards/class_state.h"

#include <algorithm>

#include "guard_fixture.h"

namespace framejit::guards {
namespace {

class ClassStateTest : public GuardTest {
 protected:
  ClassStateTest() {
    run("import gc, weakref\n"
        "class Base:\n  limit = 1\n  def inherited(self): pass\n"
        "class Other: pass\n"
        "class Descriptor:\n  def __get__(self, instance, owner): return 1\n"
        "class A(Base):\n  '''text'''\n  count, rate, name, seen, cache, table = 0, 0.5, 'a', False, None, [1]\n  "
        "__slots__ = ('slot',)\n"
        "  number: int = 3\n"
        "  def f(self): pass\n"
        "  @property\n  def p(self): return 1\n"
        "  @classmethod\n  def c(cls): pass\n"
        "  @staticmethod\n  def s(): pass\n"
        "  d = Descriptor()\n");
  }
  uint64_t state(const char* name = "A") { return class_state(reinterpret_cast<PyTypeObject*>(get(name).get())); }
  bool keeps_state(const std::string& change) {
    const uint64_t before = state();
    run(change);
    EXPECT_EQ(state(), state()) << change;
    return state() == before;
  }
};

TEST_F(ClassStateTest, DataAttributesGetOtherValues) {
  for (const char* change :
       {"A.count += 1", "A.rate = 2.5", "A.name = 'b'", "A.seen = True", "A.cache = {1: 2}", "A.cache = 5",
        "A.table = []", "A.number = 7", "Base.limit = 9", "A.count = 'text'", "A.count = 10**40"})
    EXPECT_TRUE(keeps_state(change)) << change;
}

TEST_F(ClassStateTest, EverythingElseIsAChange) {
  for (const char* change : {"A.f = lambda self: 1",
                             "A.f = 3",
                             "A.new = 1",
                             "del A.new",
                             "del A.rate",
                             "A.p = property(lambda self: 2)",
                             "A.c = classmethod(lambda cls: 2)",
                             "A.s = staticmethod(lambda: 2)",
                             "A.d = Descriptor()",
                             "A.d = None",
                             "A.cache = Other",
                             "A.cache = Other()",
                             "A.cache = lambda: 1",
                             "A.__doc__ = 'other'",
                             "A.__module__ = 'other'",
                             "A.__annotations__['x'] = int\nA.count += 1",
                             "A.__annotations__ = {}",
                             "A.__len__ = lambda self: 0",
                             "A.__bool__ = None",
                             "Base.inherited = lambda self: 2",
                             "Base.more = 1",
                             "A.__bases__ = (Base, Other)",
                             "Other.more = 1",
                             "A.__eq__ = lambda a, b: True"})
    EXPECT_FALSE(keeps_state(change)) << change;
}

// The new value may have the address of the value that it replaces.
TEST_F(ClassStateTest, ValuesThatTakeTheAddressOfDeadOnes) {
  for (const char* make : {"lambda self: 1", "property(lambda self: 1)", "classmethod(lambda cls: 1)",
                           "staticmethod(lambda: 1)", "Descriptor()", "Other()", "type('T', (), {})"}) {
    for (int i = 0; i < 50; ++i) {
      run(std::string("A.d = ") + make);
      EXPECT_FALSE(keeps_state(std::string("A.d = None\nA.d = ") + make)) << make;
    }
  }
  for (int i = 0; i < 50; ++i) {
    run("A.p = property(lambda self: 1)");
    EXPECT_FALSE(keeps_state("get = lambda self: 2\nA.p = None\nA.p = property(get)"));
  }
}

TEST_F(ClassStateTest, ClassesOfTheirOwn) {
  EXPECT_NE(state("A"), state("Base"));
  std::vector<uint64_t> seen;
  for (int i = 0; i < 400; ++i) {  // each at the address of the last one, or near it
    run("class T:\n  def f(self): pass");
    seen.push_back(state("T"));
    run("del T\ngc.collect()");
  }
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(std::unique(seen.begin(), seen.end()), seen.end());
}

// CPython 3.13 gives a class no version tag after a thousand changes.
TEST_F(ClassStateTest, ManyChanges) {
  const uint64_t before = state();
  for (int i = 0; i < 3000; ++i) {
    run("A.count += 1");
    ASSERT_EQ(state(), before);
  }
  EXPECT_FALSE(keeps_state("A.f = lambda self: 2"));
  EXPECT_TRUE(keeps_state("A.count += 1"));
  EXPECT_FALSE(keeps_state("Base.inherited = None"));
}

TEST_F(ClassStateTest, ClassesAreNotKeptAlive) {
  run("import collections, dataclasses, enum, abc\n"
      "def make():\n"
      "  class T(Base, abc.ABC):\n"
      "    items, own = [], None\n"
      "    def __init__(self): super().__init__()\n"
      "    @property\n    def p(self): return __class__\n"
      "    @classmethod\n    def c(cls): return __class__\n"
      "  T.items.append(T)\n  T.own = T()\n  T.__annotations__ = {'next': T}\n"
      "  @dataclasses.dataclass\n  class D:\n    x: int = 0\n"
      "  class E(enum.Enum):\n    a = 1\n"
      "  return [T, D, E, collections.namedtuple('N', 'a b')]\n");
  for (int i = 0; i < 4; ++i) {
    run("made = make()[" + std::to_string(i) + "]\nalive = weakref.ref(made)");
    const uint64_t before = state("made");
    EXPECT_EQ(state("made"), before);
    run("made.added = 1\ndead = alive() is None");
    EXPECT_NE(state("made"), before);
    run("del made\ngc.collect()\nalive = alive() is not None");
    EXPECT_EQ(get("alive").get(), Py_False) << i;
  }
}

// For each of these kinds, an unchanged class is recognised, so that a counter in it costs no recompiles.
TEST_F(ClassStateTest, KindsOfClasses) {
  run("import collections, dataclasses, enum, abc, typing, functools\n"
      "T = typing.TypeVar('T')\n"
      "class Abstract(abc.ABC):\n  n = 0\n  @abc.abstractmethod\n  def f(self): pass\n"
      "@dataclasses.dataclass\nclass Data:\n  x: int = 0\n  n = 0\n  y: list = "
      "dataclasses.field(default_factory=list)\n"
      "class Generic(typing.Generic[T]):\n  n = 0\n"
      "class Cached:\n  n = 0\n  @functools.cached_property\n  def p(self): return 1\n  @functools.lru_cache\n  def "
      "q(self): return 1\n"
      "class Tuple(collections.namedtuple('Tuple', 'a b')):\n  n = 0\n"
      "class Dict(dict):\n  n = 0\n  __getattr__ = dict.__getitem__\n"
      "class Partial:\n  n = 0\n  f = functools.partial(print)\n  g = functools.partialmethod(print)\n  h = len\n");
  for (const char* name : {"Abstract", "Data", "Generic", "Cached", "Tuple", "Dict", "Partial"}) {
    const uint64_t before = state(name);
    run(std::string(name) + ".n += 1");
    EXPECT_EQ(state(name), before) << name;
  }
}

}  // namespace
}  // namespace framejit::guards
