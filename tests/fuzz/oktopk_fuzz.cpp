// Ok-Topk's stages receive pairs, counts and boundaries that a transport or a peer has damaged. All
// ranks run in one thread and exchange messages in memory. One rank receives other data than was
// sent to it. It must refuse the data, or end with results within its items and give back exactly
// the entries that are not among the results.
#include <gtest/gtest.h>
#include <penstock/error.hpp>
#include <penstock/views.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <deque>
#include <fuzz/mutate.hpp>
#include <set>
#include <testing/gtest.hpp>
#include <testing/rig.hpp>

#include "../../plugins/collectives/oktopk/stages.hpp"

namespace penstock::test {
namespace {

constexpr uint32_t kRanks = 3;
const std::vector<uint64_t> kNumels{50, 0, 31};

std::vector<penstock_section_bound> pairs_of(uint64_t capacity) {
  std::vector<penstock_section_bound> bounds(2);
  for (penstock_section_bound& bound : bounds) {
    bound.struct_size = sizeof bound;
    bound.capacity = capacity;
  }
  bounds[0].role = PENSTOCK_ROLE_INDICES;
  bounds[0].dtype = PENSTOCK_UINT32;
  bounds[1].role = PENSTOCK_ROLE_VALUES;
  bounds[1].dtype = PENSTOCK_FLOAT32;
  return bounds;
}

// The entries of the payloads, as (position within all items, value).
std::vector<std::pair<uint64_t, float>> entries_of(std::deque<OwnedPayload>& payloads) {
  std::vector<std::pair<uint64_t, float>> entries;
  uint64_t first = 0;
  for (size_t i = 0; i < payloads.size(); ++i) {
    const auto* indices = static_cast<const uint32_t*>(payloads[i].section(0).data);
    const auto* values = static_cast<const float*>(payloads[i].section(1).data);
    for (uint64_t e = 0; e < payloads[i].section(0).count; ++e)
      entries.emplace_back(first + indices[e], values[e]);
    first += kNumels[i];
  }
  return entries;
}

// One rank: its payload of a step, the storage of its results, and its states.
struct Rank {
  oktopk::Channel channel;
  std::unique_ptr<oktopk::Ticket> ticket;
  std::deque<penstock_item> items;
  std::deque<OwnedPayload> own, results, refused;
  std::vector<const penstock_item*> item_pointers;
  std::vector<const penstock_payload*> own_pointers;
  std::vector<penstock_payload*> result_pointers, refused_pointers;
  float theta = 0;
  std::vector<uint64_t> regions = std::vector<uint64_t>(kRanks + 1);
  std::array<penstock_tensor, 2> states{};
  std::array<const penstock_tensor*, 2> state_pointers{&states[0], &states[1]};
  penstock_step step{};

  void begin(uint64_t index, uint64_t capacity, uint64_t rank, Random& random) {
    ticket = std::make_unique<oktopk::Ticket>();  // of exactly the needed size
    ticket->channel = &channel;
    items.clear(), own.clear(), results.clear(), refused.clear();
    item_pointers.clear(), own_pointers.clear(), result_pointers.clear(), refused_pointers.clear();
    for (const uint64_t numel : kNumels) {
      penstock_item& item = items.emplace_back();
      item = {};
      item.struct_size = sizeof item;
      item.name = {"gradient", 8};
      item.numel = numel;
      const uint64_t room = std::min(capacity, numel);
      fill(own.emplace_back(pairs_of(room), static_cast<int32_t>(rank)), numel, random);
      results.emplace_back(pairs_of(std::min(numel, capacity * kRanks)), -1);
      refused.emplace_back(pairs_of(room), -1);
    }
    for (size_t i = 0; i < items.size(); ++i) {
      item_pointers.push_back(&items[i]);
      own_pointers.push_back(own[i].c());
      result_pointers.push_back(results[i].c());
      refused_pointers.push_back(refused[i].c());
    }
    step.struct_size = sizeof step;
    step.index = index;
    penstock_message& message = ticket->message;
    message.struct_size = sizeof message;
    message.tag = 0;
    message.items = item_pointers.data();
    message.payloads = own_pointers.data();
    message.results = result_pointers.data();
    message.n_items = items.size();
    set_states();
    message.states = state_pointers.data();
    message.n_states = states.size();
    message.step = &step;
  }

