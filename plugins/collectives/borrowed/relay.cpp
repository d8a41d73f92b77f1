// See relay.hpp.
#include "relay.hpp"

#include <penstock/error.hpp>

#include <cstring>
#include <utility>

namespace penstock::borrowed {

Frame Relay::empty_frame() {
  const std::lock_guard lock(mutex_);
  if (spare_.empty()) return Frame();
  Frame frame = std::move(spare_.back());
  spare_.pop_back();
  return frame;
}

void Relay::give_back(Frame frame) {
  const std::lock_guard lock(mutex_);
  spare_.push_back(std::move(frame));
}

void Relay::post(uint32_t to, size_t request, Frame frame) {
  const std::lock_guard lock(mutex_);
  peers_[to].queue.push_back({request, std::move(frame)});
  peers_[to].wake.notify_one();
}

uint32_t Relay::take(std::vector<Arrival>& arrivals, std::vector<Sent>& sent) {
  arrivals.clear();
  sent.clear();
  const std::lock_guard lock(mutex_);
  std::swap(arrivals, arrivals_);
  std::swap(sent, sent_);
  return n_gone_;
}

std::string Relay::why_gone(uint32_t peer) {
  const std::lock_guard lock(mutex_);
  return peers_[peer].why_gone;
}

bool Relay::is_lost(uint32_t peer) {
  const std::lock_guard lock(mutex_);
  return peers_[peer].is_lost;
}

void Relay::drop() {
  const std::lock_guard lock(mutex_);
  for (Peer& peer : peers_) peer.queue.clear();
}

const void* Relay::next(uint32_t to, uint64_t& bytes) {
  std::unique_lock lock(mutex_);
  Peer& peer = peers_[to];
  for (Outgoing& left : peer.leaving) {
    // The wire has given up its requests to a lost rank, so their ends are not reported.
    if (left.request != kNobody && !peer.is_lost)
      sent_.push_back({left.frame.label().group, left.request});
    spare_.push_back(std::move(left.frame));
  }
  peer.leaving.clear();
  peer.wake.wait(lock, [&] { return peer.is_lost || !peer.queue.empty() || is_over_; });
  if (peer.is_lost) return nullptr;
  if (!peer.queue.empty()) {
    peer.leaving.push_back(std::move(peer.queue.front()));
    peer.queue.pop_front();
  } else if (peer.n_farewells++ < kReceives) {
    Frame farewell;
    farewell.label() = {0, kFarewell, 0};
    peer.leaving.push_back({kNobody, std::move(farewell)});
  } else {
    return nullptr;
  }
  Frame& frame = peer.leaving.front().frame;
  bytes = frame.size();
  return frame.bytes();
}

bool Relay::came(uint32_t from, const void* frame) {
  Label label{};
  std::memcpy(&label, frame, sizeof label);
  if (label.bytes > kMostData) {
    lost(from, sdk::text("it sent a frame of ", label.bytes, " bytes, expected at most ", kMostData,
                         ": another part of the program uses this tag of the group that was lent"));
    return false;
  }
  if (label.match == kFarewell) {
    const std::lock_guard lock(mutex_);
    mark_gone(peers_[from], "it has left the run");
    return false;
  }
  Frame kept = empty_frame();
  std::memcpy(kept.bytes(), frame, sizeof label + label.bytes);
  const std::lock_guard lock(mutex_);
  arrivals_.push_back({from, std::move(kept)});
  return true;
}

void Relay::lost(uint32_t peer, const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (peers_[peer].is_lost) return;
  peers_[peer].is_lost = true;
  mark_gone(peers_[peer], why);
}

void Relay::mark_gone(Peer& peer, const std::string& why) {
  if (peer.why_gone.empty()) peer.why_gone = why;
  ++n_gone_;
  peer.wake.notify_all();
}

void Relay::end() {
  const std::lock_guard lock(mutex_);
  is_over_ = true;
  for (Peer& peer : peers_) peer.wake.notify_all();
}

}  // namespace penstock::borrowed
