// oktopk: a sparse all-reduce whose volume does not grow with the number of ranks.
//
// Each rank brings its top-k entries. The elements are divided into regions with about equally many
// entries; the owner of a region adds the entries of all ranks in this region, only the sums above
// a common threshold survive, and the survivors, evenly spread, are sent to all ranks. Entries that
// did not survive are given back to the ranks that sent them. Source: Li & Hoefler, "Near-Optimal
// Sparse Allreduce for Distributed Deep Learning", PPoPP 2022.
#include "payloads.hpp"
#include "stages.hpp"

#include <penstock/collective.hpp>

#include <kernels/message.hpp>

#include <cmath>

namespace penstock::oktopk {
namespace {

class OkTopk {
 public:
  using Channel = oktopk::Channel;
  using Ticket = oktopk::Ticket;

  static inline const sdk::OptionList options{
      sdk::integer_option("threshold_period", 32)
          .at_least(1)
          .unit("steps")
          .summary("how often the threshold is computed exactly (tau' of the paper)"),
      sdk::integer_option("boundary_period", 64)
          .at_least(1)
          .unit("steps")
          .summary("how often the regions are balanced (tau of the paper)"),
      sdk::real_option("adjust", 1.025)
          .at_least(1)
          .at_most(2)
          .unit("factor")
          .summary("by which the threshold moves when too many or too few sums survive")};

  explicit OkTopk(const sdk::Options& values)
      : rule_{static_cast<uint64_t>(values.integer("threshold_period")),
              static_cast<uint64_t>(values.integer("boundary_period")),
              static_cast<float>(values.real("adjust"))} {}

  void describe(penstock_collective_traits& traits) const {
    traits.patterns = PENSTOCK_PATTERN_BIT(PENSTOCK_SPARSE_ALL_REDUCE);
    traits.dtypes = PENSTOCK_DTYPE_BIT(PENSTOCK_FLOAT32);
    traits.device_types = uint64_t(1) << PENSTOCK_DEVICE_CPU;
    traits.abort_bound_us = 100'000;
    traits.flags = PENSTOCK_COLLECTIVE_COMPOSITE | PENSTOCK_COLLECTIVE_MAY_REFUSE |
                   PENSTOCK_COLLECTIVE_SAME_BITS;
    traits.max_in_flight = 0;
  }

  // `bytes` is a payload of k entries, 2 k words: 2P + 2 log2 P start-ups, at most 6 k (P-1)/P
  // words sent, k (P-1)/P words added up (Table 1 of the paper).
  void volume(uint32_t pattern, uint32_t hosts, uint32_t ranks_per_host, uint64_t bytes,
              penstock_volume& within, penstock_volume& between) const {
    if (pattern != PENSTOCK_SPARSE_ALL_REDUCE)
      throw sdk::unimplemented("collective/oktopk carries sparse all-reduces only, not pattern ",
                               pattern);
    const double size = static_cast<double>(hosts) * ranks_per_host;
    const double near = ranks_per_host - 1.0;
    const double far = size - ranks_per_host;
    const auto share = [&](penstock_volume& volume, double peers) {
      const double part = size > 1 ? peers / (size - 1) : 0;
      volume.startups = part * (2 * size + 2 * std::log2(size));
      volume.bytes = part * 3 * static_cast<double>(bytes) * (size - 1) / size;
      volume.reduced_bytes = part * 0.5 * static_cast<double>(bytes) * (size - 1) / size;
    };
    share(within, near);
    share(between, far);
  }

  std::unique_ptr<Channel> open(const sdk::OpenCall& call) {
    if (call.base == nullptr)
      throw sdk::invalid_argument(
          "collective/oktopk is a composite and needs a transport under it; name one in "
          "scheme.transport, for example \"mpi\"");
    penstock_collective_traits traits{};
    traits.struct_size = sizeof traits;
    sdk::check(call.base->collective->describe(call.base->instance, &traits));
    const uint64_t needed = PENSTOCK_PATTERN_BIT(PENSTOCK_ALL_REDUCE) |
                            PENSTOCK_PATTERN_BIT(PENSTOCK_ALL_GATHER) |
                            PENSTOCK_PATTERN_BIT(PENSTOCK_ALL_TO_ALL);
    if ((traits.patterns & needed) != needed)
      throw sdk::unimplemented(
          "collective/oktopk needs a transport with all-reduce, all-gather and all-to-all; the one "
          "in scheme.transport lacks ",
          lacking(needed & ~traits.patterns), "; use transport = \"mpi\"");
    // Several messages of this collective advance independently, so only tags can distinguish them.
    if ((traits.flags & PENSTOCK_COLLECTIVE_ORDERED) != 0)
      throw sdk::unimplemented(
          "collective/oktopk needs a transport that matches by tag, but the one in "
          "scheme.transport "
          "matches by order; for mpi set algorithm = \"direct\"");
    if (call.base->n_tags <= static_cast<uint64_t>(Stage::kGather))
      throw sdk::invalid_argument("collective/oktopk needs ", static_cast<int>(Stage::kDone),
                                  " tags per message, the base channel offers ", call.base->n_tags);
    auto channel = std::make_unique<Channel>();
    channel->base = *call.base;
    channel->rule = rule_;
    channel->rank = call.group.rank;
    channel->size = call.group.size;
    return channel;
  }

