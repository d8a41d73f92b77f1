// One message over a wire: what is exchanged with each peer.
//
// Every pair of ranks that exchange anything in a message starts with an opening: a header that
// says what the sender believes the message to be, and the first bytes of the data. What does not
// fit follows in segments. So counts need not be known in advance, and ranks that disagree learn it
// from the headers instead of waiting for data that nobody sends. A rank whose message has failed
// still takes what the others send, and throws it away: the channel stays usable.
//
// Who sends a long part to a reduction waits for its receiver's grant, which comes when all ranks
// have opened and the receiver has a ring of buffers for it. A sender needs no ring, so rings,
// however few, never make ranks wait for each other in a circle.
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

// Segments between ranks of one host, and of one-way messages: copies and requests are what costs.
constexpr uint64_t kLongSegment = uint64_t(256) << 10;
// Segments between hosts: below what Open MPI and UCX send over TCP at once. A longer one is
// announced first, and the answer queues behind the data that the other side sends over the same
// connection: two ranks that both send get half of their link.
constexpr uint64_t kShortSegment = uint64_t(60) << 10;
constexpr uint64_t kWindowBytes = uint64_t(1) << 20;  // in flight per stream
constexpr uint64_t kMostSegments = 16;                // in flight per stream
constexpr size_t kRings = 8;                          // reductions that receive at a time
// Of these, long ones. Two keep the links busy, and messages end one after the other: what is done
// with the first is done while the second travels.
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

// Travels in front of the first bytes. Input to the receiver: it is compared, never trusted.
struct Header {
  uint64_t id;
  uint64_t count;  // elements of the whole message for reductions and broadcast, else for this peer
  uint64_t bytes;  // for this peer, those in the opening included
  uint64_t counts;  // hash of what all ranks receive (reduce-scatter)
  uint32_t pattern;
  uint32_t dtype;
  uint32_t reduction;
  uint32_t root;
  uint32_t failed;        // 1: the sender cannot pass the message on
  uint32_t segment;       // bytes; what follows is cut into these
  uint32_t awaits_grant;  // 1: what follows comes after a grant
  uint32_t on_device;     // 1: the data lies in memory of a device, and none of it here
};
static_assert(sizeof(Header) == 64);

// Bytes that go one way in segments: [0, lead + segment), and `segment` bytes each from there.
struct Stream {
  char* data = nullptr;
  uint64_t bytes = 0;
  uint64_t lead = 0;
  uint64_t segment = kLongSegment;
  uint64_t n_segments = 0;
  uint64_t posted = 0;
  uint64_t done = 0;   // the first `done` segments are over
  uint32_t later = 0;  // bit i: so is segment done + i

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
  bool opened = false;        // and has come
  bool trash = false;         // what it sends is thrown away
  bool granted = false;       // it takes what follows the opening
  bool owed_grant = false;    // it waits for this rank's grant
  uint64_t inline_bytes = 0;  // of its opening
  Stream out;                 // the rest of what it is sent
  Stream in;                  // the rest of what it sends
  Stream result_out;          // all-reduce: this rank's share of the result
  Stream result_in;           // and the peer's
  Buffer waste;
};

struct Ticket {
  explicit Ticket(const Channel& channel);

  Channel* channel = nullptr;
  penstock_message message{};
  std::chrono::steady_clock::time_point submitted;
  bool done = false;
  bool told = false;                    // for a transport that says later that it is done
  bool small = false;                   // all-reduce in one step, all of it in the openings
  bool on_device = false;               // nobody but the wire may touch the message's memory
  bool touched = false;                 // there may be something to do
  bool lost = false;                    // released while the wire still used its buffers
  uint64_t asked = 0;                   // the channel's round when it was last asked after
  uint64_t n_requests = 0;              // in flight
  uint32_t failure_code = PENSTOCK_OK;  // thrown when everything has been taken
  std::string failure;
  std::exception_ptr thrown;  // ends the message at once

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

  // Reductions: the share this rank adds up, and the peers' parts of it, a window of each.
  Stream share;  // target; `done` segments are added up
  const char* own_share = nullptr;
  Buffer ring;
  bool has_ring = false;
  bool is_long = false;  // of those of which few have a ring at a time
  std::vector<const void*> sources;
  uint32_t arrived[kMostSegments] = {};  // by segment in the window: from how many peers

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
  uint64_t round = 0;                            // how often the wire was tested
  std::chrono::steady_clock::time_point now;     // at the last test
  std::vector<std::unique_ptr<Ticket>> tickets;  // all that were ever made
  std::vector<Ticket*> free;
  std::vector<Ticket*> lost;
  std::vector<Buffer> rings;     // free ones
  std::vector<Ticket*> waiting;  // for a ring; first come, first served
  bool has_rings = false;
  size_t n_long = 0;  // long reductions that have a ring

  uint64_t slot_bytes() const { return sizeof(Header) + opening_bytes; }
  // Of a ring, for one segment of one peer.
  uint64_t ring_slot() const { return segment + kInlineBytes; }
};

// Segments of a stream that may be in flight.
inline uint64_t window(uint64_t segment) {
  return std::clamp<uint64_t>(kWindowBytes / segment, 1, kMostSegments);
}

// A ticket that is ready for a message; makes more when all are in use.
Ticket& take_ticket(Channel& channel);

// Post a request of `ticket` under the message's tag and what it is for, so that openings and
// segments never mix.
void send(Ticket& ticket, const Event& event, const void* data);
void receive(Ticket& ticket, const Event& event, void* data);

}  // namespace penstock::collectives
