// Each kind of wrong TOML gives one error with its position. Correct TOML gives its values.
#include "core/config/load.hpp"

#include "core/base/printable.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace penstock::load_test {
namespace {

const char* no_environment(const char*) {
  return nullptr;
}

Result<Config> load(std::string_view text, bool allow_runtime = true) {
  return load_config_text(text, "run.toml", "/etc/penstock", {no_environment, allow_runtime});
}

// The error's message, or "no error".
std::string error_of(std::string_view text) {
  const Result<Config> config = load(text);
  return config.ok() ? "no error" : std::string(config.status().message());
}

struct WrongFile {
  const char* text;
  const char* expected;  // the whole message, or its begin if the end is from toml++
};

class WrongToml : public testing::TestWithParam<WrongFile> {};

TEST_P(WrongToml, IsRefusedWithPlaceKeyValueAndExpectation) {
  const std::string message = error_of(GetParam().text);
  EXPECT_EQ(message.substr(0, std::string_view(GetParam().expected).size()), GetParam().expected)
      << message;
}

INSTANTIATE_TEST_SUITE_P(
    Load, WrongToml,
    testing::Values(
        WrongFile{"[scheme]\ncompressor = \n", "run.toml:2:14: not valid TOML: "},
        WrongFile{"[scheme]\ncompressor = \"a\"\ncompressor = \"b\"\n",
                  "run.toml:3:14: not valid TOML: "},
        WrongFile{"[schema]\n", "run.toml:1:2: unknown table \"schema\"; did you mean \"scheme\"?"},
        WrongFile{"[rules]\n", "run.toml:1:2: unknown table \"rules\"; did you mean \"rule\"?"},
        WrongFile{"[[rules]]\n", "run.toml:1:3: unknown table \"rules\"; did you mean \"rule\"?"},
        WrongFile{"[scheme]\napply = \"last\"\n",
                  "run.toml:2:1: scheme.apply is \"last\", expected one of \"current\", "
                  "\"previous\""},
        WrongFile{"[[switch]]\nat_step = 3\nset = { scheme.apply = \"previous\" }\n",
                  "run.toml:3:16: switch 1 sets scheme.apply, but means that are under way"},
        WrongFile{"scheme = 3\n", "run.toml:1:1: scheme is the integer 3, expected a table"},
        WrongFile{"[scheme]\n  comperssor = \"dgc\"\n",
                  "run.toml:2:3: unknown key \"scheme.comperssor\"; did you mean \"compressor\"?"},
        WrongFile{"[scheme]\ncompressor = 3\n",
                  "run.toml:2:1: scheme.compressor is the integer 3, expected a name"},
        WrongFile{"[scheme]\ncompressor = \"a b\"\n",
                  "run.toml:2:1: scheme.compressor is \"a b\", expected a name"},
        WrongFile{"[scheme]\nroute = \"splitt\"\n",
                  "run.toml:2:1: scheme.route is \"splitt\", expected one of \"flat\", \"split\", "
                  "\"hierarchical\", "
                  "\"shard\"; did you mean \"split\"?"},
        WrongFile{"[scheme]\ncandidates = []\n",
                  "run.toml:2:1: scheme.candidates is an empty array, expected an array of"},
        WrongFile{"[scheme]\ncandidates = [\"a\", \"a\"]\n",
                  "run.toml:2:20: scheme.candidates lists \"a\" twice"},
        WrongFile{
            "[compressor]\ntopk = 1\n",
            "run.toml:2:1: compressor.topk is the integer 1, expected a table [compressor.NAME]"},
        WrongFile{"[compressor.\"a b\"]\n",
                  "run.toml:1:13: the instance name in [compressor.a b] must be made of"},
        WrongFile{"[compressor.topk]\ndensity = [1]\n",
                  "run.toml:2:1: compressor.topk.density is an array, expected true, false, a "
                  "number or a string"},
        WrongFile{"[compressor.topk]\ndensity = 2020-01-01\n",
                  "run.toml:2:1: compressor.topk.density is a date, "},
        WrongFile{"[compressor.topk]\nplugin = 4\n",
                  "run.toml:2:1: compressor.topk.plugin is the integer 4, "},
        WrongFile{"[rule]\n", "run.toml:1:2: rule is an empty table, expected tables [[rule]]"},
        WrongFile{"[rule]\nmatch = {}\n",
                  "run.toml:1:2: rule is a table, expected tables [[rule]]"},
        WrongFile{"[[rule]]\nmatch = { name = [] }\nmemory = \"none\"\n",
                  "run.toml:2:11: rule 1.match.name is an empty array, expected a string or an "
                  "array of strings"},
        WrongFile{"[[rule]]\nmatch = { dims = {} }\nmemory = \"none\"\n",
                  "run.toml:2:11: rule 1.match.dims is an empty table, expected an integer, or"},
        WrongFile{"[[rule]]\ncompressor = \"none\"\n",
                  "run.toml:1:1: rule 1 lacks match, expected for example"},
        WrongFile{"[[rule]]\nmatch = {}\n",
                  "run.toml:1:1: rule 1 sets nothing, expected compressor, memory,"},
        WrongFile{"[[rule]]\nmatch = { dim = 1 }\nmemory = \"none\"\n",
                  "run.toml:2:11: unknown key \"rule 1.match.dim\"; did you mean \"dims\"?"},
        WrongFile{"[[rule]]\nmatch = { dims = -1 }\nmemory = \"none\"\n",
                  "run.toml:2:11: rule 1.match.dims is the integer -1, expected an integer of at "
                  "least 0"},
        WrongFile{"[[rule]]\nmatch = { elements = { min = 9, max = 3 } }\nmemory = \"none\"\n",
                  "run.toml:2:11: rule 1.match.elements has min 9 above max 3, so that nothing can "
                  "match"},
        WrongFile{"[[rule]]\nmatch = { elements = { least = 9 } }\nmemory = \"none\"\n",
                  "run.toml:2:24: unknown key \"rule 1.match.elements.least\"; "},
        WrongFile{
            "[[rule]]\nmatch = { name = [\"a\", 3] }\nmemory = \"none\"\n",
            "run.toml:2:24: an entry of rule 1.match.name is the integer 3, expected a string"},
        WrongFile{"[[rule]]\nmatch = { name = \"a[b\" }\nmemory = \"none\"\n",
                  "run.toml:2:11: rule 1.match.name: the pattern \"a[b\" has a [ without ]"},
        WrongFile{
            "[[rule]]\nmatch = { dtype = \"float31\" }\nmemory = \"none\"\n",
            "run.toml:2:11: rule 1.match.dtype is \"float31\", expected one of \"float32\", "},
        WrongFile{
            "[[rule]]\nmatch = {}\noptions = { scheduler.fusion.threshold_bytes = 1 }\n",
            "run.toml:3:13: rule 1.options sets options of a scheduler, which all gradients share"},
        WrongFile{"[scheme]\ncompressor = \"topk\"\n[[rule]]\nmatch = {}\noptions = { "
                  "compressor.tpok.density = 1 }\n",
                  "run.toml:5:29: no compressor instance is called \"tpok\": it has no table "
                  "[compressor.tpok] and no "
                  "scheme or rule names it; did you mean \"topk\"?"},
        WrongFile{
            "[compressor.topk]\n[[rule]]\nmatch = {}\noptions = { compressor.topk.density = 1 }\n",
            "run.toml:4:29: rule 1 sets options of the compressor \"topk\", but the gradients that "
            "it matches get \"none\""},
        WrongFile{"[[switch]]\nset = { scheme.memory = \"dgc\" }\n",
                  "run.toml:1:1: switch 1 lacks at_step"},
        WrongFile{"[[switch]]\nat_step = 1\n", "run.toml:1:1: switch 1 lacks set"},
        WrongFile{
            "[[switch]]\nat_step = -1\nset = { scheme.memory = \"dgc\" }\n",
            "run.toml:2:1: switch 1.at_step is the integer -1, expected an integer of at least 0"},
        WrongFile{"[[switch]]\nat_step = 1\nset = {}\n", "run.toml:3:1: switch 1 sets nothing"},
        WrongFile{"[[switch]]\nat_step = 1\nset = { runtime.seed = 1 }\n",
                  "run.toml:3:9: unknown table \"switch 1.set.runtime\""},
        WrongFile{"[[switch]]\nat_step = 1\nset = { scheme.memry = \"dgc\" }\n",
                  "run.toml:3:16: unknown key \"scheme.memry\"; did you mean \"memory\"?"},
        WrongFile{"[[switch]]\nat_step = 1\nset = { compressor.dgc.density = 0.1 }\n",
                  "run.toml:3:24: no compressor instance is called \"dgc\""},
        WrongFile{"[compressor.dgc]\n[[switch]]\nat_step = 1\nset = { compressor.dgc.plugin = "
                  "\"topk\" }\n",
                  "run.toml:4:24: compressor.dgc.plugin cannot be changed here"},
        WrongFile{"[compressor.dgc]\n[[switch]]\nat_step = 1\nset = { compressor.dgc = 1 }\n",
                  "run.toml:4:20: compressor.dgc is the integer 1, expected KIND.INSTANCE.OPTION = "
                  "VALUE"},
        WrongFile{
            "[scheme]\ncompressor = \"topk\"\n[compressor.tokp]\ndensity = 0.1\n",
            "run.toml:3:13: nothing names [compressor.tokp], so it would be of no effect; the "
            "compressor named here: \"topk\""},
        WrongFile{"[runtime]\nsede = 1\n",
                  "run.toml:2:1: unknown key \"runtime.sede\"; did you mean \"seed\"?"},
        WrongFile{"[runtime]\nseed = 1.5\n",
                  "run.toml:2:1: runtime.seed is the number 1.5, expected an integer"},
        WrongFile{"[runtime]\ndeterministic = 1\n",
                  "run.toml:2:1: runtime.deterministic is the integer 1, expected true"},
        WrongFile{"[runtime]\ndeadline_s = 0\n",
                  "run.toml:2:1: runtime.deadline_s is the integer 0, expected a number"},
        WrongFile{"[runtime]\ndeadline_s = inf\n",
                  "run.toml:2:1: runtime.deadline_s is the number inf, expected"},
        WrongFile{"[runtime]\ndeadline_s = 1e300\n",
                  "run.toml:2:1: runtime.deadline_s is the number 1e+300, expected"},
        WrongFile{"[runtime]\ndeadline_s = 1e-9\n",
                  "run.toml:2:1: runtime.deadline_s is the number 1e-09, expected at least 0.1"},
        WrongFile{"[runtime]\nheartbeat_s = 1e-9\n",
                  "run.toml:2:1: runtime.heartbeat_s is the number 1e-09, expected at least 0.001"},
        WrongFile{
            "[runtime]\nbusy_limit_s = -1\n",
            "run.toml:2:1: runtime.busy_limit_s is the integer -1, expected a number above 0"},
        WrongFile{
            "[runtime]\nbusy_limit_s = 1e-9\n",
            "run.toml:2:1: runtime.busy_limit_s is the number 1e-09, expected 0 for never, or "
            "0.1 to a year"},
        WrongFile{
            "[runtime]\nstall_warning_s = 1e300\n",
            "run.toml:2:1: runtime.stall_warning_s is the number 1e+300, expected 0 for never"},
        WrongFile{"[runtime]\nheartbeat_s = 60\n",
                  "run.toml:2:1: runtime.heartbeat_s is the integer 60, expected less than "
                  "deadline_s, which is 60"},
        WrongFile{"[runtime]\ncheck_parameters = \"off\"\ncheck_parameters_every = 5\n",
                  "run.toml:3:1: runtime.check_parameters_every is the integer 5, expected 0, "
                  "because check_parameters is \"off\""},
        WrongFile{"[runtime]\nnonfinite = \"strct\"\n",
                  "run.toml:2:1: runtime.nonfinite is \"strct\", expected one of \"void\", "
                  "\"strict\"; did you mean"},
        WrongFile{"[runtime]\narena_limit_mb = 17592186044416\n",
                  "run.toml:2:1: runtime.arena_limit_mb is the integer 17592186044416, expected at "
                  "most 1099511627776, an exbibyte"},
        WrongFile{"[runtime]\nplugin_path = []\n",
                  "run.toml:2:1: runtime.plugin_path is an empty array, expected a string or an "
                  "array of strings"},
        WrongFile{"[runtime]\nplugin_path = 3\n",
                  "run.toml:2:1: runtime.plugin_path is the integer 3, expected"}));

// Key and value stand in the message as in the file, but escaped, so that a terminal shows them.
TEST(Load, TextsThatWouldSteerATerminalAreEscapedInErrors) {
  EXPECT_EQ(error_of("[scheme]\n\"comp\\nressor\" = 1\n").substr(0, 53),
            "run.toml:2:1: unknown key \"scheme.comp\\nressor\"; did ");
  EXPECT_EQ(error_of("[scheme]\ncompressor = \"\\u202Edgc\\u001B[2J\"\n").substr(0, 61),
            "run.toml:2:1: scheme.compressor is \"\\u202edgc\\x1b[2J\", expect");
  EXPECT_EQ(error_of("[\"a\\u2066b\"]\n").substr(0, 38),
            "run.toml:1:2: unknown table \"a\\u2066b\"");
  for (const char* text :
       {"[compressor.\"a\\nb\"]\n", "[compressor.a]\n\"b\\u202E\" = []\n",
        "[compressor.a]\n\"b\\n\" = []\n", "[[rule]]\nmatch = { \"di\\nms\" = 1 }\n",
        "[[rule]]\nmatch = { name = \"[\\n\" }\n", "[[rule]]\nmatch = { dtype = \"f\\n\" }\n",
        "[[rule]]\nmatch = { dims = 1 }\noptions = { compressor.\"x\\n\".y = 1 }\n",
        "[[switch]]\nat_step = 1\nset = { compressor.\"x\\n\".y = 1 }\n",
        "[runtime]\nlog_level = \"a\\n\\u001B\"\n", "[scheme]\ncandidates = [\"\\n\\u202E\"]\n",
        "[scheme]\nroute = \"\"\"a\nb\"\"\"\n"}) {
    const std::string message = error_of(text);
    EXPECT_NE(message, "no error") << text;
    EXPECT_TRUE(is_printable(message)) << message;
  }
}

TEST(Load, AnEmptyFileGivesTheDefaults) {
  const Result<Config> config = load("");
  ASSERT_TRUE(config.ok()) << config.status().message();
  const Scheme scheme = config.value().at_step(0);
  EXPECT_EQ(scheme.compressor, "none");
  EXPECT_EQ(scheme.memory, "none");
  EXPECT_EQ(scheme.collective, "auto");
  EXPECT_EQ(scheme.transport, "");
  EXPECT_EQ(scheme.scheduler, "fusion");
  EXPECT_EQ(scheme.route, uint32_t{PENSTOCK_ROUTE_FLAT});
  EXPECT_EQ(scheme.instances.size(), 4u);
  const RuntimeConfig& runtime = config.value().runtime();
  EXPECT_EQ(runtime.seed, 1u);
  EXPECT_EQ(runtime.deadline_s, 60);
  EXPECT_EQ(runtime.heartbeat_s, 5);
  EXPECT_EQ(runtime.arena_limit_mb, 4096u);
  EXPECT_FALSE(runtime.deterministic);
}

TEST(Load, InstancesKeepTypedOptionsAndTheirPlaces) {
  const Result<Config> config = load(
      "[scheme]\ncompressor = \"fine\"\n[compressor.fine]\nplugin = \"topk\"\ndensity = "
      "0.01\ncount = 3\nexact = true\nscope = "
      "\"item\"\n");
  ASSERT_TRUE(config.ok()) << config.status().message();
  const Scheme scheme = config.value().at_step(0);
  const InstanceConfig* fine = scheme.find(Kind::compressor, "fine");
  ASSERT_NE(fine, nullptr);
  EXPECT_EQ(fine->id(), "compressor/topk");
  EXPECT_EQ(fine->options.at("density").value,
            (std::variant<bool, int64_t, double, std::string>(0.01)));
  EXPECT_EQ(std::get<int64_t>(fine->options.at("count").value), 3);
  EXPECT_EQ(std::get<bool>(fine->options.at("exact").value), true);
  EXPECT_EQ(fine->options.at("scope").text(), "\"item\"");
  EXPECT_EQ(fine->options.at("exact").where.text(), "run.toml:7:1");
}

TEST(Load, PluginPathsCountFromTheDirectoryOfTheFile) {
  const Result<Config> config =
      load("[runtime]\nplugin_path = [\"plugins\", \"../more\", \"/opt/p\"]\n");
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config.value().runtime().plugin_path,
            (std::vector<std::string>{"/etc/penstock/plugins", "/etc/more", "/opt/p"}));
}

