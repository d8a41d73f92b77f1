#include "core/device/staging.hpp"

#include "core/base/clock.hpp"

#include <algorithm>

namespace penstock {
namespace {

constexpr uint64_t kAlignment = 64;

uint64_t rounded(uint64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

// ---- a staging buffer in a step ----

Status StagingBuffer::take(void* storage, void* stream) {
  storage_ = static_cast<std::byte*>(storage);
  is_zero_ = false;
  PENSTOCK_TRY(streams_.written.record(stream));
  PENSTOCK_TRY(streams_.written.hold_back(streams_.in.handle()));
  PENSTOCK_TRY(returned_.hold_back(streams_.in.handle()));
  PENSTOCK_TRY(streams_.in.copy_to_host(host_, storage_, bytes_));
  return queue_arrival();
}

Status StagingBuffer::take_zeros(void* storage) {
  storage_ = static_cast<std::byte*>(storage);
  is_zero_ = true;
  if (storage != nullptr) {
    PENSTOCK_TRY(streams_.written.record(nullptr));
    PENSTOCK_TRY(streams_.written.hold_back(streams_.in.handle()));
  }
  PENSTOCK_TRY(returned_.hold_back(streams_.in.handle()));
  return queue_arrival();
}

Status StagingBuffer::queue_arrival() {
  arrived_us_ = 0;
  number_ = ++streams_.n_taken;
  return arrived_.record(streams_.in.handle());
}

Status StagingBuffer::has_arrived(uint64_t pass, bool& arrived) {
  arrived = number_ <= streams_.arrived_through;
  const bool asked_before = streams_.pass == pass;
  if (!arrived && !(asked_before && number_ >= streams_.missing_from)) {
    PENSTOCK_TRY(arrived_.query(arrived));
    if (arrived) {
      streams_.arrived_through = number_;
    } else {
      streams_.missing_from = number_;
      streams_.pass = pass;
    }
  }
  if (arrived && arrived_us_ == 0) arrived_us_ = now_us();
  return {};
}

Status StagingBuffer::give(uint64_t first_byte, uint64_t bytes) {
  if (storage_ == nullptr) return {};
  PENSTOCK_TRY(streams_.out.copy_to_device(storage_ + first_byte, host_ + first_byte, bytes));
  return returned_.record(streams_.out.handle());
}

// ---- a set's staging buffers ----

Result<std::unique_ptr<Staging>> Staging::make(std::span<const Wanted> wanted) {
  std::unique_ptr<Staging> staging(new Staging());
  for (const Wanted& one : wanted)
    if (staging->on(one.device) == nullptr) PENSTOCK_TRY(staging->add_device(one.device, wanted));
  for (const Wanted& one : wanted) {
    CopyStreams& streams = *staging->on(one.device);
    PENSTOCK_ASSIGN(Event arrived, Event::make(one.device));
    PENSTOCK_ASSIGN(Event returned, Event::make(one.device));
    staging->staging_buffers_.emplace_back(streams, streams.memory.data() + streams.given_bytes,
                                           one.bytes, std::move(arrived), std::move(returned));
    streams.given_bytes += rounded(one.bytes);
  }
  return staging;
}

Status Staging::add_device(const Device& device, std::span<const Wanted> wanted) {
  CopyStreams made;
  made.device = device;
  uint64_t bytes = 0;
  for (const Wanted& one : wanted)
    if (one.device == device) bytes += rounded(one.bytes);
  PENSTOCK_ASSIGN(made.memory, PinnedMemory::make(device, bytes));
  PENSTOCK_ASSIGN(made.in, Stream::make(device, true));
  PENSTOCK_ASSIGN(made.out, Stream::make(device, true));
  PENSTOCK_ASSIGN(made.written, Event::make(device));
  streams_.push_back(std::move(made));
  return {};
}

CopyStreams* Staging::on(const Device& device) {
  const auto found = std::find_if(streams_.begin(), streams_.end(),
                                  [&](const CopyStreams& one) { return one.device == device; });
  return found == streams_.end() ? nullptr : &*found;
}

uint64_t Staging::bytes() const {
  uint64_t bytes = 0;
  for (const StagingBuffer& staging_buffer : staging_buffers_) bytes += staging_buffer.bytes();
  return bytes;
}

Status Staging::drain(uint64_t limit_us) {
  for (CopyStreams& streams : streams_)
    for (const Stream* stream : {&streams.in, &streams.out})
      PENSTOCK_TRY(stream->wait_at_most(limit_us));
  return {};
}

}  // namespace penstock
