// The messages in transit between the members of one group, which share this object.
//
// A message is copied when it is submitted, and the copy never changes afterwards. So a rank may
// end, abort or free its buffers at any moment, and no other rank reads freed memory. A rendezvous
// is one message of the group (or one send with its receive): the n-th messages of the members
// under an equal tag. Reductions are cut into segments. The next member that polls computes the
// next segment; each segment is computed once, always in ascending rank order, so the result has
// equal bits for all members.
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
  // Makes room for `bytes`; the contents are undefined.
  void resize(uint64_t bytes);
  char* data() { return reinterpret_cast<char*>(words_.get()); }

 private:
  std::unique_ptr<uint64_t[]> words_;
  uint64_t n_words_ = 0;
};

// The times of a simulated link. A message ends latency_us + us_per_byte * its bytes after all
// members have submitted it and the message before it has ended. Its bytes are the largest number
// that any rank submits.
struct Delay {
  double latency_us = 0;
  double us_per_byte = 0;
  bool any() const { return latency_us > 0 || us_per_byte > 0; }
};

// The data that one member brought to a rendezvous. It is constant from `arrived` until the
// rendezvous is over.
struct Part {
  bool arrived = false;
  bool released = false;
  uint32_t pattern = 0;
  uint32_t reduction = 0;
  uint32_t dtype = 0;
  uint32_t peer = 0;
  uint64_t count = 0;
  std::vector<uint64_t> counts;  // ALL_TO_ALL: sent to each rank; REDUCE_SCATTER: each rank's part
  Buffer bytes;
};

struct Rendezvous {
  // Members are 0 .. size - 1 of the group. In a send with its receive, part 0 is the sender and
  // part 1 the receiver.
  struct Key {
    uint64_t tag;
    uint32_t from;  // kAll: a message of the whole group
    uint32_t to;
    uint64_t turn;
    auto operator<=>(const Key&) const = default;
  };
  static constexpr uint32_t kAll = ~uint32_t(0);

  Key key{};
  std::vector<Part> parts;
  uint32_t n_arrived = 0;
  std::chrono::steady_clock::time_point over;  // when a simulated link has carried the message
  std::string disagreement;  // set by the last member that arrives; empty if all parts agree
  // For reductions. Segments below next_segment are taken; n_reduced segments are done.
  uint64_t n_segments = 0;
  std::atomic<uint64_t> next_segment{0};
  std::atomic<uint64_t> n_reduced{0};
  std::vector<const void*> sources;
  Buffer result;
};

// One message of one member. Used by the member's communication thread only.
struct Ticket {
  penstock_message message{};
  void* channel = nullptr;  // the channel that owns the ticket
  uint32_t rank = 0;        // this member's rank in the group
  uint32_t part = 0;
  Rendezvous* rendezvous = nullptr;
  std::chrono::steady_clock::time_point submitted;
  bool done = false;
  uint32_t from = 0;    // all-gather, all-to-all: the rank whose elements are being copied
  uint64_t copied = 0;  // bytes copied of these elements, or of the whole result
};

class Exchange {
 public:
  explicit Exchange(std::vector<uint32_t> members, Delay delay = {});

  const std::vector<uint32_t>& members() const { return members_; }
  uint32_t size() const { return static_cast<uint32_t>(members_.size()); }

  // Copies the data that the message sends, and finds its rendezvous. Throws if the group was
  // aborted.
  void submit(Ticket& ticket);
  // Takes one bounded step; true once the message is complete. Throws when the message cannot be
  // completed any more.
  bool progress(Ticket& ticket);
  void release(Ticket& ticket);

  // Makes every ticket end in an error. [any]
  void abort(uint32_t rank);
  // Reports that a member submits nothing more. True if it was the last member. [any]
  [[nodiscard]] bool leave(uint32_t rank);

 private:
  struct Sequence {  // messages that only their turn distinguishes
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
  std::mutex mutex_;  // guards all members below, except the bytes of complete rendezvous
  std::chrono::steady_clock::time_point link_free_;  // when the simulated link is free
  std::vector<bool> left_;
  uint32_t n_left_ = 0;
  std::string aborted_by_;
  std::map<Sequence, uint64_t> turns_;
  std::vector<std::unique_ptr<Rendezvous>> active_;
  std::vector<std::unique_ptr<Rendezvous>> spare_;
};

}  // namespace penstock::loopback