 private:
  static void fill(OwnedPayload& payload, uint64_t numel, Random& random) {
    std::set<uint32_t> indices;
    const uint64_t count = random.below(payload.section(0).capacity + 1);
    while (indices.size() < count) indices.insert(static_cast<uint32_t>(random.below(numel)));
    std::copy(indices.begin(), indices.end(), static_cast<uint32_t*>(payload.section(0).data));
    for (uint64_t e = 0; e < count; ++e)
      static_cast<float*>(payload.section(1).data)[e] = static_cast<float>(random.gauss());
    payload.section(0).count = payload.section(1).count = count;
    payload.c()->kind = PENSTOCK_PAYLOAD_SPARSE;
  }
  void set_states() {
    for (penstock_tensor& state : states) state.struct_size = sizeof state;
    states[0].data = &theta;
    states[0].dtype = PENSTOCK_FLOAT32;
    states[0].numel = 1;
    states[1].data = regions.data();
    states[1].dtype = PENSTOCK_UINT64;
    states[1].numel = regions.size();
  }
};

// Messages between the ranks, in memory. A rank receives a message in its own progress call. The
// messages from a rank in another stage are random bytes.
class Network {
 public:
  Network() {
    table_.struct_size = sizeof table_;
    table_.submit = [](void* self, penstock_channel* channel, const penstock_message* message,
                       penstock_ticket** ticket) -> penstock_status* {
      static_cast<Network*>(self)->sent_[number_of(channel)] = *message;
      *ticket = reinterpret_cast<penstock_ticket*>(channel);
      return nullptr;
    };
    table_.progress = [](void* self, penstock_ticket* ticket, uint32_t* state) -> penstock_status* {
      static_cast<Network*>(self)->deliver(number_of(ticket));
      *state = PENSTOCK_DONE;
      return nullptr;
    };
    table_.release = [](void*, penstock_ticket*) {};
    for (uint32_t r = 0; r < kRanks; ++r) {
      ranks[r].channel.base.collective = &table_;
      ranks[r].channel.base.instance = this;
      ranks[r].channel.base.channel = reinterpret_cast<penstock_channel*>(uintptr_t{r} + 1);
      ranks[r].channel.base.n_tags = 8;
      ranks[r].channel.rule = {2, 3, 1.025f};
      ranks[r].channel.rank = r;
      ranks[r].channel.size = kRanks;
    }
  }

  // Runs one step of all ranks, stage by stage. Each rank ends without error, or with its own
  // error.
  void step(uint64_t index, uint64_t capacity, Random& random) {
    random_ = &random;
    errors = {};
    std::array<bool, kRanks> ended{};
    const auto guarded = [&](uint32_t r, auto&& call) {
      try {
        ended[r] = call();
      } catch (const sdk::Error& error) {
        errors[r].emplace(error);
        ended[r] = true;
      }
    };
    for (uint32_t r = 0; r < kRanks; ++r) {
      ranks[r].begin(index, capacity, r, random);
      guarded(r, [&] { return oktopk::start(*ranks[r].ticket), false; });
    }
    // A rank may change its data while other ranks still read it, so every message is copied before
    // any rank continues.
    for (int stage = 0; stage < 8; ++stage) {
      for (uint32_t r = 0; r < kRanks; ++r) copy_sent(r);
      for (uint32_t r = 0; r < kRanks; ++r)
        if (!ended[r]) guarded(r, [&] { return oktopk::advance(*ranks[r].ticket); });
    }
    for (uint32_t r = 0; r < kRanks; ++r) ASSERT_TRUE(ended[r]) << "rank " << r << " goes on";
  }

  std::array<Rank, kRanks> ranks;
  std::array<std::optional<sdk::Error>, kRanks> errors;
  std::optional<uint32_t> victim;  // the messages to this rank arrive damaged
  uint64_t damage = 0;             // damages one in this many messages

