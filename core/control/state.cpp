#include "core/control/state.hpp"

#include <algorithm>

namespace penstock::control {

using Presence = Members::Presence;

State::Parts::Parts(const Options& given, Send send_given)
    : options(given),
      send(std::move(send_given)),
      members(options, send),
      store(send),
      rendezvous_table(options, send, members),
      patience(options, send, members, rendezvous_table) {
  if (options.rendezvous_us == 0) options.rendezvous_us = options.deadline_us;
}

State::State(const Options& options, Send send)
    : parts_(std::make_unique<Parts>(options, std::move(send))), pulse_at_us_(options.start_us) {}

Status State::join(uint32_t rank, uint64_t now_us) {
  PENSTOCK_TRY(parts_->members.join(rank, now_us));
  if (aborted()) notify_abort(rank);
  parts_->members.begin_if_all_are_here(now_us);
  return {};
}

void State::has_twin(std::string_view reason, uint64_t now_us) {
  abort_if_failed(parts_->members.has_twin(reason, now_us));
}

Status State::receive(uint32_t rank, std::string_view body, uint64_t now_us) {
  Reader reader(body);
  const auto kind = static_cast<FrameKind>(reader.u8());
  if (!parts_->members.is(rank, Presence::present)) {
    // A rank that failed by its silence may come back, only to leave.
    if (kind == FrameKind::goodbye) parts_->send(rank, Writer(FrameKind::farewell).frame());
    return {};
  }
  parts_->members.heard(rank, now_us);
  // A rank that still sends requests has not yet learned of the abort. It will get the abort as the
  // answer.
  if (aborted() && kind != FrameKind::goodbye) return {};
  const bool is_sent_by_clients = kind >= FrameKind::beat && kind <= FrameKind::step_news;
  if (!is_sent_by_clients)
    return invalid_payload(
        "control frame of rank {}: kind is {}, expected a kind that a client "
        "sends",
        rank, static_cast<uint32_t>(kind));
  take(rank, kind, reader, now_us);
  if (!reader.finished()) {
    return invalid_payload("control frame of rank {}: {} bytes of kind {} are not such a message",
                           rank, body.size(), static_cast<uint32_t>(kind));
  }
  return {};
}

// A frame that is not exactly such a message changes nothing.
void State::take(uint32_t rank, FrameKind kind, Reader& reader, uint64_t now_us) {
  RendezvousTable& rendezvous_table = parts_->rendezvous_table;
  switch (kind) {
    case FrameKind::beat:
      if (std::optional<Beat> beat = decode_beat(reader))
        parts_->members.heard(rank, std::move(*beat), now_us);
      break;
    case FrameKind::put:
      parts_->store.put(rank, reader);
      break;
    case FrameKind::get:
      parts_->store.get(rank, reader, now_us);
      break;
    case FrameKind::meet:
      if (std::optional<Meet> message = decode_meet(reader))
        rendezvous_table.meet(rank, std::move(*message), now_us);
      break;
    case FrameKind::withdraw:
    case FrameKind::blocked: {
      const uint64_t id = reader.u64();
      if (!reader.finished()) break;
      kind == FrameKind::blocked ? rendezvous_table.block(rank, id)
                                 : rendezvous_table.withdraw(rank, id);
      break;
    }
    case FrameKind::step_news:
      if (std::optional<StepNews> news = decode_step_news(reader))
        rendezvous_table.notify_joined(rank, *news);
      break;
    case FrameKind::abort: {
      const std::string reason(reader.text());
      if (reader.finished()) abort_all(peer_failed("{}", told_by(rank, "gave up", reason)));
      break;
    }
    default:  // goodbye
      if (reader.finished()) leave(rank);
  }
  abort_if_failed(rendezvous_table.run_failure());
}

void State::leave(uint32_t rank) {
  parts_->members.set(rank, Presence::left);
  parts_->store.leave(rank);
  parts_->send(rank, Writer(FrameKind::farewell).frame());
  parts_->rendezvous_table.leave(rank);
}

void State::lost(uint32_t rank, std::string_view how, uint64_t now_us) {
  Members& members = parts_->members;
  if (!members.is(rank, Presence::present)) return;
  members.set(rank, Presence::failed);
  abort_all(peer_failed("rank {} failed: {}; {}", rank, how, members.last_did(rank, now_us)));
}

void State::abort_if_failed(const Status& failure) {
  if (!failure.ok()) abort_all(failure);
}

void State::abort_all(const Status& reason) {
  if (aborted()) return;
  parts_->rendezvous_table.answer_operations();
  abort_reason_ = reason;
  parts_->rendezvous_table.clear();
  parts_->store.clear();
  // The failed rank is told too, because it may still receive.
  for (uint32_t rank = 0; rank < parts_->members.size(); ++rank) {
    notify_abort(rank);
  }
}

void State::notify_abort(uint32_t rank) {
  const auto code = static_cast<uint32_t>(abort_reason_.code());
  parts_->send(rank, Writer(FrameKind::aborted).u32(code).text(abort_reason_.message()).frame());
}

void State::close() {
  if (finished()) return;
  abort_all(peer_failed("rank 0 has left the run, {} had not said goodbye in time",
                        name_ranks(present())));
}

std::vector<uint32_t> State::present() const {
  return parts_->members.in_state(Presence::present);
}

// ---- time ----

void State::tick(uint64_t now_us) {
  if (aborted()) return;
  auto& [options, send, members, store, rendezvous_table, patience] = *parts_;
  rendezvous_table.answer_operations();
  if (now_us >= pulse_at_us_) {
    pulse_at_us_ = later(now_us, options.pulse_us);
    for (uint32_t rank : members.in_state(Presence::present))
      send(rank, Writer(FrameKind::pulse).text(members.note(0)).frame());
  }
  members.begin_if_all_are_here(now_us);
  abort_if_failed(members.look_for_absent(now_us));
  if (aborted()) return;
  if (const auto silent = members.silent(now_us))
    return lost(silent->first, silent->second, now_us);
  members.look_at_datagrams(now_us);
  store.tick(now_us);
  patience.poll(now_us);
  abort_if_failed(rendezvous_table.run_failure());
}

uint64_t State::next_us() const {
  if (aborted()) return kNever;
  return std::min({pulse_at_us_, parts_->members.next_us(), parts_->store.next_us(),
                   parts_->patience.next_us()});
}

}  // namespace penstock::control