TEST(Load, AShortDeadlineShortensTheHeartbeat) {
  const Result<Config> config = load("[runtime]\ndeadline_s = 2\n");
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config.value().runtime().heartbeat_s, 0.5);
  const Result<Config> least = load("[runtime]\ndeadline_s = 0.1\n");
  ASSERT_TRUE(least.ok()) << least.status().message();
  EXPECT_EQ(least.value().runtime().heartbeat_s, 0.025);
}

TEST(Load, TheSchemeOfOneSetMayNotNameTransports) {
  const auto config = load("[transport]\nlocal = \"mpi\"", false);
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(
      config.status().message(),
      "run.toml:1:2: [transport] belongs in the configuration of the run, not in the scheme of "
      "one set");
}

TEST(Load, TransportsOfLevelsNameInstances) {
  const auto config = load("[transport]\nlocal = \"near\"\n[collective.near]\nplugin = \"mpi\"");
  ASSERT_TRUE(config.ok()) << config.status().message();
  const Scheme scheme = config.value().at_step(0);
  EXPECT_EQ(scheme.local_transport, "near");
  EXPECT_EQ(scheme.cross_transport, "");
  EXPECT_EQ(scheme.find(Kind::collective, "near")->plugin, "mpi");
  const auto wrong = load("[transport]\nlocl = \"near\"");
  ASSERT_FALSE(wrong.ok());
  EXPECT_NE(wrong.status().message().find("run.toml:2:1"), std::string::npos)
      << wrong.status().message();
}

