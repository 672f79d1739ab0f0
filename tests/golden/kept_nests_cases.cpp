// tests/golden/kept_nests_cases.cpp — every reason of inductor/schedule/kept_nests.def occurs in some golden case.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/golden/golden.h"

namespace framejit::golden {
namespace {

TEST(KeptNests, EachHasACase) {
  std::string answers;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(FRAMEJIT_SOURCE_DIR) / "tests" /
                                                               "golden" / "schedule")) {
    std::ifstream in(entry.path());
    std::stringstream text;
    text << in.rdbuf();
    for (const Case& c : read_cases(text.str())) answers += c.out;
  }
  ASSERT_FALSE(answers.empty());
  for (const char* name : {
#define KEPT_NESTS(name, text) #name,
#include "inductor/schedule/kept_nests.def"
#undef KEPT_NESTS
       })
    EXPECT_NE(answers.find(std::string(": ") + name + ": "), std::string::npos)
        << name << " is the answer of no case in tests/golden/schedule";
}

}  // namespace
}  // namespace framejit::golden
