#include "core/config/keys.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace penstock::keys_test {
namespace {

// Whether the text is a value, and not words such as "none" or "a quarter of ...".
bool is_value(std::string_view initial) {
  return initial.front() == '"' || std::isdigit(static_cast<unsigned char>(initial.front())) ||
         initial == "true" || initial == "false";
}

TEST(Keys, WhatIsSaidToHoldWithoutAKeyIsWhatHolds) {
  size_t compared = 0;
  const auto compare = [&](const ConfigTable& table, const auto& owner) {
    for (const ConfigKey& key : table.keys) {
      if (!is_value(key.initial)) continue;
      EXPECT_EQ(key_text(key, owner), key.initial) << table.title << " " << key.name;
      ++compared;
    }
  };
  compare(runtime_keys(), RuntimeConfig());
  compare(scheme_keys(), Scheme());
  EXPECT_GE(compared, 16u);
}

TEST(Keys, EachKeyOfATableStandsThereOnceAndSaysWhatItMeans) {
  for (const ConfigTable* table : config_tables()) {
    std::vector<std::string> names = table->names();
    std::sort(names.begin(), names.end());
    EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end()) << table->title;
    for (const ConfigKey& key : table->keys) {
      EXPECT_FALSE(key.summary.empty()) << key.name;
      EXPECT_FALSE(key.type().empty()) << key.name;
    }
  }
}

TEST(Keys, AValueThatWasReadIsWrittenAsItWasGiven) {
  const Node root = parse_toml("[a]\nnonfinite = \"strict\"\nworker_threads = 7\n", "x").value();
  const NodeTable& given = *(*root.table())[0].node.table();
  RuntimeConfig runtime;
  std::vector<std::string> texts;
  for (const ConfigKey& key : runtime_keys().keys) {
    const Node* value = find_key(given, key.name);
    if (value == nullptr) continue;
    EXPECT_TRUE(read_key(key, *value, std::string(key.name), runtime).ok());
    texts.push_back(key_text(key, runtime));
  }
  EXPECT_EQ(texts, (std::vector<std::string>{"\"strict\"", "7"}));
  EXPECT_EQ(runtime.nonfinite, Nonfinite::strict);
}

}  // namespace
}  // namespace penstock::keys_test