TEST(Load, TheSchemeOfOneSetMayNotSpeakOfTheRuntime) {
  const Result<Config> config = load("[runtime]\nseed = 2\n", false);
  ASSERT_FALSE(config.ok());
  EXPECT_NE(config.status().message().find("run.toml:1:2: [runtime] belongs in"),
            std::string::npos);
}

TEST(Load, AFileThatIsNotThereBringsTheNearestNameBesideIt) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "near";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "topk-residual.toml") << "[scheme]\n";
  std::ofstream(folder / "topk-residuals.txt") << "\n";
  const Result<Config> config = load_config_file((folder / "topk-residul.toml").string());
  ASSERT_FALSE(config.ok());
  EXPECT_NE(config.status().message().find("configuration file; did you mean \"" +
                                           (folder / "topk-residual.toml").string() + "\"?;"),
            std::string::npos)
      << config.status().message();
}

TEST(Load, AFileThatIsNotThereIsNotFound) {
  const Result<Config> config = load_config_file("/nonexistent/run.toml");
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.status().code(), Code::not_found);
  EXPECT_NE(config.status().message().find("/nonexistent/run.toml"), std::string::npos);
}

TEST(Load, WhatTheSystemRunsOutOfIsSaidAndNotTakenForAPermission) {
  const std::string path = testing::TempDir() + "penstock_limit.toml";
  std::ofstream(path) << "";
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  none.rlim_cur = 0;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const Result<Config> config = load_config_file(path, {no_environment, true});
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  std::filesystem::remove(path);
  EXPECT_EQ(config.status().code(), Code::failed_precondition);
  EXPECT_EQ(config.status().message(),
            path +
                ": the configuration file cannot be read: too many open files; raise the limit "
                "of this process (ulimit -n)");
}

