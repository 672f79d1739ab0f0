// tests/golden/golden_runner.cpp — finds the golden files and makes one test of every case; rewrites them if asked to.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "tests/golden/golden.h"

namespace framejit::golden {
namespace {

std::map<std::string, Runner>& folders() {
  static std::map<std::string, Runner> f;
  return f;
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

bool is_updating() {
  const char* asked = std::getenv("UPDATE_GOLDEN");
  return asked != nullptr && std::string_view(asked) == "1";
}

class FileTest : public testing::Test {
 public:
  FileTest(std::filesystem::path path, Runner runner, std::string only)
      : path_(std::move(path)), runner_(std::move(runner)), only_(std::move(only)) {}

  void TestBody() override {
    const std::string text = read_file(path_);
    std::vector<Case> cases = read_cases(text);
    bool changed = false;
    for (Case& c : cases) {
      if (c.name != only_) continue;
      ASSERT_FALSE(c.stages.empty()) << path_.filename() << ": " << c.name
                                     << " has no 'run:' line: it would test nothing";
      const Result<std::string> result = runner_(c);
      const std::string got =
          result.ok() ? result.value()
                      : std::string("error ") + name_of(result.error().reason) + ": " + result.error().message + "\n";
      const std::string& expected = c.has_out ? c.out : c.in;
      if (got != expected && is_updating()) {
        c.out = got;
        c.has_out = got != c.in;
        changed = true;
      } else {
        EXPECT_EQ(got, expected) << path_.filename() << ": " << c.name;
      }
    }
    if (changed) std::ofstream(path_) << write_cases(cases, text.substr(0, text.find("=== ")));
  }

 private:
  std::filesystem::path path_;
  Runner runner_;
  std::string only_;
};

std::vector<std::string> split_names(const std::string& list) {
  std::vector<std::string> names;
  std::stringstream in(list);
  for (std::string name; std::getline(in, name, ',');) {
    name.erase(0, name.find_first_not_of(' '));
    name.erase(name.find_last_not_of(' ') + 1);
    if (!name.empty()) names.push_back(name);
  }
  return names;
}

}  // namespace

Folder::Folder(std::string name, Runner runner) { folders()[std::move(name)] = std::move(runner); }

std::vector<Case> read_cases(const std::string& text) {
  std::vector<Case> cases;
  std::string* part = nullptr;
  std::stringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("=== ")) {
      cases.emplace_back().name = line.substr(4);
      part = nullptr;
    } else if (!cases.empty() && line.starts_with("run: ") && part == nullptr) {
      cases.back().stages = split_names(line.substr(5));
    } else if (line == "--- in") {
      part = &cases.back().in;
    } else if (line == "--- out") {
      cases.back().has_out = true;
      part = &cases.back().out;
    } else if (part != nullptr && !(line.empty() && part->empty())) {
      *part += line + "\n";
    }
  }
  for (Case& c : cases)
    for (std::string* t : {&c.in, &c.out})
      while (t->ends_with("\n\n")) t->pop_back();
  return cases;
}

std::string write_cases(const std::vector<Case>& cases, const std::string& head) {
  std::string text = head;
  for (const Case& c : cases) {
    text += "=== " + c.name + "\nrun: ";
    for (size_t i = 0; i < c.stages.size(); ++i) text += (i != 0 ? ", " : "") + c.stages[i];
    text += "\n--- in\n" + c.in;
    if (c.has_out) text += "--- out\n" + c.out;
    text += "\n";
  }
  return text;
}

void register_all() {
  for (const auto& [folder, runner] : folders()) {
    const std::filesystem::path root = std::filesystem::path(FRAMEJIT_SOURCE_DIR) / "tests" / "golden" / folder;
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(root))
      if (entry.path().extension() == ".txt") files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    for (const auto& path : files)
      for (const Case& c : read_cases(read_file(path)))
        testing::RegisterTest(("golden_" + folder + "_" + path.stem().string()).c_str(), c.name.c_str(), nullptr,
                              nullptr, __FILE__, __LINE__,
                              [path, runner = runner, name = c.name] { return new FileTest(path, runner, name); });
  }
}

}  // namespace framejit::golden

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  framejit::golden::register_all();
  return RUN_ALL_TESTS();
}
