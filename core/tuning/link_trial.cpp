#include "core/tuning/link_trial.hpp"

#include "core/base/buffer.hpp"
#include "core/base/leak.hpp"
#include "core/base/mutex.hpp"
#include "core/comm/channel.hpp"
#include "core/plugin/instances.hpp"
#include "core/trace/timeline.hpp"

#include <kernels/message.hpp>

#include <deque>

namespace penstock {
namespace {

constexpr uint64_t kHeaderBytes = 16;  // of a rank: flags, and kind and counts of one gradient

// Counts several messages that are under way at once.
class Together {
 public:
  void wait() {
    Lock lock(mutex_);
    ended_.wait(mutex_, [this]() PENSTOCK_REQUIRES(mutex_) { return left_ == 0; });
  }
  void expect(size_t n) {
    const Lock lock(mutex_);
    left_ = n;
  }
  void end(Status status) {
    const Lock lock(mutex_);
    if (status_.ok()) status_ = std::move(status);
    if (--left_ == 0) ended_.notify_one();
  }
  Status status() const {
    const Lock lock(mutex_);
    return status_;
  }

 private:
  mutable Mutex mutex_;
  Condition ended_;
  size_t left_ PENSTOCK_GUARDED_BY(mutex_) = 0;
  Status status_ PENSTOCK_GUARDED_BY(mutex_);
};

// The memory of a message's elements.
struct Elements {
  const void* send = nullptr;
  float* receive = nullptr;
};

struct Probe : Transfer {
  std::vector<uint64_t> counts, offsets;

  // Describes a message with `count` elements of this rank. Returns the number of received
  // elements.
  uint64_t shape(uint32_t pattern, uint64_t count, uint32_t size, const Elements& elements) {
    const bool gathers = pattern == PENSTOCK_ALL_GATHER;
    for (uint32_t r = 0; r < size; ++r) {
      counts.push_back(gathers ? count : count / size + (r < count % size ? 1 : 0));
      offsets.push_back(r * count);
    }
    message.struct_size = sizeof message;
    message.pattern = pattern;
    message.reduction = PENSTOCK_REDUCE_SUM;
    message.dtype = PENSTOCK_FLOAT32;
    message.flags = gathers ? uint32_t{PENSTOCK_MESSAGE_EXACT_COUNTS} : 0;
    message.send = elements.send;
    message.receive = elements.receive;
    message.count = count;
    message.receive_counts = counts.data();
    message.receive_offsets = offsets.data();
    return count * (gathers ? size : 1);
  }
  void go_at_once(const HostPath& path, uint64_t nth_tag) {
    sequence = kAtOnce;
    limit_us = message.deadline_us = path.limit_us;
    message.tag = path.tag - nth_tag;
    path.communication.submit(&path.channel, this);
  }
};

// Waits for all messages. After an error a transport may still write, so the memory is not freed.
template <typename Probes>
Result<double> time_of(std::unique_ptr<Probes> probes, size_t n) {
  probes->together.expect(n);
  const uint64_t start = now_us();
  for (auto& probe : probes->all) probe.begin();
  probes->together.wait();
  const auto time = double(now_us() - start);
  if (probes->together.status().ok()) return time;
  return leak(std::move(probes))->together.status();
}

// ---- in host memory ----

// The memory of all messages of a measurement: they send zeros, and each receives into its own
// range. It is allocated once, because new pages cost more than small messages.
struct HostSpace {
  Buffer send, receive;
};

class HostProbe final : public Probe {
 public:
  HostProbe(const HostPath& path, const HostSpace&, Together& together, uint64_t number)
      : path_(path), together_(together), number_(number) {}
  uint64_t shape(uint32_t pattern, uint64_t count, const Elements& elements) {
    return Probe::shape(pattern, count, path_.channel.members.size(), elements);
  }
  void begin() { go_at_once(path_, number_); }
  void finished(Status status) override { together_.end(std::move(status)); }

 private:
  const HostPath& path_;
  Together& together_;
  const uint64_t number_;
};

// ---- from device to device ----

struct DeviceSpace {
  DeviceMemory send, receive;
  penstock_exec exec{};
};

// Sends header, ticket and message, each after the arrival of the previous one. The application
// begins, and the communication thread does the rest.
class DirectProbe {
 public:
  DirectProbe(const DirectPath& path, const DeviceSpace& space, Together& together, uint64_t number)
      : path_(path), together_(together), number_(number) {
    const uint32_t size = path.tells.channel.members.size();
    headers_ = Buffer((size + 1) * kHeaderBytes);
    tickets_ = Buffer(2 * sizeof(uint64_t));
    header_.shape(PENSTOCK_ALL_GATHER, kHeaderBytes, size,
                  {headers_.data() + size * kHeaderBytes, headers_.as<float>()});
    turn_.shape(PENSTOCK_BROADCAST, sizeof(uint64_t), size,
                {tickets_.data(), tickets_.as<float>() + 2});
    header_.message.dtype = turn_.message.dtype = PENSTOCK_UINT8;
    header_.whole = turn_.whole = message_.whole = this;
    message_.message.exec = &space.exec;
  }
  uint64_t shape(uint32_t pattern, uint64_t count, const Elements& elements) {
    return message_.shape(pattern, count, path_.between.channel->members.size(), elements);
  }
  void begin() { header_.go_at_once(path_.tells, 2 * number_); }

