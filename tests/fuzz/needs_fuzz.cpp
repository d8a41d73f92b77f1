// Needs with random extreme values. The validator of the SDK and the core's copy of a need must not
// crash, read out of bounds or wrap. The sizes of an accepted need must fit in 64 bits. A count is
// either true or above every limit, because no host can check the length of an array.
#include "core/fit/needs.hpp"

#include <gtest/gtest.h>
#include <penstock/validate.hpp>

#include <fuzz/mutate.hpp>
#include <iterator>

namespace penstock {
namespace {

using test::Random;

uint64_t extreme(Random& random) {
  const uint64_t values[] = {0,
                             1,
                             2,
                             3,
                             7,
                             77,
                             uint64_t{1} << 31,
                             uint64_t{1} << 32,
                             uint64_t{1} << 33,
                             uint64_t{1} << 40,
                             (uint64_t{1} << 63) + 1,
                             ~uint64_t{0} - 8,
                             ~uint64_t{0},
                             random.bits()};
  return values[random.below(std::size(values))];
}

// A value for a field. Most values are valid, so that later checks are reached too.
template <typename T>
void change(T& field, Random& random) {
  if (random.below(12) == 0) field = static_cast<T>(extreme(random));
}
template <typename T>
void change_pointer(T& pointer, Random& random) {
  if (random.below(40) == 0) pointer = nullptr;
}
// A count above the true number only if the check refuses it before the array is read.
void change_count(uint64_t& count, uint64_t most, Random& random) {
  if (random.below(12) != 0) return;
  count = random.below(2) == 0 ? random.below(count + 1) : most + 1 + extreme(random) % (1u << 30);
}

// The objects to which a need may point, as in a plugin.
struct Published {
  static constexpr size_t kStates = 3, kRounds = 2, kSections = 2;
  penstock_state_declaration states[kStates] = {};
  const penstock_state_declaration* state_pointers[kStates] = {};
  penstock_section_bound sections[kRounds][kSections] = {};
  const penstock_section_bound* section_pointers[kRounds][kSections] = {};
  penstock_round rounds[kRounds] = {};
  const penstock_round* round_pointers[kRounds] = {};
  std::string names[kStates];

  explicit Published(Random& random, uint64_t numel) {
    for (size_t i = 0; i < kStates; ++i) make_state(i, numel, random);
    for (size_t r = 0; r < kRounds; ++r) make_round(r, numel, random);
  }

  void make_state(size_t i, uint64_t numel, Random& random) {
    names[i] = random.below(20) == 0 ? std::string("a\x1b[31m") : std::string(1, char('a' + i));
    states[i] = {sizeof states[i],    str(names[i]),       numel, 1, PENSTOCK_FLOAT32,
                 PENSTOCK_STATE_MASS, PENSTOCK_RESIZE_SUM, 0};
    change(states[i].struct_size, random);
    if (states[i].struct_size > sizeof states[i]) states[i].struct_size = sizeof states[i] - 8;
    change_pointer(states[i].name.data, random);
    change(states[i].rows, random);
    change(states[i].cols, random);
    change(states[i].dtype, random);
    change(states[i].state_class, random);
    change(states[i].on_resize, random);
    change(states[i].flags, random);
    state_pointers[i] = &states[i];
    change_pointer(state_pointers[i], random);
  }

