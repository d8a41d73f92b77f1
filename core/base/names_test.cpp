#include "core/base/hash.hpp"
#include "core/base/kind.hpp"
#include "core/base/nearest.hpp"

#include <gtest/gtest.h>

#include <numeric>

namespace penstock::names_test {
namespace {

TEST(EditDistance, CountsInsertionsDeletionsSubstitutionsAndSwaps) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("abc", ""), 3u);
  EXPECT_EQ(edit_distance("density", "densty"), 1u);
  EXPECT_EQ(edit_distance("density", "dnesity"), 1u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
}

TEST(EditDistance, IgnoresLetterCase) {
  EXPECT_EQ(edit_distance("TopK", "topk"), 0u);
}

TEST(Nearest, TakesTheFirstAmongEquals) {
  EXPECT_EQ(nearest_name("fp15", {"fp16", "fp14", "topk"}), "fp16");
}

TEST(Nearest, SuggestsNothingThatIsFarAway) {
  EXPECT_EQ(nearest_name("quantise", {"topk", "dgc"}), "");
  EXPECT_EQ(nearest_name("x", {"y"}), "");
  EXPECT_EQ(nearest_name("", {"topk"}), "");
  EXPECT_EQ(nearest_name(std::string(100000, 'a'), {"topk"}), "");
}

TEST(Nearest, ListsWhatIsKnownWhereNothingIsNear) {
  EXPECT_EQ(did_you_mean("quantise", {"topk", "dgc"}), "; known are: topk, dgc");
  EXPECT_EQ(did_you_mean("tpok", {"topk", "dgc"}), "; did you mean \"topk\"?");
  EXPECT_EQ(did_you_mean("topk", {}), "");
}

TEST(Kind, NamesAndNumbersMatchBothWays) {
  for (Kind kind : kKinds) EXPECT_EQ(kind_from_name(kind_name(kind)), kind);
  EXPECT_FALSE(kind_from_name("compresser").has_value());
}

// Vectors of the reference implementation of XXH64.
TEST(Hash, EqualsTheReferenceOnKnownTexts) {
  EXPECT_EQ(hash_text(hash64("")), "ef46db3751d8e999");
  EXPECT_EQ(hash_text(hash64("a")), "d24ec4f1a98c6e5b");
  EXPECT_EQ(hash_text(hash64("abc")), "44bc2cf5ad770999");
  EXPECT_EQ(hash_text(hash64("Nobody inspects the spammish repetition")), "fbcea83c8a378bf1");
}

TEST(Hash, EveryByteAtEveryLengthMatters) {
  for (size_t size : {1, 3, 4, 7, 8, 31, 32, 33, 63, 100}) {
    std::string text(size, '\0');
    std::iota(text.begin(), text.end(), '\0');
    const uint64_t before = hash64(text);
    for (char& byte : text) {
      byte ^= 1;
      EXPECT_NE(hash64(text), before) << size;
      byte ^= 1;
    }
    EXPECT_EQ(hash64(text), before);
    EXPECT_NE(hash64(text, 1), before);
  }
}

}  // namespace
}  // namespace penstock::names_test
