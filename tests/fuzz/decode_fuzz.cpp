// Every built compressor decodes payloads that a peer has damaged: counts, kinds, bytes, missing
// sections. The compressor must return INVALID_PAYLOAD with rank and gradient, or decode to finite
// numbers. When a rank decodes its own damaged payload, no state may change that is equal on all
// ranks.
#include <algorithm>
#include <cmath>
#include <fuzz/mutate.hpp>
#include <fuzz/settings.hpp>
#include <memory>
#include <penstock/views.hpp>
#include <support/every_compressor.hpp>
#include <support/half.hpp>
#include <support/long.hpp>
#include <testing/gtest.hpp>
#include <testing/rig.hpp>

namespace penstock::test {
namespace {

const uint64_t kMutationsPerRound = is_long() ? 100 : 25;
constexpr int32_t kPeer = 3;
// Smaller numbers can be scaled, added and multiplied by a factor, and float does not overflow.
constexpr double kHarmless = 1e9;

const std::vector<Shape> kShapes{{0}, {1}, {2}, {31}, {70}, {7, 9}, {24, 40}, {2100}};

// A payload whose sections each lie in a separate block of exactly their count, so that a sanitizer
// finds every read behind a section.
class LoosePayload {
 public:
  explicit LoosePayload(OwnedPayload& from) : payload_(*from.c()) {
    for (uint64_t s = 0; s < from.n_sections(); ++s) {
      sections_.push_back(from.section(s));
      contents_.emplace_back(bytes_of(sections_[s]));
      if (!contents_[s].empty())
        std::memcpy(contents_[s].data(), sections_[s].data, contents_[s].size());
    }
  }
  penstock_payload& payload() { return payload_; }
  std::vector<penstock_section>& sections() { return sections_; }
  std::vector<unsigned char>& contents(uint64_t section) { return contents_[section]; }

  // Call it after the last change. If a count is above the capacity, the section keeps its bytes.
  const penstock_payload* c() {
    pointers_.clear();
    blocks_.clear();
    for (uint64_t s = 0; s < sections_.size(); ++s) {
      if (sections_[s].count <= sections_[s].capacity) contents_[s].resize(bytes_of(sections_[s]));
      const uint64_t size = contents_[s].size();
      blocks_.emplace_back(new unsigned char[size]);
      if (size != 0) std::memcpy(blocks_[s].get(), contents_[s].data(), size);
      sections_[s].data = blocks_[s].get();
      pointers_.push_back(&sections_[s]);
    }
    payload_.sections = pointers_.data();
    payload_.n_sections = std::min<uint64_t>(payload_.n_sections, pointers_.size());
    return &payload_;
  }

