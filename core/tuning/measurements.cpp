#include "core/tuning/measurements.hpp"

#include "core/base/leak.hpp"
#include "core/bucket/engine.hpp"
#include "core/tuning/probe.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace penstock {

// ---- times ----

void Measurements::begin(const CompiledPlan& works) {
  std::vector<size_t> n_buckets(works.period());
  for (const planning::Bucket& bucket : works.plan().buckets) ++n_buckets[bucket.phase];
  times_.begin(gradients_.size(), n_buckets);
}

void Measurements::add_step(CompiledPlan& works, uint32_t phase, const StepTimes& times,
                            uint64_t ended_us) {
  for (const auto& gradient : gradients_)
    if (!works.of(phase, gradient->index).empty())
      times_.add_ready(gradient->index, double(gradient->ready_us - times.first_ready_us));
  for (size_t b = 0; b < works.phase(phase).size(); ++b)
    times_.add_bucket(phase, b, *works.phase(phase)[b]);
  times_.add_step(double(ended_us - times.first_ready_us),
                  double(times.last_ready_us - times.first_ready_us), times.waited_us);
}

Status Measurements::add_forward(std::span<const double> first_use_us, double forward_us) {
  if (first_use_us.size() != gradients_.size() || first_use_us.data() == nullptr)
    return invalid_argument("set '{}' has {} gradients, but the times of a forward are of {}",
                            set_.name, gradients_.size(), first_use_us.size());
  times_.add_forward(first_use_us, forward_us);
  return {};
}

void Measurements::probe(const BoundScheme& bound_scheme) {
  if (set_.rank != 0 || uses_.deterministic || !looks_at_costs(*bound_scheme.scheduler())) return;
  std::vector<const Gradient*> gradients;
  for (const auto& gradient : gradients_) gradients.push_back(gradient.get());
  for (const ProbedCall& call :
       probe_compressors(set_, bound_scheme.scheme(), gradients, uses_.registry))
    if (call.status.ok())
      times_.add_probe(call.compressor, call.on_device, call.elements, call.encode_us,
                       call.decode_us);
    else
      uses_.log.write(LogLevel::info, "plan",
                      fmt::format("set '{}': the cost of compressor '{}' is not known before it "
                                  "runs: {}",
                                  set_.name, call.compressor, call.status.message()));
}

// ---- means over the ranks ----

// Reduced over the channel. Gathered values of every rank would be most of the traffic of a large
// run.
Result<MeasuredTimes::Means> Measurements::join(uint64_t rendezvous_us) {
  // First all ranks arrive, at any time. Control names the ranks that are waited for.
  PENSTOCK_TRY(
      uses_.control.agree(fmt::format("times of set {} at step {}", set_.name, set_.step.index), "",
                          group_.ranks(), rendezvous_us));
  MeasuredTimes::Numbers numbers = times_.numbers(set_.rank, set_.world);
  if (set_.world > 1) {
    PENSTOCK_TRY(reduce(PENSTOCK_REDUCE_SUM, numbers.sums));
    PENSTOCK_TRY(reduce(PENSTOCK_REDUCE_MAX, numbers.maxima));
  }
  MeasuredTimes::Means means = times_.means(numbers, set_.world);
  ready_us_ = means.slowest_ready_us;
  backward_us_ = means.slowest_backward_us;
  if (!means.forward_us.empty()) forward_us_ = means.forward_us;
  if (means.whole_forward_us > 0) whole_forward_us_ = means.whole_forward_us;
  return means;
}

// Reduces in place.
Status Measurements::reduce(uint32_t reduction, std::vector<float>& values) {
  // After an error the transport may still write, so the memory is then not freed.
  auto shared = std::make_unique<std::vector<float>>(std::move(values));
  penstock_message message{};
  message.struct_size = sizeof message;
  message.pattern = PENSTOCK_ALL_REDUCE;
  message.reduction = reduction;
  message.dtype = PENSTOCK_FLOAT32;
  message.send = message.receive = shared->data();
  message.count = shared->size();
  message.deadline_us = set_.limit_us;
  message.tag = SetContext::kTagBetweenSteps;
  const Status status = set_.communication->transfer_and_wait(set_.channel(), message);
  if (status.ok())
    values = std::move(*shared);
  else
    leak(std::move(shared));
  return status;
}

// ---- links ----