 private:
  struct Part final : Probe {
    DirectProbe* whole = nullptr;
    void finished(Status status) override { whole->ended(*this, std::move(status)); }
  };

  void ended(const Part& part, Status status) {
    if (!status.ok() || &part == &message_) return together_.end(std::move(status));
    if (&part == &header_)
      take_turn();
    else
      send_message();
  }
  // All ranks are here, so the rank with the ticket waits for no application.
  void take_turn() {
    if (is_first()) *tickets_.as<uint64_t>() = path_.between.next_ticket.fetch_add(1);
    turn_.go_at_once(path_.tells, 2 * number_ + 1);
  }
  void send_message() {
    Channel& channel = *path_.between.channel;
    message_.sequence = tickets_.as<uint64_t>()[is_first() ? 0 : 1];
    message_.message.tag = message_.sequence % sdk::kTagLimit;  // like submit_by_ticket
    message_.limit_us = message_.message.deadline_us = path_.tells.limit_us;
    path_.traffic.add(bytes_handed_over(message_.message, channel.group.size),
                      bytes_moved(channel, message_.message));
    path_.tells.communication.submit(&channel, &message_);
  }
  bool is_first() const { return path_.tells.channel.group.rank == 0; }

  const DirectPath path_;
  Together& together_;
  const uint64_t number_;
  Buffer headers_, tickets_;  // [all ranks' headers, own header]; [own ticket, received ticket]
  Part header_, turn_, message_;
};

// Messages over one path. All messages send from one place, and each has its own place to receive.
template <typename Path, typename Space, typename PathProbe>
class TrialOver final : public LinkTrial {
 public:
  TrialOver(const Path& path, const Channel& channel, const HostPath& tells, uint64_t patterns,
            std::shared_ptr<const Space> space)
      : LinkTrial(channel, patterns,
                  (tells.channel.traits.flags & PENSTOCK_COLLECTIVE_ORDERED) == 0),
        path_(path),
        space_(std::move(space)) {}

  Result<double> together_us(uint32_t pattern, uint64_t count, size_t n) override {
    auto probes = std::make_unique<Probes>();
    probes->space = space_;
    void* const receive = space_->receive.data();
    uint64_t received = 0;
    for (size_t i = 0; i < n; ++i) {
      PathProbe& probe = probes->all.emplace_back(path_, *space_, probes->together, i);
      received += probe.shape(pattern, count,
                              {space_->send.data(), static_cast<float*>(receive) + received});
    }
    return time_of(std::move(probes), n);
  }

 private:
  struct Probes {
    std::shared_ptr<const Space> space;
    Together together;
    std::deque<PathProbe> all;
  };

  const Path path_;
  const std::shared_ptr<const Space> space_;
};

}  // namespace

std::unique_ptr<LinkTrial> make_trial(const HostPath& path, const TrialElements& most) {
  HostSpace space{Buffer(most.sent * sizeof(float)), Buffer(most.received * sizeof(float))};
  return std::make_unique<TrialOver<HostPath, HostSpace, HostProbe>>(
      path, path.channel, path, path.channel.traits.patterns,
      std::make_shared<const HostSpace>(std::move(space)));
}

Result<std::unique_ptr<LinkTrial>> make_trial(const DirectPath& path, const TrialElements& most) {
  const Device& device = path.residents.device();
  DeviceSpace space;
  PENSTOCK_ASSIGN(space.send, DeviceMemory::make(device, most.sent * sizeof(float)));
  PENSTOCK_ASSIGN(space.receive, DeviceMemory::make(device, most.received * sizeof(float)));
  space.exec = exec_on(path.residents);
  // Messages are sent after this work. A transport without streams is told when the work is done.
  const Stream& stream = path.residents.stream();
  PENSTOCK_TRY(stream.clear(space.send.data(), most.sent * sizeof(float)));
  PENSTOCK_TRY(stream.wait_at_most(path.tells.limit_us));
  auto shared = std::make_shared<const DeviceSpace>(std::move(space));
  const Channel& channel = *path.between.channel;
  return std::unique_ptr<LinkTrial>(
      std::make_unique<TrialOver<DirectPath, DeviceSpace, DirectProbe>>(
          path, channel, path.tells, device_patterns(channel.traits), std::move(shared)));
}

}  // namespace penstock
