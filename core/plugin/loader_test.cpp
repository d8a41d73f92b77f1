// Which files the loader loads, which it refuses before code of the file runs, and which after.
#include "core/plugin/loader.hpp"

#include "core/plugin/host.hpp"
#include "core/plugin/instances.hpp"
#include "core/plugin/testing.hpp"
#include "core/plugin/trust.hpp"

#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

namespace penstock::loader_test {
namespace {

namespace fs = std::filesystem;
using test::contains;
using test::plugin_file;
using test::PrivateFolder;
using test::TestHost;

// A build tree may lie in a folder that others can write to, so most tests allow this.
Result<std::shared_ptr<const Plugin>> load(const std::string& path, const Host& host,
                                           bool allow_insecure = true) {
  return load_plugin({path, host.table(), allow_insecure});
}

TEST(Loader, LoadsAPluginInPlainC) {
  TestHost host;
  const Result<std::shared_ptr<const Plugin>> plugin = load(plugin_file("identity"), host.host);
  ASSERT_TRUE(plugin.ok()) << plugin.status().message();
  EXPECT_EQ(plugin.value()->record.id, "compressor/identity-c");
  EXPECT_EQ(plugin.value()->n_options, 2u);
  EXPECT_NE(plugin.value()->as<penstock_compressor>(), nullptr);
  EXPECT_EQ(plugin.value()->as<penstock_memory>(), nullptr);
}

TEST(Loader, TwoRuntimesShareOneFileAndItStaysMapped) {
  PrivateFolder folder;
  const std::string path = folder.add("identity", "shared.so");
  const void* table = nullptr;
  {
    TestHost first, second;
    const auto a = load(path, first.host), b = load(path, second.host);
    ASSERT_TRUE(a.ok() && b.ok());
    EXPECT_EQ(a.value()->table, b.value()->table);
    table = a.value()->table;
  }
  void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  EXPECT_NE(handle, nullptr);
  if (handle != nullptr) ::dlclose(handle);
  EXPECT_EQ(static_cast<const penstock_compressor*>(table)->struct_size,
            sizeof(penstock_compressor));
}

struct Villain {
  const char* name;
  const char* expected;
};

class LoaderRefuses : public testing::TestWithParam<Villain> {};

TEST_P(LoaderRefuses, WithTheReasonAndThePath) {
  TestHost host;
  const std::string path = plugin_file(GetParam().name);
  const Result<std::shared_ptr<const Plugin>> plugin = load(path, host.host);
  ASSERT_FALSE(plugin.ok());
  EXPECT_EQ(plugin.status().message().substr(0, path.size()), path);
  EXPECT_TRUE(contains(plugin.status().message(), GetParam().expected))
      << plugin.status().message();
}

INSTANTIATE_TEST_SUITE_P(
    Loader, LoaderRefuses,
    testing::Values(Villain{"not_a_plugin", "not a plugin: it does not export penstock_plugin"},
                    Villain{"wrong_major", "built for plugin ABI 7."},
                    Villain{"newer_host", "needs a host with plugin ABI 0.99 at least"},
                    Villain{"wrong_magic", "does not begin with the magic"},
                    Villain{"short_record", "struct_size is 48"},
                    Villain{"huge_record", "struct_size is 18446744073709551615"},
                    Villain{"unknown_kind", "kind is 9"},
                    Villain{"wrong_id", "its id is \"compressor/Bad Name\""},
                    Villain{"other_kind_id",
                            "its id is \"memory/villain\", expected \"compressor/NAME\""},
                    Villain{"control_characters", "summary holds control characters"},
                    Villain{"null_load", "no load function"},
                    Villain{"load_fails", "load: the villain does not want to"},
                    Villain{"null_module", "gave no module"},
                    Villain{"null_table", "no compressor table"},
                    Villain{"short_table", "lacks the mandatory member decode"},
                    Villain{"missing_encode", "lacks the mandatory member encode"},
                    Villain{"bad_option", "option level: its bounds are 5 to 1"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(Loader, AFileThatIsWrittenAnewIsInspectedAnew) {
  PrivateFolder folder;
  const std::string path = folder.add("identity", "a.so");
  Result<InspectedFile> before = inspect_plugin(path), again = inspect_plugin(path);
  ASSERT_TRUE(before.ok() && again.ok());
  EXPECT_EQ(again->record.id, before->record.id);
  EXPECT_EQ(again->file_hash, before->file_hash);
  std::ofstream(path, std::ios::app) << "more";
  Result<InspectedFile> after = inspect_plugin(path);
  ASSERT_TRUE(after.ok());
  EXPECT_NE(after->file_hash, before->file_hash);
}

TEST(Loader, ATruncatedFileIsRefusedBeforeItIsMapped) {
  TestHost host;
  PrivateFolder folder;
  const auto whole = fs::file_size(plugin_file("identity"));
  for (const uintmax_t size :
       {uintmax_t{0}, uintmax_t{1}, uintmax_t{63}, uintmax_t{64}, uintmax_t{1000}, whole / 4,
        whole / 2, whole - 4096, whole - 65, whole - 1}) {
    const std::string path = folder.add("identity", std::to_string(size) + ".so");
    fs::resize_file(path, size);
    const Result<std::shared_ptr<const Plugin>> plugin = load(path, host.host);
    ASSERT_FALSE(plugin.ok()) << size;
    EXPECT_TRUE(contains(plugin.status().message(), path));
    EXPECT_EQ(::dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD), nullptr);
  }
}

TEST(Loader, AFileThatIsNoSharedObjectIsRefused) {
  TestHost host;
  PrivateFolder folder;
  std::ofstream(folder.path() + "/text.so") << "just text";
  EXPECT_TRUE(
      contains(load(folder.path() + "/text.so", host.host).status().message(), "not an ELF file"));
  EXPECT_EQ(load(folder.path(), host.host).status().code(), Code::invalid_argument);
  EXPECT_EQ(load(folder.path() + "/absent.so", host.host).status().code(), Code::not_found);
}

TEST(Loader, TheWorkingDirectoryIsNeverLookedAt) {
  TestHost host;
  for (const char* path : {"", "plugin.so", "./plugin.so", "../plugin.so"}) {
    EXPECT_TRUE(contains(load(path, host.host).status().message(), "not an absolute path")) << path;
  }
}

// ---- Trust ----

TEST(Trust, APrivateFolderUnderAStickyOnePasses) {
  PrivateFolder folder;
  const std::string path = folder.add("identity", "plugin.so");
  EXPECT_TRUE(check_trust(path, false).ok()) << check_trust(path, false).message();
}

TEST(Trust, AFileOrAFolderThatEverybodyMayWriteToIsRefused) {
  TestHost host;
  PrivateFolder folder;
  const std::string path = folder.add("identity", "inner/plugin.so");
  ASSERT_EQ(::chmod(path.c_str(), 0666), 0);
  EXPECT_TRUE(contains(check_trust(path, false).message(), "everybody may write to " + path));
  ASSERT_EQ(::chmod(path.c_str(), 0644), 0);
  ASSERT_EQ(::chmod((folder.path() + "/inner").c_str(), 0777), 0);
  EXPECT_TRUE(contains(load(path, host.host, false).status().message(),
                       "everybody may write to " + folder.path()));
  EXPECT_TRUE(load(path, host.host, true).ok());
  // With the sticky bit others may still add files to the folder.
  ASSERT_EQ(::chmod((folder.path() + "/inner").c_str(), 01777), 0);
  EXPECT_EQ(check_trust(path, false).code(), Code::failed_precondition);
  ASSERT_EQ(::chmod((folder.path() + "/inner").c_str(), 0755), 0);
  ASSERT_EQ(::chmod(folder.path().c_str(), 0777), 0);
  EXPECT_EQ(check_trust(path, false).code(), Code::failed_precondition);
  ASSERT_EQ(::chmod(folder.path().c_str(), 01777), 0);
  EXPECT_TRUE(check_trust(path, false).ok());
}

TEST(Trust, WhatAGroupOfOthersMayWriteToIsRefused) {
  PrivateFolder folder;
  const std::string path = folder.add("identity", "inner/plugin.so");
  const std::string inner = folder.path() + "/inner";
  constexpr gid_t kOthers = 12345;
  if (::chown(path.c_str(), uid_t(-1), kOthers) != 0)
    GTEST_SKIP() << "only root can give files away";
  ASSERT_EQ(::chmod(path.c_str(), 0664), 0);
  EXPECT_TRUE(contains(check_trust(path, false).message(),
                       "not loaded, because group 12345 may write to " + path));
  ASSERT_EQ(::chmod(path.c_str(), 0644), 0);
  ASSERT_EQ(::chown(inner.c_str(), uid_t(-1), kOthers), 0);
  ASSERT_EQ(::chmod(inner.c_str(), 0775), 0);
  EXPECT_TRUE(contains(check_trust(path, false).message(), "group 12345 may write to " + inner));
  // The group of root is trusted like root.
  ASSERT_EQ(::chown(inner.c_str(), uid_t(-1), 0), 0);
  ASSERT_EQ(::chmod(inner.c_str(), 0775), 0);
  EXPECT_TRUE(check_trust(path, false).ok()) << check_trust(path, false).message();
}

TEST(Trust, AFileOfAnotherUserIsRefused) {
  PrivateFolder folder;
  const std::string path = folder.add("identity", "plugin.so");
  if (::chown(path.c_str(), 12345, 12345) != 0) GTEST_SKIP() << "only root can give files away";
  EXPECT_TRUE(contains(check_trust(path, false).message(), "belongs to user 12345"));
}

TEST(Trust, LinksAreFollowedBeforeTheCheck) {
  PrivateFolder folder;
  const std::string path = folder.add("identity", "open/plugin.so");
  ASSERT_EQ(::chmod((folder.path() + "/open").c_str(), 0777), 0);
  fs::create_symlink(path, folder.path() + "/link.so");
  const Result<std::string> real = real_path(folder.path() + "/link.so");
  ASSERT_TRUE(real.ok());
  EXPECT_EQ(real.value(), path);
  EXPECT_FALSE(check_trust(real.value(), false).ok());
}

// ---- Host ----

TEST(Host, MakesReadsAndFreesErrors) {
  TestHost host;
  const penstock_host* table = host.host.table();
  penstock_status* status =
      table->status_new(table->context, PENSTOCK_NOT_FOUND, str("no such thing"));
  ASSERT_NE(status, nullptr);
  EXPECT_EQ(table->status_code(table->context, status), uint32_t{PENSTOCK_NOT_FOUND});
  EXPECT_EQ(view(table->status_message(table->context, status)), "no such thing");
  table->status_free(table->context, status);
  table->status_free(table->context, nullptr);
  EXPECT_EQ(table->status_code(table->context, nullptr), uint32_t{PENSTOCK_OK});
  EXPECT_EQ(table->status_message(table->context, nullptr).size, 0u);
}

TEST(Host, AnErrorIsNeverNullWhateverItsCode) {
  TestHost host;
  const penstock_host* table = host.host.table();
  for (const uint32_t code : {0u, 13u, 0xffffffffu}) {
    penstock_status* status = table->status_new(table->context, code, {nullptr, 0});
    ASSERT_NE(status, nullptr);
    EXPECT_EQ(table->status_code(table->context, status), uint32_t{PENSTOCK_INTERNAL});
    table->status_free(table->context, status);
  }
}

TEST(Host, LogsCodePathsAndExtensions) {
  TestHost host;
  const penstock_host* table = host.host.table();
  table->log(table->context, PENSTOCK_LOG_WARNING, str("compressor/topk"), str("slow path"));
  table->log(table->context, 77, str("x"), str("loud"));
  EXPECT_EQ(host.lines,
            (std::vector<std::string>{"warning compressor/topk: slow path", "error x: loud"}));
  EXPECT_EQ(table->code_path(table->context, str("select")).size, 0u);
  host.host.set_code_path("select", "avx2");
  const penstock_str path = table->code_path(table->context, str("select"));
  host.host.set_code_path("select", "scalar");
  EXPECT_EQ(view(path), "avx2");  // valid as long as the host
  EXPECT_EQ(view(table->code_path(table->context, str("select"))), "scalar");
  host.host.set_code_path("", "portable");
  EXPECT_EQ(view(table->code_path(table->context, str("select"))), "scalar");
  EXPECT_EQ(view(table->code_path(table->context, str("unheard of"))), "portable");
  const int service = 0;
  host.host.set_extension("penstock.test/1", &service);
  EXPECT_EQ(table->extension(table->context, str("penstock.test/1")), &service);
  EXPECT_EQ(table->extension(table->context, str("penstock.test/2")), nullptr);
}

// A plugin file is loaded once and uses the host that came last, also after that host has ended.
TEST(Host, ATableServesBeyondTheEndOfItsHost) {
  const penstock_host* table = nullptr;
  {
    TestHost host;
    table = host.host.table();
    host.host.set_code_path("select", "avx2");
  }
  table->log(table->context, PENSTOCK_LOG_ERROR, str("x"), str("nobody hears this"));
  EXPECT_EQ(view(table->code_path(table->context, str("select"))), "avx2");
  penstock_status* status =
      table->status_new(table->context, PENSTOCK_INVALID_ARGUMENT, str("still an error"));
  EXPECT_EQ(view(table->status_message(table->context, status)), "still an error");
  table->status_free(table->context, status);
}

// ---- Instances ----

InstanceConfig config_of(const std::string& name, Settings options = {}) {
  return {Kind::compressor, name, name, std::move(options), {"run.toml", 3, 1}};
}

TEST(Instance, CarriesOptionsTraitsAndName) {
  TestHost host;
  const auto plugin = load(plugin_file("identity"), host.host);
  ASSERT_TRUE(plugin.ok());
  const auto made =
      CompressorInstance::make(config_of("fine", {{"share", {int64_t{1}, {}}}}), plugin.value());
  ASSERT_TRUE(made.ok()) << made.status().message();
  const CompressorInstance& instance = *made.value();
  EXPECT_EQ(instance.name(), "fine");
  EXPECT_EQ(instance.traits().dtypes, PENSTOCK_DTYPE_BIT(PENSTOCK_FLOAT32));
  EXPECT_EQ(instance.options().find("share")->real, 1.0);
  EXPECT_EQ(instance.plugin()->record.name, "identity-c");
  EXPECT_NE(instance.self(), nullptr);
}

TEST(Instance, WrongOptionsAndFailuresNameTheLine) {
  TestHost host;
  const auto identity = load(plugin_file("identity"), host.host);
  ASSERT_TRUE(identity.ok());
  const auto wrong = CompressorInstance::make(
      config_of("fine", {{"share", {2.0, {"run.toml", 4, 1}}}}), identity.value());
  EXPECT_EQ(wrong.status().message(),
            "run.toml:4:1: compressor.fine.share is 2, expected a real in (0, 1], in fraction");
  for (const char* name : {"create_fails", "describe_fails"}) {
    const auto villain = load(plugin_file(name), host.host);
    ASSERT_TRUE(villain.ok());
    const auto made = CompressorInstance::make(config_of("villain"), villain.value());
    ASSERT_FALSE(made.ok());
    EXPECT_TRUE(contains(made.status().message(), "run.toml:3:1: compressor.villain"))
        << made.status().message();
    EXPECT_TRUE(contains(made.status().message(), "the villain does not want to"));
  }
  const auto villain = load(plugin_file("no_devices"), host.host);
  ASSERT_TRUE(villain.ok());
  EXPECT_TRUE(
      contains(CompressorInstance::make(config_of("villain"), villain.value()).status().message(),
               "no dtypes or no device types"));
}

TEST(Instance, APluginOfAnotherKindIsRefused) {
  TestHost host;
  const auto plugin = load(plugin_file("identity"), host.host);
  ASSERT_TRUE(plugin.ok());
  EXPECT_EQ(MemoryInstance::make(config_of("fine"), plugin.value()).status().code(),
            Code::internal);
  EXPECT_EQ(CompressorInstance::make(config_of("fine"), nullptr).status().code(), Code::internal);
}

}  // namespace
}  // namespace penstock::loader_test
