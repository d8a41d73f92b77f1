// One message of a bucket, made at plan time and sent once in each step.
#pragma once

#include "core/bucket/context.hpp"
#include "core/bucket/work_memory.hpp"

#include <vector>

namespace penstock {

struct Coding;
class StateView;

struct MessageRun final : Transfer {
  // `passed_on` sends what an earlier leg has received; `scattered` the gradients as they are, to
  // those that own them, and `spread` the results back. `header` and `turn` go before what is
  // announced (announcement.hpp).
  enum class Kind {
    prologue,
    sum,
    gather,
    sparse,
    flag,
    passed_on,
    scattered,
    spread,
    header,
    turn
  };
  Kind kind = Kind::sum;
  BucketRun* bucket = nullptr;
  Coding* coding = nullptr;  // whose items these are
  Link* link = nullptr;
  WorkPlace* place = nullptr;  // whose memory it has
  std::vector<size_t> items;   // positions among the coding's items
  // Gathers that go to owners, or come from them: of these, the items of each rank of the group.
  std::vector<std::vector<size_t>> by_owner;
  WorkMemory send;
  WorkMemory receive;       // empty: in place, or in the gradient's own storage
  WorkMemory packed;        // announced gathers whose counts vary: what of `send` goes, together
  uint64_t flag_index = 0;  // element that counts ranks with non-finite gradients; sums only
  bool has_flag = false;
  bool is_mean = false;  // what arrives is divided by the ranks, its flag too
  uint64_t order = 0;    // among the link's messages of the phase
  bool sent = false;     // in this step
  // It goes behind others of its round, by a stage of its own (announcement.hpp).
  bool has_own_stage = false;
  std::vector<uint64_t> send_counts, send_offsets;  // of each part
  std::vector<uint64_t> receive_counts, receive_offsets;
  std::vector<uint64_t> room_for;  // gathers: the most that each rank may send here
  std::vector<const penstock_item*> item_pointers;  // sparse
  std::vector<const penstock_payload*> payload_pointers;
  std::vector<penstock_payload*> result_pointers;
  std::vector<penstock_payload*> refused_pointers;
  std::vector<const penstock_tensor*> states;
  std::vector<StateView*> state_views;  // the same
  Buffer scratch;                       // a composite's own
  penstock_exec exec{};

  uint32_t group_rank() const { return link->channel->group.rank; }
  uint32_t group_size() const { return link->channel->group.size; }
  // The items of what goes to a rank, and of what comes from it.
  const std::vector<size_t>& sent_to(uint32_t rank) const {
    if (by_owner.empty()) return items;
    return by_owner[message.pattern == PENSTOCK_ALL_TO_ALL ? rank : group_rank()];
  }
  const std::vector<size_t>& coming_from(uint32_t rank) const {
    if (by_owner.empty()) return items;
    return by_owner[message.pattern == PENSTOCK_ALL_TO_ALL ? group_rank() : rank];
  }
  bool is_announced() const { return link->is_announced; }
  // An all-to-all has a part for each rank, all others one.
  uint32_t n_parts() const { return message.pattern == PENSTOCK_ALL_TO_ALL ? group_size() : 1; }

  Status collect(Channel& channel, penstock_ticket* ticket) override;
  void finished(Status status) override;
};

}  // namespace penstock
