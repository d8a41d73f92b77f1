// See channel.hpp.
#include "channel.hpp"

#include <penstock/error.hpp>

#include <kernels/message.hpp>

#include <algorithm>
#include <thread>

namespace penstock::nccl {

namespace {

// How long a communicator may take to end, or the stream to stop after an abort.
constexpr auto kPatience = std::chrono::milliseconds(500);
constexpr auto kPause = std::chrono::microseconds(100);

template <typename Body>
bool comes_true(Clock::time_point end, Body&& body) {
  while (!body()) {
    if (Clock::now() >= end) return false;
    std::this_thread::sleep_for(kPause);
  }
  return true;
}

bool is_receive(const penstock_message& message) {
  return message.pattern == PENSTOCK_RECEIVE;
}

}  // namespace

Channel::Channel(const Library& library, const penstock_group& group, int device)
    : library(library),
      device(device),
      rank(group.rank),
      size(group.size),
      stream_(make_stream()),
      counts_(2 * group.size) {}

Channel::~Channel() {
  if (communicator_ != nullptr) drop_communicator();
}

void Channel::open(const UniqueId& id, uint64_t timeout_us) {
  Config config;
  Result state = library.calls().join(&communicator_, static_cast<int>(size), id,
                                      static_cast<int>(rank), &config);
  library.check(state, "ncclCommInitRankConfig", communicator_);
  const bool in_time = comes_true(Clock::now() + std::chrono::microseconds(timeout_us), [&] {
    library.check(library.calls().state(communicator_, &state), "ncclCommGetAsyncError");
    library.check(state, "ncclCommInitRankConfig", communicator_);
    return state == kSuccess;
  });
  if (in_time) return;
  throw sdk::Error(PENSTOCK_DEADLINE_EXCEEDED,
                   sdk::text("rank ", rank, " of a group of ", size, " has waited ",
                             sdk::seconds_text(timeout_us),
                             " for the other ranks to open its channel over NCCL; check that they "
                             "run, and read the log of NCCL_DEBUG=INFO"));
}

// ---- the queue ----

Ticket* Channel::submit(const penstock_message& message) {
  check_state(message);
  if (free_.empty()) {
    free_.push_back(&tickets_.emplace_back());
    free_.back()->channel = this;
  }
  Ticket& ticket = *free_.back();
  ticket.message = message;
  ticket.submitted = Clock::now();
  ticket.produced.record(static_cast<cudaStream_t>(message.exec->stream));
  if (head_ == queue_.size()) {
    queue_.clear();
    head_ = 0;
  }
  queue_.push_back(&ticket);
  ticket.stage = Stage::waiting;
  free_.pop_back();
  advance();
  return &ticket;
}

bool Channel::progress(Ticket& ticket) {
  if (ticket.stage == Stage::done) return true;
  const penstock_message& message = ticket.message;
  check_state(message);
  advance();
  check_state(message);
  if (ticket.stage == Stage::running && ticket.ended.has_passed()) {
    if (is_receive(message) && message.receive_counts != nullptr)
      message.receive_counts[0] = message.count;
    ticket.stage = Stage::done;
    return true;
  }
  const auto age =
      std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - ticket.submitted);
  if (message.deadline_us != 0 && static_cast<uint64_t>(age.count()) > message.deadline_us) {
    const sdk::Error error = sdk::message_error(
        PENSTOCK_DEADLINE_EXCEEDED, message, "not done after ",
        sdk::seconds_text(message.deadline_us), "; another rank may have died or stopped");
    lose(error.code(), error.what());
    throw error;
  }
  return false;
}

void Channel::release(Ticket& ticket) {
  if (ticket.stage != Stage::done) {
    lose(PENSTOCK_ABORTED, "a message was given up before it had ended");
    queue_.erase(
        std::remove(queue_.begin() + static_cast<std::ptrdiff_t>(head_), queue_.end(), &ticket),
        queue_.end());
  }
  ticket.stage = Stage::done;
  free_.push_back(&ticket);
}

void Channel::advance() {
  try {
    while (head_ < queue_.size() && is_settled() && move_on(*queue_[head_]))
      if (queue_[head_]->stage == Stage::running) ++head_;
  } catch (const sdk::Error& error) {
    lose(error.code(), error.what());
  }
}