  void make_round(size_t r, uint64_t numel, Random& random) {
    for (size_t s = 0; s < kSections; ++s) {
      penstock_section_bound& section = sections[r][s];
      section = {sizeof section, numel, PENSTOCK_ROLE_VALUES, PENSTOCK_FLOAT32, 0, 0};
      change(section.capacity, random);
      change(section.role, random);
      change(section.dtype, random);
      change(section.split, random);
      change(section.flags, random);
      section_pointers[r][s] = &section;
      change_pointer(section_pointers[r][s], random);
    }
    penstock_round& round = rounds[r];
    round.struct_size = sizeof round;
    round.sections = section_pointers[r];
    round.n_sections = kSections;
    round.combine = random.below(2) == 0 ? PENSTOCK_COMBINE_SUM : PENSTOCK_COMBINE_GATHER;
    round.result = PENSTOCK_RESULT_MEAN;
    change_pointer(round.sections, random);
    change_count(round.n_sections, sdk::kMostSections, random);
    change(round.combine, random);
    change(round.result, random);
    change(round.reduction, random);
    change(round.flags, random);
    round_pointers[r] = &round;
    change_pointer(round_pointers[r], random);
  }
};

// 128 bits do not wrap here.
using Wide = unsigned __int128;

TEST(NeedsFuzz, OfCompressorsAreRefusedOrAddUp) {
  Random random(21);
  uint64_t accepted = 0, refused = 0;
  for (int i = 0; i < 60000; ++i) {
    const uint64_t numel = 1 + random.below(1000);
    const Published published(random, numel);
    CompressorNeed need;
    need.c.rounds = published.round_pointers;
    need.c.n_rounds = Published::kRounds;
    need.c.states = published.state_pointers;
    need.c.n_states = Published::kStates;
    need.c.period = 1;
    change_pointer(need.c.rounds, random);
    change_pointer(need.c.states, random);
    change_count(need.c.n_rounds, sdk::kMostRounds, random);
    change_count(need.c.n_states, sdk::kMostStates, random);
    change(need.c.scratch_bytes, random);
    change(need.c.part_alignment, random);
    change(need.c.period, random);
    change(need.c.scope, random);
    change(need.c.flags, random);
    const std::string fault = sdk::fault_text(sdk::fault_in(need.c));
    const Status status = need.adopt();
    ASSERT_EQ(status.ok(), fault.empty()) << status.message() << fault;
    (status.ok() ? accepted : refused) += 1;
    if (!status.ok()) {
      ASSERT_NE(fault.find(", expected "), std::string::npos) << fault;
      continue;
    }
    Wide bytes = 0;
    for (uint64_t r = 0; r < need.c.n_rounds; ++r)
      for (uint64_t s = 0; s < need.c.rounds[r]->n_sections; ++s)
        bytes += Wide{need.c.rounds[r]->sections[s]->capacity} *
                 sdk::dtype_bytes(need.c.rounds[r]->sections[s]->dtype);
    ASSERT_LE(bytes, Wide{sdk::kMostBytes});
    for (uint64_t s = 0; s < need.c.n_states; ++s)
      ASSERT_LE(Wide{need.c.states[s]->rows} * need.c.states[s]->cols * 8,
                Wide{sdk::kMostBytes} * 8);
    ASSERT_LE(need.c.scratch_bytes, sdk::kMostBytes);
    ASSERT_LE(need.c.period, sdk::kMostPhases);
  }
  EXPECT_GT(accepted, 1000u);
  EXPECT_GT(refused, 1000u);
}

TEST(NeedsFuzz, OfMemoriesAreRefusedOrHaveAWorkOfTheGradientsSize) {
  Random random(22);
  penstock_memory table{};
  table.struct_size = sizeof table;
  table.give_back = [](auto...) -> penstock_status* { return nullptr; };
  table.drain = [](auto...) -> penstock_status* { return nullptr; };
  uint64_t accepted = 0, refused = 0;
  for (int i = 0; i < 60000; ++i) {
    penstock_item item{};
    item.struct_size = sizeof item;
    item.numel = 1 + random.below(1000);
    const Published published(random, item.numel);
    MemoryNeed need;
    need.c.states = published.state_pointers;
    need.c.n_states = Published::kStates;
    need.c.work_is = PENSTOCK_WORK_IS_STATE;
    need.c.beta = need.c.gamma = 1;
    change_pointer(need.c.states, random);
    change_count(need.c.n_states, sdk::kMostStates, random);
    change(need.c.work_is, random);
    change(need.c.work_state, random);
    change(need.c.momentum_state, random);
    change(need.c.form, random);
    change(need.c.n_scalars, random);
    change(need.c.flags, random);
    const Status status = need.adopt(table, item);
    (status.ok() ? accepted : refused) += 1;
    if (!status.ok() || need.c.work_is != PENSTOCK_WORK_IS_STATE) continue;
    ASSERT_LT(need.c.work_state, need.c.n_states);
    const penstock_state_declaration& work = *need.c.states[need.c.work_state];
    ASSERT_EQ(work.dtype, uint32_t{PENSTOCK_FLOAT32});
    ASSERT_EQ(Wide{work.rows} * work.cols, Wide{item.numel});
  }
  EXPECT_GT(accepted, 1000u);
  EXPECT_GT(refused, 1000u);
}

TEST(NeedsFuzz, ArithmeticKnowsWhatSixtyFourBitsHold) {
  Random random(23);
  for (int i = 0; i < 100000; ++i) {
    const uint64_t a = extreme(random), b = extreme(random);
    const auto sum = sdk::checked_sum(a, b), product = sdk::checked_product(a, b);
    const Wide most = ~uint64_t{0};
    ASSERT_EQ(sum.has_value(), Wide{a} + b <= most);
    ASSERT_EQ(product.has_value(), Wide{a} * b <= most);
    ASSERT_TRUE(!sum || *sum == Wide{a} + b);
    ASSERT_TRUE(!product || *product == Wide{a} * b);
  }
}

}  // namespace
}  // namespace penstock
