// Damaged and hostile files must give an error and never a crash, also under the sanitizers.
#include "core/plugin/elf.hpp"

#include "core/plugin/record.hpp"
#include "core/plugin/testing.hpp"

#include <elf.h>

#include <cstring>

namespace penstock::elf_test {
namespace {

using test::contains;
using test::plugin_file;

std::string good_file() {
  Result<std::string> file = read_plugin_file(plugin_file("identity"));
  EXPECT_TRUE(file.ok()) << file.status().message();
  return file.ok() ? file.value() : std::string();
}

Result<Record> record_of(std::string_view file) {
  PENSTOCK_ASSIGN(const std::string_view bytes, symbol_bytes(file, "penstock_plugin"));
  return parse_record(bytes);
}

TEST(Elf, ReadsTheRecordWithoutLoadingTheFile) {
  const std::string file = good_file();
  const Result<Record> record = record_of(file);
  ASSERT_TRUE(record.ok()) << record.status().message();
  EXPECT_EQ(record.value().id, "compressor/identity-c");
  EXPECT_EQ(record.value().name, "identity-c");
  EXPECT_EQ(record.value().kind, Kind::compressor);
  EXPECT_EQ(record.value().version, "1.2.3");
  EXPECT_EQ(record.value().abi_minor, uint32_t{PENSTOCK_ABI_MINOR});
}

TEST(Elf, AGoodPluginExportsOneSymbol) {
  const std::string file = good_file();
  const Result<std::vector<ElfSymbol>> symbols = exported_symbols(file);
  ASSERT_TRUE(symbols.ok()) << symbols.status().message();
  ASSERT_EQ(symbols.value().size(), 1u);
  EXPECT_EQ(symbols.value()[0].name, "penstock_plugin");
  EXPECT_EQ(symbols.value()[0].size, sizeof(penstock_plugin_record));
}

TEST(Elf, ASymbolThatIsNotDefinedIsNotFound) {
  const std::string file = good_file();
  EXPECT_EQ(symbol_bytes(file, "penstock_plugi").status().code(), Code::not_found);
  // malloc is in the table, but another library defines it.
  EXPECT_EQ(symbol_bytes(file, "calloc").status().code(), Code::not_found);
}

TEST(Elf, EveryTruncationIsAnError) {
  const std::string file = good_file();
  for (size_t size = 0; size < file.size(); size += size < 4096 ? 1 : 97) {
    const Result<Record> record = record_of(std::string_view(file).substr(0, size));
    ASSERT_FALSE(record.ok()) << size << " of " << file.size() << " bytes";
    EXPECT_FALSE(record.status().message().empty());
  }
  EXPECT_FALSE(record_of(std::string_view(file).substr(0, file.size() - 1)).ok());
}

TEST(Elf, DamagedBytesNeverLeadOutOfTheFile) {
  const std::string good = good_file();
  uint32_t state = 2024;
  const auto next = [&state] { return (state = state * 1664525u + 1013904223u) >> 8; };
  // Headers and dynamic tables come first in the file; most damage goes there.
  for (int round = 0; round < 20000; ++round) {
    std::string file = good;
    for (uint32_t change = 0; change <= next() % 4; ++change) {
      const size_t range = next() % 4 == 0 ? file.size() : std::min<size_t>(file.size(), 2048);
      const size_t at = next() % range;
      const uint8_t bytes[] = {0x00, 0xff, 0x7f, 0x80, static_cast<uint8_t>(next())};
      file[at] = static_cast<char>(bytes[next() % 5]);
    }
    const Result<Record> record = record_of(file);
    EXPECT_EQ(record.ok(), record.status().message().empty());
  }
}

TEST(Elf, EveryFieldOfTheHeadersMayBeAsLargeAsItLikes) {
  const std::string good = good_file();
  Elf64_Ehdr header;
  std::memcpy(&header, good.data(), sizeof header);
  const size_t end = header.e_phoff + header.e_phnum * sizeof(Elf64_Phdr);
  for (size_t at = 0; at + 8 <= end; at += 2) {
    for (const uint64_t value :
         {uint64_t{0}, ~uint64_t{0}, uint64_t{1} << 63, uint64_t{good.size()}}) {
      for (const size_t width : {2, 4, 8}) {
        std::string file = good;
        std::memcpy(file.data() + at, &value, width);
        const Result<Record> record = record_of(file);
        EXPECT_TRUE(!record.ok() || record.value().id == "compressor/identity-c");
      }
    }
  }
}

TEST(Elf, OtherFilesAreCalledWhatTheyAre) {
  EXPECT_TRUE(contains(record_of("").status().message(), "not an ELF file"));
  EXPECT_TRUE(contains(record_of("#!/bin/sh\n").status().message(), "not an ELF file"));
  std::string file = good_file();
  file[EI_CLASS] = ELFCLASS32;
  EXPECT_TRUE(contains(record_of(file).status().message(), "64-bit"));
  file = good_file();
  file[offsetof(Elf64_Ehdr, e_machine)] = 8;
  EXPECT_TRUE(contains(record_of(file).status().message(), "build it for this processor"));
  file = good_file();
  file[offsetof(Elf64_Ehdr, e_type)] = ET_REL;
  EXPECT_TRUE(contains(record_of(file).status().message(), "expected a shared object"));
}

TEST(Elf, OnlyPlainFilesAreRead) {
  EXPECT_EQ(read_plugin_file("/tmp").status().code(), Code::invalid_argument);
  EXPECT_EQ(read_plugin_file("/dev/zero").status().code(), Code::invalid_argument);
  EXPECT_FALSE(read_plugin_file("/nonexistent.so").ok());
}

// ---- The record's bytes ----

penstock_plugin_record good_record() {
  penstock_plugin_record record{};
  std::memcpy(record.magic, PENSTOCK_PLUGIN_MAGIC, sizeof record.magic);
  record.struct_size = sizeof record;
  record.abi_major = PENSTOCK_ABI_MAJOR;
  record.abi_minor = PENSTOCK_ABI_MINOR;
  record.kind = PENSTOCK_KIND_MEMORY;
  std::strcpy(record.id, "memory/dgc");
  std::strcpy(record.version, "0.1.0");
  return record;
}

Result<Record> parse(const penstock_plugin_record& record) {
  return parse_record({reinterpret_cast<const char*>(&record), sizeof record});
}

TEST(Record, ALargerRecordOfANewerMinorIsReadAsFarAsWeKnowIt) {
  std::string bytes(sizeof(penstock_plugin_record) + 8, '\7');
  penstock_plugin_record record = good_record();
  record.struct_size += 8;
  std::memcpy(bytes.data(), &record, sizeof record);
  const Result<Record> parsed = parse_record(bytes);
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_EQ(parsed.value().id, "memory/dgc");
}

TEST(Record, SizesOutOfBoundsAreRefused) {
  for (const uint64_t size :
       {uint64_t{0}, uint64_t{31}, uint64_t{sizeof(penstock_plugin_record) - 1},
        uint64_t{sizeof(penstock_plugin_record) + 1}, ~uint64_t{0}}) {
    penstock_plugin_record record = good_record();
    record.struct_size = size;
    EXPECT_TRUE(contains(parse(record).status().message(), "struct_size")) << size;
  }
}

TEST(Record, IdsAreKindAndName) {
  for (const char* id : {"", "memory", "memory/", "memory/Dgc", "memory/a b", "memory/../x",
                         "compressor/dgc", "memory/-x", "memory/a/b"}) {
    penstock_plugin_record record = good_record();
    std::memset(record.id, 0, sizeof record.id);
    std::strcpy(record.id, id);
    EXPECT_TRUE(contains(parse(record).status().message(), "its id is")) << id;
  }
}

TEST(Record, TextsEndWithinTheirArrays) {
  penstock_plugin_record record = good_record();
  std::memset(record.summary, 'a', sizeof record.summary);
  EXPECT_TRUE(contains(parse(record).status().message(), "summary is not terminated"));
  record = good_record();
  std::memset(record.id, 'a', sizeof record.id);
  EXPECT_TRUE(contains(parse(record).status().message(), "id is not terminated"));
  record = good_record();
  record.version[0] = '\x1b';
  EXPECT_TRUE(contains(parse(record).status().message(), "version holds control characters"));
}

TEST(Record, AnotherMajorIsReadAsFarAsAllMajorsAgree) {
  penstock_plugin_record record = good_record();
  record.abi_major = PENSTOCK_ABI_MAJOR + 1;
  std::memset(record.id, 0xff, sizeof record.id);
  const Result<Record> parsed = parse(record);
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed.value().id, "");
  EXPECT_EQ(check_abi(parsed.value()).code(), Code::unimplemented);
}

}  // namespace
}  // namespace penstock::elf_test