bool Channel::is_settled() {
  Result state = kSuccess;
  library.check(library.calls().state(communicator_, &state), "ncclCommGetAsyncError");
  library.check(state, "the work that was queued on the communicator", communicator_);
  return state == kSuccess;
}

bool Channel::move_on(Ticket& head) {
  switch (head.stage) {
    case Stage::waiting:
      head.produced.hold_back(stream_.get());
      if (needs_counts(head.message)) {
        announce(head);
        head.stage = Stage::announcing;
        return true;
      }
      break;
    case Stage::announcing:
      fetch_counts(head);
      head.stage = Stage::counting;
      return true;
    case Stage::counting:
      if (!head.ended.has_passed()) return false;
      read_counts(head);
      break;
    default:  // issued: the message lies on the stream now
      head.ended.record(stream_.get());
      head.stage = Stage::running;
      return true;
  }
  queue_message(members(), head.message, counts_.device());
  head.stage = Stage::issuing;
  return true;
}

// ---- counts ----

void Channel::announce(const Ticket& ticket) {
  // The copy of the last announcement has ended already, because its counts came back after it.
  write_counts(members(), ticket.message, counts_.host());
  check(cudaMemcpyAsync(counts_.device(), counts_.host(), size * sizeof(uint64_t),
                        cudaMemcpyHostToDevice, stream_.get()),
        "cudaMemcpyAsync");
  queue_counts(members(), ticket.message, counts_.device(), counts_.device() + size);
}

void Channel::fetch_counts(Ticket& ticket) {
  check(cudaMemcpyAsync(counts_.host() + size, counts_.device() + size, size * sizeof(uint64_t),
                        cudaMemcpyDeviceToHost, stream_.get()),
        "cudaMemcpyAsync");
  ticket.ended.record(stream_.get());
}

void Channel::read_counts(Ticket& ticket) {
  penstock_message& message = ticket.message;
  const uint64_t* const came = counts_.host() + size;
  const auto check_room = [&](uint32_t from, uint64_t room) {
    if (came[from] > room)
      throw sdk::message_error(PENSTOCK_MISMATCH, message, "rank ", from, " sends ", came[from],
                               " elements, rank ", rank, " has room for ", room);
  };
  if (message.pattern == PENSTOCK_SEND) return;
  if (is_receive(message)) {
    check_room(message.peer, message.count);
    message.count = came[message.peer];
    return;
  }
  for (uint32_t r = 0; r < size; ++r) {
    check_room(r, message.receive_counts[r]);
    message.receive_counts[r] = came[r];
  }
}

// ---- the end ----

bool Channel::is_lost() {
  if (aborted) lose(PENSTOCK_ABORTED, "the channel was aborted");
  return loss_.code != PENSTOCK_OK;
}

void Channel::check_state(const penstock_message& message) {
  if (is_lost()) throw sdk::message_error(loss_.code, message, loss_.words);
}

// Aborting the communicator ends its queued work on this rank; NCCL notifies the other ranks.
void Channel::lose(uint32_t code, const std::string& words) {
  if (loss_.code != PENSTOCK_OK) return;  // the first reason counts
  loss_ = {code, words};
  drop_communicator();
}

void Channel::drop_communicator() {
  (void)library.calls().abort(std::exchange(communicator_, nullptr));
  // The caller that releases a ticket may free its memory, so no work on the stream should still
  // write there.
  (void)comes_true(Clock::now() + kPatience,
                   [&] { return cudaStreamQuery(stream_.get()) != cudaErrorNotReady; });
  (void)cudaGetLastError();
}

void Channel::close() {
  if (is_lost()) return;
  Result state = library.calls().finalize(communicator_);
  const bool in_time = comes_true(Clock::now() + kPatience, [&] {
    return state != kInProgress || library.calls().state(communicator_, &state) != kSuccess;
  });
  if (!in_time || state != kSuccess) return drop_communicator();
  (void)library.calls().destroy(std::exchange(communicator_, nullptr));
}

}  // namespace penstock::nccl
