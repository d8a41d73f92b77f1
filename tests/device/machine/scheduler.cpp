// Chooses the work that runs next. The order within a stream, waits for records and the order of
// the legacy stream are kept. Everything else is random.
#include <cstdio>
#include <cstdlib>

#include "machine.hpp"

namespace penstock::simulated {

void Machine::queue(Stream& stream, Operation operation) {
  if (stream.captured != nullptr) {
    stream.captured->work.push_back(std::move(operation));
    return;
  }
  operation.order = ++n_queued_;
  stream.queue.push_back(std::move(operation));
  changed_.notify_all();
  while (chance(settings.early)) {
    Stream* any = pick_any();
    if (any == nullptr) return;
    run_first(*any);
  }
}

std::vector<Stream*> Machine::all_streams() const {
  std::vector<Stream*> all;
  for (const Device& device : devices) all.push_back(device.legacy.get());
  for (const auto& [id, stream] : streams) all.push_back(stream.get());
  return all;
}

bool Machine::idle(int device) const {
  for (const Stream* stream : all_streams())
    if (stream->device == device && !stream->queue.empty()) return false;
  return true;
}

bool Machine::chance(double share) {
  return share > 0 && std::uniform_real_distribution<double>()(random_) < share;
}

// Adds the streams whose work must run before the first operation of `stream`. False if there is no
// such stream.
bool Machine::blockers(const Stream& stream, std::vector<Stream*>& found) const {
  const std::size_t before = found.size();
  const Operation& first = stream.queue.front();
  if (first.kind == Kind::kWaitEvent && !first.record->done) found.push_back(first.record->stream);
  if (stream.legacy) {
    for (const auto& [id, other] : streams)
      if (other->device == stream.device && other->with_legacy && !other->queue.empty() &&
          other->queue.front().order < first.order)
        found.push_back(other.get());
  } else if (stream.with_legacy) {
    Stream* legacy = devices[stream.device].legacy.get();
    if (!legacy->queue.empty() && legacy->queue.front().order < first.order)
      found.push_back(legacy);
  }
  if (found.size() > before) return true;
  if (first.rendezvous == nullptr || first.rendezvous->complete()) return false;
  for (Stream* stream_of_other : first.rendezvous->streams()) found.push_back(stream_of_other);
  return true;
}

bool Machine::is_blocked(const Stream& stream) const {
  std::vector<Stream*> found;
  return blockers(stream, found);
}

// Finds a stream whose first operation must run before `stream` can advance. Null if no such
// operation can run now: there is no work, or the work waits for a function of the host or for an
// operation that is not queued yet. The search ends because each blocker has older work and each
// stream of a rendezvous is visited once.
Stream* Machine::step_toward(Stream& stream, std::vector<Stream*>* looked_at) {
  std::vector<Stream*> path{&stream}, seen;
  while (!path.empty()) {
    const std::size_t drawn = below(path.size());
    Stream* next = path[drawn];
    path.erase(path.begin() + static_cast<std::ptrdiff_t>(drawn));
    bool again = next->queue.empty() || next->busy || devices[next->device].lost != cudaSuccess;
    for (const Stream* old : seen) again = again || old == next;
    if (again) continue;
    seen.push_back(next);
    if (looked_at != nullptr) looked_at->push_back(next);
    if (!blockers(*next, path)) return next;
  }
  return nullptr;
}

Stream* Machine::pick_any() {
  std::vector<Stream*> able;
  for (Stream* stream : all_streams())
    if (!stream->queue.empty() && !stream->busy && devices[stream->device].lost == cudaSuccess &&
        !is_blocked(*stream))
      able.push_back(stream);
  return able.empty() ? nullptr : able[below(able.size())];
}

Stream* Machine::pick(const std::vector<Stream*>& for_whom) {
  const std::size_t first = below(for_whom.size());
  for (std::size_t i = 0; i < for_whom.size(); ++i)
    if (Stream* step = step_toward(*for_whom[(first + i) % for_whom.size()]); step != nullptr)
      return step;
  return nullptr;
}

// No operation of these streams can run. If each rank has queued its part of the rendezvous, no
// later call can help. Then the devices are lost, as after the timeout of a watchdog.
bool Machine::end_deadlock(const std::vector<Stream*>& for_whom) {
  std::vector<Stream*> looked_at;
  for (Stream* stream : for_whom) {
    if (step_toward(*stream, &looked_at) != nullptr) return false;
  }
  bool meets = false;
  for (const Stream* stream : looked_at) {
    Rendezvous* rendezvous = stream->queue.front().rendezvous.get();
    meets = meets || rendezvous != nullptr;
    if (rendezvous != nullptr && !rendezvous->all_queued()) return false;
  }
  if (!meets || !host_functions_.empty()) return false;
  for (const Stream* stream : looked_at) {
    if (stream->busy) return false;
  }
  journal.report(Misuse::kRanksDiffer,
                 "collectives wait for each other for ever: their streams come to them in orders "
                 "that differ between ranks");
  for (const Stream* stream : looked_at) devices[stream->device].lost = cudaErrorLaunchFailure;
  changed_.notify_all();
  return true;
}

cudaError_t Machine::lost() const {
  for (const Device& device : devices)
    if (device.lost != cudaSuccess) return device.lost;
  return cudaSuccess;
}

// Runs work until `unfinished()` returns no stream. A wait also runs work that it does not need,
// with a probability of 0, 1/2 or 1 that is drawn for the wait.
template <typename Unfinished>
cudaError_t Machine::run_until(Lock& lock, int device, const Unfinished& unfinished) {
  const double share_of_others = 0.5 * static_cast<double>(below(3));
  for (;;) {
    if (devices[device].lost != cudaSuccess) return devices[device].lost;
    const std::vector<Stream*> for_whom = unfinished();
    if (for_whom.empty()) return cudaSuccess;
    Stream* next = chance(share_of_others) ? pick_any() : pick(for_whom);
    if (next != nullptr)
      run_first(*next);
    else if (const cudaError_t error = lost(); error != cudaSuccess)
      return error;  // it waits in vain for another device
    else if (!end_deadlock(for_whom))
      changed_.wait(lock);
  }
}

cudaError_t Machine::finish(Lock& lock, const Stream& stream) {
  const uint64_t id = stream.id, last = n_queued_;
  Stream* legacy = stream.legacy ? devices[stream.device].legacy.get() : nullptr;
  return run_until(lock, stream.device, [=, this]() -> std::vector<Stream*> {
    const auto found = streams.find(id);
    Stream* left = legacy != nullptr        ? legacy
                   : found == streams.end() ? nullptr
                                            : found->second.get();
    if (left == nullptr || left->queue.empty() || left->queue.front().order > last) return {};
    return {left};
  });
}

cudaError_t Machine::finish(Lock& lock, std::shared_ptr<Record> record) {
  if (record->done) return cudaSuccess;
  return run_until(lock, record->stream->device, [record]() -> std::vector<Stream*> {
    if (record->done) return {};
    return {record->stream};
  });
}

cudaError_t Machine::finish_device(Lock& lock, int device) {
  return run_until(lock, device, [=, this, last = n_queued_] {
    std::vector<Stream*> left = all_streams();
    std::erase_if(left, [=](const Stream* stream) {
      return stream->device != device || stream->queue.empty() ||
             stream->queue.front().order > last;
    });
    return left;
  });
}

void Machine::answer(Stream& stream, uint64_t& fruitless) {
  constexpr uint64_t kPatience = 8;
  constexpr double kShare = 0.25;
  if (++fruitless % kPatience == 0) {
    if (Stream* next = step_toward(stream); next != nullptr) run_first(*next);
  }
  while (chance(kShare)) {
    Stream* next = chance(0.5) ? pick_any() : step_toward(stream);
    if (next == nullptr) return;
    run_first(*next);
  }
}

}  // namespace penstock::simulated
