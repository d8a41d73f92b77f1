// penstock check: tests the file itself before any of its code runs, then loads it.
#include "core/plugin/elf.hpp"
#include "core/plugin/trust.hpp"
#include "tools/penstock/check/tests.hpp"

#include <elf.h>

#include <cstring>
#include <filesystem>

namespace penstock::command {

namespace {

constexpr std::string_view kSymbol = "penstock_plugin";

TestOutcome test_elf(const std::string& path) {
  Result<std::string> file = read_plugin_file(path);
  return file.ok() ? exported_symbols(*file).status() : file.status();
}

Status check_symbols(const std::string& path) {
  PENSTOCK_ASSIGN(const std::string file, read_plugin_file(path));
  PENSTOCK_ASSIGN(const std::vector<ElfSymbol> symbols, exported_symbols(file));
  std::string others;
  bool found = false;
  for (const ElfSymbol& symbol : symbols) {
    if (symbol.name == kSymbol)
      found = true;
    else
      others += (others.empty() ? "" : ", ") + symbol.name;
  }
  if (!found) return not_found("it exports no symbol {}", kSymbol);
  if (others.empty()) return {};
  return invalid_argument(
      "it exports {}, expected only {}: other symbols can collide with other plugins; build it "
      "with penstock_add_plugin, or link with the SDK's plugin.map",
      others, kSymbol);
}

// Refuses a file that needs an executable stack. Not inlined, because gcc 12 would assume that a
// short file lies within the string object itself and would warn about reads outside it.
[[gnu::noinline]] Status check_stack_flags(std::string_view file) {
  Elf64_Ehdr header;
  if (file.size() < sizeof header) return invalid_argument("the file is truncated");
  std::memcpy(&header, file.data(), sizeof header);
  for (uint64_t i = 0; i < header.e_phnum; ++i) {
    const uint64_t offset = header.e_phoff + i * sizeof(Elf64_Phdr);
    if (header.e_phoff > file.size() || file.size() - header.e_phoff < (i + 1) * sizeof(Elf64_Phdr))
      return invalid_argument("the file is truncated");
    Elf64_Phdr program;
    std::memcpy(&program, file.data() + offset, sizeof program);
    if (program.p_type != PT_GNU_STACK) continue;
    if ((program.p_flags & PF_X) == 0) return {};
    return invalid_argument(
        "it asks for an executable stack; link with -Wl,-z,noexecstack (penstock_add_plugin does)");
  }
  return invalid_argument(
      "it does not say that its stack is not executable, so that loading it would make every stack "
      "executable; link with -Wl,-z,noexecstack");
}

TestOutcome test_stack(const std::string& path) {
  Result<std::string> file = read_plugin_file(path);
  return file.ok() ? check_stack_flags(*file) : file.status();
}

TestOutcome test_trust(const std::string& path) {
  return check_trust(path, false);
}

TestOutcome test_record(const std::string& path) {
  return inspect_plugin(path).status();
}

TestOutcome test_abi(const std::string& path) {
  Result<InspectedFile> inspected = inspect_plugin(path);
  return inspected.ok() ? check_abi(inspected->record) : inspected.status();
}

TestOutcome test_file_name(const std::string& path) {
  Result<InspectedFile> inspected = inspect_plugin(path);
  if (!inspected.ok()) return inspected.status();
  const Record& record = inspected->record;
  const std::string name = std::filesystem::path(path).filename().string();
  const std::string expected = fmt::format("{}-{}.so", kind_name(record.kind), record.name);
  if (name == expected) return {};
  return {Verdict::warning, fmt::format("the file is called {}, but the usual name for id {} is "
                                        "{}; runs find the file nevertheless",
                                        name, record.id, expected)};
}

}  // namespace

std::vector<Test> static_tests() {
  return {{"elf", test_elf},
          {"one exported symbol", check_symbols},
          {"no executable stack", test_stack},
          {"record", test_record},
          {"file name", test_file_name},
          {"trust", test_trust},
          {"abi", test_abi}};
}

Result<Subject> load_subject(const std::string& path) {
  static Log log(LogLevel::error, [](LogLevel, std::string_view) {});
  static Host host(log);
  doing("loading it");
  PENSTOCK_ASSIGN(std::shared_ptr<const Plugin> plugin, load_plugin({path, host.table(), true}));
  return Subject{path, std::move(plugin), host.table()};
}

Test loaded(std::string name, TestOutcome (*body)(const Subject&)) {
  return {std::move(name), [body](const std::string& path) -> TestOutcome {
            Result<Subject> subject = load_subject(path);
            return subject.ok() ? body(*subject) : TestOutcome(subject.status());
          }};
}

TestOutcome test_load(const std::string& path) {
  return load_subject(path).status();
}

}  // namespace penstock::command
