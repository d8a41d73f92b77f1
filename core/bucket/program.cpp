#include "core/bucket/program.hpp"

#include "core/bucket/coded.hpp"
#include "core/bucket/echo.hpp"
#include "core/bucket/exchange.hpp"
#include "core/bucket/finish.hpp"
#include "core/bucket/forward.hpp"
#include "core/bucket/load.hpp"
#include "core/bucket/placement.hpp"
#include "core/bucket/slices.hpp"
#include "core/bucket/store.hpp"

namespace penstock {
namespace {

class Maker {
 public:
  explicit Maker(BucketRun& bucket)
      : bucket_(bucket), program_(bucket.program), placement_(*bucket.placement) {}

  Status make() {
    placement_.before_load(program_);
    add<Load>();
    placement_.after_load(program_);
    for (Leg& leg : bucket_.legs) add_leg(leg);
    if (bucket_.defers()) add<EndBackward>();
    add<GiveBack>();
    add<Store>();
    placement_.after_store(program_);
    return placement_.list_ended();
  }

 private:
  template <typename Made, typename... Arguments>
  void add(Arguments&&... arguments) {
    program_.push_back(std::make_unique<Made>(std::forward<Arguments>(arguments)...));
  }

  void add_leg(Leg& leg) {
    if (leg.waits_for_forward && leg.sends()) add<Defer>(leg);
    if (leg.kind.encodes) begin_coding(*leg.coding);
    for (uint32_t round = 0; round < leg.messages.size(); ++round) add_round(leg, round);
    if (!leg.ends_coding) return;
    if (has_to_record(bucket_)) add<RecordTaken>();
    add<Finish>();
  }

  void begin_coding(Coding& coding) {
    placement_.before_begin(program_, coding);
    add<Begin>(coding);
    if (coding.prologue != nullptr) {
      add<Measure>(coding);
      placement_.after_measure(program_, coding);
      if (!bucket_.context.echoes) add<Ask>(coding);
    }
    add<Compensate>(coding);
  }

  void add_round(Leg& leg, uint32_t round) {
    if (leg.kind.encodes) {
      add<Encode>(leg, round);
      placement_.after_encode(program_, leg, round);
    }
    if (bucket_.context.echoes)
      add<Echo>(leg, round);
    else
      add<Exchange>(leg, round);
    placement_.after_exchange(program_, leg, round);
    if (leg.waits_for_forward) add<LetGo>(leg);
    add<Read>(leg, round);
    if (!leg.kind.decodes) return;
    placement_.before_decode(program_, leg, round);
    add<Decode>(leg, round);
    add_later_slices(program_, leg, round);
  }

  BucketRun& bucket_;
  Program& program_;
  Placement& placement_;
};

}  // namespace

Status make_program(BucketRun& bucket) {
  bucket.program.clear();
  return Maker(bucket).make();
}

}  // namespace penstock
