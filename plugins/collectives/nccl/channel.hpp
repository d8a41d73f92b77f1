// A channel: a communicator, a stream, and a queue of messages.
//
// NCCL matches what ranks queue on a communicator by order, and a call may be under way for a while
// before the next is allowed. So messages are issued one after the other, in the order of submit:
//
//   waiting -> announcing -> counting -> issuing -> running -> done
//
// `announcing` and `counting` are there only where this rank does not know what others will send:
// counts are exchanged first, and come back through pinned memory. From `running` on the message
// lies on the stream, and the next one is issued. Nobody waits: whoever asks for progress moves the
// queue on as far as it goes.
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
  Event produced;  // what the message's stream had queued at submit
  Event ended;     // the counts', then the message's own
};

// What takes the channel down. Its tickets all end with it, for NCCL takes no single message back.
struct Loss {
  uint32_t code = PENSTOCK_OK;  // nothing has
  std::string words;
};

struct Channel {
  // The communicator is made by open. [comm]
  Channel(const Library& library, const penstock_group& group, int device);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  // As in penstock_collective. [comm]
  void open(const UniqueId& id, uint64_t timeout_us);
  Ticket* submit(const penstock_message& message);
  bool progress(Ticket& ticket);
  void release(Ticket& ticket);
  // Finishes what is queued and parts, unless the channel is lost.
  void close();

  const Library& library;
  const int device;
  const uint32_t rank;
  const uint32_t size;
  std::atomic<bool> aborted{false};  // [any] may set it; [comm] acts on it

 private:
  void advance();
  // Whether the communicator takes the next call.
  bool is_settled();
  Members members() const { return {library, communicator_, stream_.get(), rank, size}; }
  // Takes the head of the queue one stage on; false where it has to wait.
  bool move_on(Ticket& head);
  void announce(const Ticket& ticket);
  void fetch_counts(Ticket& ticket);
  // Puts the counts that came into the message. Throws MISMATCH where there is no room.
  void read_counts(Ticket& ticket);
  void lose(uint32_t code, const std::string& words);
  bool is_lost();  // an abort is acted on here
  void check_state(const penstock_message& message);
  void drop_communicator();

  Handle* communicator_ = nullptr;
  Stream stream_;
  Counts counts_;  // [size] of this rank, [size] of the others
  Loss loss_;
  std::vector<Ticket*> queue_;  // in order of submit, from `head_` on
  size_t head_ = 0;
  std::deque<Ticket> tickets_;
  std::vector<Ticket*> free_;
};

}  // namespace penstock::nccl