 private:
  static uint64_t bytes_of(const penstock_section& section) {
    return section.count * sdk::dtype_bytes(section.dtype);
  }
  penstock_payload payload_;
  std::vector<penstock_section> sections_;
  std::vector<std::vector<unsigned char>> contents_;
  std::vector<std::unique_ptr<unsigned char[]>> blocks_;
  std::vector<penstock_section*> pointers_;
};

uint64_t awkward_count(const penstock_section& section, Random& random) {
  const uint64_t counts[] = {0,
                             1,
                             section.count - 1,  // wraps below 0
                             section.count + 1,
                             section.capacity,
                             section.capacity + 1,
                             random.below(section.capacity + 1),
                             uint64_t{1} << 32,
                             uint64_t{1} << 61,  // times 8 is 0
                             UINT64_MAX};
  return counts[random.below(std::size(counts))];
}

void damage(LoosePayload& loose, uint64_t n, Random& random) {
  for (uint64_t k = 1 + random.below(3); k > 0; --k) {
    const uint64_t s = loose.sections().empty() ? 0 : random.below(loose.sections().size());
    switch (random.below(8)) {
      case 0:
        loose.payload().kind = static_cast<uint32_t>(random.below(7));
        break;
      case 1:  // a sum must have exactly the planned sections
        if (loose.payload().rank == kPeer)
          loose.payload().n_sections = random.below(loose.sections().size() + 1);
        break;
      case 2:
      case 3:
        if (!loose.sections().empty())
          loose.sections()[s].count = awkward_count(loose.sections()[s], random);
        break;
      default:
        if (!loose.sections().empty())
          mutate_bytes(loose.contents(s).data(), loose.contents(s).size(), n, random);
    }
  }
}

// True if no value of an element or a factor is large enough to overflow. A peer may send any
// number as a value, but damage elsewhere in a payload must not create such a number. Indices of
// scales may repeat, so a value that is harmless once may overflow twice.
bool values_are_harmless(const penstock_payload& payload) {
  bool indexed = false;
  for (uint64_t s = 0; s < payload.n_sections; ++s)
    indexed |= payload.sections[s]->role == PENSTOCK_ROLE_INDICES;
  for (uint64_t s = 0; s < payload.n_sections; ++s) {
    const penstock_section& section = *payload.sections[s];
    const bool counts = section.role == PENSTOCK_ROLE_VALUES ||
                        section.role == PENSTOCK_ROLE_FACTOR ||
                        (indexed && section.role == PENSTOCK_ROLE_SCALES);
    if (!counts) continue;
    if (section.count > section.capacity) continue;
    for (uint64_t i = 0; i < section.count; ++i) {
      double value = 0;
      if (section.dtype == PENSTOCK_FLOAT32)
        value = static_cast<const float*>(section.data)[i];
      else if (section.dtype == PENSTOCK_FLOAT16)
        value = from_float16(static_cast<const uint16_t*>(section.data)[i]);
      else if (section.dtype == PENSTOCK_BFLOAT16)
        value = from_bfloat16(static_cast<const uint16_t*>(section.data)[i]);
      if (!(std::fabs(value) < kHarmless)) return false;
    }
  }
  return true;
}

// One item on one rank of a rig, which it decodes alone.
class Decoder {
 public:
  Decoder(CompressorRig& rig, uint64_t item) : rig_(rig), item_(item) {}

  const PlannedNeed& need() const { return rig_.need(item_, rig_.step_facts(0).phase); }
  const penstock_item& view() const { return *rig_.compressor_item(0, item_); }

  PayloadPointer encode(uint32_t round, const std::vector<float>& values) {
    const penstock_item* const item = rig_.compressor_item(0, item_);
    std::copy(values.begin(), values.end(), static_cast<float*>(item->work.data));
    auto payload = std::make_unique<OwnedPayload>(need().rounds[round].sections, 0);
    penstock_payload* pointer = payload->c();
    const penstock_step step = rig_.step_facts(0);
    const penstock_exec exec = rig_.exec();
    PENSTOCK_EXPECT_OK(
        table().encode(rig_.compressor(0).self(), &exec, &step, round, &item, 1, &pointer));
    return payload;
  }
  Outcome decode(uint32_t round, const std::vector<const penstock_payload*>& payloads,
                 uint32_t flags) {
    const penstock_item* const item = rig_.compressor_item(0, item_);
    const penstock_step step = rig_.step_facts(0);
    const penstock_exec exec = rig_.exec();
    return take(table().decode(rig_.compressor(0).self(), &exec, &step, round, &item, 1,
                               payloads.data(), payloads.size(), flags));
  }
  std::vector<std::string> replicated_states() const {
    std::vector<std::string> states;
    for (uint64_t s = 0; s < view().n_states; ++s) {
      const penstock_tensor& tensor = *view().states[s];
      if (need().states[s].state_class == PENSTOCK_STATE_REPLICATED)
        states.emplace_back(static_cast<const char*>(tensor.data),
                            tensor.numel * sdk::dtype_bytes(tensor.dtype));
    }
    return states;
  }

