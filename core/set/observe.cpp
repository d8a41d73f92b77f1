// What a set has measured, joined over the ranks and shown to the scheduler: what observe is told,
// and the links that a new plan is made with.

#include "core/base/left_behind.hpp"
#include "core/set/probe.hpp"
#include "core/set/set.hpp"

namespace penstock {
namespace {

// Reduces `values` in place over the ranks of a channel.
Status reduce(Communication& communication, Channel& channel, uint32_t reduction, uint64_t limit_us,
              std::vector<float>& values, uint64_t tag) {
  // Where it fails the transport may still write to it: then it is left behind, not freed.
  auto shared = std::make_unique<std::vector<float>>(std::move(values));
  penstock_message message{};
  message.struct_size = sizeof message;
  message.pattern = PENSTOCK_ALL_REDUCE;
  message.reduction = reduction;
  message.dtype = PENSTOCK_FLOAT32;
  message.send = message.receive = shared->data();
  message.count = shared->size();
  message.deadline_us = limit_us;
  message.tag = tag;
  const Status status = communication.transfer_and_wait(&channel, message);
  if (status.ok())
    values = std::move(*shared);
  else
    leave_behind(std::move(shared));
  return status;
}

// `all`: with what a scheduler of an older ABI would refuse.
penstock_measurement measurement_of(const MeasuredTimes::Means& means, uint64_t step, bool all) {
  penstock_measurement c{};
  c.struct_size = sizeof c;
  c.step = step;
  c.n_steps = means.n_steps;
  c.step_us = means.step_us;
  c.backward_us = means.backward_us;
  c.exposed_us = means.exposed_us;
  c.ready_us = means.ready_us.data();
  c.n_gradients = means.ready_us.size();
  c.exchange_us = means.exchange_us.data();
  c.n_buckets = means.exchange_us.size();
  c.rank_backward_us = means.rank_backward_us.data();
  c.world = means.rank_backward_us.size();
  if (!all) return c;
  c.wire_us = means.wire_us.data();
  c.wait_us = means.wait_us.data();
  c.phase_first = means.phase_first.data();
  c.period = means.phase_first.size() - 1;
  return c;
}

}  // namespace

// Only where costs count, and on the rank that plans.
void Set::probe_candidates(const Fitting& fitting) {
  if (rank != 0 || services_.config.runtime().deterministic ||
      !looks_at_costs(*fitting.scheduler()))
    return;
  std::vector<const Gradient*> gradients;
  for (const auto& gradient : gradients_) gradients.push_back(gradient.get());
  for (const ProbedCall& call :
       probe_compressors(*this, fitting.scheme(), gradients, services_.registry))
    if (call.status.ok())
      measured_.add_probe(call.compressor, call.on_device, call.elements, call.encode_us,
                          call.decode_us);
    else
      services_.log.write(LogLevel::info, "plan",
                          fmt::format("set '{}': what compressor '{}' costs is not known before it "
                                      "runs: {}",
                                      name, call.compressor, call.status.message()));
}

void Set::begin_measuring(const Works& works) {
  std::vector<size_t> n_buckets(works.period());
  for (const planning::Bucket& bucket : works.plan().buckets) ++n_buckets[bucket.phase];
  measured_.begin(gradients_.size(), n_buckets);
}

// What went out since `before` is not the training's traffic.
void Set::count_as_measuring(const Traffic& before) {
  const Traffic took = traffic() - before;
  traffic_at_start_ += took;
  measuring_ += took;
}

Status Set::forward_times(std::span<const double> first_use_us, double forward_us) {
  if (first_use_us.size() != gradients_.size() || first_use_us.data() == nullptr)
    return invalid_argument("set '{}' has {} gradients, but the times of a forward are of {}", name,
                            gradients_.size(), first_use_us.size());
  measured_.add_forward(first_use_us, forward_us);
  return {};
}

// Reduced on the way: what each rank had measured would be most of the traffic of a large run.
Result<MeasuredTimes::Means> Set::join_measured() {
  // First all come, however long one takes: Control says by name who is waited for.
  PENSTOCK_TRY(services_.control.agree(fmt::format("times of set {} at step {}", name, step.index),
                                       "", group_.ranks(), meeting_us_));
  MeasuredTimes::Numbers numbers = measured_.numbers(rank, world);
  if (world > 1) {
    const Traffic before = traffic();
    PENSTOCK_TRY(reduce(*communication, *channel(), PENSTOCK_REDUCE_SUM, limit_us, numbers.sums,
                        kTagBetweenSteps));
    PENSTOCK_TRY(reduce(*communication, *channel(), PENSTOCK_REDUCE_MAX, limit_us, numbers.maxima,
                        kTagBetweenSteps));
    count_as_measuring(before);
  }
  return measured_.means(numbers, world);
}

// Every so many steps rank 0's scheduler sees what was measured on all ranks, and may ask for a new
// plan.
Status Set::observe() {
  SchedulerInstance& scheduler = *works_->fitting().scheduler();
  const uint32_t every = scheduler.traits().observe_every;
  if (every == 0 || step.index % every != 0 ||
      !PENSTOCK_HAS_MEMBER(scheduler.table(), penstock_scheduler, observe))
    return {};
  PENSTOCK_ASSIGN(const MeasuredTimes::Means means, join_measured());
  ready_us_ = means.slowest_ready_us;
  backward_us_ = means.slowest_backward_us;
  if (!means.forward_us.empty()) forward_us_ = means.forward_us;
  if (means.whole_forward_us > 0) whole_forward_us_ = means.whole_forward_us;
  uint32_t decision = PENSTOCK_KEEP_PLAN;
  Status status;
  if (rank == 0) {
    const penstock_measurement c = measurement_of(means, step.index, reads_lines(scheduler));
    status = from_c(scheduler.table()->observe(scheduler.self(), &c, &decision));
  }
  const std::string mine = !status.ok()                         ? "error"
                           : decision == PENSTOCK_MAKE_NEW_PLAN ? "plan"
                                                                : "keep";
  PENSTOCK_ASSIGN(
      const std::string verdict,
      services_.control.hear_first(fmt::format("verdict of set {} at step {}", name, step.index),
                                   mine, group_.ranks(), meeting_us_));
  PENSTOCK_TRY(refused(status));
  if (verdict == "error")
    return refused(peer_failed("set '{}': the scheduler of rank {} failed; its error says why",
                               name, group_.ranks().front()));
  begin_measuring(*works_);
  if (verdict != "plan") return {};
  PENSTOCK_TRY(measure_links());
  return replace_works(works_->shared_fitting());
}

// The first rank's lines count: only it plans. Of the groups of a level only its own is measured,
// so that others do not take from the same link.
Status Set::measure_links() {
  std::vector<Channel*> levels{channel()};
  if (group_.n_hosts() > 1) PENSTOCK_TRY(add_level_channels(levels));
  const Traffic before = traffic();
  links_.clear();
  lines_.clear();
  const auto host_way = [&](Channel& level) {
    return HostWay{*communication, level, limit_us, kTagBetweenSteps};
  };
  for (Channel* level : levels) {
    PENSTOCK_ASSIGN(const LinkLines measured, measure_lines(host_way(*level)));
    links_.push_back(measured.whole);
    lines_.insert(lines_.end(), measured.by_size.begin(), measured.by_size.end());
  }
  const LevelLinks& between = at(between_devices->level);
  if (works_->sends_directly() && between.group.ranks().front() == group_.ranks().front()) {
    const DirectWay way{host_way(*between.transport.channel), *between_devices, *residents,
                        direct_traffic};
    PENSTOCK_ASSIGN(direct_lines_, measure_lines(way));
  }
  count_as_measuring(before);
  return {};
}

// By the compressors that gradients are configured with: residents have no others. Between the
// ranks of a host gradients go as they are.
BytesByWay Set::bytes_by_way(const Fitting& fitting) const {
  BytesByWay bytes;
  const bool has_direct = at(between_devices->level).direct.channel != nullptr;
  for (const auto& gradient : gradients_) {
    if (between_devices->level == PENSTOCK_LEVEL_LOCAL) {
      const bool is_direct = has_direct && gradient->resident != nullptr;
      (is_direct ? bytes.direct : bytes.host).summed += double(gradient->bytes()) + 1;
      continue;
    }
    const ItemNeeds& needs = fitting.options(gradient->index).front().needs;
    const CompressorFacts& facts = needs.compressor_facts;
    const bool may = has_direct && gradient->resident != nullptr;
    // What has no planned size counts as a byte: it is there.
    if (facts.sums) (may ? bytes.direct : bytes.host).summed += needs.planned.summed + 1;
    if (facts.gathers)
      (may && facts.gathers_pairs ? bytes.direct : bytes.host).gathered +=
          needs.planned.gathered + needs.planned.pairs + 1;
  }
  return bytes;
}

// The lines of the way that each kind of message goes.
void Set::add_links(const Fitting& fitting, planning::ModelEntries& model) const {
  model.links = links_;
  model.lines = lines_;
  const DirectShare share(bytes_by_way(fitting));
  if (!links_.empty())
    take_direct(direct_lines_, between_devices->level, share, model.links, model.lines);
  if (!reads_lines(*fitting.scheduler())) {
    model.lines.clear();
    return;
  }
  const bool is_direct = share.most && between_devices->level == PENSTOCK_LEVEL_WORLD;
  const CollectiveInstance& transport =
      is_direct ? *services_.transports.for_devices() : services_.transports.world();
  if (!PENSTOCK_HAS_MEMBER(transport.table(), penstock_collective, volume)) return;
  model.volume = transport.table()->volume;
  model.volume_context = transport.self();
}

// Channels of the first rank's host and of the first ranks of all hosts, where this rank is in
// them.
Status Set::add_level_channels(std::vector<Channel*>& levels) {
  for (const uint32_t level : {PENSTOCK_LEVEL_LOCAL, PENSTOCK_LEVEL_CROSS}) {
    const LevelLinks& links = at(level);
    const bool holds_first = links.group.ranks().front() == group_.ranks().front();
    if (!holds_first || links.group.size() < 2) continue;
    PENSTOCK_TRY(open_level(level));
    levels.push_back(links.transport.channel);
  }
  return {};
}

}  // namespace penstock
