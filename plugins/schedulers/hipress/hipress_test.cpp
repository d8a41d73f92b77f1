// HiPress's decisions, computed by hand: compressed or not, the number of parts, and the joined
// gradients.
#include <support/scheduling.hpp>

namespace penstock::test {
namespace {

using planning::Piece;

// A gradient that is compressed to `sparse_bytes` or stays dense. Encoding takes 40 us per call and
// 0.5 us per element, and nothing if dense. Both may be cut anywhere.
planning::GradientEntry choosable(uint64_t numel, uint64_t sparse_bytes, double ready_us = 1) {
  planning::GradientEntry gradient = planning::dense_gradient("g", numel, ready_us);
  planning::CandidateEntry dense = gradient.candidates[0];
  dense.encode_fixed_us = dense.encode_per_element_us = 0;
  dense.decode_fixed_us = dense.decode_per_element_us = 0;
  planning::CandidateEntry sparse = dense;
  sparse.compressor = "topk";
  sparse.phase_bytes = {sparse_bytes};
  sparse.combine = PENSTOCK_COMBINE_GATHER;
  sparse.encode_fixed_us = 40;
  sparse.encode_per_element_us = 0.5;
  gradient.candidates = {sparse, dense};
  return gradient;
}

// Two ranks, a link of 1 us per byte that starts in 10 us.
planning::ModelEntries model_of(std::vector<planning::GradientEntry> gradients) {
  planning::ModelEntries entries;
  entries.gradients = std::move(gradients);
  for (uint64_t i = 0; i < entries.gradients.size(); ++i) entries.order.push_back(i);
  entries.links = {{10, 1, PENSTOCK_LEVEL_WORLD}};
  entries.world = 2;
  entries.flags = PENSTOCK_MODEL_MEASURED;
  return entries;
}

planning::Plan planned(const planning::ModelEntries& entries, const OptionSettings& settings = {}) {
  return plan_of(make_scheduler(PENSTOCK_PLUGIN_FILE, settings), planning::OwnedModel(entries));
}

std::vector<std::vector<Piece>> pieces_of(const planning::Plan& plan) {
  std::vector<std::vector<Piece>> pieces;
  for (const planning::Bucket& bucket : plan.buckets) pieces.push_back(bucket.pieces);
  return pieces;
}

TEST(Hipress, KeepsTheRulesOfEveryScheduler) {
  for (int bulk : {0, 1, 1 << 20})
    expect_the_common_rules(PENSTOCK_PLUGIN_FILE, {{"bulk_bytes", bulk}});
}

TEST(Hipress, LeavesGivenBucketsWhole) {
  expect_given_buckets_stay_together(PENSTOCK_PLUGIN_FILE);
}

TEST(Hipress, RefusesAbsurdModels) {
  expect_absurd_models_are_refused(PENSTOCK_PLUGIN_FILE);
}

// Compressed, the first gradient takes 40 + 2 + 10 + 8, and dense 10 + 16. The second takes 40 +
// 100 + 10 + 64, and dense 10 + 800.
TEST(Hipress, CompressesAGradientIfThatIsSooner) {
  const auto entries = model_of({choosable(4, 8), choosable(200, 64)});
  EXPECT_EQ(pieces_of(planned(entries, {{"bulk_bytes", 0}})),
            (std::vector<std::vector<Piece>>{{{0, 0, 4, 1}}, {{1, 0, 200, 0}}}));
}

// Encoding takes 1 + 500 and the message 10 + 480. With seven parts, one part takes 72.4 and 78.6,
// and all seven 72.4 + 7 * 78.6 = 622.4. Six parts take 624.3, eight parts 623.5.
planning::ModelEntries worth_cutting() {
  planning::ModelEntries entries = model_of({choosable(1000, 480)});
  entries.gradients[0].candidates[0].encode_fixed_us = 1;
  return entries;
}

TEST(Hipress, CutsAGradientWhereEncodingOnePartHidesBehindSendingAnother) {
  const auto pieces = pieces_of(planned(worth_cutting()));
  ASSERT_EQ(pieces.size(), 7u);
  uint64_t next = 0;
  for (const auto& bucket : pieces) {
    ASSERT_EQ(bucket.size(), 1u);
    EXPECT_EQ(bucket[0].first, next);
    EXPECT_NEAR(double(bucket[0].numel), 1000.0 / 7, 1);
    next += bucket[0].numel;
  }
  EXPECT_EQ(next, 1000u);
}

TEST(Hipress, CutsIntoNoMorePartsThanItMay) {
  EXPECT_EQ(planned(worth_cutting(), {{"most_parts", 3}}).buckets.size(), 3u);
  EXPECT_EQ(planned(worth_cutting(), {{"most_parts", 1}}).buckets.size(), 1u);
}

TEST(Hipress, CutsWhereTheCompressorAllows) {
  planning::ModelEntries entries = worth_cutting();
  entries.gradients[0].candidates[0].part_alignment = 300;
  EXPECT_EQ(pieces_of(planned(entries)),
            (std::vector<std::vector<Piece>>{
                {{0, 0, 300, 0}}, {{0, 300, 300, 0}}, {{0, 600, 300, 0}}, {{0, 900, 100, 0}}}));
  entries.gradients[0].candidates[0].part_alignment = 0;
  EXPECT_EQ(pieces_of(planned(entries)), (std::vector<std::vector<Piece>>{{{0, 0, 1000, 0}}}));
}

TEST(Hipress, JoinsSmallGradientsOfOneChoiceUntilTheyAreLargeEnough) {
  std::vector<planning::GradientEntry> gradients;
  for (int i = 0; i < 8; ++i) gradients.push_back(choosable(10, 36));
  gradients[2] = choosable(400, 36);  // only this gradient is compressed
  gradients[2].candidates[0].encode_per_element_us = 0.01;
  const auto buckets = gradients_of(planned(model_of(gradients), {{"bulk_bytes", 100}}));
  EXPECT_EQ(buckets, (std::vector<std::vector<uint64_t>>{{0, 1, 3}, {4, 5, 6}, {2}, {7}}));
}

// Alone each gradient is faster when compressed: 100 against 110. But all gradients wait for the
// one engine, while dense gradients wait only for the link, which they also share: 8 * 90 + 10
// against 8 * 110.
TEST(Hipress, DoesNotKeepDecisionsThatAreSlowerTogetherThanAllDense) {
  std::vector<planning::GradientEntry> gradients(8, choosable(25, 0));
  for (planning::GradientEntry& gradient : gradients) {
    gradient.candidates[0].phase_bytes = {10};
    gradient.candidates[0].encode_fixed_us = 0;
    gradient.candidates[0].encode_per_element_us = 2;    // 50 us
    gradient.candidates[0].decode_per_element_us = 1.2;  // 30 us
  }
  const OptionSettings alone{{"bulk_bytes", 0}, {"most_parts", 1}};
  planning::ModelEntries entries = model_of(gradients);
  entries.links = {{10, 0.4, PENSTOCK_LEVEL_WORLD}};  // dense 10 + 40, compressed 50 + 14 + 30
  for (const auto& bucket : pieces_of(planned(entries, alone))) EXPECT_EQ(bucket[0].choice, 1u);
  entries.links = {{10, 0.9, PENSTOCK_LEVEL_WORLD}};  // dense 10 + 90, compressed 50 + 19 + 30
  for (const auto& bucket : pieces_of(planned(entries, alone))) EXPECT_EQ(bucket[0].choice, 0u);
}

TEST(Hipress, MeasuresBothWaysBeforeItDecides) {
  planning::ModelEntries entries = model_of(std::vector(40, choosable(100, 8)));
  entries.flags = 0;
  uint64_t n_dense = 0;
  for (const auto& bucket : pieces_of(planned(entries)))
    for (const Piece& piece : bucket) n_dense += piece.choice;
  EXPECT_EQ(n_dense, 16u) << "every second bucket of 16";
}

TEST(Hipress, SaysWhatItDecidedAndWhatElseWouldTake) {
  const planning::Plan plan =
      planned(model_of({choosable(4, 8), choosable(200, 64)}), {{"bulk_bytes", 0}});
  ASSERT_EQ(plan.explanation.size(), 1u);
  EXPECT_NE(plan.explanation[0].find("hipress: 1 of 2 gradients dense, 0 cut into parts"),
            std::string::npos)
      << plan.explanation[0];
  EXPECT_NE(plan.explanation[0].find("all dense 836"), std::string::npos) << plan.explanation[0];
}

}  // namespace
}  // namespace penstock::test
