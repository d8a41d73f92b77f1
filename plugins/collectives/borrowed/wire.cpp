// See wire.hpp.
#include "wire.hpp"

#include <penstock/error.hpp>

#include <kernels/message.hpp>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

namespace penstock::borrowed {

namespace {

constexpr int kGone = 1;
constexpr int kTooLong = 2;
constexpr int kTakenBack = 3;
constexpr std::chrono::microseconds kBetweenLooks{50};

}  // namespace

Wire::Wire(std::shared_ptr<World> world, uint64_t group, std::vector<uint32_t> members)
    : world_(std::move(world)),
      group_(group),
      members_(std::move(members)),
      said_hello_(members_.size()) {
  world_->add(group_, *this);
}

void Wire::meet(uint64_t timeout_us) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(timeout_us);
  const uint32_t rank = world_->relay().rank();
  for (uint32_t peer = 0; peer < members_.size(); ++peer) {
    said_hello_[peer] = said_hello_[peer] || members_[peer] == rank;
    if (members_[peer] == rank) continue;
    Frame hello = world_->relay().empty_frame();
    hello.label() = {group_, kHello, 0};
    world_->relay().post(members_[peer], kNobody, std::move(hello));
  }
  for (;;) {
    world_->progress();
    const auto silent = std::find(said_hello_.begin(), said_hello_.end(), false);
    if (silent == said_hello_.end()) return;
    const auto peer = static_cast<uint32_t>(silent - said_hello_.begin());
    refuse_gone(peer);
    if (std::chrono::steady_clock::now() > end)
      throw sdk::Error(PENSTOCK_DEADLINE_EXCEEDED,
                       sdk::text("rank ", rank, " waited ", sdk::seconds_text(timeout_us),
                                 " for all ", members_.size(),
                                 " members of a group to open it over the borrowed transport; "
                                 "rank ",
                                 members_[peer], " has not come"));
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

size_t Wire::take_request(const Request& request) {
  if (free_.empty()) {
    free_.push_back(requests_.size());
    requests_.emplace_back();
  }
  const size_t number = free_.back();
  free_.pop_back();
  requests_[number] = request;
  return number;
}

void Wire::end(size_t request, uint64_t bytes, int code) {
  Request& ended = requests_[request];
  ended_.push_back({ended.ticket, ended.event, bytes, code});
  ended.ticket = nullptr;
  free_.push_back(request);
}

void Wire::send(Ticket& ticket, const Event& event, uint64_t match, const void* data) {
  refuse_gone(event.peer);
  if (event.bytes > kMostData)
    throw sdk::internal("collective/borrowed was given ", event.bytes,
                        " bytes at a time, expected ", kMostData, " at most");
  Frame frame = world_->relay().empty_frame();
  frame.label() = {group_, match, event.bytes};
  if (event.bytes != 0) std::memcpy(frame.data(), data, event.bytes);
  const size_t request = take_request({&ticket, event, match, nullptr});
  world_->relay().post(members_[event.peer], request, std::move(frame));
}

// Frames that a rank sent before it left are still received.
void Wire::receive(Ticket& ticket, const Event& event, uint64_t match, void* data) {
  Queue& waiting = queue(event.peer, match);
  if (waiting.came.empty()) refuse_gone(event.peer);
  const size_t request = take_request({&ticket, event, match, data});
  if (waiting.came.empty()) return waiting.posted.push_back(request);
  Frame frame = std::move(waiting.came.front());
  waiting.came.erase(waiting.came.begin());
  deliver(request, std::move(frame));
}

void Wire::deliver(size_t request, Frame frame) {
  const Request& receives = requests_[request];
  const uint64_t there = frame.label().bytes;
  const uint64_t bytes = std::min(there, receives.event.bytes);
  if (bytes != 0) std::memcpy(receives.data, frame.data(), bytes);
  end(request, bytes, there > bytes ? kTooLong : 0);
  world_->relay().give_back(std::move(frame));
}

void Wire::came(uint32_t from, Frame frame) {
  const auto found = std::lower_bound(members_.begin(), members_.end(), from);
  if (found == members_.end() || *found != from) return;  // not a member of this group
  const auto peer = static_cast<uint32_t>(found - members_.begin());
  if (frame.label().match == kHello) {
    said_hello_[peer] = true;
    return world_->relay().give_back(std::move(frame));
  }
  Queue& waiting = queue(peer, frame.label().match);
  if (waiting.posted.empty()) return waiting.came.push_back(std::move(frame));
  const size_t request = waiting.posted.front();
  waiting.posted.erase(waiting.posted.begin());
  deliver(request, std::move(frame));
}

void Wire::sent(size_t request) {
  if (requests_[request].ticket != nullptr) end(request, 0, 0);
}

const std::vector<Ended>& Wire::test() {
  world_->progress();
  tested_.clear();
  std::swap(tested_, ended_);
  return tested_;
}

// A departed rank needs nothing more, so sends to it still end without an error.
void Wire::give_up_on_gone() {
  for (uint32_t peer = 0; peer < members_.size(); ++peer) {
    if (world_->relay().why_gone(members_[peer]).empty()) continue;
    const bool is_lost = world_->relay().is_lost(members_[peer]);
    for (size_t i = 0; i < requests_.size(); ++i) {
      const Request& request = requests_[i];
      if (request.ticket == nullptr || request.event.peer != peer) continue;
      const bool receives = collectives::is_receive(request.event.kind);
      if (receives) std::erase(queue(peer, request.match).posted, i);
      if (receives || is_lost) end(i, 0, kGone);
    }
  }
}

void Wire::take_back(const Ticket* ticket) {
  for (size_t i = 0; i < requests_.size(); ++i) {
    const Request& request = requests_[i];
    if (request.ticket == nullptr || (ticket != nullptr && request.ticket != ticket) ||
        !collectives::is_receive(request.event.kind))
      continue;
    std::erase(queue(request.event.peer, request.match).posted, i);
    end(i, 0, kTakenBack);
  }
}

void Wire::refuse_gone(uint32_t peer) const {
  const std::string why = world_->relay().why_gone(members_[peer]);
  if (!why.empty())
    throw sdk::Error(PENSTOCK_PEER_FAILED,
                     sdk::text("rank ", members_[peer], " of the run is gone: ", why));
}

void Wire::fail(const Ended& ended) const {
  refuse_gone(ended.event.peer);
  throw sdk::Error(PENSTOCK_MISMATCH,
                   sdk::text("rank ", members_[ended.event.peer], " of the run sent more than the ",
                             ended.event.bytes, " bytes that there is room for"));
}

}  // namespace penstock::borrowed
