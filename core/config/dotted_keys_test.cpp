// Keys that nest too deeply are refused before a parser sees them.
#include "core/config/dotted_keys.hpp"

#include "core/config/load.hpp"

#include <gtest/gtest.h>

#include <iterator>
#include <sstream>

namespace penstock::dotted_keys_test {
namespace {

std::string dotted(size_t parts, const std::string& part = "a") {
  std::string key = part;
  for (size_t i = 1; i < parts; ++i) key += "." + part;
  return key;
}

std::string error_of(const std::string& text) {
  const Result<Config> config = load_config_text(text, "run.toml", "", {nullptr, true});
  return std::string(config.status().message());
}

constexpr const char* kExpected = ": a key of more than 32 dotted parts, expected 32 at most";

TEST(DottedKeys, OfThirtyThousandPartsAreRefusedWithTheirPlace) {
  const std::string key = dotted(30000);
  for (const auto& [text, place] : {std::pair("[scheme]\n" + key + " = 1\n", "run.toml:2:64"),
                                    {"[" + key + "]\n", "run.toml:1:65"},
                                    {"[[" + key + "]]\n", "run.toml:1:66"},
                                    {"a = { " + key + " = 1 }\n", "run.toml:1:70"},
                                    {dotted(30000, "\"a.b\"") + " = 1\n", "run.toml:1:192"},
                                    {dotted(30000, "'\xc3\xa9'") + " = 1\n", "run.toml:1:128"},
                                    {"a" + std::string(3000000, '.'), "run.toml:1:33"}})
    EXPECT_EQ(error_of(text), std::string(place) + kExpected);
}

TEST(DottedKeys, ThatNestTogetherWithValuesStayWithinTheStack) {
  // As deep as both limits allow, and one table more.
  for (const size_t levels : {size_t{31}, size_t{32}, size_t{10000}}) {
    std::string text = dotted(32) + " = ";
    for (size_t i = 0; i < levels; ++i) text += "{ " + dotted(32) + " = ";
    text += "1";
    for (size_t i = 0; i < levels; ++i) text += " }";
    EXPECT_EQ(error_of(text).substr(0, 11), "run.toml:1:") << levels;
  }
}

TEST(DottedKeys, LeaveDotsInStringsCommentsAndNumbersAlone) {
  const std::string dots(100, '.');
  for (const std::string& text :
       {"# " + dots + "\n", "a = \"" + dots + "\"", "a = \"\\\"" + dots + "\"",
        "a = '" + dots + "'", "a = \"\"\"\n" + dots + "\"\"" + dots + "\"\"\"\"\"",
        "a = '''\n'" + dots + "''" + dots + "'''",
        "a = [" +
            [] {
              std::string numbers;
              for (int i = 0; i < 100; ++i) numbers += "1.5, ";
              return numbers;
            }() +
            "]",
        dotted(32) + " = 1", "\"" + dots + "\" = 1"})
    EXPECT_TRUE(check_dotted_keys(text, "run.toml").ok()) << text;
}

TEST(DottedKeys, AfterAStringAreSeenAgain) {
  const std::string key = dotted(33) + " = 1";
  for (const std::string& before :
       {std::string("a = \"x\"\n"), std::string("a = \"\\\\\"\n"), std::string("a = ''\n"),
        std::string("a = \"\"\"x\"\"\"\"\"\n"), std::string("a = '''x'''\n"), std::string("# \"\n"),
        std::string("a = \"\"\"\\\"\"\"\"\n"), std::string("\xEF\xBB\xBF\n")})
    EXPECT_EQ(check_dotted_keys(before + key, "run.toml").message(),
              std::string("run.toml:2:64") + kExpected)
        << before;
}

}  // namespace
}  // namespace penstock::dotted_keys_test
