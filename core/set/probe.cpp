#include "core/set/probe.hpp"

#include "core/bucket/calls.hpp"
#include "core/bucket/engine.hpp"
#include "core/bucket/wire.hpp"
#include "core/tensor/elements.hpp"

#include <algorithm>
#include <cmath>
#include <map>

namespace penstock {
namespace {

constexpr int kTries = 3;
constexpr uint64_t kBudgetUs = 50'000;  // of one compressor

// Payloads of all ranks lie in one buffer, so with many ranks only less is quick to try.
uint64_t most_elements(uint32_t world) {
  return std::clamp<uint64_t>((uint64_t{1} << 22) / world, 4096, uint64_t{1} << 20);
}

// What this rank sends comes back as what every rank sent.
void arrive(MessageRun& message, uint32_t round) {
  if (message.kind == MessageRun::Kind::gather) {
    close_gathered(message, round);
    const uint64_t bytes = message.message.count;
    for (size_t r = 0; r < message.receive_counts.size(); ++r) {
      std::memcpy(message.receive.data() + message.receive_offsets[r], message.send.data(), bytes);
      message.receive_counts[r] = bytes;
    }
  } else if (message.kind == MessageRun::Kind::sparse) {
    for (const size_t position : message.items) {
      ItemRun& item = message.coding->items[position];
      PayloadStorage& sent = item.own[round];
      PayloadStorage& received = item.received[round][0];
      received.c()->kind = sent.c()->kind;
      for (size_t s = 0; s < sent.size(); ++s) {
        penstock_section& section = received.section(s);
        section.count = std::min(sent.section(s).count, section.capacity);
        std::memcpy(section.data, sent.section(s).data, section.count * dtype_bytes(section.dtype));
      }
      item.refused.absent();
    }
  } else if (message.receive.bytes() != 0) {
    std::memcpy(message.receive.data(), message.send.data(), message.receive.bytes());
  }
}

// The life of a bucket in a step, without the others. [engine]
Status run_alone(BucketRun& bucket) {
  take_in(bucket);
  for (Leg& leg : bucket.legs) {
    Coding& coding = *leg.coding;
    begin(bucket, coding);
    if (coding.prologue != nullptr) PENSTOCK_TRY(measure(bucket, coding));
    PENSTOCK_TRY(compensate(bucket, coding));
    for (uint32_t round = 0; round < leg.messages.size(); ++round) {
      PENSTOCK_TRY(encode(bucket, leg, round));
      note_encoded(bucket);
      for (auto& message : leg.messages[round]) arrive(*message, round);
      PENSTOCK_TRY(read_round(bucket, leg, round));
      PENSTOCK_TRY(decode(bucket, leg, round));
    }
  }
  return settle(bucket);
}

// A gradient by itself, with the scheme's plugins made anew.
class Rig {
 public:
  Rig(const SetContext& set, const DeclaredGradient& gradient)
      : engine_(*set.engine), declared_(gradient.name, 0, gradient.shape, gradient.dtype) {
    context_.communication = set.communication;
    context_.engine = set.engine;
    context_.timeline = &untold_;
    context_.levels = set.levels;
    context_.calls = set.calls;
    context_.planning_calls = set.planning_calls;
    context_.rank = set.rank;
    context_.world = set.world;
    context_.name = set.name;
    context_.composite_id = set.composite_id;
    context_.composite_name = set.composite_name;
    context_.transport_name = set.transport_name;
    context_.exec = set.exec;
    context_.step = set.step;
  }

  // The gradient's call with this compressor; its times are the least of a few.
  ProbedCall probe(const Scheme& scheme, Registry& registry, const std::string& compressor) {
    ProbedCall call;
    call.compressor = compressor;
    call.elements = double(declared_.numel);
    call.status = fit(scheme, registry);
    if (call.status.ok()) call.status = time(call);
    return call;
  }

 private:
  Status fit(const Scheme& scheme, Registry& registry) {
    PENSTOCK_ASSIGN(fitting_, Fitting::make(scheme, choose(scheme, {&declared_}), registry,
                                            {.world = context_.world,
                                             .calls = context_.planning_calls,
                                             .set = context_.name}));
    gradients_.push_back(std::make_unique<Gradient>(declared_));
    values_ = Buffer(declared_.bytes());
    gradients_.front()->data = values_.data();
    return {};
  }

  Status time(ProbedCall& call) {
    const auto& options = fitting_->options(0);
    const auto option = std::find_if(options.begin(), options.end(), [&](const auto& each) {
      return each.compressor->name() == call.compressor;
    });
    if (option == options.end()) return internal("no gradient may have it");
    Plan plan;
    plan.period = fitting_->period();
    planning::Bucket& only = plan.buckets.emplace_back();
    only.pieces.push_back({0, 0, declared_.numel, uint32_t(option - options.begin())});
    only.route = PENSTOCK_ROUTE_FLAT;
    only.launch = PENSTOCK_LAUNCH_READY;
    PENSTOCK_ASSIGN(const std::unique_ptr<Works> works,
                    Works::make(context_, fitting_, std::move(plan), gradients_, nullptr));
    works->lend_scratch(context_.exec, context_.device_exec);
    BucketRun& bucket = *works->phase(0).front();
    for (int i = 0; i <= kTries; ++i) {  // the first one warms up
      make_up();
      PENSTOCK_TRY(engine_.run([&] { return run_alone(bucket); }));
      const auto encode = double(bucket.encode_us), decode = double(bucket.decode_us);
      call.encode_us = i <= 1 ? encode : std::min(call.encode_us, encode);
      call.decode_us = i <= 1 ? decode : std::min(call.decode_us, decode);
      ++context_.step.index;
    }
    return {};
  }

  // Values around zero of many sizes, as gradients have.
  void make_up() {
    std::vector<float> wide(declared_.numel);
    for (size_t i = 0; i < wide.size(); ++i)
      wide[i] = std::sin(float(i % 1021) * 12.9898f) * std::exp(-float(i % 61) * 0.1f);
    if (declared_.dtype == PENSTOCK_FLOAT32 && !wide.empty())
      std::memcpy(values_.data(), wide.data(), values_.bytes());
    else
      from_float32(declared_.dtype, wide.data(), values_.data(), wide.size());
  }

  Engine& engine_;
  const DeclaredGradient declared_;
  Timeline untold_;
  SetContext context_;
  std::shared_ptr<const Fitting> fitting_;
  Works::Gradients gradients_;
  Buffer values_;
};

// The largest, the smallest and a middle one; each size once.
std::vector<const DeclaredGradient*> extremes(std::vector<const DeclaredGradient*> gradients,
                                              uint64_t most) {
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
                                          const std::vector<const DeclaredGradient*>& gradients,
                                          Registry& registry) {
  std::map<std::string, std::vector<const DeclaredGradient*>> users;  // by compressor
  for (const ChosenGradient& chosen : choose(scheme, gradients)) {
    users[chosen.choice.compressor].push_back(chosen.gradient);
    for (const std::string& name : chosen.choice.candidates)
      if (name != chosen.choice.compressor) users[name].push_back(chosen.gradient);
  }
  Scheme alone = scheme;
  alone.scheduler.clear();
  std::vector<ProbedCall> calls;
  for (auto& [compressor, its] : users) {
    const uint64_t start = now_us();
    for (const DeclaredGradient* gradient : extremes(std::move(its), most_elements(set.world))) {
      if (now_us() - start > kBudgetUs) break;
      Rig rig(set, *gradient);
      calls.push_back(rig.probe(alone, registry, compressor));
      if (!calls.back().status.ok()) break;
    }
  }
  return calls;
}

}  // namespace penstock
