// Results, knobs, log events, the text cursor and the dtype table.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <thread>

#include "runtime/base/config.h"
#include "runtime/base/log.h"
#include "runtime/base/short_lists.h"
#include "runtime/base/text.h"
#include "runtime/dtype.h"
#include "tests/parsers/reader.h"

namespace framejit {
namespace {

Result<int> half(int n) {
  if (n % 2 != 0) return Error{Reason::bad_text, std::to_string(n) + " is odd"};
  return n / 2;
}
Result<int> quarter(int n) {
  FJ_TRY(const int h, half(n));
  FJ_TRY(const int q, half(h));
  return q;
}

TEST(Result, TryPassesValuesAndErrors) {
  EXPECT_EQ(quarter(12).value(), 3);
  EXPECT_EQ(quarter(6).error().reason, Reason::bad_text);
}

TEST(Result, CheckNamesPlaceConditionAndDetail) {
  try {
    FJ_ASSERT(1 > 2, "numbers");
    FAIL();
  } catch (const InternalError& error) {
    const std::string what = error.what();
    EXPECT_NE(what.find("tests/unit/base/base_test.cpp:"), std::string::npos) << what;
    EXPECT_EQ(what.find("at tests/"), what.find("at ")) << what;
    EXPECT_NE(what.find("1 > 2 (numbers)"), std::string::npos) << what;
  }
}

TEST(Config, EveryRowTakesItsDefaultAndRefusesNonsense) {
  const char* environment[] = {"PATH=/bin", "FRAMEJIT=1", "FRAMEJIT_MIN_CALLS=7", "FRAMEJIT_LOGS_FORMAT=json", nullptr};
  const Result<Config> config = read_config(environment);
  ASSERT_TRUE(config.ok());
  EXPECT_TRUE(config.value().enabled);
  EXPECT_EQ(config.value().min_calls, 7);
  EXPECT_EQ(config.value().logs_format, "json");
  EXPECT_EQ(config.value().entries, 8);
  for (const KnobRow& row : knobs()) {
    Config c;
    const bool accepts_text =
        (std::string(row.type) == "text" && std::string(row.choices).empty()) || std::string(row.type) == "pattern";
    const Result<void> result = set_knob(c, row.environment, "nonsense");
    EXPECT_EQ(result.ok(), accepts_text) << row.environment;
    if (!result.ok()) {
      EXPECT_NE(result.error().message.find(row.environment), std::string::npos);
    }
  }
}

TEST(Config, EmptyIsTheDefaultAndFlagsTakeAnyCase) {
  for (const KnobRow& row : knobs()) {
    Config c;
    EXPECT_TRUE(set_knob(c, row.environment, "").ok()) << row.environment;
  }
  const char* environment[] = {"FRAMEJIT_ENTRIES=", "FRAMEJIT_LOGS_FORMAT=", "FRAMEJIT=TRUE", "FRAMEJIT_GDB=False",
                               nullptr};
  const Result<Config> config = read_config(environment);
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config.value().entries, 8);
  EXPECT_EQ(config.value().logs_format, "text");
  EXPECT_TRUE(config.value().enabled);
  EXPECT_FALSE(config.value().gdb);
}

TEST(Config, UnknownNameListsTheKnownOnes) {
  const char* environment[] = {"FRAMEJIT_LOG=all", nullptr};
  const Result<Config> config = read_config(environment);
  ASSERT_FALSE(config.ok());
  EXPECT_NE(config.error().message.find("FRAMEJIT_LOGS"), std::string::npos);
}

TEST(Config, UnknownNameNamesTheClosest) {
  Config c;
  EXPECT_NE(set_knob(c, "FRAMEJIT_LOG", "").error().message.find("; did you mean FRAMEJIT_LOGS? Known: "),
            std::string::npos);
  EXPECT_NE(set_knob(c, "FRAMEJIT_NONSENSE", "").error().message.find("FRAMEJIT_NONSENSE; known: "), std::string::npos);
}

TEST(Config, APatternThatIsNoneSaysWhy) {
  const std::pair<const char*, const char*> cases[] = {
      {"(a", "a parenthesis does not match"},       {"a)", "a parenthesis does not match"},
      {"\\(*", ""},                                 {"*a", "has nothing before it"},
      {"a|+b", "has nothing before it"},            {"(?:?)", "has nothing before it"},
      {"[*(](", "a parenthesis does not match"},    {"(?i)a", "after (? only :, = and ! are known"},
      {"(?<=a)b", "after (? only :, = and ! are known"}, {"(?", "after (? only :, = and ! are known"},
      {"[a", "a [ is not closed"},                  {"[z-a]", "a range of characters ends before it begins"},
      {"a{x}", "{ and } do not hold a count"},      {"[[:foo:]]", "a class of characters is unknown"},
      {"a\\", "an escape with \\ is not complete"},  {"\\1", "it refers to a group that does not exist"},
      {"^__main__:(a|C)", ""},                      {"", ""},
  };
  for (const auto& [pattern, cause] : cases) {
    Config c;
    const Result<void> result = set_knob(c, "FRAMEJIT_SKIP", pattern);
    ASSERT_EQ(result.ok(), *cause == '\0') << pattern;
    if (result.ok()) EXPECT_EQ(c.skip, pattern);
    else EXPECT_NE(result.error().message.find(std::string("; ") + (cause[0] == 'h' ? "a *, +, ? or { " : "") + cause),
                   std::string::npos) << result.error().message;
  }
}

log::Event break_event() {
  return {log::Kind::Break,
          "3.1",
          "model.py:31 f",
          {{"reason", "data_dependent_jump"}, {"detail", "bool() of \"x\""}, {"hint", "use torch.where"}},
          ""};
}

void emit_break() { log::emit(log::Kind::Break, "model.py:31 f", break_event().fields); }

TEST(Log, TextAndJsonComeFromTheSameRow) {
  EXPECT_EQ(log::to_text(break_event()),
            "[framejit 3.1 graph_breaks] model.py:31 f break data_dependent_jump: bool() of \"x\"; what to do: use "
            "torch.where");
  EXPECT_EQ(log::to_json(break_event()),
            "{\"id\":\"3.1\",\"channel\":\"graph_breaks\",\"event\":\"Break\",\"at\":\"model.py:31 f\","
            "\"reason\":\"data_dependent_jump\",\"detail\":\"bool() of \\\"x\\\"\",\"hint\":\"use torch.where\"}");
}

TEST(Log, WhatIsNoUtf8IsReplacedInJson) {
  log::Event event = break_event();
  const std::pair<const char*, const char*> cases[] = {
      {"\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80", "\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80"},  // well-formed: kept
      {"a\xff!", "a\xef\xbf\xbd!"}, {"\xe4\xb8", "\xef\xbf\xbd\xef\xbf\xbd"}, {"\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd"},
      {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"}};  // a surrogate
  for (const auto& [raw, spelled] : cases) {
    event.fields = {{"detail", raw}};
    EXPECT_NE(log::to_json(event).find("\"detail\":\"" + std::string(spelled) + "\"}"), std::string::npos) << spelled;
  }
}

TEST(Log, ChannelsAddUpAndUnknownOnesAreListed) {
  ASSERT_TRUE(log::configure("all, -timing", "", "", "").ok());
  EXPECT_TRUE(log::enabled(log::Channel::guards));
  EXPECT_TRUE(log::enabled(log::Kind::Guard));
  EXPECT_FALSE(log::enabled(log::Kind::Stage));
  const Result<void> bad = log::configure("gaurds", "", "", "");
  ASSERT_FALSE(bad.ok());
  EXPECT_NE(bad.error().message.find("guards"), std::string::npos);
  EXPECT_FALSE(log::configure("", "", "yaml", "").ok());
  EXPECT_NE(log::configure("", "", "", "/proc/none/dump").error().message.find("/proc/none/dump"), std::string::npos);
  ASSERT_TRUE(log::configure("", "", "", "").ok());
  EXPECT_FALSE(log::enabled(log::Channel::guards));
}

// A listener may wait for something that another thread holds while that thread logs; it may log itself, or remove
// itself.
TEST(Log, ListenersRunOutsideOfTheLock) {
  std::atomic<int> heard = 0;
  uint64_t id = 0;
  id = log::add_listener([&](const log::Event&) {
    if (++heard > 1) return;
    log::remove_listener(id);
    std::thread(emit_break).join();
    emit_break();
  });
  emit_break();
  EXPECT_EQ(heard, 1);
}

TEST(Log, EventsOfACompileCarryItsId) {
  std::vector<std::string> ids;
  const uint64_t listener = log::add_listener([&](const log::Event& e) { ids.push_back(e.id); });
  emit_break();
  {
    const log::CompileScope outer("3.1");
    emit_break();
    {
      const log::CompileScope inner("4.1");
      emit_break();
    }
    emit_break();
    std::thread(emit_break).join();  // on another thread: belongs to no compile
    std::thread([id = log::current_id()] {
      const log::CompileScope same(id);
      emit_break();
    }).join();
  }
  emit_break();
  log::remove_listener(listener);
  EXPECT_EQ(ids, (std::vector<std::string>{"", "3.1", "4.1", "3.1", "", "3.1", ""}));
}

TEST(Log, EventsThatNameNoPlaceHaveThatOfTheCompile) {
  std::vector<std::string> places;
  const uint64_t listener = log::add_listener([&](const log::Event& e) { places.push_back(e.where); });
  const auto emit = [](const char* where) { log::emit(log::Kind::Graph, where, {{"graph", "f"}, {"calls", "2"}}); };
  emit("");
  {
    const log::CompileScope outer("3.1", "a.py:1 f");
    emit("");
    emit("a.py:2 f");
    std::thread([&, id = log::current_id(), place = log::current_place()] {
      const log::CompileScope same(id, place);
      emit("");
    }).join();
    const log::CompileScope inner("4.1", "b.py:1 g");
    emit("");
  }
  emit("");
  log::remove_listener(listener);
  EXPECT_EQ(places, (std::vector<std::string>{"", "a.py:1 f", "a.py:2 f", "a.py:1 f", "b.py:1 g", ""}));
}

TEST(Log, ListenersGetEverythingAndTheFileOnlyWhatWasAsked) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "framejit_log_test";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const std::string file = (folder / "log").string();
  ASSERT_TRUE(log::configure("graph", file, "text", (folder / "dump").string()).ok());
  std::vector<std::string> heard;
  const uint64_t id = log::add_listener([&](const log::Event& e) { heard.push_back(log::name_of(e.kind)); });
  EXPECT_TRUE(log::enabled(log::Channel::cache));
  const log::CompileScope scope("1.2");
  emit_break();
  log::emit(log::Kind::Graph, "a.py:1 f", {{"graph", "f"}, {"calls", "2"}}, "graph text\n");
  log::remove_listener(id);
  emit_break();
  EXPECT_EQ(heard, (std::vector<std::string>{"Break", "Graph"}));
  ASSERT_TRUE(log::configure("", "", "", "").ok());
  std::ifstream in(file);
  std::string line, rest;
  std::getline(in, line);
  EXPECT_EQ(line.substr(0, line.rfind(": ")), "[framejit 1.2 graph] a.py:1 f graph of 2 calls");
  EXPECT_FALSE(std::getline(in, rest));
  EXPECT_EQ(line.substr(line.rfind(": ") + 2), (folder / "dump" / "1.2" / "0000_Graph.txt").string());
  std::ifstream dumped(line.substr(line.rfind(": ") + 2));
  std::getline(dumped, rest);
  EXPECT_EQ(rest, "graph text");
}

TEST(Log, DumpsDoNotFollowTheFolderOfACompile) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "framejit_dump_test";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder / "dump");
  std::filesystem::create_directories(folder / "other");
  std::filesystem::create_directory_symlink(folder / "other", folder / "dump" / "1.1");
  const std::string file = (folder / "log").string();
  ASSERT_TRUE(log::configure("graph", file, "text", (folder / "dump").string()).ok());
  for (const char* id : {"1.1", "1.2"}) {
    const log::CompileScope scope(id);
    log::emit(log::Kind::Graph, "a.py:1 f", {{"graph", "f"}, {"calls", "2"}}, "graph text\n");
  }
  ASSERT_TRUE(log::configure("", "", "", "").ok());
  EXPECT_TRUE(std::filesystem::is_empty(folder / "other"));
  EXPECT_TRUE(std::filesystem::exists(folder / "dump" / "1.2" / "0001_Graph.txt"));
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  EXPECT_NE(line.find("cannot write " + (folder / "dump" / "1.1").string() + ": it is a link; the program goes on"),
            std::string::npos)
      << line;
}

