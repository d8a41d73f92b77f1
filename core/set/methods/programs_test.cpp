// The programs of buckets: the stages of every file of conf/ on each route that the file can take,
// except files whose scheduler chooses compressors by measurements. programs.txt has the expected
// programs. With PENSTOCK_WRITE_PROGRAMS=FILE the test writes the file anew.

#include "core/set/testing.hpp"

#include <nlohmann/json.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

namespace penstock::programs_test {
namespace {

using testing::make_set;
using testing::with_ranks;

const std::vector<testing::GradientShape> kShapes{
    {"large", {96, 100}}, {"bias", {24}}, {"second", {9, 40}}};

// The build tree has a copy of conf/ for its programs.
std::filesystem::path conf_folder() {
  const auto program = std::filesystem::canonical("/proc/self/exe").parent_path();
  return program.parent_path() / "share/penstock/conf";
}

std::string read(const std::filesystem::path& file) {
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

std::vector<std::filesystem::path> files() {
  std::vector<std::filesystem::path> found;
  for (const auto& file : std::filesystem::directory_iterator(conf_folder()))
    if (file.path().extension() == ".toml" &&
        read(file.path()).find("\ncandidates = [") == std::string::npos)
      found.push_back(file.path());
  std::sort(found.begin(), found.end());
  return found;
}

// The scheme over loopback, on two hosts with two ranks each, on this route.
std::string scheme_of(const std::filesystem::path& file, const std::string& route) {
  std::string text = read(file);
  text.resize(std::min(text.size(), text.find("\n[[switch]]")));
  if (const size_t at = text.find("transport  = \"auto\""); at != std::string::npos)
    text.replace(at, 19, "transport = \"loopback\"");
  else
    text.replace(text.find("[scheme]\n"), 9, "[scheme]\ncollective = \"loopback\"\n");
  if (const size_t at = text.find("\nroute"); at != std::string::npos)
    text.erase(at, text.find('\n', at + 1) - at);
  text.replace(text.find("[scheme]\n"), 9, "[scheme]\nroute = \"" + route + "\"\n");
  return text +
         "\n[runtime]\ndeadline_s = 20\nlog_level = \"error\"\n"
         "[collective.loopback]\nhosts = \"0,0,1,1\"\n";
}

// Each program once, as a list of stages, or the reason why there is no program.
std::string programs_of(const std::string& scheme) {
  std::string text;
  with_ranks(4, scheme, [&](Runtime& runtime, uint32_t rank) {
    auto set = make_set(runtime, kShapes, PENSTOCK_SET_DEFERRED_UPDATE);
    if (rank != 0) return;
    if (!set.ok()) {
      text = "  refused\n";
      return;
    }
    const auto report = set.value()->report();
    ASSERT_TRUE(report.ok()) << report.status().message();
    std::set<std::string> programs;
    const nlohmann::json read = nlohmann::json::parse(report.value());
    for (const auto& bucket : read.at("buckets")) {
      std::string line = " ";
      for (const auto& stage : bucket.at("program")) line += " " + stage.get<std::string>() + ";";
      programs.insert(line.substr(0, line.size() - 1) + "\n");
    }
    for (const std::string& program : programs) text += program;
  });
  return text;
}

// Each text of programs, after the names of its files and routes.
std::string all_programs() {
  std::map<std::string, std::string> names;
  for (const auto& file : files())
    for (const char* route : {"flat", "split", "hierarchical", "shard"})
      names[programs_of(scheme_of(file, route))] += " " + file.stem().string() + "/" + route;
  std::string text;
  for (const auto& [programs, who] : names) text += who.substr(1) + ":\n" + programs;
  return text;
}

TEST(Programs, AreThoseOfTheFile) {
  const std::string found = all_programs();
  if (const char* file = std::getenv("PENSTOCK_WRITE_PROGRAMS"); file != nullptr)
    std::ofstream(file) << found;
  EXPECT_EQ(found, read(std::filesystem::path(PENSTOCK_PROGRAMS)));
}

}  // namespace
}  // namespace penstock::programs_test
