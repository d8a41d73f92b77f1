// A message names available plugins that work in place of a refused plugin.
#include "core/fit/offers_testing.hpp"

#include <gtest/gtest.h>
#include <penstock/runtime.h>

namespace penstock::offers_test {
namespace {

CompressorFacts compressor(std::string name, uint32_t traits = 0) {
  CompressorFacts facts;
  facts.name = std::move(name);
  facts.device_types = uint64_t{1} << PENSTOCK_DEVICE_CPU;
  facts.traits = traits;
  facts.n_rounds = 1;
  facts.gathers = true;
  return facts;
}

// A compressor that needs its unsent values kept, with a memory that keeps nothing.
struct Scheme {
  test::PlainOffers offers;
  FitInput input;
  Scheme() {
    input.offers = &offers;
    input.collective = {"wire", PENSTOCK_COLLECTIVE_TRANSPORT, ~uint64_t{0}, ~uint64_t{0}};
    input.scheduler = {"given", uint64_t{1} << PENSTOCK_ROUTE_FLAT, 0};
    input.world = 2;
    input.groups.emplace_back();
    input.groups[0].compressor = compressor("picky", PENSTOCK_COMPRESSOR_NEEDS_KEPT_MASS);
    input.groups[0].memory = {.name = "forgetful"};
  }
  std::string refusal() const { return std::string(check_fit(input).status().message()); }
};

bool ends_with(const std::string& text, std::string_view end) {
  return text.ends_with(end);
}

TEST(Offers, TheOneThatDoesIsNamed) {
  Scheme scheme;
  scheme.offers.all_memories = {{.name = "forgetful"}, {.name = "keeper", .keeps = true}};
  EXPECT_TRUE(ends_with(scheme.refusal(), "use memory = \"keeper\"")) << scheme.refusal();
}

TEST(Offers, ThePlainestTwoOfSeveralAreNamed) {
  Scheme scheme;
  scheme.offers.all_memories = {
      {.name = "a", .owns_momentum = true, .keeps = true, .same_bits = true},
      {.name = "b", .owns_momentum = true, .keeps = true},
      {.name = "c", .keeps = true}};
  EXPECT_TRUE(ends_with(scheme.refusal(), "use memory = \"c\" or \"b\"")) << scheme.refusal();
}

TEST(Offers, WhatTheRulesRefuseForAnotherReasonIsNotNamed) {
  Scheme scheme;
  scheme.input.frontend = PENSTOCK_SET_OPTIMIZER_MOMENTUM;
  scheme.offers.all_memories = {{.name = "b", .owns_momentum = true, .keeps = true},
                                {.name = "c", .keeps = true}};
  EXPECT_TRUE(ends_with(scheme.refusal(), "use memory = \"c\"")) << scheme.refusal();
}

TEST(Offers, WhereNoneDoesTheMessageSaysWhatOneWould) {
  Scheme scheme;
  EXPECT_TRUE(ends_with(scheme.refusal(), "use a memory that keeps them")) << scheme.refusal();
  scheme.offers.all_memories = {{.name = "forgetful"}};
  EXPECT_TRUE(ends_with(scheme.refusal(), "use a memory that keeps them")) << scheme.refusal();
  scheme.input.offers = nullptr;
  EXPECT_TRUE(ends_with(scheme.refusal(), "use a memory that keeps them")) << scheme.refusal();
}

TEST(Offers, WhatWouldBeWarnedOfIsNamedOnlyWhereNothingElseDoes) {
  Scheme scheme;
  scheme.input.groups[0].compressor = compressor("old");
  scheme.input.groups[0].device_type = PENSTOCK_DEVICE_CUDA;
  CompressorFacts biased = compressor("biased", PENSTOCK_COMPRESSOR_NEEDS_MEMORY);
  CompressorFacts fair = compressor("fair", PENSTOCK_COMPRESSOR_UNBIASED);
  biased.device_types = fair.device_types = ~uint64_t{0};
  scheme.offers.all_compressors = {biased};
  EXPECT_TRUE(ends_with(scheme.refusal(), "use compressor = \"biased\"")) << scheme.refusal();
  scheme.offers.all_compressors = {biased, fair};
  EXPECT_TRUE(ends_with(scheme.refusal(), "use compressor = \"fair\"")) << scheme.refusal();
}

TEST(Offers, AWarningNamesWhatEndsIt) {
  Scheme scheme;
  scheme.input.groups[0].compressor = compressor("biased", PENSTOCK_COMPRESSOR_NEEDS_MEMORY);
  scheme.offers.all_memories = {{.name = "forgetful"}, {.name = "keeper", .keeps = true}};
  const Result<FitAdvice> advice = check_fit(scheme.input);
  ASSERT_EQ(advice.value().warnings.size(), 1u);
  EXPECT_TRUE(ends_with(advice.value().warnings[0], "memory = \"keeper\" fixes it"));
}

TEST(Offers, SchedulersAndTransportsAreTriedTheSameWay) {
  Scheme scheme;
  scheme.input.groups.clear();
  scheme.input.deterministic = true;
  scheme.input.scheduler.flags = PENSTOCK_SCHEDULER_MEASURES;
  scheme.input.collective.flags |= PENSTOCK_COLLECTIVE_RANK_ORDER;
  scheme.offers.all_schedulers = {{"slow", uint64_t{1} << PENSTOCK_ROUTE_SHARD, 0},
                                  {"calm", uint64_t{1} << PENSTOCK_ROUTE_FLAT, 0}};
  EXPECT_NE(scheme.refusal().find("use scheduler = \"calm\", or"), std::string::npos);
  scheme.input.scheduler.flags = 0;
  scheme.input.collective.flags = PENSTOCK_COLLECTIVE_TRANSPORT;
  scheme.offers.all_collectives = {
      scheme.input.collective,
      {"orderly", PENSTOCK_COLLECTIVE_TRANSPORT | PENSTOCK_COLLECTIVE_RANK_ORDER, ~uint64_t{0}}};
  EXPECT_NE(scheme.refusal().find("collective = \"orderly\", or"), std::string::npos);
}

}  // namespace
}  // namespace penstock::offers_test
