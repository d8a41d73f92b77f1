#include "core/tuning/probe.hpp"

#include "core/base/leak.hpp"
#include "core/base/mutex.hpp"
#include "core/bucket/engine.hpp"
#include "core/bucket/on_device/device_place.hpp"
#include "core/bucket/placement.hpp"
#include "core/tensor/elements.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

namespace penstock {
namespace {

constexpr int kTries = 3;
constexpr uint64_t kBudgetUs = 50'000;  // per compressor

// One buffer has the payloads of all ranks, so with many ranks only fewer elements are tried
// quickly.
uint64_t most_elements(uint32_t world) {
  return std::clamp<uint64_t>((uint64_t{1} << 22) / world, 4096, uint64_t{1} << 20);
}

// The values of a gradient, in the place of the set's gradients.
class Values {
 public:
  Status make(const DeclaredGradient& gradient, Residents* residents) {
    wide_.resize(gradient.numel);
    // Around zero and of many sizes, as in gradients.
    for (size_t i = 0; i < wide_.size(); ++i)
      wide_[i] = std::sin(float(i % 1021) * 12.9898f) * std::exp(-float(i % 61) * 0.1f);
    if (residents == nullptr) {
      here_ = Buffer(gradient.bytes());
      return {};
    }
    PENSTOCK_ASSIGN(upload_, PinnedMemory::make(residents->device(), gradient.bytes()));
    PENSTOCK_ASSIGN(there_, DeviceMemory::make(residents->device(), gradient.bytes()));
    from_float32(gradient.dtype, wide_.data(), upload_.data(), wide_.size());
    return {};
  }
  // Restores the values for the next exchange. Call it between exchanges.
  Status hand_over(Gradient& gradient, Residents* residents) {
    if (residents == nullptr) {
      from_float32(gradient.dtype, wide_.data(), here_.data(), wide_.size());
      gradient.data = here_.data();
      return {};
    }
    const Stream& stream = residents->stream();
    PENSTOCK_TRY(stream.copy_to_device(there_.data(), upload_.data(), gradient.bytes()));
    PENSTOCK_TRY(gradient.on_device.resident->take(there_.data(), stream.handle()));
    gradient.data = gradient.on_device.resident->work_place();
    return {};
  }

 private:
  std::vector<float> wide_;
  Buffer here_;
  PinnedMemory upload_;
  DeviceMemory there_;
};

// Waits for the end of the job of a trial's only bucket.
class EndOfJob final : public BucketListener {
 public:
  void bucket_ended(BucketRun&, const Status& status) override {
    const Lock lock(mutex_);
    status_ = status;
    ended_.notify_one();
  }
  void backward_part_ended(BucketRun&) override {}
  void forward_part_arrived(BucketRun&) override {}

  // DEADLINE_EXCEEDED: the job has not ended, but may still end.
  Status wait(uint64_t limit_us) {
    Lock lock(mutex_);
    const auto has_ended = [this]() PENSTOCK_REQUIRES(mutex_) { return bool(status_); };
    if (!ended_.wait_for(mutex_, std::chrono::microseconds(limit_us), has_ended))
      return deadline_exceeded("its device has not come to an end within {} s", limit_us / 1000000);
    return *std::exchange(status_, std::nullopt);
  }

 private:
  Mutex mutex_;
  Condition ended_;
  std::optional<Status> status_ PENSTOCK_GUARDED_BY(mutex_);
};

// The context of a trial. Nothing of the trial leaves this rank, and no listener is called.
struct SingleRank {
  explicit SingleRank(const SetContext& set) {
    context.listener = &end;
    context.communication = set.communication;
    context.engine = set.engine;
    context.timeline = &untold;
    context.levels = set.levels;
    context.calls = set.calls;
    context.planning_calls = set.planning_calls;
    context.rank = set.rank;
    context.world = set.world;
    context.name = set.name;
    context.composite_id = set.composite_id;
    context.composite_name = set.composite_name;
    context.transport_name = set.transport_name;
    context.step = set.step;
    context.forgets = set.forgets;
    context.result_is_sum = set.result_is_sum;
    context.nonfinite_is_strict = set.nonfinite_is_strict;
    context.coding_path = set.coding_path;
    context.arena_limit_bytes = set.arena_limit_bytes;
    context.echoes = true;
    context.results_are_notified = true;  // a job ends after its device
  }
  EndOfJob end;
  Timeline untold;
  SetContext context;
};

// The objects of a probed gradient, in the order in which they are made. They end in reverse order.
struct Belongings {
  explicit Belongings(const SetContext& set) : single_rank(set) {}
  SingleRank single_rank;
  std::unique_ptr<Residents> residents;  // null: works on the CPU
  Values values;
  CompiledPlan::Gradients gradients;  // exactly one
  std::shared_ptr<const BoundScheme> bound_scheme;
  std::unique_ptr<CompiledPlan> works;
};

// A single gradient with new instances of the scheme's plugins.
class Rig {
 public:
  Rig(const SetContext& set, const Gradient& gradient)
      : engine_(*set.engine),
        declared_(gradient.name, 0, gradient.shape, gradient.dtype),
        device_(gradient.on_device.resident != nullptr
                    ? std::optional(set.on_device.residents->device())
                    : std::nullopt),
        its_(std::make_unique<Belongings>(set)),
        context_(its_->single_rank.context) {}
  Rig(const Rig&) = delete;
  Rig& operator=(const Rig&) = delete;
  // Objects that a device or a job may still use are never freed.
  ~Rig() {
    if (is_stuck_ || (its_->residents != nullptr && !its_->residents->drain(kEndUs).ok()))
      leak(std::move(its_));
  }