// A level has several groups, and only the group of the first rank is measured, so that groups do
// not share a link during the measurement.
Status Measurements::measure_links(const CompiledPlan& works, const std::vector<Channel*>& levels) {
  links_.clear();
  lines_.clear();
  const auto host_path = [&](Channel& level) {
    return HostPath{*set_.communication, level, set_.limit_us, SetContext::kTagBetweenSteps};
  };
  for (Channel* level : levels) {
    PENSTOCK_ASSIGN(const LinkLines measured, measure_lines(host_path(*level)));
    links_.push_back(measured.whole);
    lines_.insert(lines_.end(), measured.by_size.begin(), measured.by_size.end());
  }
  const LevelLinks& between = set_.at(set_.on_device.between->level);
  if (works.announces() && between.group.ranks().front() == group_.ranks().front()) {
    const DirectPath path{host_path(*between.transport.channel), *set_.on_device.between,
                          *set_.on_device.residents, set_.on_device.traffic};
    PENSTOCK_ASSIGN(direct_lines_, measure_lines(path));
  }
  return {};
}

// ---- the model for plans ----

void Measurements::complete(const BoundScheme& bound_scheme, planning::ModelEntries& model,
                            const std::vector<uint64_t>& given) const {
  add_costs(model);
  for (size_t i = 0; i < ready_us_.size(); ++i) model.gradients[i].ready_us = ready_us_[i];
  for (size_t i = 0; i < forward_us_.size(); ++i) model.gradients[i].forward_us = forward_us_[i];
  if (given.empty() && !ready_us_.empty())
    std::stable_sort(model.order.begin(), model.order.end(),
                     [&](uint64_t a, uint64_t b) { return ready_us_[a] < ready_us_[b]; });
  add_links(bound_scheme, model);
  model.backward_us = backward_us_;
  model.forward_us = whole_forward_us_;
  if (!ready_us_.empty()) model.flags |= PENSTOCK_MODEL_MEASURED;
}

void Measurements::add_costs(planning::ModelEntries& model) const {
  for (size_t i = 0; i < gradients_.size(); ++i)
    for (planning::CandidateEntry& candidate : model.gradients[i].candidates) {
      const CallLines* lines =
          times_.lines(candidate.compressor, gradients_[i]->on_device.resident != nullptr);
      if (lines == nullptr) continue;
      candidate.encode_fixed_us = lines->encode.fixed();
      candidate.encode_per_element_us = lines->encode.per_element();
      candidate.decode_fixed_us = lines->decode.fixed();
      candidate.decode_per_element_us = lines->decode.per_element();
    }
}

// By the configured compressors, because device-resident gradients have no candidates. Between the
// ranks of a host gradients travel uncompressed.
BytesByPath Measurements::bytes_by_path(const BoundScheme& bound_scheme) const {
  BytesByPath bytes;
  const bool has_direct = set_.at(set_.on_device.between->level).direct.channel != nullptr;
  for (const auto& gradient : gradients_) {
    if (set_.on_device.between->level == PENSTOCK_LEVEL_LOCAL) {
      const bool is_direct = has_direct && gradient->on_device.resident != nullptr;
      (is_direct ? bytes.direct : bytes.host).summed += double(gradient->bytes()) + 1;
      continue;
    }
    const ItemNeeds& needs = bound_scheme.options(gradient->index).front().needs;
    const CompressorFacts& facts = needs.compressor_facts;
    const bool may = has_direct && gradient->on_device.resident != nullptr;
    // One byte more, so that a message without a planned size counts too.
    if (facts.sums) (may ? bytes.direct : bytes.host).summed += needs.planned.summed + 1;
    if (facts.gathers)
      (may && facts.gathers_pairs ? bytes.direct : bytes.host).gathered +=
          needs.planned.gathered + needs.planned.pairs + 1;
  }
  return bytes;
}

// Adds the lines of the path that each kind of message takes.
void Measurements::add_links(const BoundScheme& bound_scheme, planning::ModelEntries& model) const {
  model.links = links_;
  model.lines = lines_;
  const DirectShare share(bytes_by_path(bound_scheme));
  if (!links_.empty())
    take_direct(direct_lines_, set_.on_device.between->level, share, model.links, model.lines);
  if (!reads_lines(*bound_scheme.scheduler())) {
    model.lines.clear();
    return;
  }
  const bool is_direct = share.most && set_.on_device.between->level == PENSTOCK_LEVEL_WORLD;
  const CollectiveInstance& transport =
      is_direct ? *uses_.transports.for_devices() : uses_.transports.world();
  if (!PENSTOCK_HAS_MEMBER(transport.table(), penstock_collective, volume)) return;
  model.volume = transport.table()->volume;
  model.volume_context = transport.self();
}

}  // namespace penstock
