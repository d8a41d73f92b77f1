// One message of a bucket. It is made at plan time and sent once in each step. Each kind of message
// is a class with a file of its own: sums.hpp, plain.hpp, gathers.hpp, composites.hpp, dense.hpp
// and announcement.hpp.
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
  Coding* coding = nullptr;  // the coding of its items
  Link* link = nullptr;
  WorkPlace* place = nullptr;  // its buffers lie there
  std::vector<size_t> items;   // positions among the coding's items
  // For messages that go to owners or come from owners: the items of each rank of the group.
  std::vector<std::vector<size_t>> by_owner;
  WorkMemory send;
  WorkMemory receive;       // empty: received in place, or in the gradient's storage
  uint64_t flag_index = 0;  // element that counts ranks with non-finite gradients; sums only
  bool has_flag = false;
  bool is_mean = false;  // arriving values are divided by the ranks, the flag too
  uint64_t order = 0;    // among the link's messages of the phase
  bool sent = false;     // in this step
  // It is sent after other messages of its round, by a stage of its own (announcement.hpp,
  // slices.hpp).
  bool has_own_stage = false;
  std::vector<uint64_t> send_counts, send_offsets;  // of each part
  std::vector<uint64_t> receive_counts, receive_offsets;

  uint32_t group_rank() const { return link->channel->group.rank; }
  uint32_t group_size() const { return link->channel->group.size; }
  bool is_announced() const { return link->is_announced; }

  // The name of its kind, for traces and error messages.
  virtual std::string_view name() const = 0;
  // True: for each item one payload arrives for all ranks together. False: one payload arrives from
  // each rank.
  virtual bool joins() const { return true; }
  // The items whose payloads come from a rank.
  virtual const std::vector<size_t>& coming_from(uint32_t) const { return items; }

  // ---- in a step, in this order [engine] ----

  // Points payloads at their places in the message.
  virtual Status before_encode(uint32_t /*round*/) { return {}; }
  // Fills in the parts that differ from step to step. For an announced message `pack` does this.
  virtual Status prepare(Leg&, uint32_t /*round*/) { return {}; }
  virtual Status pack(uint32_t /*round*/) { return {}; }
  // In a trial without the other ranks: copies the sent data to the place of every rank.
  virtual void echo(uint32_t round);
  // Finds out whether the bucket is void, and points payloads at the received data.
  // INVALID_PAYLOAD, MISMATCH.
  virtual Status read(const Leg&, uint32_t /*round*/) { return {}; }
  virtual Status before_decode() { return {}; }

  void finished(Status status) override;
};

}  // namespace penstock
