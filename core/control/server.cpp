#include "core/control/server.hpp"

#include "core/base/clock.hpp"

#include <poll.h>

#include <algorithm>
#include <chrono>

namespace penstock::control {

namespace {

// A connection without a hello within this time is dropped.
constexpr uint64_t kHelloUs = 5'000'000;
// Enough time for an abort to reach the other ranks.
constexpr uint64_t kAbortLingerUs = 1'000'000;
// The largest number of connections that are not members, so that strangers cannot use up the
// descriptors.
constexpr size_t kStrangers = 256;

}  // namespace

Result<std::unique_ptr<Server>> Server::start(const State::Options& options, Hello own,
                                              std::string_view address, uint16_t port) {
  std::unique_ptr<Server> server(new Server(options, std::move(own)));
  PENSTOCK_TRY(server->wakeup_.open());
  PENSTOCK_ASSIGN(server->listener_, listen_on(address, port));
  server->beats_.emplace(server->listener_.socket, options.size);
  server->thread_ = std::thread([raw = server.get()] { raw->loop(); });
  return server;
}

Server::Server(const State::Options& options, Hello own)
    : options_(options),
      own_(std::move(own)),
      state_(options, [this](uint32_t rank, std::string frame) { send(rank, frame); }) {}

Server::~Server() {
  if (!thread_.joinable()) return;
  end_within(0);
  thread_.join();
}

void Server::end_within(uint64_t linger_us) {
  {
    const Lock lock(mutex_);
    stop_by_us_ = std::min(stop_by_us_.load(), later(now_us(), linger_us));
  }
  wakeup_.signal();
}

uint64_t Server::end_us() const {
  const uint64_t stop_by_us = stop_by_us_;
  return stop_by_us == kNever ? kNever : std::min(stop_by_us, later(aborted_us_, kAbortLingerUs));
}

std::vector<uint32_t> Server::wait_for_end(uint64_t wait_us) {
  Lock lock(mutex_);
  changed_.wait_for(mutex_, std::chrono::microseconds(wait_us),
                    [this]() PENSTOCK_REQUIRES(mutex_) { return has_ended_; });
  return has_ended_ ? std::vector<uint32_t>() : present_;
}

void Server::loop() {
  uint64_t last_us = now_us();
  while (true) {
    wait(last_us);
    const uint64_t now = now_us();
    // This process was stopped or starved, so the silence is not the fault of the members.
    if (now - last_us > options_.deadline_us / 2 && now - last_us > 2 * options_.pulse_us)
      state_.forgive(now);
    last_us = now;
    beat(now);
    accept_new(now);
    // First read, because silence is judged by the received bytes.
    for (Connection& connection : connections_) serve(connection, now);
    state_.tick(now);
    if (state_.aborted()) aborted_us_ = std::min(aborted_us_, now);
    const bool time_is_up = now >= end_us();
    if (time_is_up) state_.close();
    flush_all();
    std::erase_if(connections_, [](const Connection& connection) { return connection.closed; });
    const bool has_ended = time_is_up || has_served();
    if (stop_by_us_ != kNever) tell_who_is_left(has_ended);
    if (has_ended) return;
  }
}

void Server::tell_who_is_left(bool has_ended) {
  const Lock lock(mutex_);
  has_ended_ = has_ended;
  present_ = state_.present();
  changed_.notify_all();
}

void Server::flush_all() {
  // Rank 0 is told last, because the news may end its process and with it this server. If a write
  // to a peer fails, there is more news for every rank, so there is a second round.
  const auto flush = [this](bool own) {
    for (Connection& connection : connections_) {
      if (connection.closed || (connection.member && connection.rank == 0) != own) continue;
      if (Status status = connection.link.flush(); !status.ok()) lose(connection, status.message());
      if (connection.closing && !connection.link.wants_to_write()) connection.closed = true;
    }
  };
  flush(false);
  flush(false);
  flush(true);
}

bool Server::has_served() const {
  if (stop_by_us_ == kNever || !state_.finished()) return false;
  // The kernel delivers these bytes. The peer sends nothing more that could reset the connection.
  const auto flushed = [](const Connection& connection) {
    return !connection.link.wants_to_write();
  };
  return std::all_of(connections_.begin(), connections_.end(), flushed);
}

void Server::wait(uint64_t now) {
  std::vector<pollfd> entries;
  entries.push_back({wakeup_.descriptor(), POLLIN, 0});
  entries.push_back({listener_.socket.get(), POLLIN, 0});
  entries.push_back({beats_->descriptor(), POLLIN, 0});
  for (const Connection& connection : connections_) {
    const short events =
        static_cast<short>(POLLIN | (connection.link.wants_to_write() ? POLLOUT : 0));
    entries.push_back({connection.link.descriptor(), events, 0});
  }
  uint64_t until_us = std::min({state_.next_us(), end_us(), beats_at_us_});
  until_us = std::max(until_us, now);
  poll(entries.data(), entries.size(), poll_milliseconds(until_us - now));
  if (entries[0].revents != 0) wakeup_.clear();
  readable_.clear();
  for (const pollfd& entry : entries) {
    if ((entry.revents & (POLLIN | POLLHUP | POLLERR | POLLNVAL)) != 0)
      readable_.push_back(entry.fd);
  }
}

void Server::beat(uint64_t now) {
  beats_->receive([&](uint32_t rank) { state_.lives(rank, now); });
  if (now < beats_at_us_) return;
  beats_at_us_ = now + datagram_interval_us(options_.deadline_us, options_.pulse_us);
  beats_->send();
}

void Server::accept_new(uint64_t now) {
  if (std::find(readable_.begin(), readable_.end(), listener_.socket.get()) == readable_.end())
    return;
  while (true) {
    Handle socket = accept_one(listener_.socket);
    if (!socket.valid()) return;
    if (connections_.size() - members_.size() < kStrangers)
      connections_.emplace_back(std::move(socket), now);
  }
}

void Server::serve(Connection& connection, uint64_t now) {
  if (!connection.member && now - connection.opened_us > kHelloUs) connection.closed = true;
  if (connection.closed) return;
  const int descriptor = connection.link.descriptor();
  if (std::find(readable_.begin(), readable_.end(), descriptor) == readable_.end()) return;
  const Status open = connection.link.receive();
  // Frames that arrived before the end still count: the last frame may be a goodbye.
  while (!connection.closed) {
    Result<std::optional<std::string>> body = connection.link.next();
    if (!body.ok()) return lose(connection, body.status().message());
    if (!body->has_value()) break;
    served_bytes_ += (*body)->size() + sizeof(uint32_t);  // plus the length field
    if (!connection.member) {
      if (!connection.closing) welcome(connection, **body, now);
    } else if (Status status = state_.receive(connection.rank, **body, now); !status.ok()) {
      return lose(connection, status.message());
    }
  }
  if (!open.ok()) lose(connection, open.message());
}

void Server::welcome(Connection& connection, std::string_view body, uint64_t now) {
  Reader reader(body);
  const bool is_hello = reader.u8() == static_cast<uint8_t>(FrameKind::hello);
  const std::optional<Hello> hello = is_hello ? decode_hello(reader) : std::nullopt;
  // A stranger must not even learn that this is a control server.
  if (!hello || hello->token != own_.token) {
    connection.closed = true;
    return;
  }
  const bool is_other_rank_0 = hello->rank == 0 && hello->drawn != own_.drawn;
  if (is_other_rank_0 || members_.contains(hello->rank))
    return refuse_twin(connection, *hello, now);
  if (hello->size != options_.size) {
    return reject(
        connection,
        fmt::format("control: rank {} counts {} ranks, rank 0 counts {}; start all with one launch",
                    hello->rank, hello->size, options_.size));
  }
  members_[hello->rank] = &connection;  // join() sends to it
  if (Status status = state_.join(hello->rank, now); !status.ok()) {
    members_.erase(hello->rank);
    return reject(connection, status.message());
  }
  send(hello->rank, beats_->invitation());
  connection.member = true;
  connection.rank = hello->rank;
  connection.name = hello->name;
  connection.link.set_limit(kMaxFrameBytes);
  limit_retransmission(connection.link.descriptor(), options_.deadline_us);
}

// Which of the two processes belongs to this run is unknown.
void Server::refuse_twin(Connection& connection, const Hello& hello, uint64_t now) {
  const auto found = members_.find(hello.rank);
  const std::string& first = found == members_.end() ? own_.name : found->second->name;
  const std::string text = fmt::format(
      "control: rank {} is there twice, {} and {}: two runs use one address and port, or two "
      "processes of a run were given one rank; give each run another MASTER_PORT or PENSTOCK_PORT, "
      "equal on all its ranks",
      hello.rank, first, excerpt(hello.name));
  state_.has_twin(text, now);
  reject(connection, text);
}

void Server::reject(Connection& connection, std::string_view reason) {
  connection.link.send(Writer(FrameKind::rejected).text(reason).frame());
  connection.closing = true;
}

void Server::lose(Connection& connection, std::string_view how) {
  connection.closed = true;
  if (!connection.member) return;
  members_.erase(connection.rank);
  state_.lost(connection.rank, how, now_us());
}

void Server::send(uint32_t rank, std::string_view frame) {
  const auto found = members_.find(rank);
  if (found == members_.end()) return;
  found->second->link.send(frame);
  served_bytes_ += frame.size();
}

}  // namespace penstock::control
