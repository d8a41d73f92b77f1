// One message of a bucket, made at plan time and sent once in each step. Each kind is a class with
// a file: sums.hpp, plain.hpp, gathers.hpp, composites.hpp, dense.hpp and announcement.hpp.
#pragma once

#include "core/bucket/context.hpp"
#include "core/bucket/work_memory.hpp"

#include <vector>

namespace penstock {

struct Coding;
struct Leg;

struct MessageRun : Transfer {
  virtual ~MessageRun() = default;
  MessageRun() = default;
  MessageRun(const MessageRun&) = delete;
  MessageRun& operator=(const MessageRun&) = delete;

  BucketRun* bucket = nullptr;
  Coding* coding = nullptr;  // whose items these are
  Link* link = nullptr;
  WorkPlace* place = nullptr;  // whose memory it has
  std::vector<size_t> items;   // positions among the coding's items
  // Messages that go to owners, or come from them: the items of each rank of the group.
  std::vector<std::vector<size_t>> by_owner;
  WorkMemory send;
  WorkMemory receive;       // empty: in place, or in the gradient's own storage
  uint64_t flag_index = 0;  // element that counts ranks with non-finite gradients; sums only
  bool has_flag = false;
  bool is_mean = false;  // what arrives is divided by the ranks, its flag too
  uint64_t order = 0;    // among the link's messages of the phase
  bool sent = false;     // in this step
  // It goes behind others of its round, by a stage of its own (announcement.hpp).
  bool has_own_stage = false;
  std::vector<uint64_t> send_counts, send_offsets;  // of each part
  std::vector<uint64_t> receive_counts, receive_offsets;

  uint32_t group_rank() const { return link->channel->group.rank; }
  uint32_t group_size() const { return link->channel->group.size; }
  bool is_announced() const { return link->is_announced; }

  // What it moves, for people.
  virtual std::string_view name() const = 0;
  // True: of an item arrives one payload for all ranks together. False: one from each rank.
  virtual bool joins() const { return true; }
  // The items of what comes from a rank.
  virtual const std::vector<size_t>& coming_from(uint32_t) const { return items; }

  // ---- in a step, in this order [engine] ----

  // Points payloads at their places in the message.
  virtual Status before_encode(uint32_t /*round*/) { return {}; }
  // Fills in what differs from step to step; of announced messages `pack` does.
  virtual Status prepare(Leg&, uint32_t /*round*/) { return {}; }
  virtual Status pack(uint32_t /*round*/) { return {}; }
  // In a trial without the other ranks: copies what is sent to the place of every rank.
  virtual void echo(uint32_t round);
  // Finds out whether the bucket is void, and points payloads at what has arrived. INVALID_PAYLOAD,
  // MISMATCH.
  virtual Status read(const Leg&, uint32_t /*round*/) { return {}; }
  virtual Status before_decode() { return {}; }

  void finished(Status status) override;
};

}  // namespace penstock