 private:
  const penstock_compressor& table() const { return rig_.compressor(0).table(); }
  CompressorRig& rig_;
  uint64_t item_;
};

struct Tally {
  uint64_t refused = 0;
  uint64_t decoded = 0;
};

void expect_one(Decoder& decoder, uint32_t round, OwnedPayload& valid, Random& random,
                Tally& tally) {
  const penstock_round& facts = decoder.need().rounds[round].c;
  const bool gathered = facts.combine == PENSTOCK_COMBINE_GATHER;
  const int32_t rank = gathered ? kPeer : -1;
  LoosePayload loose(valid);
  loose.payload().rank = rank;
  damage(loose, decoder.view().numel, random);
  std::vector<const penstock_payload*> payloads{loose.c()};
  uint32_t flags = PENSTOCK_DECODE_FIRST | PENSTOCK_DECODE_LAST;
  const bool own = random.below(4) == 0;
  if (own) flags |= PENSTOCK_DECODE_OWN;
  if (!own && gathered && random.below(2) == 0) payloads.insert(payloads.begin(), valid.c());
  const std::vector<std::string> states = decoder.replicated_states();
  const Outcome outcome = decoder.decode(round, payloads, flags);
  if (own) {
    ASSERT_EQ(decoder.replicated_states(), states) << "changed by its own payload";
  }
  if (!outcome.ok()) {
    ++tally.refused;
    ASSERT_EQ(outcome.code, uint32_t{PENSTOCK_INVALID_PAYLOAD}) << outcome.message;
    const std::string name(decoder.view().name.data, decoder.view().name.size);
    ASSERT_NE(outcome.message.find("rank " + std::to_string(rank)), std::string::npos)
        << outcome.message;
    ASSERT_NE(outcome.message.find(name), std::string::npos) << outcome.message;
    return;
  }
  ++tally.decoded;
  if (round + 1 < decoder.need().rounds.size() || !values_are_harmless(*payloads.back())) return;
  const auto* const out = static_cast<const float*>(decoder.view().out.data);
  for (uint64_t e = 0; e < decoder.view().numel; ++e)
    ASSERT_TRUE(std::isfinite(out[e])) << "element " << e << " is " << out[e];
}

// Decodes the rounds of one item in one step. Each round ends with the undamaged payload, so that
// the next round finds valid states.
void expect_item(CompressorRig& rig, uint64_t item, Random& random, Tally& tally) {
  Decoder decoder(rig, item);
  for (uint32_t round = 0; round < decoder.need().rounds.size(); ++round) {
    const PayloadPointer valid =
        decoder.encode(round, heavy_tailed(decoder.view().numel, random.bits()));
    for (uint64_t m = 0; m < kMutationsPerRound; ++m) {
      ASSERT_NO_FATAL_FAILURE(expect_one(decoder, round, *valid, random, tally))
          << "mutation " << m << " of round " << round << ", " << decoder.view().numel
          << " elements";
    }
    if (decoder.need().rounds[round].c.combine == PENSTOCK_COMBINE_SUM) valid->c()->rank = -1;
    const Outcome outcome =
        decoder.decode(round, {valid->c()}, PENSTOCK_DECODE_FIRST | PENSTOCK_DECODE_LAST);
    ASSERT_TRUE(outcome.ok()) << outcome.message;
  }
}

class DecodeFuzz : public ::testing::TestWithParam<std::filesystem::path> {};

TEST_P(DecodeFuzz, DamagedPayloadsAreRefusedOrDecodeToFiniteNumbers) {
  const LoadedPlugin plugin = load_plugin(GetParam().string());
  Tally tally;
  for (const OptionSettings& settings : settings_of(plugin)) {
    SCOPED_TRACE(label_of(settings));
    Random random(42);
    std::unique_ptr<CompressorRig> rig;
    try {
      rig = std::make_unique<CompressorRig>(RigSettings{.ranks = 2, .keep = true}, kShapes, plugin,
                                            settings);
    } catch (const std::runtime_error&) {
      continue;  // the option does not fit the item or another option
    }
    std::vector<uint64_t> numels;
    for (uint64_t i = 0; i < rig->n_items(); ++i) numels.push_back(rig->numel(i));
    // Two steps, so that states of an earlier step exist and alternating methods run both phases.
    for (uint64_t step = 0; step < 2; ++step) {
      for (uint64_t i = 0; i < rig->n_items(); ++i)
        ASSERT_NO_FATAL_FAILURE(expect_item(*rig, i, random, tally));
      rig->step(draw_gradients(heavy_tailed, 2, numels, step));  // checks every guard
    }
  }
  EXPECT_GT(tally.refused, 0u) << "no damage was noticed";
  EXPECT_GT(tally.decoded, 0u) << "nothing was decoded";
}

PENSTOCK_TEST_EVERY_COMPRESSOR(DecodeFuzz);

}  // namespace
}  // namespace penstock::test
