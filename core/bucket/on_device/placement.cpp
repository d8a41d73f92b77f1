#include "core/bucket/on_device/placement.hpp"

#include "core/bucket/on_device/direct.hpp"
#include "core/bucket/on_device/fetch.hpp"
#include "core/bucket/on_device/inspect.hpp"
#include "core/bucket/on_device/watch.hpp"
#include "core/comm/channel.hpp"

#include <algorithm>

namespace penstock {
namespace {

template <typename Made, typename... Arguments>
void add(Program& program, Arguments&&... arguments) {
  program.push_back(std::make_unique<Made>(std::forward<Arguments>(arguments)...));
}

void add_return(Program& program) {
  add<GiveOut>(program);
  add<Return>(program);
}

// Some gradients lie on a device, but all are compressed on the host.
class Staged final : public Placement {
 public:
  void before_load(Program& program) override { add<Inspect>(program, nullptr); }
  void after_store(Program& program) override { add_return(program); }
};

// Some gradients are device-resident.
class OnDevice final : public DevicePlacement {
 public:
  explicit OnDevice(BucketRun& bucket) : bucket_(bucket) {}

  void before_load(Program& program) override { add<Inspect>(program, &part); }
  void after_store(Program& program) override { add_return(program); }

  void after_load(Program& program) override {
    if (bucket_.is_watched) add<TakeTimes>(program);
  }
  void before_begin(Program& program, Coding& coding) override {
    if (coding.leg != 0) add<InspectSums>(program, coding);
  }
  void after_measure(Program& program, Coding& coding) override {
    if (part.scalars.n != 0) add<FetchScalars>(program, coding);
  }
  void after_encode(Program& program, Leg& leg, uint32_t round) override {
    if (part.counts.n != 0) add<FetchCounts>(program, leg, round);
    if (has_payloads_on_host(leg, round)) add<FetchPayloads>(program, leg, round);
  }
  void after_exchange(Program& program, Leg& leg, uint32_t round) override {
    if (!is_announced(leg, round)) return;
    add<ReadHeaders>(program, leg, round);
    add<Pack>(program, leg, round);
    if (bucket_.context.echoes) {
      add<EchoDirect>(program, leg, round);
    } else {
      add<Ticket>(program, leg, round);
      if (takes_finished(leg, round)) add<FinishSends>(program, leg);
      add<Send>(program, leg, round);
    }
    if (leg.announcements[round].gathered != nullptr) add<CheckIndices>(program, leg, round);
  }
  void before_decode(Program& program, Leg& leg, uint32_t round) override {
    if (has_payloads_on_host(leg, round)) add<Upload>(program, leg, round);
  }
  Status list_ended() override { return bucket_.is_watched ? watches_.make(bucket_) : Status(); }

  Status stage_begins(size_t number) override {
    Stopwatch* const watch = watches_.of(number);
    return watch == nullptr ? Status() : watch->begin(stream());
  }
  Status stage_begun(size_t number) override {
    Stopwatch* const watch = watches_.of(number);
    return watch == nullptr ? Status() : watch->end(stream());
  }
  Status take_times() override {
    return bucket_.is_watched ? watches_.take(bucket_, part.has_times) : Status();
  }
  bool has_times() const override { return part.has_times; }

 private:
  const Stream& stream() const { return bucket_.context.on_device.residents->stream(); }

  BucketRun& bucket_;
  StageWatches watches_;
};

}  // namespace

Status check_way(const BucketRun& bucket) {
  const PieceRun* first = first_on_device(bucket);
  const uint32_t route = bucket.plan.route;
  const bool has_way = adds_in_hosts(route)
                           ? bucket.context.at(PENSTOCK_LEVEL_LOCAL).direct.channel != nullptr
                           : !halves_sums(route);
  if (first == nullptr || has_way) return {};
  return internal(
      "set '{}', bucket {}: gradient '{}' is device-resident, but route \"{}\" cannot carry its "
      "messages from device to device",
      bucket.context.name, bucket.number, first->gradient->name, route_name(route));
}

Result<std::unique_ptr<Placement>> make_placement(BucketRun& bucket) {
  std::unique_ptr<Placement> made;
  if (const PieceRun* first = first_on_device(bucket); first != nullptr) {
    auto on_device = std::make_unique<OnDevice>(bucket);
    PENSTOCK_TRY(lay_out(on_device->part, bucket, *first));
    PENSTOCK_TRY(lay_out_verdicts(on_device->part, bucket));
    made = std::move(on_device);
  } else if (std::any_of(bucket.pieces.begin(), bucket.pieces.end(), [](const PieceRun& piece) {
               return piece.gradient->on_device.side != nullptr;
             })) {
    made = std::make_unique<Staged>();
  } else {
    made = std::make_unique<Placement>();
  }
  return made;
}

}  // namespace penstock
