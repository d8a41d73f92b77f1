// A scheduler that writes down what it is shown: as lines of its explanation, one "name value"
// each. All gradients in one bucket; with MIXED the second half of them with their second
// candidate.
#include <penstock/scheduler.hpp>

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
    std::vector<penstock_piece> pieces(model.n_gradients);
    std::vector<const penstock_piece*> pointers;
    for (uint64_t i = 0; i < model.n_gradients; ++i) {
      pieces[i].struct_size = sizeof(penstock_piece);
      pieces[i].gradient = i;
      pieces[i].numel = model.gradients[i]->numel;
#ifdef MIXED
      if (2 * i >= model.n_gradients) pieces[i].choice = 1;
#endif
      pointers.push_back(&pieces[i]);
    }
    penstock_bucket bucket{};
    bucket.struct_size = sizeof bucket;
    bucket.pieces = pointers.data();
    bucket.n_pieces = pointers.size();
    bucket.route = PENSTOCK_ROUTE_FLAT;
    sink.add_bucket(bucket);

    sink.explain(sdk::text("exposed_us ", exposed_us_));
    sink.explain(sdk::text("step_us ", step_us_));
    sink.explain(sdk::text("links ", model.n_links));
    sink.explain(sdk::text("backward_us ", model.backward_us));
    for (uint64_t i = 0; i < model.n_gradients; ++i)
      sink.explain(sdk::text("ready_us ", model.gradients[i]->ready_us));
    for (uint64_t i = 0; i < model.gradients[0]->n_candidates; ++i) {
      const penstock_candidate& candidate = *model.gradients[0]->candidates[i];
      sink.explain(sdk::text("encode_fixed_us ", candidate.encode_fixed_us));
      sink.explain(sdk::text("decode_fixed_us ", candidate.decode_fixed_us));
    }
  }

  uint32_t observe(const penstock_measurement& measurement) {
    exposed_us_ = measurement.exposed_us;
    step_us_ = measurement.step_us;
    return PENSTOCK_MAKE_NEW_PLAN;
  }

 private:
  double exposed_us_ = -1;  // of the last observation
  double step_us_ = -1;
};

}  // namespace

PENSTOCK_SCHEDULER(Witness, "scheduler/witness", "1.0.0", "Writes down what it is shown.", "");
