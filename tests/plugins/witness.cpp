// A scheduler that records its input: its explanation has one line "name value" for each number. It
// puts all gradients into one bucket of each phase. With MIXED the second half of the gradients
// uses the second candidate. With EACH every gradient has its own bucket, and the plan is kept.
#include <penstock/scheduler.hpp>

#include <numeric>
#include <vector>

namespace sdk = penstock::sdk;

namespace {

class Witness {
 public:
  static inline const sdk::OptionList options{};

  explicit Witness(const sdk::Options&) {}

  void describe(penstock_scheduler_traits& traits) const {
    traits.routes = uint64_t{1} << PENSTOCK_ROUTE_FLAT;
    traits.flags = PENSTOCK_SCHEDULER_MEASURES | PENSTOCK_SCHEDULER_CHOOSES;
    traits.observe_every = 2;
  }

  void plan(const penstock_model& model, sdk::PlanSink& sink) const {
    std::vector<uint64_t> gradients(model.n_gradients);
    std::iota(gradients.begin(), gradients.end(), uint64_t{0});
    for (uint32_t phase = 0; phase < model.period; ++phase) {
#ifdef EACH
      for (const uint64_t gradient : gradients) add_bucket(model, sink, phase, {gradient});
#else
      add_bucket(model, sink, phase, gradients);
#endif
    }
    sink.explain(sdk::text("exposed_us ", exposed_us_));
    sink.explain(sdk::text("step_us ", step_us_));
    for (size_t i = 0; i < wire_us_.size(); ++i) {
      sink.explain(sdk::text("exchange_us ", exchange_us_[i]));
      sink.explain(sdk::text("wire_us ", wire_us_[i]));
      sink.explain(sdk::text("wait_us ", wait_us_[i]));
    }
    for (const uint64_t first : phase_first_) sink.explain(sdk::text("phase_first ", first));
    sink.explain(sdk::text("links ", model.n_links));
    for (uint64_t i = 0; i < model.n_lines; ++i) {
      const penstock_link& line = *model.lines[i];
      const auto key = sdk::text("line.", line.level, ".", line.pattern, ".", line.bytes_from);
      sink.explain(sdk::text(key, ".alpha_us ", line.alpha_us));
      sink.explain(sdk::text(key, ".beta_us_per_byte ", line.beta_us_per_byte));
    }
    if (model.volume != nullptr) {
      penstock_volume within{sizeof within, 0, 0, 0}, between{sizeof between, 0, 0, 0};
      penstock_volume* const volumes[] = {&within, &between};
      model.volume(model.volume_context, PENSTOCK_ALL_GATHER, model.hosts, model.ranks_per_host,
                   100, volumes);
      sink.explain(sdk::text("gathered_bytes ", within.bytes + between.bytes));
    }
    sink.explain(sdk::text("backward_us ", model.backward_us));
    for (uint64_t i = 0; i < model.n_gradients; ++i) {
      sink.explain(sdk::text("ready_us ", model.gradients[i]->ready_us));
      sink.explain(sdk::text("forward_us ", model.gradients[i]->forward_us));
    }
    sink.explain(sdk::text("whole_forward_us ", model.forward_us));
    for (uint64_t i = 0; i < model.gradients[0]->n_candidates; ++i) {
      const penstock_candidate& candidate = *model.gradients[0]->candidates[i];
      sink.explain(sdk::text("encode_fixed_us ", candidate.encode_fixed_us));
      sink.explain(sdk::text("decode_fixed_us ", candidate.decode_fixed_us));
      sink.explain(sdk::text("encode_per_element_us ", candidate.encode_per_element_us));
      sink.explain(sdk::text("decode_per_element_us ", candidate.decode_per_element_us));
    }
  }

  uint32_t observe(const penstock_measurement& measurement) {
    exposed_us_ = measurement.exposed_us;
    step_us_ = measurement.step_us;
    const auto copy = [](const auto* values, uint64_t n) {
      return std::vector(values, values + n);
    };
    exchange_us_ = copy(measurement.exchange_us, measurement.n_buckets);
    wire_us_ = copy(measurement.wire_us, measurement.n_buckets);
    wait_us_ = copy(measurement.wait_us, measurement.n_buckets);
    phase_first_ = copy(measurement.phase_first, measurement.period + 1);
#ifdef EACH
    return PENSTOCK_KEEP_PLAN;
#else
    return PENSTOCK_MAKE_NEW_PLAN;
#endif
  }

 private:
  static void add_bucket(const penstock_model& model, sdk::PlanSink& sink, uint32_t phase,
                         const std::vector<uint64_t>& gradients) {
    std::vector<penstock_piece> pieces(gradients.size());
    std::vector<const penstock_piece*> pointers;
    for (size_t i = 0; i < gradients.size(); ++i) {
      pieces[i].struct_size = sizeof(penstock_piece);
      pieces[i].gradient = gradients[i];
      pieces[i].numel = model.gradients[gradients[i]]->numel;
#ifdef MIXED
      if (2 * i >= gradients.size()) pieces[i].choice = 1;
#endif
      pointers.push_back(&pieces[i]);
    }
    penstock_bucket bucket{};
    bucket.struct_size = sizeof bucket;
    bucket.pieces = pointers.data();
    bucket.n_pieces = pointers.size();
    bucket.route = PENSTOCK_ROUTE_FLAT;
    bucket.phase = phase;
    sink.add_bucket(bucket);
  }

  double exposed_us_ = -1;  // of the last observation
  double step_us_ = -1;
  std::vector<double> exchange_us_, wire_us_, wait_us_;
  std::vector<uint64_t> phase_first_;
};

}  // namespace

PENSTOCK_SCHEDULER(Witness, "scheduler/witness", "1.0.0", "Writes down what it is shown.", "");