  // The cost of the gradient with this compressor: the least times of a few trials.
  ProbedCall probe(const Scheme& scheme, Registry& registry, const std::string& compressor) {
    ProbedCall call;
    call.compressor = compressor;
    call.on_device = device_.has_value();
    call.elements = double(declared_.numel);
    call.status = fit(scheme, registry);
    if (call.status.ok()) call.status = make_works(compressor);
    if (call.status.ok()) call.status = time(call);
    return call;
  }

 private:
  static constexpr uint64_t kEndUs = 1'000'000, kLimitUs = 5'000'000;

  Status fit(const Scheme& scheme, Registry& registry) {
    PENSTOCK_ASSIGN(its_->bound_scheme,
                    BoundScheme::make(scheme, choose(scheme, {&declared_}), registry,
                                      {.world = context_.world,
                                       .connects_devices = context_.connects_devices(),
                                       .arena_limit_bytes = context_.arena_limit_bytes,
                                       .calls = context_.planning_calls,
                                       .set = context_.name}));
    its_->gradients.push_back(std::make_unique<Gradient>(declared_));
    if (device_) PENSTOCK_TRY(go_to_device());
    return its_->values.make(declared_, its_->residents.get());
  }

  // Separate streams, so that no work of the set waits for the trial.
  Status go_to_device() {
    const uint64_t bytes = declared_.bytes();
    PENSTOCK_ASSIGN(its_->residents, Residents::make(*device_, {&bytes, 1}));
    Gradient* const gradient = its_->gradients.front().get();
    work_on(context_, *its_->residents, {&gradient, 1});
    return {};
  }

  Status make_works(const std::string& compressor) {
    const auto& options = its_->bound_scheme->options(0);
    const auto option = std::find_if(options.begin(), options.end(), [&](const auto& each) {
      return each.compressor->name() == compressor;
    });
    if (option == options.end()) return internal("no gradient may have it");
    Plan plan;
    plan.period = its_->bound_scheme->period();
    planning::Bucket& only = plan.buckets.emplace_back();
    only.pieces.push_back({0, 0, declared_.numel, uint32_t(option - options.begin())});
    only.route = PENSTOCK_ROUTE_FLAT;
    only.launch = PENSTOCK_LAUNCH_READY;
    PENSTOCK_ASSIGN(its_->works, CompiledPlan::make(context_, its_->bound_scheme, std::move(plan),
                                                    its_->gradients, nullptr));
    its_->works->lend_scratch();
    return {};
  }

  Status time(ProbedCall& call) {
    BucketRun& bucket = *its_->works->phase(0).front();
    for (int i = 0; i <= kTries; ++i) {  // the first trial warms up
      PENSTOCK_TRY(its_->values.hand_over(*its_->gradients.front(), its_->residents.get()));
      engine_.start(bucket);
      const Status ended = its_->single_rank.end.wait(kLimitUs);
      is_stuck_ = ended.code() == Code::deadline_exceeded;
      PENSTOCK_TRY(ended);
      PENSTOCK_TRY(engine_.run([&]() -> Status {
        PENSTOCK_TRY(bucket.placement->take_times());
        return its_->works->states().end_step(nullptr);
      }));
      const auto encode = double(bucket.encode_us), decode = double(bucket.decode_us);
      call.encode_us = i <= 1 ? encode : std::min(call.encode_us, encode);
      call.decode_us = i <= 1 ? decode : std::min(call.decode_us, decode);
      ++context_.step.index;
    }
    return {};
  }

  Engine& engine_;
  const DeclaredGradient declared_;
  const std::optional<Device> device_;
  std::unique_ptr<Belongings> its_;
  SetContext& context_;
  bool is_stuck_ = false;
};

// The largest, the smallest and a medium gradient, each size once.
std::vector<const Gradient*> extremes(std::vector<const Gradient*> gradients, uint64_t most) {
  const auto is_larger = [](const auto* a, const auto* b) { return a->numel > b->numel; };
  std::stable_sort(gradients.begin(), gradients.end(), is_larger);
  const auto same_size = [](const auto* a, const auto* b) { return a->numel == b->numel; };
  gradients.erase(std::unique(gradients.begin(), gradients.end(), same_size), gradients.end());
  std::erase_if(gradients, [&](const auto* g) { return g->numel == 0 || g->numel > most; });
  if (gradients.size() < 3) return gradients;
  return {gradients.front(), gradients.back(), gradients[gradients.size() / 2]};
}

}  // namespace

std::vector<ProbedCall> probe_compressors(const SetContext& set, const Scheme& scheme,
                                          const std::vector<const Gradient*>& gradients,
                                          Registry& registry) {
  // By compressor, and by whether the gradients are worked on on a device.
  std::map<std::pair<std::string, bool>, std::vector<const Gradient*>> users;
  for (const Gradient* gradient : gradients) {
    const Choice choice = scheme.choose(gradient->facts());
    std::set<std::string> names(choice.candidates.begin(), choice.candidates.end());
    names.insert(choice.compressor);
    for (const std::string& name : names)
      users[{name, gradient->on_device.resident != nullptr}].push_back(gradient);
  }
  Scheme alone = scheme;
  alone.scheduler.clear();
  std::vector<ProbedCall> calls;
  for (auto& [who, its] : users) {
    const uint64_t start = now_us();
    for (const Gradient* gradient : extremes(std::move(its), most_elements(set.world))) {
      if (now_us() - start > kBudgetUs) break;
      Rig rig(set, *gradient);
      calls.push_back(rig.probe(alone, registry, who.first));
      if (!calls.back().status.ok()) break;
    }
  }
  return calls;
}

}  // namespace penstock
