// The scan, the search for a plugin, and the check of a whole configuration against the plugins.
#include "core/plugin/registry.hpp"

#include "core/config/agreement.hpp"
#include "core/fit/resolve.hpp"
#include "core/fit/rules.hpp"
#include "core/plugin/testing.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <fstream>

namespace penstock::registry_test {
namespace {

namespace fs = std::filesystem;
using test::contains;
using test::PrivateFolder;
using test::TestHost;

// A registry over `directories`, scanned.
struct Scanned {
  TestHost host;
  Registry registry;
  Status status;
  explicit Scanned(std::vector<std::string> directories, bool allow_insecure = false)
      : registry(host.host.table(), {std::move(directories), allow_insecure}),
        status(registry.scan()) {}
};

TEST(Registry, FindsPluginsByTheirRecordsNotByTheirFileNames) {
  PrivateFolder folder;
  folder.add("identity", "anything.so");
  folder.add("keep", "memory-keep-c.so");
  Scanned scanned({folder.path()});
  ASSERT_TRUE(scanned.status.ok()) << scanned.status.message();
  ASSERT_EQ(scanned.registry.files().size(), 2u);
  EXPECT_EQ(scanned.registry.files()[0].record.id, "compressor/identity-c");
  EXPECT_EQ(scanned.registry.files()[1].record.id, "memory/keep-c");
  const PluginFile* file = scanned.registry.find(Kind::compressor, "identity-c");
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(file->path, folder.path() + "/anything.so");
  EXPECT_EQ(scanned.registry.find(Kind::memory, "identity-c"), nullptr);
  EXPECT_EQ(scanned.registry.searched()[0].note, "2 plugins");
}

TEST(Registry, LoadsAPluginOnce) {
  PrivateFolder folder;
  folder.add("identity", "a.so");
  Scanned scanned({folder.path()});
  const auto first = scanned.registry.load(Kind::compressor, "identity-c");
  const auto second = scanned.registry.load(Kind::compressor, "identity-c");
  ASSERT_TRUE(first.ok() && second.ok()) << first.status().message();
  EXPECT_EQ(first.value(), second.value());
}

TEST(Registry, OtherFilesAreSkippedWithAReason) {
  PrivateFolder folder;
  folder.add("identity", "a.so");
  folder.add("not_a_plugin", "b.so");
  folder.add("wrong_magic", "c.so");
  std::ofstream(folder.path() + "/d.so") << "text";
  std::ofstream(folder.path() + "/readme.txt") << "text";
  fs::create_directory(folder.path() + "/e.so");
  fs::create_symlink(folder.path() + "/absent", folder.path() + "/f.so");
  Scanned scanned({folder.path()});
  ASSERT_TRUE(scanned.status.ok());
  EXPECT_EQ(scanned.registry.files().size(), 1u);
  ASSERT_EQ(scanned.registry.skipped().size(), 5u);
  EXPECT_TRUE(contains(scanned.registry.skipped()[0].reason, "does not export penstock_plugin"));
  for (const SkippedFile& file : scanned.registry.skipped())
    EXPECT_FALSE(file.reason.empty()) << file.path;
}

TEST(Registry, AnUnknownPluginGetsTheNearestNameAndTheDirectories) {
  PrivateFolder folder;
  folder.add("identity", "a.so");
  Scanned scanned({folder.path(), "/nonexistent/plugins"});
  const Status status = scanned.registry.load(Kind::compressor, "identity").status();
  EXPECT_EQ(status.code(), Code::not_found);
  EXPECT_EQ(status.message(),
            "there is no compressor plugin \"identity\"; did you mean \"identity-c\"?; looked in " +
                folder.path() + " (1 plugin), /nonexistent/plugins (not there)");
  EXPECT_TRUE(contains(scanned.registry.load(Kind::memory, "identity-c").status().message(),
                       "\"identity-c\" is a compressor"));
  Scanned nowhere({});
  EXPECT_TRUE(contains(nowhere.registry.load(Kind::memory, "x").status().message(),
                       "looked in no directory"));
}

TEST(Registry, TwoFilesWithOneIdAreAnErrorThatNamesBoth) {
  PrivateFolder folder;
  const std::string a = folder.add("identity", "one/a.so"),
                    b = folder.add("identity_newer", "two/b.so");
  Scanned scanned({folder.path() + "/one", folder.path() + "/two"});
  EXPECT_EQ(scanned.status.code(), Code::mismatch);
  for (const std::string& part : {std::string("compressor/identity-c"), a, b}) {
    EXPECT_TRUE(contains(scanned.status.message(), part)) << scanned.status.message();
  }
}

TEST(Registry, OneFileReachedTwiceIsOneFile) {
  PrivateFolder folder;
  const std::string path = folder.add("identity", "one/a.so");
  fs::create_symlink(path, folder.path() + "/one/link.so");
  fs::create_hard_link(path, folder.path() + "/one/hard.so");
  fs::create_directory_symlink(folder.path() + "/one", folder.path() + "/two");
  Scanned scanned({folder.path() + "/one", folder.path() + "/one", folder.path() + "/two"});
  EXPECT_TRUE(scanned.status.ok()) << scanned.status.message();
  EXPECT_EQ(scanned.registry.files().size(), 1u);
}

TEST(Registry, WhatMayNotBeLoadedIsListedAndRefused) {
  PrivateFolder folder;
  const std::string open = folder.add("identity", "a.so");
  folder.add("newer_host", "b.so");
  ASSERT_EQ(::chmod(open.c_str(), 0666), 0);
  Scanned scanned({folder.path()});
  ASSERT_TRUE(scanned.status.ok());
  EXPECT_EQ(scanned.registry.files().size(), 2u);
  EXPECT_EQ(scanned.registry.load(Kind::compressor, "identity-c").status().code(),
            Code::failed_precondition);
  EXPECT_TRUE(contains(scanned.registry.load(Kind::compressor, "villain").status().message(),
                       "update Penstock"));
  Scanned insecure({folder.path()}, true);
  EXPECT_TRUE(insecure.registry.load(Kind::compressor, "identity-c").ok());
}

// Otherwise another user's copy in a searched folder would end every run.
TEST(Registry, AFileThatMayNotBeLoadedGivesWayToOneThatMay) {
  for (const bool open_comes_first : {false, true}) {
    PrivateFolder folder;
    const std::string open = folder.add("identity", open_comes_first ? "one/a.so" : "two/a.so"),
                      good =
                          folder.add("identity_newer", open_comes_first ? "two/b.so" : "one/b.so");
    ASSERT_EQ(::chmod(open.c_str(), 0666), 0);
    Scanned scanned({folder.path() + "/one", folder.path() + "/two"});
    ASSERT_TRUE(scanned.status.ok()) << scanned.status.message();
    EXPECT_TRUE(scanned.registry.load(Kind::compressor, "identity-c").ok());
    EXPECT_EQ(scanned.registry.find(Kind::compressor, "identity-c")->path, good);
    ASSERT_EQ(scanned.registry.skipped().size(), 1u);
    EXPECT_TRUE(contains(scanned.registry.skipped()[0].reason, "everybody may write to " + open));
    EXPECT_EQ(scanned.registry.skipped()[0].instead, good);
    Scanned insecure({folder.path() + "/one", folder.path() + "/two"}, true);
    EXPECT_EQ(insecure.status.code(), Code::mismatch) << "both may be loaded";
  }
}

TEST(Registry, OfTwoFilesThatMayNotBeLoadedOneIsRefusedWhenItIsAskedFor) {
  PrivateFolder folder;
  for (const char* name : {"one/a.so", "two/a.so"})
    ASSERT_EQ(::chmod(folder.add("identity", name).c_str(), 0666), 0);
  Scanned scanned({folder.path() + "/one", folder.path() + "/two"});
  ASSERT_TRUE(scanned.status.ok()) << scanned.status.message();
  EXPECT_EQ(scanned.registry.files().size(), 1u);
  EXPECT_TRUE(contains(scanned.registry.load(Kind::compressor, "identity-c").status().message(),
                       "everybody may write to"));
}

TEST(Registry, AFileThatChangesAfterTheScanIsNotLoaded) {
  PrivateFolder folder;
  folder.add("identity", "a.so");
  Scanned scanned({folder.path()});
  folder.add("identity_newer", "a.so");
  EXPECT_EQ(scanned.registry.load(Kind::compressor, "identity-c").status().code(),
            Code::failed_precondition);
}

TEST(Registry, RelativeDirectoriesAreNotSearched) {
  Scanned scanned({"plugins", ""});
  EXPECT_EQ(scanned.registry.searched()[0].note, "not searched: not an absolute path");
}

TEST(Directories, TomlThenEnvironmentThenWhereTheLibraryIs) {
  const auto environment = [](const char* name) -> const char* {
    return std::string_view(name) == "PENSTOCK_PLUGIN_DIRECTORY" ? "/b:/c/::/a" : nullptr;
  };
  const std::vector<std::string> directories = plugin_directories({"/a", "/x/../d"}, environment);
  ASSERT_EQ(directories.size(), 6u);
  EXPECT_EQ(std::vector<std::string>(directories.begin(), directories.begin() + 4),
            (std::vector<std::string>{"/a", "/d", "/b", "/c/"}));
  const fs::path own = fs::canonical("/proc/self/exe").parent_path();
  EXPECT_EQ(directories[4], (own / "penstock/plugins").string());
  EXPECT_EQ(directories[5], (own.parent_path() / "lib/penstock/plugins").string());
}

// ---- A configuration meets the plugins ----

constexpr const char* kScheme =
    "[scheme]\ncompressor = \"identity-c\"\nmemory = \"keep-c\"\ncollective = "
    "\"borrowed\"\nscheduler "
    "= \"each-c\"\n";

Config load(const std::string& text) {
  Result<Config> config = load_config_text(text, "run.toml", "", {nullptr, true});
  EXPECT_TRUE(config.ok()) << config.status().message();
  return config.ok() ? config.value() : Config();
}

struct WithPlugins {
  PrivateFolder folder;
  std::unique_ptr<Scanned> scanned;
  WithPlugins() {
    folder.add("identity", "a.so");
    folder.add("keep", "b.so");
    folder.add("each", "c.so");
    scanned = std::make_unique<Scanned>(std::vector<std::string>{folder.path()});
  }
  // The error of check_config for the scheme above plus `more`. Empty if the plugins fit.
  std::string error(const std::string& more) {
    return std::string(check_config(load(kScheme + more), scanned->registry).message());
  }
};

TEST(Resolve, ASchemeWhosePluginsAndOptionsAreKnownPasses) {
  WithPlugins with;
  EXPECT_EQ(with.error(""), "");
  EXPECT_EQ(with.error("[compressor.identity-c]\nshare = 0.5\nlabel = \"a\"\n"), "");
}

TEST(Resolve, OptionsOfEveryStageAndRuleAreCheckedBeforeTheFirstStep) {
  WithPlugins with;
  EXPECT_EQ(with.error("[compressor.identity-c]\nshre = 1\n"),
            "run.toml:7:1: unknown option \"compressor.identity-c.shre\"; did you mean \"share\"?");
  EXPECT_EQ(
      with.error("[[switch]]\nat_step = 100\nset = { compressor.identity-c.share = 1.5 }\n"),
      "run.toml:8:31: compressor.identity-c.share is 1.5, expected a real in (0, 1], in fraction");
  EXPECT_EQ(
      with.error("[[rule]]\nmatch = { dims = 1 }\noptions = { compressor.identity-c.share = 0 }\n"),
      "run.toml:8:35: compressor.identity-c@rule1.share is 0, expected a real in (0, 1], in "
      "fraction");
}

// A switch at step 0 replaces the values of the tables before they are used.
TEST(Resolve, WhatASwitchReplacesIsCheckedTooWhereverItStands) {
  WithPlugins with;
  const std::string share = "expected a real in (0, 1], in fraction";
  const std::string at_0 = "[[switch]]\nat_step = 0\nset = { compressor.identity-c.share = 0.5 }\n";
  EXPECT_EQ(with.error("[compressor.identity-c]\nshare = \"\"\"text\"\"\"\n" + at_0),
            "run.toml:7:1: compressor.identity-c.share is \"text\", " + share);
  // Of two switches at one step, the error names the first.
  EXPECT_EQ(
      with.error("[[switch]]\nat_step = 0\nset = { compressor.identity-c.share = 2 }\n" + at_0),
      "run.toml:8:31: compressor.identity-c.share is 2, " + share);
  // An unknown option cannot be replaced, but the instance may no longer be used then.
  const std::string leaves =
      "[[switch]]\nat_step = 5\nset = { scheme.compressor = \"other\" }\n"
      "[compressor.other]\nplugin = \"identity-c\"\n";
  EXPECT_EQ(
      with.error(leaves + "[[switch]]\nat_step = 9\nset = { compressor.identity-c.shre = 1 }\n"),
      "run.toml:13:31: unknown option \"compressor.identity-c.shre\"; did you mean \"share\"?");
  // An unknown name is refused too.
  const std::string message = std::string(
      check_config(load("[scheme]\ncompressor = \"identity\"\nmemory = \"keep-c\"\ncollective = "
                        "\"borrowed\"\nscheduler = \"each-c\"\n[[switch]]\nat_step = 0\nset = { "
                        "scheme.compressor = \"identity-c\" }\n"),
                   with.scanned->registry)
          .message());
  EXPECT_TRUE(contains(message, "run.toml:2:1: compressor.identity: there is no compressor plugin"))
      << message;
}

TEST(Resolve, AMissingPluginIsAFaultOfTheLineThatNamesIt) {
  WithPlugins with;
  const auto begins = [](const std::string& text, const std::string& start) {
    return text.substr(0, start.size()) == start;
  };
  const std::string by_rule = with.error("[[rule]]\nmatch = { dims = 1 }\nmemory = \"kep-c\"\n");
  EXPECT_TRUE(
      begins(by_rule,
             "run.toml:6:1: memory.kep-c: there is no memory plugin \"kep-c\"; did you mean "
             "\"keep-c\"?; looked in "))
      << by_rule;
  const std::string by_switch =
      with.error("[[switch]]\nat_step = 5\nset = { scheme.scheduler = \"eahc-c\" }\n");
  EXPECT_TRUE(begins(by_switch, "run.toml:8:16: scheduler.eahc-c: there is no")) << by_switch;
}

TEST(Resolve, ABorrowedTransportNeedsNoPluginAndTakesNoOptions) {
  WithPlugins with;
  EXPECT_EQ(
      with.error("[collective.borrowed]\na = 1\n"),
      "run.toml:7:1: unknown option \"collective.borrowed.a\"; a borrowed transport has none");
}

TEST(Resolve, AgreementHoldsVersionsFilesAndOptionsButNothingRankLocal) {
  WithPlugins with;
  const auto text = [&](const std::string& more) {
    const Result<std::string> agreed = agreement_text(load(kScheme + more), with.scanned->registry);
    EXPECT_TRUE(agreed.ok()) << agreed.status().message();
    return agreed.ok() ? agreed.value() : std::string();
  };
  const std::string plain = text("");
  EXPECT_TRUE(contains(plain, "from step 0: compressor.identity-c share = 1\n")) << plain;
  EXPECT_TRUE(contains(plain, "from step 0: compressor.identity-c version 1.2.3 file ")) << plain;
  EXPECT_EQ(plain, text("[compressor.identity-c]\nlabel = \"mine\"\nshare = 1.0\n"));
  EXPECT_EQ(first_difference(plain, text("[compressor.identity-c]\nshare = 0.5\n")),
            "here \"from step 0: compressor.identity-c share = 1\", "
            "there \"from step 0: compressor.identity-c share = 0.5\"");
  WithPlugins newer;
  newer.folder.add("identity_newer", "a.so");
  ASSERT_TRUE(newer.scanned->registry.scan().ok());
  const Result<std::string> other = agreement_text(load(kScheme), newer.scanned->registry);
  ASSERT_TRUE(other.ok()) << other.status().message();
  EXPECT_TRUE(contains(first_difference(plain, other.value()), "version 1.3.0 file"));
}

TEST(Resolve, MakesInstancesByTheirNameInTheScheme) {
  WithPlugins with;
  const Scheme scheme = load(std::string(kScheme) +
                             "candidates = [\"identity-c\", \"half\"]\n[compressor.half]\nplugin = "
                             "\"identity-c\"\nshare = 0.5\n")
                            .at_step(0);
  const auto half = make_instance<penstock_compressor>(scheme, "half", with.scanned->registry);
  ASSERT_TRUE(half.ok()) << half.status().message();
  EXPECT_EQ(half.value()->options().find("share")->real, 0.5);
  EXPECT_TRUE(make_instance<penstock_memory>(scheme, "keep-c", with.scanned->registry).ok());
  const auto each = make_instance<penstock_scheduler>(scheme, "each-c", with.scanned->registry);
  ASSERT_TRUE(each.ok()) << each.status().message();
  EXPECT_EQ(each.value()->traits().routes, uint64_t{1} << PENSTOCK_ROUTE_FLAT);
  EXPECT_EQ(
      make_instance<penstock_compressor>(scheme, "third", with.scanned->registry).status().code(),
      Code::not_found);
}

}  // namespace
}  // namespace penstock::registry_test
