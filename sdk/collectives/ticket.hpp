// The state of one message over a wire: the data exchanged with each peer.
//
// Ranks that exchange data in a message start with an opening to each other: a header that
// describes the message as the sender knows it, and the first bytes of the data. Data that do not
// fit follow in segments. So counts need not be known in advance, and ranks that disagree learn it
// from the headers instead of waiting for data that no rank sends. A rank whose message has failed
// still receives the data of the other ranks, and discards them: the channel stays usable.
//
// A rank that sends a long part to a reduction waits for its receiver's grant. The receiver sends
// it when all ranks have opened and it has a ring of buffers for the message. A sender needs no
// ring, so ranks cannot wait for each other in a circle, even if there are few rings.
#pragma once

#include "wire.hpp"

#include <penstock/collective.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <string>
#include <vector>

namespace penstock::collectives {

struct Channel;

// Segments between ranks of one host, and of one-way messages: the cost is copies and requests.
constexpr uint64_t kLongSegment = uint64_t(256) << 10;
// Segments between hosts: below the size that Open MPI and UCX send over TCP without announcement.
// A longer segment is announced first, and the answer queues behind the data that the other side
// sends over this connection: two ranks that both send get half of their link.
constexpr uint64_t kShortSegment = uint64_t(60) << 10;
constexpr uint64_t kWindowBytes = uint64_t(1) << 20;  // in flight per stream
constexpr uint64_t kMostSegments = 16;                // in flight per stream
constexpr size_t kRings = 8;                          // reductions that receive at a time
// The number of rings for long reductions. Two keep the links busy, and messages end one after the
// other: the first message is processed further while the second travels.
constexpr size_t kLongRings = 2;
constexpr uint64_t kLongShare = 2 * kWindowBytes;
// Data bytes in an opening: with its header it stays below the usual eager limits. A multiple of
// 8, so that no element is cut.
constexpr uint64_t kInlineBytes = 1984;

// Bytes that grow but never shrink; aligned for every dtype.
class Buffer {
 public:
  void resize(uint64_t bytes) {
    if (bytes <= n_words_ * 8) return;
    words_ = std::make_unique_for_overwrite<uint64_t[]>((bytes + 7) / 8);
    n_words_ = (bytes + 7) / 8;
  }
  char* data() { return reinterpret_cast<char*>(words_.get()); }

 private:
  std::unique_ptr<uint64_t[]> words_;
  uint64_t n_words_ = 0;
};

// Precedes the first bytes of data. The receiver compares it with its own message and never trusts
// it.
struct Header {
  uint64_t id;
  uint64_t count;  // elements of the whole message for reductions and broadcast, else for this peer
  uint64_t bytes;  // for this peer, including the bytes in the opening
  uint64_t counts;  // hash of all ranks' receive counts (reduce-scatter)
  uint32_t pattern;
  uint32_t dtype;
  uint32_t reduction;
  uint32_t root;
  uint32_t failed;        // 1: the sender cannot pass the message on
  uint32_t segment;       // bytes of each segment that follows
  uint32_t awaits_grant;  // 1: the segments follow after a grant
  uint32_t on_device;     // 1: the data lies in memory of a device, and none of it here
};
static_assert(sizeof(Header) == 64);

// Bytes sent one way in segments: the first is [0, lead + segment), the next have `segment` bytes.
struct Stream {
  char* data = nullptr;
  uint64_t bytes = 0;
  uint64_t lead = 0;
  uint64_t segment = kLongSegment;
  uint64_t n_segments = 0;
  uint64_t posted = 0;
  uint64_t done = 0;   // the first `done` segments have ended
  uint32_t later = 0;  // bit i: segment done + i has ended