TEST(Text, NumbersRoundTrip) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 2000; ++i) {
    const uint64_t bits = random();
    double value;
    std::memcpy(&value, &bits, sizeof value);
    if (std::isnan(value)) continue;
    const std::string spelled = text::float_text(value);
    text::Cursor cursor(spelled);
    ASSERT_TRUE(cursor.next_is_float()) << spelled;
    EXPECT_EQ(cursor.floating().value(), value);
    EXPECT_TRUE(cursor.at_end());
  }
  EXPECT_EQ(text::float_text(-0.0), "-0.0");
  EXPECT_EQ(text::float_text(1), "1.0");
  EXPECT_EQ(text::float_text(-INFINITY), "-inf");
}

TEST(Text, StringsRoundTripAndErrorsNameTheirPlace) {
  const std::string nasty = "a\"b\\c\nd\x01 # %";
  const std::string spelled = text::quoted_text(nasty);
  text::Reader cursor(spelled);
  EXPECT_EQ(cursor.quoted().value(), nasty);
  text::Cursor bad("one # comment\n  two");
  EXPECT_EQ(bad.word(), "one");
  EXPECT_NE(bad.integer().error().message.find("line 2, column 3"), std::string::npos);
}

TEST(Text, PartsOfLists) {
  EXPECT_EQ(text::parts_of("a, b c ,, d"), (std::vector<std::string>{"a", "b c", "d"}));
  EXPECT_EQ(text::parts_of("one"), std::vector<std::string>{"one"});
  EXPECT_TRUE(text::parts_of("").empty());
  EXPECT_TRUE(text::parts_of(" , ").empty());
}

