// The core's own readers with damaged input: the TOML of a run, control frames, the bytes of a
// plan, the record of a plugin file. A reader must not crash, read out of bounds or hang. If there
// is a writer, accepted input must be unchanged after it is written and read again.
#include "core/config/load.hpp"
#include "core/control/protocol.hpp"
#include "core/plan/plan.hpp"
#include "core/plugin/elf.hpp"
#include "core/plugin/record.hpp"

#include <gtest/gtest.h>
#include <penstock/plugin.h>

#include <cstdlib>
#include <fuzz/mutate.hpp>
#include <vector>

namespace penstock {
namespace {

using test::mutated;
using test::Random;

const char* const kScheme = R"([scheme]
compressor = "topk"
memory     = "residual"
collective = "mpi"
scheduler  = "fusion"

[compressor.topk]
density = 0.01 # a share
scope   = "item"

[compressor.coarse]
plugin  = "topk"
density = 1e-3

[memory.residual]
beta = 1.0

[[rule]]
match      = { dims = 1, elements = { max = 4096 }, name = ["*.bias", "h[0-4].?"] }
compressor = "none"
[rule.options]
compressor.topk.density = 0.5

[[switch]]
at_step = 100
set     = { compressor.topk.density = 0.05 }

[runtime]
deterministic = true
)";

TEST(CoreFuzz, DamagedTomlIsRefusedOrGivesAConfig) {
  Random random(11);
  uint64_t refused = 0;
  for (int i = 0; i < 3000; ++i) {
    const std::string text = mutated(kScheme, random);
    const Result<Config> config = load_config_text(
        text, "run.toml", "", {[](const char*) -> const char* { return nullptr; }, true});
    if (config.ok()) continue;
    ++refused;
    ASSERT_EQ(config.status().code(), Code::invalid_argument) << text;
    ASSERT_NE(config.status().message().find("run.toml"), std::string::npos)
        << config.status().message();
  }
  EXPECT_GT(refused, 0u);
}

// Keys with thousands of parts, undamaged, in headers and in inline tables. They must not reach a
// parser that follows them by recursion.
TEST(CoreFuzz, DamagedDeepKeysAreRefusedOrGiveAConfig) {
  std::string key = "a";
  for (int i = 0; i < 10000; ++i) key += i % 7 == 0 ? " . \"b.'\"" : i % 5 == 0 ? ".'\"'" : ".c";
  Random random(16);
  uint64_t refused = 0;
  for (const std::string& text :
       {key + " = 1\n", "[" + key + "]\n", "[[" + key + "]]\n", "a = { " + key + " = 1 }\n",
        "b = \"\"\"" + key + "\"\"\"\n" + key + " = { " + key + " = 1 }\n"})
    for (int i = 0; i < 100; ++i) {
      const Result<Config> config =
          load_config_text(mutated(text, random), "run.toml", "",
                           {[](const char*) -> const char* { return nullptr; }, true});
      if (config.ok()) continue;
      ++refused;
      ASSERT_EQ(config.status().code(), Code::invalid_argument);
      ASSERT_EQ(config.status().message().substr(0, 9), "run.toml:");
    }
  EXPECT_GT(refused, 0u);
}

std::vector<std::string> frames() {
  control::Meet meet;
  meet.id = 7;
  meet.topic = "plan";
  meet.ranks = {0, 1, 5};
  meet.signature = "all_reduce float32 100";
  meet.detail = "step 3";
  control::Reply reply;
  reply.id = 7;
  reply.value = "value";
  reply.details = {"one", "", "three"};
  return {control::encode(control::Hello{"0123456789abcdef", 3, 8}), control::encode(meet),
          control::encode(reply),
          control::Writer(control::FrameKind::put).u64(1).text("key").text("value").frame()};
}

// Reads a body as every kind of message.
template <typename Message>
void expect_stable(std::string_view body,
                   std::optional<Message> (*decode)(control::Reader& reader)) {
  control::Reader reader(body);
  reader.u8();
  const std::optional<Message> message = decode(reader);
  if (!message) return;
  const std::string again = control::encode(*message);
  control::Reader second(std::string_view(again).substr(sizeof(uint32_t)));
  second.u8();
  const std::optional<Message> repeated = decode(second);
  ASSERT_TRUE(repeated.has_value());
  ASSERT_EQ(control::encode(*repeated), again);
}

TEST(CoreFuzz, DamagedControlFramesAreRefusedOrReadBackTheSame) {
  Random random(12);
  for (int i = 0; i < 3000; ++i)
    for (const std::string& frame : frames()) {
      control::FrameBuffer buffer(control::kMaxHelloBytes);
      const std::string bytes = mutated(frame, random);
      const uint64_t cut = random.below(bytes.size() + 1);  // in parts, as from a socket
      buffer.append(std::string_view(bytes).substr(0, cut));
      uint64_t bodies = 0;
      for (int part = 0; part < 2; ++part) {
        while (true) {
          const auto body = buffer.next();
          if (!body.ok() || !body.value()) break;
          ASSERT_LE(++bodies, bytes.size()) << "more frames than bytes";
          ASSERT_NO_FATAL_FAILURE(
              expect_stable<control::Hello>(*body.value(), control::decode_hello));
          ASSERT_NO_FATAL_FAILURE(
              expect_stable<control::Meet>(*body.value(), control::decode_meet));
          ASSERT_NO_FATAL_FAILURE(
              expect_stable<control::Reply>(*body.value(), control::decode_reply));
        }
        if (part == 0) buffer.append(std::string_view(bytes).substr(cut));
      }
    }
}

TEST(CoreFuzz, DamagedPlansAreRefusedOrReadBackTheSame) {
  Plan plan;
  plan.period = 2;
  plan.buckets = {{{{0, 0, 100, 0}, {2, 64, 64, 1}}, 0}, {{{1, 0, 7, 0}}, 1}};
  plan.messages = {{0, 0, 0, 0}, {1, 0, 0, 0}};
  plan.explanation = {"as asked for"};
  const std::string bytes = plan_bytes(plan);
  Random random(13);
  uint64_t refused = 0;
  for (int i = 0; i < 5000; ++i) {
    const std::string changed = mutated(bytes, random);
    const Result<Plan> found = plan_from_bytes(changed);
    if (!found.ok()) {
      ++refused;
      ASSERT_EQ(found.status().code(), Code::invalid_argument);
      continue;
    }
    const Result<Plan> again = plan_from_bytes(plan_bytes(found.value()));
    ASSERT_TRUE(again.ok()) << again.status().message();
    ASSERT_EQ(again.value(), found.value());
  }
  EXPECT_GT(refused, 0u);
}

// A plugin file with changes where the reader reads: a few bytes anywhere or near the begin, or a
// missing end. Everything that the reader finds must lie inside the file.
TEST(CoreFuzz, DamagedPluginFilesAreRefusedOrReadWithinTheirBounds) {
  const char* const folder = std::getenv("PENSTOCK_PLUGIN_DIRECTORY");
  ASSERT_NE(folder, nullptr);
  const Result<std::string> file = read_plugin_file(std::string(folder) + "/compressor-none.so");
  ASSERT_TRUE(file.ok()) << file.status().message();
  Random random(14);
  uint64_t refused = 0, found = 0;
  for (int i = 0; i < 300; ++i) {
    std::string changed = file.value();
    if (random.below(4) == 0) changed.resize(random.below(changed.size()));
    const uint64_t reach =
        random.below(2) == 0 ? std::min<uint64_t>(changed.size(), 2048) : changed.size();
    for (uint64_t k = random.below(8); k > 0 && reach > 0; --k)
      changed[random.below(reach)] = static_cast<char>(random.bits());
    const auto symbols = exported_symbols(changed);
    for (const ElfSymbol& symbol : symbols.ok() ? symbols.value() : std::vector<ElfSymbol>{}) {
      if (symbol.file_offset == 0) continue;
      ASSERT_LE(symbol.file_offset, changed.size());
      ASSERT_LE(symbol.available, changed.size() - symbol.file_offset);
    }
    const auto record = symbol_bytes(changed, "penstock_plugin");
    if (record.ok()) (void)parse_record(record.value());
    (record.ok() ? found : refused) += 1;
  }
  EXPECT_GT(refused, 0u);
  EXPECT_GT(found, 0u);
}

TEST(CoreFuzz, DamagedPluginRecordsAreRefusedOrGiveALegalName) {
  const char* const folder = std::getenv("PENSTOCK_PLUGIN_DIRECTORY");
  ASSERT_NE(folder, nullptr);
  const Result<std::string> file = read_plugin_file(std::string(folder) + "/compressor-none.so");
  ASSERT_TRUE(file.ok()) << file.status().message();
  const auto symbol = symbol_bytes(file.value(), "penstock_plugin");
  ASSERT_TRUE(symbol.ok()) << symbol.status().message();
  const std::string bytes(symbol.value().substr(0, sizeof(penstock_plugin_record)));
  ASSERT_TRUE(parse_record(bytes).ok());
  Random random(15);
  for (int i = 0; i < 3000; ++i) {
    const Result<Record> record = parse_record(mutated(bytes, random));
    if (!record.ok()) {
      ASSERT_EQ(record.status().code(), Code::invalid_argument);
      continue;
    }
    if (record.value().abi_major != PENSTOCK_ABI_MAJOR) continue;  // then only numbers count
    ASSERT_TRUE(is_plugin_name(record.value().name)) << record.value().name;
  }
}

}  // namespace
}  // namespace penstock
