// penstock check: the first tier of tests for a plugin file.
#include "core/base/printable.hpp"
#include "core/plugin/trust.hpp"
#include "tools/penstock/check/tests.hpp"
#include "tools/penstock/commands.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <filesystem>
#include <memory>

namespace penstock::command {

namespace {

constexpr double kSecondsPerTest = 20;

struct CheckOptions {
  std::string file;
  bool allow_insecure = false;
  bool json = false;
};

struct Finding {
  std::string test;
  TestOutcome outcome;
};

const char* word(Verdict verdict) {
  switch (verdict) {
    case Verdict::ok:
      return "ok";
    case Verdict::warning:
      return "warning";
    case Verdict::failed:
      return "fail";
    case Verdict::skipped:
      return "skip";
  }
  return "fail";
}

std::vector<Test> tests_of(Kind kind) {
  switch (kind) {
    case Kind::compressor:
    case Kind::memory:
      return kit_tests(kind);
    case Kind::collective:
      return collective_tests();
    case Kind::scheduler:
      return scheduler_tests();
  }
  return {};
}

// Runs the tests of a plugin file and passes each finding to `found` at once. If the file cannot be
// loaded, the remaining tests are skipped, because they would only repeat that error.
void run_tests(const std::string& path, bool allow_insecure,
               const std::function<void(Finding)>& found) {
  bool loadable = true;
  const auto note = [&](const std::string& name, TestOutcome outcome) {
    const bool failed = outcome.verdict == Verdict::failed;
    found({name, std::move(outcome)});
    return !failed;
  };
  std::string reason = "it cannot be loaded";
  for (const Test& test : static_tests()) {
    TestOutcome outcome = test.body(path);
    // The code of a file that other users may change is not run, and later tests call its code.
    const bool untrusted = test.name == "trust" && outcome.verdict == Verdict::failed;
    if (untrusted && allow_insecure) outcome.verdict = Verdict::warning;
    if (untrusted && !allow_insecure) {
      loadable = false;
      reason = "its code is not run, because others may change it; --allow-insecure runs it";
    }
    const bool passed = note(test.name, std::move(outcome));
    // An extra symbol or an executable stack is an error, but it does not prevent further tests.
    if (!passed && (test.name == "elf" || test.name == "record" || test.name == "abi"))
      loadable = false;
    if (!passed && test.name == "elf") break;
  }
  loadable = loadable && note("load", isolated([&] { return test_load(path); }, kSecondsPerTest));
  if (!loadable) return found({"the other tests", {Verdict::skipped, reason}});

  std::vector<Test> tests = option_tests();
  Result<InspectedFile> inspected = inspect_plugin(path);
  if (!inspected.ok()) return found({"record", inspected.status()});
  for (Test& test : tests_of(inspected->record.kind)) tests.push_back(std::move(test));
  for (const Test& test : tests) {
    const bool passed = note(test.name, isolated([&] { return test.body(path); }, kSecondsPerTest));
    if (!passed && test.name == "create and destroy")
      return found({"the other tests", {Verdict::skipped, "no instance can be made"}});
  }
}

int check(const CheckOptions& options) {
  Result<std::string> path =
      real_path(std::filesystem::absolute(options.file).lexically_normal().string());
  if (!path.ok()) return fail(path.status().message());
  Json tests = Json::array();
  int failed = 0, warned = 0, skipped = 0;
  run_tests(*path, options.allow_insecure, [&](const Finding& finding) {
    failed += finding.outcome.verdict == Verdict::failed;
    warned += finding.outcome.verdict == Verdict::warning;
    skipped += finding.outcome.verdict == Verdict::skipped;
    const std::string_view result = word(finding.outcome.verdict);
    tests.push_back(
        Json{{"test", finding.test}, {"result", result}, {"reason", finding.outcome.reason}});
    if (options.json) return;
    print(
        printable(fmt::format("{:<8} {}{}{}", result, finding.test,
                              finding.outcome.reason.empty() ? "" : ": ", finding.outcome.reason)));
  });
  if (options.json)
    print_json(Json{{"file", *path}, {"ok", failed == 0}, {"tests", tests}});
  else
    print(fmt::format("{}: {} of {} tests failed, {} warnings, {} skipped", *path, failed,
                      tests.size(), warned, skipped));
  return failed == 0 ? 0 : 1;
}

}  // namespace

void add_check(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<CheckOptions>();
  CLI::App* check_app =
      app.add_subcommand("check", "Test a plugin file: format, options, and the rules of its kind");
  check_app->footer(
      "Each test runs in a process of its own. Exit status 0 only if none failed.\n"
      "Example: penstock check build/plugins/compressor-mine.so");
  check_app->add_option("FILE", options->file, "the plugin, KIND-NAME.so")->required();
  check_app->add_flag("--allow-insecure", options->allow_insecure,
                      "run its code although others may change the file");
  add_json_flag(*check_app, options->json);
  check_app->callback([options, &invocation] { invocation.status = check(*options); });
}

}  // namespace penstock::command
