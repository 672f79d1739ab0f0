// What a failed guard says to users: their own words, both values, and what to do.
#include "guard_fixture.h"

namespace framejit::guards {
namespace {

TEST_F(GuardTest, ChangesAreSentences) {
  const auto change_for = [&](GuardKind kind, const std::string& object, int64_t number, const std::string& bad) {
    set_ = GuardSet();
    set(0, bad);
    add(kind, local(), object, number);
    compile();
    return change();
  };
  EXPECT_EQ(change_for(GuardKind::equals, "3", 0, "4").text, "a was 3, now it is 4");
  EXPECT_EQ(change().kind, ChangeKind::number);
  EXPECT_EQ(change(Symbols::refused).hint.substr(0, 30), "pass a tensor, torch.tensor(a)");
  EXPECT_EQ(change(Symbols::forbidden).hint.substr(0, 23), "leave out dynamic=False");
  EXPECT_EQ(change_for(GuardKind::equals, "3", 0, "4.0").kind, ChangeKind::equals);
  EXPECT_EQ(change_for(GuardKind::equals, "'x'", 0, "'y'").text, "a was 'x', now it is 'y'");
  EXPECT_EQ(change_for(GuardKind::is, "True", 0, "False").kind, ChangeKind::flag);
  EXPECT_EQ(change_for(GuardKind::is, "None", 0, "3").kind, ChangeKind::none);
  run("class A: pass\nx, y = A(), A()");
  EXPECT_EQ(change_for(GuardKind::is, "x", 0, "y").text, "a was one <A object>, now it is another");
  EXPECT_EQ(change_for(GuardKind::type_is, "list", 0, "(1,)").text, "a was of class list, now of tuple");
  EXPECT_EQ(change_for(GuardKind::length, "", 2, "[1]").text, "len(a) was 2, now it is 1");
  EXPECT_EQ(change_for(GuardKind::iterator_has, "", 2, "iter([1])").text, "a had 2 items left or more, now it has 1");
}

TEST_F(GuardTest, ChangesOfDictsNameAttributesAndVariables) {
  run("class A: pass\nx = A()\nx.n = 1");
  set(0, "x");
  const SourceId dict = from(SourceKind::instance_dict, local());
  add(GuardKind::dict_lacks, dict, "'m'");
  compile();
  EXPECT_TRUE(holds());
  run("x.m = 2");
  EXPECT_EQ(change().text, "a did not have the attribute 'm', now it has");
  set_ = GuardSet();
  add(GuardKind::dict_has, from(SourceKind::instance_dict, local()), "'n'");
  compile();
  run("del x.n");
  EXPECT_EQ(change().text, "a had the attribute 'n', now it has not");
  set_ = GuardSet();
  add(GuardKind::equals, keyed(SourceKind::dict_item, from(SourceKind::globals, kNoSource), str("factor")), "3");
  run("factor = 3");
  compile();
  EXPECT_TRUE(holds());
  run("factor = 5");
  EXPECT_EQ(change().text, "factor was 3, now it is 5");
  run("del factor");
  EXPECT_EQ(change().text, "factor is no longer there");
}

TEST_F(GuardTest, WordsOfSources) {
  run("class A: pass\nx = A()\nx._modules = {'lin': x, '0': x}\nx.w = 1");
  set(0, "x");
  const TestNames names;
  const auto item = [&](SourceId owner, const char* name) {
    const SourceId dict = keyed(SourceKind::dict_item, from(SourceKind::instance_dict, owner), str("_modules"));
    return keyed(SourceKind::dict_item, dict, str(name));
  };
  const SourceId weight = keyed(SourceKind::dict_item, from(SourceKind::instance_dict, item(local(), "lin")), str("w"));
  EXPECT_EQ(set_.sources.words(weight, names), "a.lin.w");
  EXPECT_EQ(set_.sources.words(item(local(), "0"), names), "a[0]");
  EXPECT_EQ(set_.sources.words(from(SourceKind::stack, kNoSource, 1), names), "the value of step 1");
  EXPECT_EQ(set_.sources.words(from(SourceKind::cell_contents, local(1)), names), "b");
  const SourceId closure = from(SourceKind::function_closure, from(SourceKind::frame_function, kNoSource));
  EXPECT_EQ(set_.sources.words(from(SourceKind::cell_contents, from(SourceKind::tuple_item, closure, 2)), names),
            "captured 2");
}

TEST_F(GuardTest, ChangesOfSizesNameTheirTensors) {
  set(0, "2");
  add(GuardKind::int_range, local(), "", 0);
  set_.size_facts = {{graph::SymExpr::symbol(0), 3, graph::Relation::kLe, "model.py:3 f", "number of parts"}};
  compile();
  EXPECT_TRUE(holds());
  set(0, "4");
  EXPECT_EQ(change().text, "a <= 3 (number of parts) was true, now a is 4");
  EXPECT_EQ(program_->explain(frame())->because, "model.py:3 f");
}

}  // namespace
}  // namespace framejit::guards
