// Frames in transit between the communication thread and the frontend's threads. Besides the slot
// in borrowed.cpp, the relay is the only object of this plugin that several threads use.
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

// The header in front of each frame's data. For the receiver it is untrusted input.
struct Label {
  uint64_t group;  // number of the channel's group
  uint64_t match;  // the channel's match number, or kHello or kFarewell
  uint64_t bytes;  // length of the data
};

constexpr uint64_t kHello = uint64_t(1) << 23;  // the sender has opened the group
constexpr uint64_t kFarewell = kHello + 1;      // the sender has left the run

// The most data bytes of a frame: a long segment, plus the bytes that an opening carries inline.
constexpr uint64_t kMostData = collectives::kLongSegment + collectives::kInlineBytes;
constexpr uint64_t kFrameBytes = sizeof(Label) + kMostData;
// Receives posted for each peer at a time, so that a frame need not wait until the frame before it
// was put away.
constexpr uint64_t kReceives = 4;

// A label and its data in one piece of memory. All frames have equal room.
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

// The group and the request of a frame that was sent.
struct Sent {
  uint64_t group;
  size_t request;
};

constexpr size_t kNobody = SIZE_MAX;  // the request of a frame whose end is not reported

// The queues of frames to and from each rank. All ranks here are ranks of the world.
class Relay {
 public:
  Relay(uint32_t rank, uint32_t size) : rank_(rank), peers_(size) {}

  uint32_t rank() const { return rank_; }
  uint32_t size() const { return static_cast<uint32_t>(peers_.size()); }

  // ---- the communication thread's side ----
  Frame empty_frame();
  void give_back(Frame frame);
  void post(uint32_t to, size_t request, Frame frame);
  // Takes the frames that came and the requests that were sent since the last call. Returns how
  // often ranks have gone so far; all frames of these ranks are taken by then.
  uint32_t take(std::vector<Arrival>& arrivals, std::vector<Sent>& sent);
  // The reason why a rank is gone; empty if the rank is present. No more frames come from a rank
  // that is gone. Frames posted for this rank still leave, unless it is also lost.
  std::string why_gone(uint32_t peer);
  bool is_lost(uint32_t peer);
  // Drops every frame that `next` has not handed out yet, because the run was aborted.
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
    std::vector<Outgoing> leaving;  // at most one: the frame that `next` has handed out
    std::condition_variable wake;
    uint64_t n_farewells = 0;
    std::string why_gone;
    bool is_lost = false;
  };
  void mark_gone(Peer& peer, const std::string& why);

  const uint32_t rank_;
  std::mutex mutex_;  // guards all members below
  std::vector<Peer> peers_;
  std::vector<Arrival> arrivals_;
  std::vector<Sent> sent_;
  std::vector<Frame> spare_;
  uint32_t n_gone_ = 0;
  bool is_over_ = false;
};

}  // namespace penstock::borrowed
