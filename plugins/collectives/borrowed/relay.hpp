// Frames on their way between the communication thread and the frontend's threads: where the two
// meet, and the only place of this plugin that more than one thread uses.
#pragma once

#include <penstock/base.h>

#include <collectives/ticket.hpp>

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace penstock::borrowed {

// In front of each frame's data. Input to the receiver.
struct Label {
  uint64_t group;  // number of the channel's group
  uint64_t match;  // the channel's own, or one of those below
  uint64_t bytes;  // of data
};

constexpr uint64_t kHello = uint64_t(1) << 23;  // its sender has opened the group
constexpr uint64_t kFarewell = kHello + 1;      // its sender has left the run

// The longest that a wire is given: a segment, with what the first one carries beyond.
constexpr uint64_t kMostData = collectives::kLongSegment + collectives::kInlineBytes;
constexpr uint64_t kFrameBytes = sizeof(Label) + kMostData;
// Posted for each peer at a time: a frame need not wait until the one before it was put away.
constexpr uint64_t kReceives = 4;

// Label and data in one piece of memory, all of the same size.
class Frame {
 public:
  Frame() : words_(std::make_unique_for_overwrite<uint64_t[]>((kFrameBytes + 7) / 8)) {}
  Label& label() { return *reinterpret_cast<Label*>(words_.get()); }
  char* data() { return reinterpret_cast<char*>(words_.get()) + sizeof(Label); }
  char* bytes() { return reinterpret_cast<char*>(words_.get()); }
  uint64_t size() { return sizeof(Label) + label().bytes; }

 private:
  std::unique_ptr<uint64_t[]> words_;
};

struct Arrival {
  uint32_t from;
  Frame frame;
};

// A frame that was sent: whose it was.
struct Sent {
  uint64_t group;
  size_t request;
};

constexpr size_t kNobody = SIZE_MAX;  // a request that nobody waits for

// Ranks are those of the world.
class Relay {
 public:
  Relay(uint32_t rank, uint32_t size) : rank_(rank), peers_(size) {}

  uint32_t rank() const { return rank_; }
  uint32_t size() const { return static_cast<uint32_t>(peers_.size()); }

  // ---- the communication thread's side ----
  Frame empty_frame();
  void give_back(Frame frame);
  void post(uint32_t to, size_t request, Frame frame);
  // What has come and what has left since the last call, and how often ranks have gone: all that
  // these had sent is among what has come.
  uint32_t take(std::vector<Arrival>& arrivals, std::vector<Sent>& sent);
  // Empty for a rank that is here. Nothing more comes from one that is gone; what was posted for it
  // still leaves, unless it is lost, too.
  std::string why_gone(uint32_t peer);
  bool is_lost(uint32_t peer);
  // What has not begun to leave never will: the run was aborted.
  void drop();

  // ---- the frontend's side: as in borrowed.h ----
  const void* next(uint32_t to, uint64_t& bytes);
  bool came(uint32_t from, const void* frame);
  void lost(uint32_t peer, const std::string& why);
  void end();

 private:
  struct Outgoing {
    size_t request;
    Frame frame;
  };
  struct Peer {
    std::deque<Outgoing> queue;
    std::vector<Outgoing> leaving;  // at most one: what `next` has handed out
    std::condition_variable wake;
    uint64_t n_farewells = 0;
    std::string why_gone;
    bool is_lost = false;
  };
  void mark_gone(Peer& peer, const std::string& why);

  const uint32_t rank_;
  std::mutex mutex_;  // guards all that follows
  std::vector<Peer> peers_;
  std::vector<Arrival> arrivals_;
  std::vector<Sent> sent_;
  std::vector<Frame> spare_;
  uint32_t n_gone_ = 0;
  bool is_over_ = false;
};

}  // namespace penstock::borrowed