  void plan(Channel& channel, const penstock_message& message, sdk::CollectiveNeed& need) {
    if (message.pattern != PENSTOCK_SPARSE_ALL_REDUCE) return;
    (void)count_elements(message);
    (void)count_capacity(message);
    need.states.add("threshold", 1, 1, PENSTOCK_STATE_SOFT, PENSTOCK_FLOAT32);
    need.states.add("regions", 1, channel.size + 1, PENSTOCK_STATE_SOFT, PENSTOCK_UINT64);
    // Every rank may send different entries. The core uses the size of the item if it is smaller.
    uint64_t most = 0;
    for (uint64_t i = 0; i < message.n_items; ++i)
      most = std::max(most, message.payloads[i]->sections[0]->capacity);
    need.result_capacity = most * channel.size;
  }

  Ticket* submit(Channel& channel, const penstock_message& message) {
    if (message.pattern != PENSTOCK_SPARSE_ALL_REDUCE)
      throw sdk::unimplemented("collective/oktopk, tag ", message.tag,
                               ": carries sparse all-reduces only, not pattern ", message.pattern);
    Ticket* ticket = take_ticket(channel, message.tag);
    ticket->channel = &channel;
    ticket->message = message;
    try {
      start(*ticket);
    } catch (...) {
      release(ticket);
      throw;
    }
    return ticket;
  }

  bool progress(Ticket& ticket) { return advance(ticket); }

  void returned(Ticket& ticket, penstock_payload* const* payloads, uint64_t n_items) {
    if (ticket.stage != Stage::kDone || n_items != ticket.message.n_items)
      throw sdk::Error(PENSTOCK_FAILED_PRECONDITION,
                       sdk::text("collective/oktopk: returned is for finished messages and all ",
                                 ticket.message.n_items, " of their items, got ", n_items));
    give_back(ticket, payloads);
  }

  void release(Ticket* ticket) {
    drop_base(*ticket);
    ticket->channel->free.push_back(ticket);
  }

  // Aborts the base channel; the errors of its messages end the tickets of this channel.
  void abort(Channel& channel) {
    channel.base.collective->abort(channel.base.instance, channel.base.channel);
  }

  void close(std::unique_ptr<Channel>) {}

 private:
  // The names of the patterns in a mask.
  static std::string lacking(uint64_t patterns) {
    std::string names;
    for (uint32_t pattern = 0; patterns >> pattern != 0; ++pattern)
      if ((patterns >> pattern & 1) != 0)
        names += (names.empty() ? "" : ", ") + std::string(sdk::pattern_name(pattern));
    return names;
  }

  // Takes a free ticket that last had an equal tag: its buffers have the right size, so nothing is
  // allocated. If there is none, makes a ticket.
  static Ticket* take_ticket(Channel& channel, uint64_t tag) {
    auto& free = channel.free;
    const auto found = std::find_if(free.begin(), free.end(),
                                    [&](const Ticket* t) { return t->message.tag == tag; });
    if (found == free.end()) {
      channel.tickets.push_back(std::make_unique<Ticket>());
      free.reserve(channel.tickets.size());
      return channel.tickets.back().get();
    }
    Ticket* ticket = *found;
    *found = free.back();
    free.pop_back();
    return ticket;
  }

  Rule rule_;
};

}  // namespace
}  // namespace penstock::oktopk

PENSTOCK_COLLECTIVE(penstock::oktopk::OkTopk, "collective/oktopk", "0.1.0",
                    "sparse all-reduce of constant volume; only the largest sums survive",
                    "Li & Hoefler, Near-Optimal Sparse Allreduce for Distributed Deep Learning, "
                    "PPoPP 2022");
