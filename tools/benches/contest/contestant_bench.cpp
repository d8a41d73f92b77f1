#include "tools/benches/contest/contestant_bench.hpp"

namespace penstock::bench {

using nlohmann::json;

Contestant::Contestant(Runtime& runtime, const Training& training, const json& entry)
    : name_(entry.at("name")), dense_(entry.at("dense")) {
  const std::string scheme = entry.at("scheme");
  std::vector<penstock_gradient_declaration> declarations(training.gradients.size());
  std::vector<const penstock_gradient_declaration*> pointers;
  for (size_t i = 0; i < declarations.size(); ++i) {
    penstock_gradient_declaration& one = declarations[i];
    one.struct_size = sizeof one;
    one.name = str(training.gradients[i].name);
    one.shape = &training.gradients[i].elements;
    one.n_dims = 1;
    one.dtype = PENSTOCK_FLOAT32;
    one.device_type = PENSTOCK_DEVICE_CPU;
    one.given_bucket = PENSTOCK_NO_BUCKET;
    pointers.push_back(&one);
  }
  penstock_set_declaration declaration{};
  declaration.struct_size = sizeof declaration;
  declaration.name = str(name_);
  declaration.gradients = pointers.data();
  declaration.n_gradients = pointers.size();
  declaration.scheme = str(scheme);
  declaration.flags = PENSTOCK_SET_DEFERRED_UPDATE;
  auto made = Set::create(runtime.services(), declaration);
  check(made.status());
  set_ = std::move(made.value());
}

void Contestant::turn(Training& training) {
  const bool steady = training.is_steady();
  const size_t n = steady ? training.steps : 1;
  for (size_t i = 0; i < n + (steady ? 1 : 0); ++i) training.refresh(steps_ + i);
  MPI_Barrier(training.world);
  if (steady) {
    forward(training);
    backward(training);
  }
  computed_ns_ = 0;
  const int64_t start = now_ns();
  for (size_t i = 0; i < n; ++i) {
    if (steady) forward(training);
    backward(training);
  }
  if (!steady) wait_for_all();
  const double share = 1e-6 / double(n);
  const double step_ms = double(now_ns() - start) * share;
  wait_for_all();
  if (training.rank == 0) read_report();  // before a new plan is made
  end_step();
  step_ms_ = training.most_of_all_ranks(step_ms);
  exposed_ms_ = step_ms_ - training.most_of_all_ranks(double(computed_ns_) * share);
}

// A wait here delays all later layers.
void Contestant::forward(const Training& training) {
  const bool deferred = is_under_way_ && set_->defers();
  if (!deferred) end_step();
  const int64_t start = now_ns();
  int64_t waited_ns = 0;
  std::vector<double> first_use_us(training.gradients.size());
  for (size_t i = 0; i < training.gradients.size(); ++i) {
    const int64_t moment = start + waited_ns + training.first_use_ns[i];
    int64_t now = now_ns();
    if (moment > now) sleep_until(moment), now = now_ns();
    first_use_us[i] = double(now - start - waited_ns) * 1e-3;
    if (!deferred) continue;
    check(set_->wait(i));
    waited_ns += now_ns() - now;
  }
  const int64_t end = start + waited_ns + training.forward_ns;
  if (end > now_ns()) sleep_until(end);
  const int64_t computed_ns = now_ns() - start - waited_ns;
  end_step();
  check(set_->forward_times(first_use_us, double(computed_ns) * 1e-3));
  computed_ns_ += computed_ns;
}

void Contestant::backward(Training& training) {
  std::vector<float>& values = training.buffer_of(steps_++);
  is_under_way_ = true;
  const int64_t start = now_ns();
  for (const size_t i : training.order) {
    const Gradient& gradient = training.gradients[i];
    const int64_t moment = start + training.ready_ns[i];
    if (moment > now_ns()) sleep_until(moment);
    penstock_tensor tensor{};
    tensor.struct_size = sizeof tensor;
    tensor.data = values.data() + gradient.first;
    tensor.shape = &gradient.elements;
    tensor.n_dims = 1;
    tensor.numel = uint64_t(gradient.elements);
    tensor.dtype = PENSTOCK_FLOAT32;
    tensor.device_type = PENSTOCK_DEVICE_CPU;
    check(set_->gradient_ready(i, tensor));
  }
  computed_ns_ += now_ns() - start;
  check(set_->defers() ? set_->backward_end() : set_->wait_all());
}

void Contestant::wait_for_all() {
  check(set_->wait_all());
}

void Contestant::end_step() {
  if (!is_under_way_) return;
  check(set_->step_end());
  is_under_way_ = false;
}

void Contestant::note(size_t round) {
  for (const auto& [what, value] : {std::pair{"step_ms", step_ms_},
                                    {"exposed_ms", exposed_ms_},
                                    {"encode_ms", encode_ms_},
                                    {"exchange_ms", exchange_ms_},
                                    {"decode_ms", decode_ms_}})
    figures_[what][round].push_back(value);
}

void Contestant::check_result(Training& training, const std::vector<float>& mean) const {
  const std::vector<float>& result = training.buffer_of(steps_ - 1);
  const size_t by = training.shift(steps_ - 1);
  uint64_t hash = 14695981039346656037u, least = 0, most = 0, not_zero = 0;
  for (size_t i = 0; i < result.size(); ++i) {
    const float expected = mean[(i + by) % mean.size()];
    // The order of a sum may differ: one rounding per rank, at the size of the largest value (some
    // hundreds).
    if (dense_ && std::abs(result[i] - expected) > 1e-4f * (1.0f + std::abs(expected)))
      check(internal("{}: entry {} is {}, expected the mean {}", name_, i, result[i], expected));
    uint32_t bits = 0;
    std::memcpy(&bits, &result[i], sizeof bits);
    hash = (hash ^ bits) * 1099511628211u;
    not_zero += result[i] != 0.0f;
  }
  MPI_Allreduce(&hash, &least, 1, MPI_UINT64_T, MPI_MIN, training.world);
  MPI_Allreduce(&hash, &most, 1, MPI_UINT64_T, MPI_MAX, training.world);
  if (least != most || not_zero == 0)
    check(
        internal("{}: {} entries are not zero, and hashes of ranks go from {:x} to {:x}, "
                 "expected the same result on every rank",
                 name_, not_zero, least, most));
}

json Contestant::figures() const {
  penstock_counters totals{};
  totals.struct_size = sizeof totals;
  set_->counters(totals);
  json figures{{"name", name_},
               {"dense", dense_},
               {"buckets", buckets_},
               {"explanation", explanation_},
               {"plans_in_warm_up", plans_in_warm_up_},
               {"plans_while_timed", plans_ - plans_in_warm_up_},
               {"moved_bytes_per_step", double(totals.moved_bytes) / double(totals.steps)}};
  for (const auto& [what, rounds] : figures_) {
    figures[what] = json::array();
    for (const auto& [round, values] : rounds) figures[what].push_back(values);
  }
  return figures;
}

// Reads the stages of this step, summed over buckets, and whether there is a new plan.
void Contestant::read_report() {
  auto text = set_->report();
  check(text.status());
  const json report = json::parse(text.value());
  std::vector<int> buckets;
  std::string layout;
  encode_ms_ = exchange_ms_ = decode_ms_ = 0;
  for (const json& bucket : report.at("buckets")) {
    const size_t phase = bucket.at("phase");
    if (buckets.size() <= phase) buckets.resize(phase + 1);
    ++buckets[phase];
    layout += "\nbucket";
    for (const json& item : bucket.at("items"))
      layout += fmt::format(" {}[{}]", item.at("gradient").get<std::string>(),
                            item.at("first").get<uint64_t>());
    encode_ms_ += bucket.at("encode_us").get<double>() * 1e-3;
    exchange_ms_ += bucket.at("exchange_us").get<double>() * 1e-3;
    decode_ms_ += bucket.at("decode_us").get<double>() * 1e-3;
  }
  if (layout != layout_ && !layout_.empty()) ++plans_;
  layout_ = std::move(layout);
  buckets_ = std::move(buckets);
  explanation_ = report.at("explanation");
}

}  // namespace penstock::bench