  void set(char* first, uint64_t n_bytes, uint64_t n_lead, uint64_t segment_bytes);
  void clear() { set(nullptr, 0, 0, kLongSegment); }
  void finish(uint64_t s);
  uint64_t begin(uint64_t s) const { return s == 0 ? 0 : lead + s * segment; }
  uint64_t end(uint64_t s) const { return std::min(bytes, lead + (s + 1) * segment); }
  bool complete() const { return done == n_segments; }
};

struct Peer {
  const char* send = nullptr;  // everything for this peer, the opening's part included
  uint64_t send_bytes = 0;
  bool sends = false;         // an opening goes to it
  bool receives = false;      // an opening comes from it
  bool opened = false;        // its opening has come
  bool trash = false;         // the data that it sends are discarded
  bool granted = false;       // it takes the segments behind the opening
  bool owed_grant = false;    // it waits for this rank's grant
  uint64_t inline_bytes = 0;  // data bytes in its opening
  Stream out;                 // data to it behind the opening
  Stream in;                  // data from it behind the opening
  Stream result_out;          // all-reduce: this rank's share of the result
  Stream result_in;           // all-reduce: the peer's share of the result
  Buffer waste;
};

struct Ticket {
  explicit Ticket(const Channel& channel);

  Channel* channel = nullptr;
  penstock_message message{};
  std::chrono::steady_clock::time_point submitted;
  bool done = false;
  bool reported = false;    // for a transport that notifies: it has reported the end
  bool small = false;       // all-reduce in one step, all of it in the openings
  bool on_device = false;   // only the wire may touch the message's memory
  bool touched = false;     // there may be work to do
  bool lost = false;        // released while the wire still used its buffers
  uint64_t asked = 0;       // the channel's round at the last progress call
  uint64_t n_requests = 0;  // in flight
  // Thrown when all data have been received, or when none have come for the channel's `patience`.
  uint32_t failure_code = PENSTOCK_OK;
  std::string failure;
  std::chrono::steady_clock::time_point heard;  // when a request last ended
  std::exception_ptr thrown;                    // ends the message at once

  std::vector<Peer> peers;  // by rank in the group
  Buffer openings_out;
  Buffer openings_in;
  uint32_t n_expected = 0;  // openings
  uint32_t n_opened = 0;

  // This rank's own part that is copied: all-gather, all-to-all, a root's broadcast.
  const char* own_from = nullptr;
  char* own_to = nullptr;
  uint64_t own_bytes = 0;
  uint64_t own_copied = 0;

  // Reductions: the share that this rank adds, and a window of each peer's part.
  Stream share;  // target; `done` segments are added up
  const char* own_share = nullptr;
  Buffer ring;
  bool has_ring = false;
  bool is_long = false;  // counts towards kLongRings
  std::vector<const void*> sources;
  uint32_t arrived[kMostSegments] = {};  // number of peers, by segment in the window

  bool whole = false;  // carried by the transport itself

  bool finished() const;
};

struct Channel {
  std::unique_ptr<Wire> wire;
  uint32_t rank = 0;
  uint32_t size = 1;
  uint64_t opening_bytes = 0;  // room for the data of one opening
  uint64_t small_bytes = 0;
  uint64_t segment = kLongSegment;
  bool takes_devices = false;  // the wire moves memory of devices
  std::atomic<bool> aborted{false};
  bool settling = false;  // aborted, and a ticket was released since: nothing new begins
  std::chrono::steady_clock::time_point settle_until;
  uint64_t round = 0;                            // number of tests of the wire
  std::chrono::steady_clock::time_point now;     // at the last test
  std::chrono::milliseconds patience{10'000};    // with the sender of a message that has failed
  std::vector<std::unique_ptr<Ticket>> tickets;  // all tickets, used or free
  std::vector<Ticket*> free;
  std::vector<Ticket*> lost;
  std::vector<Buffer> rings;     // free rings
  std::vector<Ticket*> waiting;  // for a ring; first come, first served
  bool has_rings = false;
  size_t n_long = 0;  // long reductions that have a ring

  uint64_t slot_bytes() const { return sizeof(Header) + opening_bytes; }
  // Bytes in a ring for one segment of one peer.
  uint64_t ring_slot() const { return segment + kInlineBytes; }
};

// Segments of a stream that may be in flight.
inline uint64_t window(uint64_t segment) {
  return std::clamp<uint64_t>(kWindowBytes / segment, 1, kMostSegments);
}

// Returns a ticket that is ready for a message; makes more tickets when all are in use.
Ticket& take_ticket(Channel& channel);

// Post a request of `ticket` under the message's tag and the request's kind, so that openings and
// segments never mix.
void send(Ticket& ticket, const Event& event, const void* data);
void receive(Ticket& ticket, const Event& event, void* data);

}  // namespace penstock::collectives
