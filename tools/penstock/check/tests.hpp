// penstock check: the tests that every plugin must pass, each in a process of its own.
#pragma once

#include "core/plugin/host.hpp"
#include "core/plugin/instances.hpp"
#include "core/plugin/registry.hpp"

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::command {

enum class Verdict { ok, warning, failed, skipped };

struct TestOutcome {
  TestOutcome() = default;
  TestOutcome(Verdict verdict, std::string reason) : verdict(verdict), reason(std::move(reason)) {}
  TestOutcome(const Status& status)
      : verdict(status.ok() ? Verdict::ok : Verdict::failed), reason(status.message()) {}
  Verdict verdict = Verdict::ok;
  std::string reason;  // a note if the verdict is ok
};

// The loaded plugin in a test's own process.
struct Subject {
  std::string path;
  std::shared_ptr<const Plugin> plugin;
  const penstock_host* host = nullptr;
};

struct Test {
  std::string name;
  std::function<TestOutcome(const std::string& path)> body;
};
// Makes a test of the loaded plugin.
Test loaded(std::string name, TestOutcome (*body)(const Subject&));

// Tests that read the file and run none of its code.
std::vector<Test> static_tests();
// Tests that the plugin loads. The tests below need it.
TestOutcome test_load(const std::string& path);
std::vector<Test> option_tests();
std::vector<Test> kit_tests(Kind kind);  // of compressors and memories
std::vector<Test> collective_tests();
std::vector<Test> scheduler_tests();

// Runs `body` in a child process and returns its outcome. A child that dies has failed, and so has
// one that uses up `seconds` of a processor, or uses none for so long; the reason contains the text
// of its last call of doing().
TestOutcome isolated(const std::function<TestOutcome()>& body, double seconds);
// Loads a plugin and its libraries in a child process. A library that this machine lacks is a
// warning; the name of the package to install follows the semicolon.
TestOutcome load_alone(Registry& registry, const PluginFile& file);
// Notes the next action of a test, for the report of a crash. The note survives the process.
void doing(std::string_view what);

// Loads the plugin with a quiet host that lives as long as the process.
Result<Subject> load_subject(const std::string& path);
// The default settings, and a legal value for each option without a default.
Settings default_settings(const Plugin& plugin);
template <typename Table>
Result<std::unique_ptr<Instance<Table>>> make_with(const Subject& subject,
                                                   const Settings& settings) {
  const Record& record = subject.plugin->record;
  return Instance<Table>::make({record.kind, record.name, record.name, settings, {record.id, 0, 0}},
                               subject.plugin);
}
template <typename Table>
Result<std::unique_ptr<Instance<Table>>> make_default(const Subject& subject) {
  return make_with<Table>(subject, default_settings(*subject.plugin));
}

}  // namespace penstock::command