TEST(DType, RowsAndPromotion) {
  EXPECT_EQ(text::find_dtype("bf16"), DType::kBFloat16);
  EXPECT_EQ(text::find_dtype("f8"), std::nullopt);
  EXPECT_EQ(dtype_of_torch(6), DType::kFloat32);
  EXPECT_EQ(dtype_of_torch(99), DType::kOther);
  EXPECT_EQ(promote(DType::kFloat16, DType::kBFloat16), DType::kFloat32);
  EXPECT_EQ(promote(DType::kUInt8, DType::kInt8), DType::kInt16);
  EXPECT_EQ(promote(DType::kUInt8, DType::kInt64), DType::kInt64);
  EXPECT_EQ(promote(DType::kInt64, DType::kFloat16), DType::kFloat16);
  EXPECT_EQ(promote(DType::kFloat64, DType::kComplex64), DType::kComplex128);
  for (int a = 0; a < static_cast<int>(DType::kOther); ++a)
    for (int b = 0; b < static_cast<int>(DType::kOther); ++b)
      EXPECT_EQ(promote(static_cast<DType>(a), static_cast<DType>(b)),
                promote(static_cast<DType>(b), static_cast<DType>(a)));
}

TEST(ShortLists, LongListsOfLongLinesEndWithACount) {
  std::string items;
  for (int i = 0; i < 130; ++i) items += (i > 0 ? ", %" : "%") + std::to_string(i);
  const std::string shown = "%0, %1, %2, %3, ... 126 more";
  const auto graph = [](const std::string& list) {
    return "a\n%130, %131 = f([" + list + "], 2) : f32[3], f32[4]   # a.py:1 f\nreturn " + list;
  };
  EXPECT_EQ(text::with_short_lists(graph(items)), graph(shown));
  EXPECT_EQ(text::with_short_lists(items + " = split(%x)"), shown + " = split(%x)");
  const std::string few = "f([%0, %1, %2, %3, %4])" + std::string(200, ' ');
  EXPECT_EQ(text::with_short_lists(few), few);  // "... 1 more" would be no shorter
  const std::string brief = "return %0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10\n";
  EXPECT_EQ(text::with_short_lists(brief), brief);
  const std::string open = std::string(170, 'x') + "[a, b";
  EXPECT_EQ(text::with_short_lists(open), open);
}

}  // namespace
}  // namespace framejit
