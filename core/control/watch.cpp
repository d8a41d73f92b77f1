// The watch thread of a control client: sends, receives, sends heartbeats, and reports aborts.
#include "core/control/client.hpp"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

namespace penstock {

using control::FrameKind;
using control::Reader;
using control::Reply;
using control::Writer;

namespace {

constexpr std::chrono::microseconds kGathering{20};

}  // namespace

void Control::Client::loop() {
  uint64_t last_us = now_us();
  while (true) {
    wait(last_us);
    const uint64_t now = now_us();
    // This process was stopped or starved, so the silence is not the server's fault.
    if (now - last_us > options_.deadline_us / 2) heard_us_ = now;
    last_us = now;
    send_queued(now);
    if (asks_many()) {
      std::this_thread::sleep_for(kGathering);
      send_queued(now);
    }
    talk_by_datagrams(now);
    talk_to_server(now);
    receive_frames();
    announce_abort();
    const Lock lock(mutex_);
    if (stopping_) break;
  }
  fail_all(penstock::aborted("control was stopped on rank {}", options_.rank));
}

// Requests come in sequence and do not wait for earlier answers. If the thread waits a moment, it
// sends several requests at once, and the answers of all ranks come together.
bool Control::Client::asks_many() {
  const Lock lock(mutex_);
  const bool many = n_asked_ > 1;
  return many && std::exchange(n_asked_at_last_, n_asked_) != n_asked_;
}

void Control::Client::wait(uint64_t now) {
  uint64_t until_us = beat_at_us_;
  if (link_) until_us = std::min(until_us, datagram_at_us_);
  pollfd entries[3] = {
      {wakeup_.descriptor(), POLLIN, 0}, {-1, 0, 0}, {beats_.descriptor(), POLLIN, 0}};
  if (link_) {
    entries[1] = {link_->descriptor(),
                  static_cast<short>(POLLIN | (link_->wants_to_write() ? POLLOUT : 0)), 0};
  }
  if (local_) until_us = std::min(until_us, local_->next_us());
  poll(entries, 3, control::poll_milliseconds(until_us > now ? until_us - now : 0));
  if (entries[0].revents != 0) wakeup_.clear();
}

void Control::Client::send_queued(uint64_t now) {
  std::deque<std::string> frames;
  const bool is_time = now >= beat_at_us_;
  if (is_time && options_.on_beat) options_.on_beat();
  {
    const Lock lock(mutex_);
    // The beat is sent before a request or a goodbye. So the server always has the latest action of
    // this rank and its ended steps.
    if (is_time || !queue_.empty()) {
      const Activity& activity = *options_.activity;
      frames.push_back(encode(
          control::Beat{activity.text(), activity.steps_done(), beats_.has_heard() ? 1u : 0u}));
      beat_at_us_ = now + options_.heartbeat_us;
    }
    frames.insert(frames.end(), std::make_move_iterator(queue_.begin()),
                  std::make_move_iterator(queue_.end()));
    queue_.clear();
  }
  for (const std::string& frame : frames) {
    if (link_) link_->send(frame);
    // The server accepts every frame of this client, so the status needs no check.
    if (local_) (void)local_->receive(0, std::string_view(frame).substr(sizeof(uint32_t)), now);
  }
}

void Control::Client::talk_to_server(uint64_t now) {
  if (local_) {
    local_->tick(now);
    return;
  }
  if (!link_) return;
  const Status sent = link_->flush();
  const Status open = link_->receive();
  // First read the frames that arrived before the end, because one may contain the reason.
  receive_frames();
  if (!link_) return;
  if (!open.ok() || !sent.ok()) {
    server_lost(open.ok() ? sent.message() : open.message());
  } else if (now - std::min(now, heard_us_) > options_.deadline_us) {
    server_lost(fmt::format(
        "its control server has been silent for {}, the deadline is {} (stopped, overloaded or "
        "unreachable)",
        control::seconds(now - heard_us_), control::seconds(options_.deadline_us)));
  }
}

void Control::Client::talk_by_datagrams(uint64_t now) {
  if (beats_.receive()) heard_us_ = now;
  if (!link_ || now < datagram_at_us_) return;
  if (options_.on_beat) options_.on_beat();
  datagram_at_us_ =
      now + control::datagram_interval_us(options_.deadline_us, options_.heartbeat_us);
  beats_.send();
}

void Control::Client::receive_frames() {
  while (!local_frames_.empty()) {
    const std::string frame = std::move(local_frames_.front());
    local_frames_.pop_front();
    receive_one(std::string_view(frame).substr(sizeof(uint32_t)));
  }
  while (link_) {
    Result<std::optional<std::string>> body = link_->next();
    if (!body.ok()) return server_lost(body.status().message());
    if (!body->has_value()) return;
    heard_us_ = now_us();
    receive_one(**body);
  }
}

void Control::Client::receive_one(std::string_view body) {
  Reader reader(body);
  switch (static_cast<FrameKind>(reader.u8())) {
    case FrameKind::reply: {
      std::optional<Reply> reply = control::decode_reply(reader);
      if (!reply) return;
      Handler handler;
      {
        const Lock lock(mutex_);
        n_asked_ = n_asked_at_last_ = 0;
        if (auto entry = handlers_.extract(reply->id); !entry.empty())
          handler = std::move(entry.mapped());
      }
      if (handler) handler(std::move(*reply));
      return;
    }
    case FrameKind::aborted: {
      // Only the message of the server is used. The code on this rank is always that a peer has
      // failed, except DEADLINE_EXCEEDED.
      const auto code = static_cast<Code>(reader.u32());
      const std::string message(reader.text());
      const Lock lock(mutex_);
      set_abort(Status(code == Code::deadline_exceeded ? code : Code::peer_failed, message));
      return;
    }
    case FrameKind::ready: {
      const Lock lock(mutex_);
      ready_ = true;
      changed_.notify_all();
      return;
    }
    case FrameKind::farewell: {
      link_.reset();
      const Lock lock(mutex_);
      farewell_ = true;
      changed_.notify_all();
      return;
    }
    case FrameKind::pulse:
      server_note_ = control::excerpt(reader.text());
      server_note_us_ = now_us();
      return;
    case FrameKind::warning:
      if (options_.on_warning) options_.on_warning(std::string(reader.text()));
      return;
    case FrameKind::datagrams: {
      const uint32_t port = reader.u32();
      const std::string token(reader.text());
      if (link_ && reader.finished())
        beats_.open(link_->descriptor(), options_.rank, static_cast<uint16_t>(port), token);
      datagram_at_us_ = 0;
      return;
    }
    case FrameKind::somebody_joined:
      somebody_joined_ = true;
      if (options_.on_joined) options_.on_joined();
      return;
    case FrameKind::add_zeros:
    case FrameKind::step_notice:
      return receive_while_joined(static_cast<FrameKind>(body[0]), reader);
    default:
      return;  // welcome was read before this thread began; a newer server may send other kinds
  }
}

void Control::Client::receive_while_joined(FrameKind kind, Reader& reader) {
  std::shared_ptr<const WhileJoined> joined;
  {
    const Lock lock(mutex_);
    joined = joined_;
  }
  if (joined == nullptr) return;
  if (kind == FrameKind::step_notice) {
    if (std::optional<control::StepNews> news = control::decode_step_news(reader))
      joined->step({std::move(news->set), std::move(news->ranks), news->step, news->over != 0,
                    std::move(news->facts)});
  } else if (std::optional<control::AddZeros> add = control::decode_add_zeros(reader)) {
    OperationResponse response{add->serial, add->left, std::vector<std::string>(add->ranks.size())};
    joined->sum(
        {std::move(add->name), std::move(add->ranks), std::move(add->zeros), std::move(response)});
  }
}

void Control::Client::server_lost(std::string_view how) {
  link_.reset();
  const Lock lock(mutex_);
  farewell_ = true;
  changed_.notify_all();
  if (leaving_) return;
  set_abort(peer_failed("rank 0 failed: {}; {}", how,
                        control::last_did(server_note_, server_note_us_, now_us())));
}

void Control::Client::set_abort(const Status& reason) {
  if (!abort_reason_.ok()) return;
  abort_reason_ = reason;
  changed_.notify_all();
}

void Control::Client::announce_abort() {
  Status reason;
  {
    const Lock lock(mutex_);
    if (abort_reason_.ok() || abort_announced_) return;
    abort_announced_ = true;
    reason = abort_reason_;
    // This rank sends no further frames, so the server need not wait for it.
    if (!leaving_) {
      leaving_ = true;
      queue_.push_back(Writer(FrameKind::goodbye).frame());
      wakeup_.signal();
    }
  }
  // First send to the other ranks, because on_abort may end this process.
  send_queued(now_us());
  if (link_) (void)link_->flush();
  if (options_.on_abort) options_.on_abort(reason);
  fail_all(reason);
}

void Control::Client::fail_all(const Status& reason) {
  std::map<uint64_t, Handler> handlers;
  {
    const Lock lock(mutex_);
    handlers.swap(handlers_);
  }
  for (auto& [id, handler] : handlers) handler(Reply{.id = id, .status = reason});
}

}  // namespace penstock
