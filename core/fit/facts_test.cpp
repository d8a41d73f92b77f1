// The descriptions of plugins become the facts that the rules of core/fit use.
#include "core/fit/facts.hpp"

#include <gtest/gtest.h>

namespace penstock::facts_test {
namespace {

TEST(Facts, JoinPhasesAndRounds) {
  const penstock_section_bound indices = {sizeof indices,  4, PENSTOCK_ROLE_INDICES,
                                          PENSTOCK_UINT32, 0, 0};
  const penstock_section_bound values = {sizeof values,    4, PENSTOCK_ROLE_VALUES,
                                         PENSTOCK_FLOAT32, 0, 0};
  const penstock_section_bound* const sections[] = {&indices, &values};
  penstock_round sum{}, gather{};
  sum.combine = PENSTOCK_COMBINE_SUM;
  sum.sections = sections + 1;
  sum.n_sections = 1;
  sum.flags = PENSTOCK_ROUND_SAME_BITS;
  gather.combine = PENSTOCK_COMBINE_GATHER;
  gather.sections = sections;
  gather.n_sections = 2;
  gather.result = PENSTOCK_RESULT_FINAL;
  const penstock_round* const both[] = {&sum, &gather};
  const penstock_round* const one[] = {&sum};
  penstock_compressor_need first{}, second{};
  first.rounds = both;
  first.n_rounds = 2;
  first.flags = PENSTOCK_NEED_LINEAR;
  second.rounds = one;
  second.n_rounds = 1;
  second.flags = PENSTOCK_NEED_LINEAR | PENSTOCK_NEED_LOSSLESS;
  const penstock_compressor_need* const needs[] = {&first, &second};
  penstock_compressor_traits traits{};
  traits.device_types = 2;
  const CompressorFacts facts = compressor_facts("x", traits, needs, 2);
  EXPECT_EQ(facts.n_rounds, 2u);
  EXPECT_TRUE(facts.sums && facts.gathers && facts.gathers_sparse && facts.gathers_pairs &&
              facts.same_bits && facts.final_result);
  EXPECT_EQ(facts.need_flags, uint32_t{PENSTOCK_NEED_LINEAR});
  const CompressorFacts later = compressor_facts("x", traits, needs + 1, 1);
  EXPECT_FALSE(later.gathers || later.gathers_sparse || later.gathers_pairs || later.final_result);
}

// A round that gathers indices, values of half precision, and a third section.
struct HalfPairs {
  explicit HalfPairs(const penstock_section_bound& third) : sections{&indices, &values, &third} {
    round.combine = PENSTOCK_COMBINE_GATHER;
    round.sections = sections;
    need.rounds = rounds;
    need.n_rounds = 1;
  }
  CompressorFacts facts(uint64_t n_sections) {
    round.n_sections = n_sections;
    return compressor_facts("x", {}, needs, 1);
  }
  const penstock_section_bound indices = {sizeof indices,  4, PENSTOCK_ROLE_INDICES,
                                          PENSTOCK_UINT32, 0, 0};
  const penstock_section_bound values = {sizeof values,    4, PENSTOCK_ROLE_VALUES,
                                         PENSTOCK_FLOAT16, 0, 0};
  const penstock_section_bound* const sections[3];
  penstock_round round{};
  const penstock_round* const rounds[1] = {&round};
  penstock_compressor_need need{};
  const penstock_compressor_need* const needs[1] = {&need};
};

// A composite adds float32. A transport moves values of every dtype.
TEST(Facts, PairsOfOtherValuesArePairsButNotSparse) {
  const penstock_section_bound scale = {sizeof scale,     1, PENSTOCK_ROLE_SCALES,
                                        PENSTOCK_FLOAT32, 0, 0};
  HalfPairs pairs(scale);
  EXPECT_TRUE(pairs.facts(2).gathers_pairs);
  EXPECT_FALSE(pairs.facts(2).gathers_sparse);
  EXPECT_FALSE(pairs.facts(3).gathers_pairs);
}

TEST(Facts, PairsOfHalvesArePairsThatNoCompositeReadsAndCodesAreNone) {
  HalfPairs pairs(pairs.values);
  EXPECT_TRUE(pairs.facts(2).gathers_pairs);
  EXPECT_FALSE(pairs.facts(2).gathers_sparse);
  EXPECT_FALSE(pairs.facts(1).gathers_pairs);
  EXPECT_FALSE(pairs.facts(3).gathers_pairs);
  pairs.round.combine = PENSTOCK_COMBINE_SUM;
  EXPECT_FALSE(pairs.facts(2).gathers_pairs);
}

TEST(Facts, AMemoryKeepsWhereItHasMass) {
  penstock_memory table{};
  table.struct_size = sizeof table;
  penstock_state_declaration state{};
  const penstock_state_declaration* const states[] = {&state};
  penstock_memory_need need{};
  need.states = states;
  need.n_states = 1;
  need.flags = PENSTOCK_MEMORY_OWNS_MOMENTUM;
  state.state_class = PENSTOCK_STATE_REPLICATED;
  EXPECT_FALSE(memory_facts("m", table, need).keeps);
  state.state_class = PENSTOCK_STATE_MASS;
  const MemoryFacts facts = memory_facts("m", table, need);
  EXPECT_TRUE(facts.keeps && facts.owns_momentum);
  EXPECT_FALSE(facts.has_give_back);
}

TEST(Facts, AMemoryWithReplicatedStateWantsEqualBits) {
  penstock_memory table{};
  table.struct_size = sizeof table;
  penstock_state_declaration state{};
  const penstock_state_declaration* const states[] = {&state};
  penstock_memory_need need{};
  need.states = states;
  need.n_states = 1;
  state.state_class = PENSTOCK_STATE_LOCAL;
  const MemoryFacts local = memory_facts("m", table, need);
  EXPECT_FALSE(local.same_bits || local.keeps || local.adds_rest || local.shifts);
  state.state_class = PENSTOCK_STATE_REPLICATED;
  need.flags = PENSTOCK_MEMORY_ADDS_REST | PENSTOCK_MEMORY_SHIFTS;
  const MemoryFacts facts = memory_facts("m", table, need);
  EXPECT_TRUE(facts.same_bits && facts.adds_rest && facts.shifts);
}

}  // namespace
}  // namespace penstock::facts_test