TEST(Load, ADirectoryOrAPipeIsNoFile) {
  EXPECT_EQ(load_config_file("/tmp").status().code(), Code::invalid_argument);
  const std::string pipe = testing::TempDir() + "penstock_pipe_" + std::to_string(getpid());
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(load_config_file(pipe).status().code(), Code::invalid_argument);
  std::filesystem::remove(pipe);
}

TEST(Load, AFileThatTheSystemCannotReadIsSaidAndNotThrown) {
  // Its first bytes are not mapped: read() fails with EIO.
  const Result<Config> config = load_config_file("/proc/self/mem", {no_environment, true});
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.status().message(),
            "/proc/self/mem: the configuration file cannot be read: Input/output error");
}

TEST(Load, AFileIsReadAndNamedInErrors) {
  const std::string path =
      testing::TempDir() + "penstock_load_" + std::to_string(getpid()) + ".toml";
  std::ofstream(path) << "[scheme]\ncompressor = \"topk\"\n";
  const Result<Config> config = load_config_file(path, {no_environment, true});
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config.value().at_step(0).compressor, "topk");
  EXPECT_EQ(config.value().at_step(0).find(Kind::compressor, "topk")->where.text(), path + ":2:1");
  std::filesystem::remove(path);
}

TEST(Load, NeitherDeepNestingNorRandomBytesBringItDown) {
  EXPECT_FALSE(load("a = " + std::string(100000, '[')).ok());
  EXPECT_FALSE(load(std::string("[scheme]\n\xff\xfe\n")).ok());
  for (const char* brackets :
       {"[[[a]]]", "[[[1]]]", "[[[]]", "[[=", "[", "[[", "[[ ", "\xc3\xa9 = 1", "a = \xd2\x90"}) {
    EXPECT_EQ(error_of(brackets).substr(0, 11), "run.toml:1:") << brackets;
  }
  uint32_t state = 12345;
  const std::string seed_text =
      "[scheme]\nroute = \"flat\"\n[[rule]]\nmatch = { dims = 1 }\nmemory = \"none\"\n";
  for (int round = 0; round < 2000; ++round) {
    std::string text = seed_text;
    for (int change = 0; change < 3; ++change) {
      state = state * 1664525u + 1013904223u;
      text[(state >> 8) % text.size()] = static_cast<char>(state >> 24);
    }
    const Result<Config> config = load(text);
    if (config.ok()) continue;
    EXPECT_EQ(config.status().message().substr(0, 9), "run.toml:") << config.status().message();
  }
}

}  // namespace
}  // namespace penstock::load_test
