// Writing a scheduler in C++: a class whose plan() is a pure function of the options, the model and
// the measurements that observe() received before.
//
//   namespace sdk = penstock::sdk;
//   class Planner {
//    public:
//     static inline const sdk::OptionList options{};
//     explicit Planner(const sdk::Options& values);
//     void describe(penstock_scheduler_traits& traits) const;
//     void plan(const penstock_model& model, sdk::PlanSink& sink);
//     // optional: returns PENSTOCK_KEEP_PLAN or PENSTOCK_MAKE_NEW_PLAN
//     uint32_t observe(const penstock_measurement& measurement);
//   };
//   PENSTOCK_SCHEDULER(Planner, "scheduler/wfbp", "0.1.0", "one sentence", "paper");
#pragma once

#include <penstock/arguments.hpp>
#include <penstock/record.hpp>

#include <span>
#include <vector>

namespace penstock::sdk {

// The sink into which plan() writes buckets and messages.
class PlanSink {
 public:
  explicit PlanSink(const penstock_plan_sink* sink) : sink_(sink) {}

  // Adds a bucket of whole gradients in the given order, each with its first candidate.
  void add_bucket(const penstock_model& model, uint32_t phase, std::span<const uint64_t> gradients,
                  uint32_t route, uint32_t launch = 0) {
    std::vector<penstock_piece> pieces(gradients.size());
    std::vector<const penstock_piece*> pointers(gradients.size());
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      pieces[i].struct_size = sizeof(penstock_piece);
      pieces[i].gradient = gradients[i];
      pieces[i].numel = model.gradients[gradients[i]]->numel;
      pieces[i].device_type = PENSTOCK_DEVICE_CPU;
      pointers[i] = &pieces[i];
    }
    penstock_bucket bucket{};
    bucket.struct_size = sizeof bucket;
    bucket.pieces = pointers.data();
    bucket.n_pieces = pointers.size();
    bucket.route = route;
    bucket.phase = phase;
    bucket.launch = launch;
    add_bucket(bucket);
  }
  void add_bucket(const penstock_bucket& bucket) {
    check(sink_->add_bucket(sink_->context, &bucket));
  }
  // Adds the next message to the order of ORDERED channels; see penstock_plan_sink. A host without
  // such an order lacks the member; the call then does nothing, and no message is lost.
  void add_message(uint32_t phase, uint32_t bucket, uint32_t leg, uint32_t round = 0) {
    if (!PENSTOCK_HAS_FIELD(sink_, penstock_plan_sink, add_message)) return;
    if (sink_->add_message == nullptr) return;
    check(sink_->add_message(sink_->context, phase, bucket, leg, round));
  }
  void explain(std::string_view line) {
    if (sink_->explain != nullptr) sink_->explain(sink_->context, str(line));
  }

 private:
  const penstock_plan_sink* sink_;
};

template <typename T>
concept SchedulerClass = requires(T scheduler, const T& constant, penstock_scheduler_traits& traits,
                                  const penstock_model& model, PlanSink& sink) {
  T::options;
  constant.describe(traits);
  scheduler.plan(model, sink);
}
&&std::constructible_from<T, const Options&>;

template <typename T>
class SchedulerTable {
  static_assert(
      SchedulerClass<T>,
      "a scheduler needs: static options, a constructor from Options, describe() and plan()");

  static penstock_status* create(const penstock_option_value* const* options, uint64_t n_options,
                                 void** instance) noexcept {
    return guarded([&] {
      check_options(options, n_options);
      *instance = new T(Options(options, n_options));
    });
  }
  static void destroy(void* instance) noexcept { delete static_cast<T*>(instance); }
  static penstock_status* describe(void* instance, penstock_scheduler_traits* traits) noexcept {
    return guarded([&] { static_cast<T*>(instance)->describe(*traits); });
  }
  static penstock_status* plan(void* instance, const penstock_model* model,
                               const penstock_plan_sink* sink) noexcept {
    return guarded([&] {
      check_model(*model);
      PlanSink plan_sink(sink);
      static_cast<T*>(instance)->plan(*model, plan_sink);
    });
  }
  static penstock_status* observe(void* instance, const penstock_measurement* measurement,
                                  uint32_t* decision) noexcept requires
      requires(T s, const penstock_measurement& m) {
    s.observe(m);
  }
  {
    return guarded([&] {
      refuse_unknown(measurement, "penstock_measurement");
      *decision = static_cast<T*>(instance)->observe(*measurement);
    });
  }
  static const void* extension(void*, penstock_str) noexcept { return nullptr; }

  static constexpr penstock_scheduler make() {
    penstock_scheduler table{};
    table.struct_size = sizeof table;
    table.create = create;
    table.destroy = destroy;
    table.describe = describe;
    table.plan = plan;
    if constexpr (requires { &SchedulerTable::observe; }) table.observe = observe;
    table.extension = extension;
    return table;
  }

 public:
  static constexpr penstock_scheduler table = make();
};

}  // namespace penstock::sdk

#define PENSTOCK_SCHEDULER(Type, ...) \
  PENSTOCK_DEFINE_PLUGIN(PENSTOCK_KIND_SCHEDULER, SchedulerTable, Type, __VA_ARGS__)
