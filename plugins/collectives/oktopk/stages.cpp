// See stages.hpp. Names and formulas: Li & Hoefler, "Near-Optimal Sparse Allreduce for Distributed
// Deep Learning", PPoPP 2022.
#include "stages.hpp"

#include "payloads.hpp"

#include <kernels/message.hpp>
#include <penstock/error.hpp>
#include <penstock/views.hpp>

#include <algorithm>
#include <numeric>

namespace penstock::oktopk {

namespace {

// The composite's states: theta, and [1, boundaries, number of elements]. The first and the last
// number show whether the states were ever written, and for this message.
constexpr uint64_t kThetaState = 0;
constexpr uint64_t kRegionState = 1;

float& theta_state(const Ticket& ticket) {
  return sdk::elements<float>(*ticket.message.states[kThetaState])[0];
}
std::span<uint64_t> region_state(const Ticket& ticket) {
  return sdk::elements<uint64_t>(*ticket.message.states[kRegionState]);
}

template <typename... Parts>
sdk::Error failure(const Ticket& ticket, uint32_t code, const Parts&... parts) {
  return sdk::Error(code, sdk::text("collective/oktopk, tag ", ticket.message.tag, " (",
                                    sdk::message_name(ticket.message.id), "): ", parts...));
}

// ---- base messages ----

penstock_message& prepare(Ticket& ticket, uint32_t pattern, uint32_t dtype) {
  penstock_message& carried = ticket.carried;
  carried = penstock_message{};
  carried.struct_size = sizeof carried;
  carried.id = ticket.message.id;
  carried.deadline_us = ticket.message.deadline_us;
  carried.exec = ticket.message.exec;
  carried.step = ticket.message.step;
  carried.leg = ticket.message.leg;
  carried.pattern = pattern;
  carried.dtype = dtype;
  carried.reduction = PENSTOCK_REDUCE_SUM;
  return carried;
}

void submit(Ticket& ticket, Stage stage) {
  const penstock_base_channel& base = ticket.channel->base;
  ticket.stage = stage;
  ticket.carried.tag =
      base.tag_first + ticket.message.tag * base.n_tags + static_cast<uint64_t>(stage);
  sdk::check(base.collective->submit(base.instance, base.channel, &ticket.carried, &ticket.base));
}

// Sets the offsets of the message so that each rank has room for its count, rank after rank.
// Returns the total.
uint64_t make_room(Ticket& ticket) {
  uint64_t total = 0;
  ticket.offsets.resize(ticket.channel->size);
  for (uint32_t r = 0; r < ticket.channel->size; ++r) {
    ticket.offsets[r] = total;
    total += ticket.counts[r];
  }
  ticket.carried.receive_counts = ticket.counts.data();
  ticket.carried.receive_offsets = ticket.offsets.data();
  return total;
}

// ---- stages, in order ----

void start_scatter(Ticket& ticket) {
  const Channel& channel = *ticket.channel;
  penstock_message& carried = prepare(ticket, PENSTOCK_ALL_TO_ALL, PENSTOCK_UINT64);
  ticket.send_counts.resize(channel.size);
  auto from = ticket.own.begin();
  for (uint32_t r = 0; r < channel.size; ++r) {
    const auto end = std::partition_point(
        from, ticket.own.end(), [&](const Pair& p) { return p.position < ticket.edges[r + 1]; });
    ticket.send_counts[r] = static_cast<uint64_t>(end - from);
    from = end;
  }
  const uint64_t region = ticket.edges[channel.rank + 1] - ticket.edges[channel.rank];
  ticket.counts.assign(channel.size, std::min(region, ticket.k));
  carried.receive = ticket.pairs.at_least(make_room(ticket));
  carried.send = ticket.own.data();
  carried.send_counts = ticket.send_counts.data();
  carried.count = ticket.own.size();
  submit(ticket, Stage::kScatter);
}

void start_boundaries(Ticket& ticket) {
  const Channel& channel = *ticket.channel;
  penstock_message& carried = prepare(ticket, PENSTOCK_ALL_REDUCE, PENSTOCK_UINT64);
  ticket.splits.resize(channel.size - 1);
  equal_count_splits(ticket.own, ticket.n_elements, channel.size, ticket.splits.data());
  carried.send = carried.receive = ticket.splits.data();
  carried.count = ticket.splits.size();
  submit(ticket, Stage::kBoundaries);
}

void finish_boundaries(Ticket& ticket) {
  for (uint32_t r = 1; r < ticket.channel->size; ++r) {
    const uint64_t edge = ticket.splits[r - 1] / ticket.channel->size;
    if (edge < ticket.edges[r - 1] || edge > ticket.n_elements)
      throw failure(ticket, PENSTOCK_INVALID_PAYLOAD, "the ranks' boundaries give position ", edge,
                    " after ", ticket.edges[r - 1], " of ", ticket.n_elements);
    ticket.edges[r] = edge;
  }
}

// Adds the entries that the ranks sent for the region of this rank, in ascending rank order.
void add_up(Ticket& ticket) {
  const Channel& channel = *ticket.channel;
  ticket.sums.clear();
  for (uint32_t r = 0; r < channel.size; ++r) {
    const std::span<const Pair> sent(ticket.pairs.data() + ticket.offsets[r], ticket.counts[r]);
    if (!ascends(sent, ticket.edges[channel.rank], ticket.edges[channel.rank + 1]))
      throw failure(ticket, PENSTOCK_INVALID_PAYLOAD, "rank ", r,
                    " sent positions that do not ascend within the region of rank ", channel.rank);
    add_to(ticket.sums, sent, ticket.spare);
  }
}

void start_magnitudes(Ticket& ticket) {
  const Channel& channel = *ticket.channel;
  penstock_message& carried = prepare(ticket, PENSTOCK_ALL_GATHER, PENSTOCK_UINT32);
  ticket.mine.clear();
  for (const Pair& pair : ticket.sums)
    if (magnitude(pair.value) != 0) ticket.mine.push_back(magnitude(pair.value));
  ticket.counts.resize(channel.size);
  for (uint32_t r = 0; r < channel.size; ++r)
    ticket.counts[r] = std::min(ticket.edges[r + 1] - ticket.edges[r], ticket.k * channel.size);
  carried.receive = ticket.magnitudes.at_least(make_room(ticket));
  carried.send = ticket.mine.data();
  carried.count = ticket.mine.size();
  submit(ticket, Stage::kMagnitudes);
}

Survival survival_of_gathered(Ticket& ticket) {
  uint32_t* all = ticket.magnitudes.data();
  uint64_t total = 0;
  uint64_t mine = 0;
  for (uint32_t r = 0; r < ticket.channel->size; ++r) {  // closes the gaps between the ranks
    if (r == ticket.channel->rank) mine = total;
    std::copy_n(all + ticket.offsets[r], ticket.counts[r], all + total);
    total += ticket.counts[r];
  }
  return exact_survival(std::span<const uint32_t>(all, total), mine, ticket.k, ticket.ranked);
}

void start_counts(Ticket& ticket, const Survival& survival) {
  const Channel& channel = *ticket.channel;
  keep_survivors(ticket.sums, survival);
  penstock_message& carried = prepare(ticket, PENSTOCK_ALL_GATHER, PENSTOCK_UINT64);
  ticket.kept.resize(channel.size + 1);
  ticket.kept[channel.size] = ticket.sums.size();
  ticket.counts.assign(channel.size, 1);
  (void)make_room(ticket);
  carried.flags = PENSTOCK_MESSAGE_EXACT_COUNTS;
  carried.send = &ticket.kept[channel.size];
  carried.receive = ticket.kept.data();
  carried.count = 1;
  submit(ticket, Stage::kCounts);
}

// The number of survivors in [first, first + count), counted over all regions, that belong to the
// share of `n` survivors that begins at `goal`.
uint64_t overlap(uint64_t first, uint64_t count, uint64_t goal, uint64_t n) {
  const uint64_t begin = std::max(first, goal);
  const uint64_t end = std::min(first + count, goal + n);
  return end > begin ? end - begin : 0;
}

// Every rank must get floor or ceil of T / P survivors; the lowest ranks get the longer shares.
void set_goals(Ticket& ticket) {
  const Channel& channel = *ticket.channel;
  ticket.n_kept = 0;
  for (uint32_t r = 0; r < channel.size; ++r) {
    const uint64_t region = ticket.edges[r + 1] - ticket.edges[r];
    if (ticket.kept[r] > region)
      throw failure(ticket, PENSTOCK_INVALID_PAYLOAD, "rank ", r, " keeps ", ticket.kept[r],
                    " sums of a region of ", region);
    ticket.n_kept += ticket.kept[r];
  }
  ticket.goals.resize(channel.size);
  for (uint32_t r = 0; r < channel.size; ++r)
    ticket.goals[r] = ticket.n_kept / channel.size + (r < ticket.n_kept % channel.size ? 1 : 0);
}

void start_balance(Ticket& ticket) {
  const Channel& channel = *ticket.channel;
  penstock_message& carried = prepare(ticket, PENSTOCK_ALL_TO_ALL, PENSTOCK_UINT64);
  const auto before = [&](const std::vector<uint64_t>& counts, uint32_t rank) {
    return std::accumulate(counts.begin(), counts.begin() + rank, uint64_t(0));
  };
  const uint64_t mine = before(ticket.kept, channel.rank);
  const uint64_t goal = before(ticket.goals, channel.rank);
  ticket.send_counts.resize(channel.size);
  ticket.counts.resize(channel.size);
  uint64_t first = 0;
  uint64_t share = 0;
  for (uint32_t r = 0; r < channel.size; ++r) {
    ticket.send_counts[r] = overlap(mine, ticket.kept[channel.rank], share, ticket.goals[r]);
    ticket.counts[r] = overlap(first, ticket.kept[r], goal, ticket.goals[channel.rank]);
    first += ticket.kept[r];
    share += ticket.goals[r];
  }
  carried.flags = PENSTOCK_MESSAGE_EXACT_COUNTS;
  carried.receive = ticket.share.at_least(make_room(ticket));
  carried.send = ticket.sums.data();
  carried.send_counts = ticket.send_counts.data();
  carried.count = ticket.sums.size();
  submit(ticket, Stage::kBalance);
}

void start_gather(Ticket& ticket, const Pair* share) {
  penstock_message& carried = prepare(ticket, PENSTOCK_ALL_GATHER, PENSTOCK_UINT64);
  ticket.counts = ticket.goals;
  carried.flags = PENSTOCK_MESSAGE_EXACT_COUNTS;
  carried.receive = ticket.pairs.at_least(make_room(ticket));
  carried.send = share;
  carried.count = ticket.goals[ticket.channel->rank];
  submit(ticket, Stage::kGather);
}

void start_sharing(Ticket& ticket) {
  set_goals(ticket);
  const bool balanced = std::equal(ticket.goals.begin(), ticket.goals.end(), ticket.kept.begin());
  if (balanced)
    start_gather(ticket, ticket.sums.data());
  else
    start_balance(ticket);
}

// Adapts the threshold to the number of survivors, equally on all ranks. A threshold that is too
// far off to be corrected by steps becomes 0, which means unknown; the next step computes it.
void adjust_theta(Ticket& ticket) {
  if (ticket.keep_all || ticket.exact) return;
  if (3 * ticket.n_kept < 2 * ticket.k)
    ticket.theta /= ticket.channel->rule.adjust;
  else if (ticket.n_kept > 2 * ticket.k)
    ticket.theta = 0;
  else if (3 * ticket.n_kept > 4 * ticket.k)
    ticket.theta *= ticket.channel->rule.adjust;
}

// Writes results and states. States change only here, after every check that can fail.
void finish(Ticket& ticket) {
  ticket.spare.assign(ticket.pairs.data(), ticket.pairs.data() + ticket.n_kept);
  if (!ascends(ticket.spare, 0, ticket.n_elements))
    throw failure(ticket, PENSTOCK_INVALID_PAYLOAD, "the gathered positions do not ascend below ",
                  ticket.n_elements);
  write_payloads(ticket.message, ticket.spare, ticket.message.results, -1);
  adjust_theta(ticket);
  theta_state(ticket) = ticket.theta;
  const auto regions = region_state(ticket);
  std::copy(ticket.edges.begin(), ticket.edges.end(), regions.begin());
  regions[0] = 1;
  ticket.sums.swap(ticket.spare);  // for give_back
  ticket.stage = Stage::kDone;
}

// Starts the stage that follows when the base message of the current stage has arrived.
void next_stage(Ticket& ticket) {
  switch (ticket.stage) {
    case Stage::kBoundaries:
      finish_boundaries(ticket);
      return start_scatter(ticket);
    case Stage::kScatter: {
      add_up(ticket);
      if (ticket.exact) return start_magnitudes(ticket);
      Survival survival;
      survival.least = ticket.keep_all ? 0 : magnitude(ticket.theta);
      survival.zeros = ticket.keep_all;
      return start_counts(ticket, survival);
    }
    case Stage::kMagnitudes: {
      const Survival survival = survival_of_gathered(ticket);
      ticket.theta = survival.theta;
      return start_counts(ticket, survival);
    }
    case Stage::kCounts:
      return start_sharing(ticket);
    case Stage::kBalance:
      return start_gather(ticket, ticket.share.data());
    case Stage::kGather:
      return finish(ticket);
    case Stage::kDone:
      return;
  }
}

}  // namespace

void start(Ticket& ticket) {
  const Channel& channel = *ticket.channel;
  const penstock_message& message = ticket.message;
  ticket.n_elements = count_elements(message);
  ticket.k = count_capacity(message);
  ticket.own.clear();
  read_payloads(message, ticket.own);
  if (channel.size == 1) {  // one rank: everything is kept
    write_payloads(message, ticket.own, message.results, -1);
    ticket.sums = ticket.own;
    ticket.stage = Stage::kDone;
    return;
  }
  if (message.step == nullptr || message.n_states != 2 ||
      message.states[kRegionState]->numel != channel.size + 1)
    throw failure(ticket, PENSTOCK_INVALID_ARGUMENT, "has ", message.n_states,
                  " states, expected a step and the two states that plan asked for");
  const auto regions = region_state(ticket);
  const bool fresh = regions[0] != 1 || regions[channel.size] != ticket.n_elements ||
                     !std::is_sorted(regions.begin() + 1, regions.end());
  const uint64_t step = message.step->index;
  ticket.keep_all = ticket.k >= ticket.n_elements;
  ticket.theta = fresh ? 0 : theta_state(ticket);
  ticket.exact =
      !ticket.keep_all && (ticket.theta == 0 || step % channel.rule.threshold_period == 0);
  ticket.edges.assign(regions.begin(), regions.end());
  ticket.edges[0] = 0;
  ticket.edges[channel.size] = ticket.n_elements;
  if (fresh || step % channel.rule.boundary_period == 0)
    start_boundaries(ticket);
  else
    start_scatter(ticket);
}

bool advance(Ticket& ticket) {
  if (ticket.stage == Stage::kDone) return true;
  const penstock_base_channel& base = ticket.channel->base;
  uint32_t state = PENSTOCK_PENDING;
  sdk::check(base.collective->progress(base.instance, ticket.base, &state));
  if (state != PENSTOCK_DONE) return false;
  drop_base(ticket);
  next_stage(ticket);
  return ticket.stage == Stage::kDone;
}

void drop_base(Ticket& ticket) {
  if (ticket.base == nullptr) return;
  const penstock_base_channel& base = ticket.channel->base;
  base.collective->release(base.instance, ticket.base);
  ticket.base = nullptr;
}

void give_back(Ticket& ticket, penstock_payload* const* payloads) {
  std::vector<Pair>& refused = ticket.spare;
  refused.clear();
  auto kept = ticket.sums.begin();
  for (const Pair& pair : ticket.own) {
    while (kept != ticket.sums.end() && kept->position < pair.position) ++kept;
    if (kept == ticket.sums.end() || kept->position != pair.position) refused.push_back(pair);
  }
  write_payloads(ticket.message, refused, payloads, static_cast<int32_t>(ticket.channel->rank));
}

}  // namespace penstock::oktopk