 private:
  template <typename Handle>
  static uint32_t number_of(Handle* handle) {
    return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(handle) - 1);
  }
  static uint64_t width(const penstock_message& message) { return sdk::dtype_bytes(message.dtype); }

  void copy_sent(uint32_t r) {
    const penstock_message& message = sent_[r];
    const auto* bytes = static_cast<const char*>(message.send);
    const uint64_t size = message.count * width(message);
    copies_[r].assign(bytes, size == 0 ? bytes : bytes + size);
    counts_[r].clear();
    if (message.send_counts != nullptr)
      counts_[r].assign(message.send_counts, message.send_counts + kRanks);
    stages_[r] = ranks[r].ticket->stage;
  }

  // The data of rank `from` for rank `to`, for a message such as `message`.
  std::string part(uint32_t from, uint32_t to, const penstock_message& message) {
    if (stages_[from] != stages_[to]) {
      std::string bytes(random_->below(10) * width(message), '\0');
      for (char& byte : bytes) byte = static_cast<char>(random_->bits());
      return bytes;
    }
    if (counts_[from].empty()) return copies_[from];
    uint64_t first = 0;
    for (uint32_t r = 0; r < to; ++r) first += counts_[from][r];
    return copies_[from].substr(first * width(message), counts_[from][to] * width(message));
  }

  void deliver(uint32_t to) {
    const penstock_message& message = sent_[to];
    const bool lies = victim == to && random_->below(damage) == 0;
    auto* const target = static_cast<unsigned char*>(message.receive);
    if (message.pattern == PENSTOCK_ALL_REDUCE) {
      std::vector<uint64_t> sums(message.count);
      for (uint32_t r = 0; r < kRanks; ++r)
        for (uint64_t i = 0; i < message.count; ++i) {
          uint64_t value = 0;
          if (copies_[r].size() > i * 8) std::memcpy(&value, copies_[r].data() + i * 8, 8);
          sums[i] += value;
        }
      std::memcpy(target, sums.data(), sums.size() * 8);
      if (lies) mutate_bytes(target, sums.size() * 8, 81 * kRanks, *random_);
      return;
    }
    const bool exact = (message.flags & PENSTOCK_MESSAGE_EXACT_COUNTS) != 0;
    for (uint32_t r = 0; r < kRanks; ++r) {
      std::string bytes = part(r, to, message);
      const uint64_t room = message.receive_counts[r];
      if (lies && r != to && !exact && random_->below(2) == 0)
        bytes.resize(random_->below(room + 1) * width(message));
      bytes.resize((exact ? room : std::min(room, bytes.size() / width(message))) * width(message));
      if (lies && r != to)
        mutate_bytes(reinterpret_cast<unsigned char*>(bytes.data()), bytes.size(), 81, *random_);
      const uint64_t offset = message.receive_offsets[r] * width(message);
      if (!bytes.empty()) std::memcpy(target + offset, bytes.data(), bytes.size());
      if (!exact) message.receive_counts[r] = bytes.size() / width(message);
    }
  }

