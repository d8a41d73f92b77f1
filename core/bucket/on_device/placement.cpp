#include "core/bucket/placement.hpp"
#include "core/bucket/on_device/direct.hpp"
#include "core/bucket/on_device/fetch.hpp"
#include "core/bucket/on_device/inspect.hpp"
#include "core/bucket/on_device/watch.hpp"
#include "core/comm/channel.hpp"

namespace penstock {
namespace {

template <typename Made, typename... Arguments>
void add(Program& program, Arguments&&... arguments) {
  program.push_back(std::make_unique<Made>(std::forward<Arguments>(arguments)...));
}

// Some gradients lie on a device, but are worked on on the host.
class Staged : public Placement {
 public:
  void before_load(Program& program) override { add<Inspect>(program); }
  void after_store(Program& program) override { add<Return>(program); }
};

// Some are worked on there.
class OnDevice final : public Staged {
 public:
  explicit OnDevice(BucketRun& bucket) : bucket_(bucket) {}

  void after_load(Program& program) override {
    if (bucket_.is_watched) add<TakeTimes>(program);
  }
  void before_begin(Program& program, Coding& coding) override {
    if (coding.alone) add<InspectSums>(program, coding);
  }
  void after_measure(Program& program, Coding& coding) override {
    if (bucket_.device->scalars.n != 0) add<FetchScalars>(program, coding);
  }
  void after_encode(Program& program, Leg& leg, uint32_t round) override {
    if (bucket_.device->counts.n != 0) add<FetchCounts>(program, leg, round);
    if (has_payloads_on_host(leg, round)) add<FetchPayloads>(program, leg, round);
  }
  void after_exchange(Program& program, Leg& leg, uint32_t round) override {
    if (!has_direct(leg, round)) return;
    add<ReadHeaders>(program, leg, round);
    add<Pack>(program, leg, round);
    if (bucket_.context.echoes) {
      add<EchoDirect>(program, leg, round);
    } else {
      add<Ticket>(program, leg, round);
      if (takes_finished(leg, round)) add<FinishSends>(program, leg);
      add<Send>(program, leg, round);
    }
    if (leg.preludes[round].gathered != nullptr) add<CheckIndices>(program, leg, round);
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
    return bucket_.is_watched ? watches_.take(bucket_, bucket_.device->has_times) : Status();
  }

 private:
  const Stream& stream() const { return bucket_.context.residents->stream(); }

  BucketRun& bucket_;
  StageWatches watches_;
};

}  // namespace

Result<std::unique_ptr<Placement>> Placement::of(BucketRun& bucket) {
  PENSTOCK_TRY(lay_out_device_part(bucket));
  PENSTOCK_TRY(lay_out_verdicts(bucket));
  std::unique_ptr<Placement> made;
  if (bucket.device != nullptr)
    made = std::make_unique<OnDevice>(bucket);
  else if (bucket.has_devices)
    made = std::make_unique<Staged>();
  else
    made = std::make_unique<Placement>();
  return made;
}

}  // namespace penstock
