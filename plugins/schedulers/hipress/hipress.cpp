// HiPress: decides whether a gradient is compressed and into how many parts it is cut, by the time
// of each choice, and joins small gradients into messages of a useful size. Source: Bai et al.,
// "Gradient Compression Supercharged High-Performance Data Parallel DNN Training", SOSP 2021:
// selective compression and partitioning, and bulk synchronization.
#include <map>
#include <planning/choosing.hpp>
#include <ranges>

#include "deciding.hpp"

namespace sdk = penstock::sdk;
namespace planning = penstock::planning;

namespace {

using Gradients = std::vector<uint64_t>;
using Decisions = std::vector<hipress::Decision>;  // by gradient

class Hipress : public planning::ChoosingScheduler<Hipress> {
 public:
  static constexpr const char* kName = "hipress";
  static inline const sdk::OptionList options{
      dense_option(),
      sdk::integer_option("bulk_bytes", 1048576)
          .at_least(0)
          .unit("bytes")
          .summary("small gradients are joined until their payload is as large; 0 joins none"),
      sdk::integer_option("most_parts", 16)
          .at_least(1)
          .at_most(1024)
          .unit("parts")
          .summary("most parts into which a gradient is cut"),
      profile_steps_option()};

  explicit Hipress(const sdk::Options& values)
      : ChoosingScheduler(values),
        bulk_bytes_(static_cast<uint64_t>(values.integer("bulk_bytes"))),
        most_parts_(static_cast<uint64_t>(values.integer("most_parts"))) {}

  // Decides each gradient as if it were alone. This ignores that gradients wait for each other, so
  // the forecast of the whole plan decides between these decisions, all gradients compressed, and
  // all dense.
  planning::Plan choose(const penstock_model& model) const {
    const Decisions all[] = {decided(model, true, true), decided(model, true, false),
                             decided(model, false, true)};
    planning::Plan best;
    double least = 0;
    std::string line;
    const char* const kinds[] = {"by gradient", "all compressed", "all dense"};
    for (size_t kind = 0; kind < 3; ++kind) {
      planning::Plan plan = planning::in_every_phase(model, buckets_of(model, all[kind]));
      const double exposed = planning::exposed_us(plan, model);
      line += sdk::text(kind == 0 ? "" : ", ", kinds[kind], " ", exposed);
      if (kind != 0 && !(exposed < least)) continue;
      least = exposed;
      best = std::move(plan);
      best.explanation = {sentence_of(model, all[kind])};
    }
    best.explanation[0] += "; forecast in us exposed after backward: " + line;
    return best;
  }

 private:
  Decisions decided(const penstock_model& model, bool may_compress, bool may_be_dense) const {
    const uint64_t most = planning::are_given(model) ? 1 : most_parts_;
    Decisions decisions;
    for (uint64_t i = 0; i < model.n_gradients; ++i) {
      const int64_t dense = planning::dense_choice(*model.gradients[i], this->dense());
      hipress::Decision best = hipress::decide(model, i, 0, most);
      if (dense >= 0 && may_be_dense) {
        const auto other = hipress::decide(model, i, static_cast<uint32_t>(dense), most);
        if (!may_compress || !(best.time_us < other.time_us)) best = other;
      }
      decisions.push_back(best);
    }
    return decisions;
  }

  using Pieces = std::vector<planning::Piece>;

  // Makes buckets. A part travels alone; whole gradients are joined with the gradients of equal
  // choice that are ready next. The place of a bucket in the order is the moment at which it is
  // full, or the end.
  std::vector<Pieces> buckets_of(const penstock_model& model, const Decisions& decisions) const {
    if (planning::are_given(model)) return given_buckets_of(model, decisions);
    std::vector<Pieces> buckets;
    std::map<uint32_t, Pieces> waiting;  // by choice
    std::map<uint32_t, uint64_t> bytes;
    for (uint64_t gradient : planning::in_order(model)) {
      const auto& [choice, parts, time_us] = decisions[gradient];
      if (parts > 1) {
        const auto firsts = hipress::cuts(*model.gradients[gradient], choice, parts);
        for (size_t part = 0; part < parts; ++part)
          buckets.emplace_back(
              1, planning::Piece{gradient, firsts[part], firsts[part + 1] - firsts[part], choice});
        continue;
      }
      waiting[choice].push_back(whole(model, gradient, choice));
      bytes[choice] = planning::saturating_add(bytes[choice], bytes_of(model, gradient, choice));
      if (bytes[choice] < bulk_bytes_) continue;
      buckets.push_back(std::exchange(waiting[choice], {}));
      bytes[choice] = 0;
    }
    for (Pieces& rest : std::views::values(waiting))
      if (!rest.empty()) buckets.push_back(std::move(rest));
    return buckets;
  }

  static std::vector<Pieces> given_buckets_of(const penstock_model& model,
                                              const Decisions& decisions) {
    std::vector<Pieces> buckets;
    for (const Gradients& unit : planning::units(model, planning::in_order(model))) {
      buckets.emplace_back();
      for (uint64_t gradient : unit)
        buckets.back().push_back(whole(model, gradient, decisions[gradient].choice));
    }
    return buckets;
  }

  static planning::Piece whole(const penstock_model& model, uint64_t gradient, uint32_t choice) {
    return {gradient, 0, model.gradients[gradient]->numel, choice};
  }

  // The payload bytes of a gradient in the phase in which it sends most.
  static uint64_t bytes_of(const penstock_model& model, uint64_t gradient, uint32_t choice) {
    const uint64_t* bytes = model.gradients[gradient]->candidates[choice]->phase_bytes;
    return *std::max_element(bytes, bytes + model.period);
  }

  std::string sentence_of(const penstock_model& model, const Decisions& decisions) const {
    uint64_t n_dense = 0, n_cut = 0, most = 1;
    for (uint64_t i = 0; i < model.n_gradients; ++i) {
      const int64_t dense = planning::dense_choice(*model.gradients[i], this->dense());
      n_dense += dense >= 0 && decisions[i].choice == dense ? 1 : 0;
      n_cut += decisions[i].parts > 1 ? 1 : 0;
      most = std::max(most, decisions[i].parts);
    }
    return sdk::text("hipress: ", n_dense, " of ", model.n_gradients, " gradients dense, ", n_cut,
                     " cut into parts, at most ", most);
  }

  uint64_t bulk_bytes_;
  uint64_t most_parts_;
};

}  // namespace

PENSTOCK_SCHEDULER(
    Hipress, "scheduler/hipress", "0.1.0",
    "compresses a gradient or not, cuts it into parts or joins it with others, by measured times",
    "Bai et al., HiPress, SOSP 2021: selective compression and partitioning");
