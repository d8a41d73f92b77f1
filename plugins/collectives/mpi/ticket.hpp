// One message over MPI: what is exchanged with each peer, and the requests in flight.
//
// Every pair of ranks that exchange anything in a message starts with an opening: a header that
// says what the sender believes the message to be, and the first bytes of the data. What does not
// fit follows in segments. So counts need not be known in advance, and ranks that disagree learn it
// from the headers instead of waiting for data that nobody sends. A rank whose message has failed
// still takes what the others send, and throws it away: the channel stays usable.
#pragma once

#include "library.hpp"

#include <penstock/collective.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace penstock::mpi {

struct Channel;

constexpr uint64_t kSegment = uint64_t(256) << 10;  // bytes
constexpr uint64_t kWindow = 4;                     // segments in flight per stream
// Data bytes in an opening: with its header it stays below MPI's usual eager limits. A multiple of
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
  uint32_t failed;  // 1: the sender cannot pass the message on
  uint32_t reserved[3];
};
static_assert(sizeof(Header) == 64);

// Bytes that go one way in segments: [0, lead + kSegment), and kSegment each from there.
struct Stream {
  char* data = nullptr;
  uint64_t bytes = 0;
  uint64_t lead = 0;
  uint64_t n_segments = 0;
  uint64_t posted = 0;
  uint64_t done = 0;

  void set(char* first, uint64_t n_bytes, uint64_t n_lead);
  uint64_t begin(uint64_t segment) const { return segment == 0 ? 0 : lead + segment * kSegment; }
  uint64_t end(uint64_t segment) const { return std::min(bytes, lead + (segment + 1) * kSegment); }
  bool complete() const { return done == n_segments; }
};

struct Peer {
  const char* send = nullptr;  // everything for this peer, the opening's part included
  uint64_t send_bytes = 0;
  bool sends = false;         // an opening goes to it
  bool receives = false;      // an opening comes from it
  bool opened = false;        // and has come
  bool trash = false;         // what it sends is thrown away
  uint64_t inline_bytes = 0;  // of its opening
  Stream out;                 // the rest of what it is sent
  Stream in;                  // the rest of what it sends
  Stream result_out;          // all-reduce: this rank's share of the result
  Stream result_in;           // and the peer's
  Buffer waste;
};

enum class Kind : uint8_t { kOpeningOut, kOpeningIn, kOut, kIn, kResultOut, kResultIn, kNative };

// What a finished request was for.
struct Event {
  Kind kind;
  uint32_t peer;
  uint64_t segment;
  uint64_t bytes;  // received
};

// The requests of a ticket; slots are reused.
class Requests {
 public:
  // Where MPI may put a request that stands for `event`; event.bytes is what is expected.
  MPI_Request* add(const Event& event);
  // Tests all once and calls handle(event, expected_bytes) for each that has finished.
  template <typename Handle>
  void test(Handle&& handle);
  bool empty() const { return n_active_ == 0; }
  // Makes room, so that add does not allocate up to `n` requests at a time.
  void reserve(uint64_t n);
  // Takes back the receives that nothing has come for.
  void cancel();
  // Frees what can be freed; true when nothing is left.
  bool drain();

 private:
  struct Finished {
    Event event;
    uint64_t expected;
  };
  void collect();
  std::vector<MPI_Request> requests_;
  std::vector<Event> events_;
  std::vector<int> free_;
  std::vector<int> indices_;
  std::vector<MPI_Status> statuses_;
  std::vector<Finished> finished_;
  uint64_t n_active_ = 0;
};

struct Ticket {
  Channel* channel = nullptr;
  penstock_message message{};
  std::chrono::steady_clock::time_point submitted;
  bool done = false;
  bool small = false;                   // all-reduce in one step, all of it in the openings
  uint32_t failure_code = PENSTOCK_OK;  // thrown when everything has been taken
  std::string failure;

  std::vector<Peer> peers;  // by rank in the group
  Requests requests;
  Buffer openings_out;
  Buffer openings_in;
  uint32_t n_expected = 0;  // openings
  uint32_t n_opened = 0;

  // This rank's own part that is copied: all-gather, all-to-all, a root's broadcast.
  const char* own_from = nullptr;
  char* own_to = nullptr;
  uint64_t own_bytes = 0;
  uint64_t own_copied = 0;

  // Reductions: the share this rank adds up, and the peers' parts of it, kWindow segments of each.
  Stream share;  // target; `done` segments are added up
  const char* own_share = nullptr;
  Buffer ring;
  uint64_t ring_slot = 0;  // bytes
  std::vector<const void*> sources;
  std::vector<uint32_t> arrived;  // by segment: from how many peers; broadcast: 1 when it is here

  bool native = false;
  std::vector<int> native_counts;

  bool finished() const;
};

struct Channel {
  MPI_Comm communicator = MPI_COMM_NULL;
  uint32_t rank = 0;
  uint32_t size = 1;
  uint64_t opening_bytes = 0;  // room for the data of one opening
  uint64_t small_bytes = 0;
  bool native = false;
  std::atomic<bool> aborted{false};
  std::vector<std::unique_ptr<Ticket>> tickets;  // all that were ever made
  std::vector<Ticket*> free;
  std::vector<Ticket*> lost;  // released while MPI still uses their buffers

  int tag(const penstock_message& message, Kind kind) const;
};

template <typename Handle>
void Requests::test(Handle&& handle) {
  collect();
  // A handler may add requests, which reuse slots: `finished_` holds copies.
  for (const Finished& finished : finished_) handle(finished.event, finished.expected);
}

}  // namespace penstock::mpi
