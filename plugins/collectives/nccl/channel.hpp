// A channel: a communicator, a stream, and a queue of messages.
//
// NCCL matches the operations of the ranks on a communicator by order, and a call may be in
// progress for a while before the next call is allowed. So messages are issued one after the other,
// in the order of submit:
//
//   waiting -> announcing -> counting -> issuing -> running -> done
//
// A message passes `announcing` and `counting` only if this rank does not know how many elements
// the other ranks will send: the ranks exchange counts first, which come back through pinned
// memory. From `running` on the message lies on the stream, and the next message is issued. No call
// waits: every `submit` and `progress` moves the queue on as far as possible.
#pragma once

#include "device.hpp"
#include "exchange.hpp"

#include <penstock/collective.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <string>
#include <vector>

namespace penstock::nccl {

using Clock = std::chrono::steady_clock;

struct Channel;

enum class Stage { waiting, announcing, counting, issuing, running, done };

struct Ticket {
  Channel* channel = nullptr;
  penstock_message message{};
  Stage stage = Stage::done;
  Clock::time_point submitted;
  Event produced;  // after the work that the message's stream had queued at submit
  Event ended;     // after the copy of the counts, later after the message itself
};

// The reason why the channel is lost. All its tickets then end with this error, because NCCL cannot
// cancel a single message.
struct Loss {
  uint32_t code = PENSTOCK_OK;  // PENSTOCK_OK: the channel is not lost
  std::string words;
};

struct Channel {
  // Makes a channel without a communicator, which `open` makes. [comm]
  Channel(const Library& library, const penstock_group& group, int device);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  // These functions do the work of the functions of penstock_collective with equal names. [comm]
  void open(const UniqueId& id, uint64_t timeout_us);
  Ticket* submit(const penstock_message& message);
  bool progress(Ticket& ticket);
  void release(Ticket& ticket);
  // Finishes the queued work and destroys the communicator, unless the channel is lost.
  void close();

  const Library& library;
  const int device;
  const uint32_t rank;
  const uint32_t size;
  std::atomic<bool> aborted{false};  // [any] thread may set it; [comm] acts on it

 private:
  void advance();
  // Whether the communicator accepts the next call.
  bool is_settled();
  Members members() const { return {library, communicator_, stream_.get(), rank, size}; }
  // Moves the head of the queue on by one stage; false if it has to wait.
  bool move_on(Ticket& head);
  void announce(const Ticket& ticket);
  void fetch_counts(Ticket& ticket);
  // Writes the received counts into the message. Throws MISMATCH if there is too little room.
  void read_counts(Ticket& ticket);
  void lose(uint32_t code, const std::string& words);
  bool is_lost();  // loses the channel if it was aborted
  void check_state(const penstock_message& message);
  void drop_communicator();

  Handle* communicator_ = nullptr;
  Stream stream_;
  Counts counts_;  // [size] of this rank, then [size] of the other ranks
  Loss loss_;
  std::vector<Ticket*> queue_;  // in order of submit, from `head_` on
  size_t head_ = 0;
  std::deque<Ticket> tickets_;
  std::vector<Ticket*> free_;
};

}  // namespace penstock::nccl
