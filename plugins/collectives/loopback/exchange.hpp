// What the members of one group share: messages on their way.
//
// A message is copied when it is submitted and never changes afterwards, so that a rank may end,
// abort or free its buffers at any moment without anybody reading freed memory. A rendezvous is one
// message of the group (or one send with its receive): the members whose tag is the same, for the
// n-th time. Reductions are cut into segments that whoever polls first computes, each once, always
// in ascending rank order; the result has the same bits for everybody.
#pragma once

#include <penstock/collective.h>

#include <atomic>
#include <chrono>
#include <compare>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace penstock::loopback {

// Bytes that grow but never shrink; aligned for every dtype.
class Buffer {
 public:
  // Room for `bytes`; contents are undefined.
  void resize(uint64_t bytes);
  char* data() { return reinterpret_cast<char*>(words_.get()); }

 private:
  std::unique_ptr<uint64_t[]> words_;
  uint64_t n_words_ = 0;
};

// What a pretended link takes: a message is over latency_us + us_per_byte * its bytes after all
// have come and the one before it is over. The bytes are those that a rank hands over, the most of
// any.
struct Delay {
  double latency_us = 0;
  double us_per_byte = 0;
  bool any() const { return latency_us > 0 || us_per_byte > 0; }
};

// What one member brought to a rendezvous. Constant once `arrived`, until the rendezvous is over.
struct Part {
  bool arrived = false;
  bool released = false;
  uint32_t pattern = 0;
  uint32_t reduction = 0;
  uint32_t dtype = 0;
  uint32_t peer = 0;
  uint64_t count = 0;
  std::vector<uint64_t> counts;  // ALL_TO_ALL: for each rank; REDUCE_SCATTER: of each rank
  Buffer bytes;
};

struct Rendezvous {
  // Members are 0 .. size - 1 of the group; in a send with its receive 0 is the sender, 1 the
  // receiver.
  struct Key {
    uint64_t tag;
    uint32_t from;  // kAll for the whole group
    uint32_t to;
    uint64_t turn;
    auto operator<=>(const Key&) const = default;
  };
  static constexpr uint32_t kAll = ~uint32_t(0);

  Key key{};
  std::vector<Part> parts;
  uint32_t n_arrived = 0;
  std::chrono::steady_clock::time_point over;  // of a pretended link
  std::string disagreement;  // set by the last to arrive; empty when all parts fit together
  // Reductions. Segments below next_segment are taken, n_reduced of them are done.
  uint64_t n_segments = 0;
  std::atomic<uint64_t> next_segment{0};
  std::atomic<uint64_t> n_reduced{0};
  std::vector<const void*> sources;
  Buffer result;
};

// One message of one member. Used by the member's communication thread only.
struct Ticket {
  penstock_message message{};
  void* channel = nullptr;  // whose ticket it is
  uint32_t rank = 0;        // of the group
  uint32_t part = 0;
  Rendezvous* rendezvous = nullptr;
  std::chrono::steady_clock::time_point submitted;
  bool done = false;
  uint32_t from = 0;    // all-gather, all-to-all: whose elements are being copied
  uint64_t copied = 0;  // bytes of them, or of the whole result
};

class Exchange {
 public:
  explicit Exchange(std::vector<uint32_t> members, Delay delay = {});

  const std::vector<uint32_t>& members() const { return members_; }
  uint32_t size() const { return static_cast<uint32_t>(members_.size()); }

  // Copies what the message sends and finds its rendezvous. Throws when the group was aborted.
  void submit(Ticket& ticket);
  // A bounded step; true at the end. Throws when the message cannot be completed any more.
  bool progress(Ticket& ticket);
  void release(Ticket& ticket);

  // Every ticket ends in an error. [any]
  void abort(uint32_t rank);
  // A member brings nothing more. True when it was the last one. [any]
  [[nodiscard]] bool leave(uint32_t rank);

 private:
  struct Sequence {  // messages that are told apart by their turn
    uint32_t rank;
    uint64_t tag;
    uint32_t from;
    uint32_t to;
    auto operator<=>(const Sequence&) const = default;
  };

  Rendezvous& meet(const Rendezvous::Key& key, uint32_t n_parts);
  void arrive(Rendezvous& rendezvous, const Ticket& ticket);
  void check_parts(Rendezvous& rendezvous) const;
  void take_link(Rendezvous& rendezvous);
  bool gathered(const Ticket& ticket);
  void refuse_if_aborted(const penstock_message& message) const;
  void recycle_finished(Rendezvous& rendezvous);
  uint32_t member_of(const Rendezvous& rendezvous, uint32_t part) const;
  std::string name_of(uint32_t rank) const;

  const std::vector<uint32_t> members_;
  const Delay delay_;
  std::mutex mutex_;  // guards all that follows, but not the bytes of complete rendezvous
  std::chrono::steady_clock::time_point link_free_;  // of the pretended link
  std::vector<bool> left_;
  uint32_t n_left_ = 0;
  std::string aborted_by_;
  std::map<Sequence, uint64_t> turns_;
  std::vector<std::unique_ptr<Rendezvous>> active_;
  std::vector<std::unique_ptr<Rendezvous>> spare_;
};

}  // namespace penstock::loopback
