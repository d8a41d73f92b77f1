// penstock check: tests compressors and memories with the test kit of the SDK.
#include "tools/penstock/check/tests.hpp"

#include <testing/checks.hpp>

namespace penstock::command {

namespace {

// Runs a check of the kit. The plugin gets only the kit's host, because the kit reads its errors.
TestOutcome run(const test::Check& check, const std::string& path) {
  test::tell_calls_to([](const std::string& call) { doing(call); });
  const test::Check::Found found = check.run(test::load_plugin(path), {});
  return {found.skipped ? Verdict::skipped : Verdict::ok, found.note};
}

}  // namespace

std::vector<Test> kit_tests(Kind kind) {
  std::vector<Test> tests;
  for (test::Check& check :
       kind == Kind::compressor ? test::compressor_checks() : test::memory_checks()) {
    const std::string name = check.name;
    tests.push_back(
        {name, [check = std::move(check)](const std::string& path) { return run(check, path); }});
  }
  return tests;
}

}  // namespace penstock::command