  penstock_collective table_{};
  std::array<penstock_message, kRanks> sent_{};
  std::array<std::string, kRanks> copies_;
  std::array<std::vector<uint64_t>, kRanks> counts_;
  std::array<oktopk::Stage, kRanks> stages_{};
  Random* random_ = nullptr;
};

// Results lie within their items and ascend. Every entry that the rank sent is a result or given
// back.
void expect_whole(Rank& rank) {
  oktopk::give_back(*rank.ticket, rank.refused_pointers.data());
  std::set<uint64_t> kept;
  uint64_t first = 0;
  for (size_t i = 0; i < kNumels.size(); first += kNumels[i++]) {
    ASSERT_TRUE(rank.own[i].intact() && rank.results[i].intact() && rank.refused[i].intact());
    ASSERT_LE(rank.results[i].section(0).count, rank.results[i].section(0).capacity);
    const auto* indices = static_cast<const uint32_t*>(rank.results[i].section(0).data);
    for (uint64_t e = 0; e < rank.results[i].section(0).count; ++e) {
      ASSERT_LT(indices[e], kNumels[i]);
      ASSERT_TRUE(e == 0 || indices[e] > indices[e - 1]);
      kept.insert(first + indices[e]);
    }
  }
  std::vector<std::pair<uint64_t, float>> expected = entries_of(rank.own);
  std::erase_if(expected, [&](const auto& entry) { return kept.contains(entry.first); });
  ASSERT_EQ(entries_of(rank.refused), expected);
}

TEST(OkTopkFuzz, WithoutDamageAllRanksEndWithTheSameResults) {
  Random random(31);
  for (const uint64_t capacity : {5, 60}) {
    Network network;
    for (uint64_t index = 0; index < 200; ++index) {
      ASSERT_NO_FATAL_FAILURE(network.step(index, capacity, random));
      for (uint32_t r = 0; r < kRanks; ++r) {
        ASSERT_FALSE(network.errors[r].has_value()) << network.errors[r]->what();
        ASSERT_EQ(entries_of(network.ranks[r].results), entries_of(network.ranks[0].results));
        ASSERT_NO_FATAL_FAILURE(expect_whole(network.ranks[r]));
      }
    }
  }
}

TEST(OkTopkFuzz, DamagedMessagesAreRefusedOrGiveResultsWithinTheItems) {
  Random random(32);
  uint64_t refused = 0, ended = 0;
  for (uint64_t run = 0; run < 3000; ++run) {
    Network network;
    const auto victim = static_cast<uint32_t>(random.below(kRanks));
    for (uint64_t index = 0; index < 6; ++index) {
      network.victim = victim;
      network.damage = 1 + random.below(4);
      ASSERT_NO_FATAL_FAILURE(network.step(index, run % 2 == 0 ? 5 : 60, random));
      // The victim may send wrong data after the damage. The other ranks also refuse or end.
      for (uint32_t r = 0; r < kRanks; ++r) {
        if (network.errors[r].has_value()) {
          ++refused;
          ASSERT_EQ(network.errors[r]->code(), uint32_t{PENSTOCK_INVALID_PAYLOAD})
              << network.errors[r]->what();
          for (const OwnedPayload& result : network.ranks[r].results) ASSERT_TRUE(result.intact());
        } else {
          ++ended;
          ASSERT_NO_FATAL_FAILURE(expect_whole(network.ranks[r])) << "rank " << r;
        }
      }
      if (network.errors[victim].has_value()) break;  // the set is torn
    }
  }
  EXPECT_GT(refused, 1000u);
  EXPECT_GT(ended, 1000u);
}

// No rank uses regions that do not ascend. Regions that ascend may be valid on another rank.
TEST(OkTopkFuzz, StatesThatSomebodyHasMadeUpAreForgottenOrRefused) {
  Random random(33);
  uint64_t ended = 0;
  for (uint64_t run = 0; run < 2000; ++run) {
    Network network;
    for (uint64_t index = 0; index < 4; ++index) {
      for (Rank& rank : network.ranks) {
        const uint64_t below = random.below(2) == 0 ? 90 : UINT64_MAX;
        for (uint64_t& edge : rank.regions) edge = random.below(below);
        if (random.below(2) == 0) std::sort(rank.regions.begin(), rank.regions.end());
        if (random.below(4) != 0) rank.regions[0] = 1;
        if (random.below(4) != 0) rank.regions[kRanks] = 81;
        rank.theta = std::bit_cast<float>(static_cast<uint32_t>(random.bits()));
      }
      ASSERT_NO_FATAL_FAILURE(network.step(index, run % 2 == 0 ? 5 : 60, random));
      for (uint32_t r = 0; r < kRanks; ++r) {
        if (network.errors[r].has_value()) continue;
        ++ended;
        ASSERT_NO_FATAL_FAILURE(expect_whole(network.ranks[r])) << "rank " << r;
      }
    }
  }
  EXPECT_GT(ended, 500u);
}

}  // namespace
}  // namespace penstock::test
