#include "core/tuning/measure.hpp"

#include "core/bucket/placement.hpp"

#include <algorithm>

namespace penstock {

void FittedLine::add(double x, double y) {
  ++n_;
  sum_x_ += x;
  sum_y_ += y;
  sum_xx_ += x * x;
  sum_xy_ += x * y;
}

double FittedLine::per_element() const {
  if (!has_several_sizes()) return 0;  // with one size, the whole cost is fixed
  return std::max(0.0, (double(n_) * sum_xy_ - sum_x_ * sum_y_) / spread());
}

double FittedLine::fixed_at(double per_element) const {
  return n_ == 0 ? 0 : std::max(0.0, (sum_y_ - per_element * sum_x_) / double(n_));
}

double FittedLine::fixed() const {
  return fixed_at(per_element());
}

double CostLine::fixed() const {
  return (steps.count() > 0 ? steps : probes).fixed_at(per_element());
}

void MeasuredTimes::begin(size_t n_gradients, const std::vector<size_t>& n_buckets) {
  std::vector<uint64_t> phase_first(1);
  for (const size_t n : n_buckets) phase_first.push_back(phase_first.back() + n);
  std::vector<Exchanges> exchanges(phase_first.back());
  std::vector<Mean> ready(n_gradients), forward(n_gradients);
  phase_first_.swap(phase_first);
  exchanges_.swap(exchanges);
  ready_.swap(ready);
  forward_.swap(forward);
  n_steps_ = 0;
  step_us_ = backward_us_ = exposed_us_ = 0;
  whole_forward_ = {};
}

void MeasuredTimes::add_ready(size_t gradient, double after_first_us) {
  ready_[gradient].add(after_first_us);
}

void MeasuredTimes::add_forward(std::span<const double> first_use_us, double whole_us) {
  for (size_t i = 0; i < forward_.size(); ++i)
    if (first_use_us[i] >= 0) forward_[i].add(first_use_us[i]);
  whole_forward_.add(whole_us);
}

void MeasuredTimes::Exchanges::add(double us) {
  last_us[all.n % kSamples] = static_cast<float>(us);
  all.add(us);
}

double MeasuredTimes::Exchanges::kept_us() const {
  Mean mean;
  for (size_t i = 0; i < n_kept(); ++i) mean.add(last_us[i]);
  return mean.value();
}

void MeasuredTimes::add_bucket(uint32_t phase, size_t number, const BucketRun& bucket) {
  if (!bucket.ran || bucket.is_void) return;
  // After the plan's buckets comes a bucket of gradients that send nothing in this phase.
  if (const size_t place = phase_first_[phase] + number; place < phase_first_[phase + 1])
    exchanges_[place].add(double(bucket.exchange_us));
  // The time to queue work on a device is no cost. The device's own times count if they are
  // measured.
  if (bucket.placement->has_times()) add_calls(bucket);
}

void MeasuredTimes::add_calls(const BucketRun& bucket) {
  std::vector<Calls>& calls = calls_;
  calls.clear();
  double elements = 0;
  const auto add = [&](const ItemRun& item) {
    const bool on_device = !item.place().works_at_once();
    auto mine = std::find_if(calls.begin(), calls.end(), [&](const Calls& c) {
      return c.compressor == item.compressor && c.on_device == on_device;
    });
    if (mine == calls.end()) mine = calls.insert(calls.end(), Calls{item.compressor, on_device});
    if (item.passes_through || item.rounds.empty()) return;
    mine->any = true;
    mine->elements += double(item.range.numel);
    elements += double(item.range.numel);
  };
  for (const auto& coding : bucket.codings)
    for (const ItemRun& item : coding->items)
      if (item.encodes) add(item);
  const auto share_out = [&](std::vector<CompressorCall> Coding::*made, double whole_us,
                             double Calls::*part) {
    for (const auto& coding : bucket.codings)
      for (const CompressorCall& call : coding.get()->*made)
        for (Calls& mine : calls)
          if (mine.compressor == call.compressor &&
              mine.on_device == !call.place->works_at_once()) {
            mine.*part += double(call.took_us);
            whole_us -= double(call.took_us);
          }
    // Memories handle all items in one call. Their time, and time outside of calls, is divided by
    // elements.
    if (elements > 0)
      for (Calls& mine : calls) mine.*part += std::max(0.0, whole_us) * mine.elements / elements;
  };
  share_out(&Coding::encode_calls, double(bucket.encode_us), &Calls::encode_us);
  share_out(&Coding::decode_calls, double(bucket.decode_us), &Calls::decode_us);
  for (const Calls& mine : calls) {
    CallLines& lines = lines_[mine.on_device][mine.compressor->name()];
    if (!mine.any) continue;
    lines.encode.steps.add(mine.elements, mine.encode_us);
    lines.decode.steps.add(mine.elements, mine.decode_us);
  }
}

void MeasuredTimes::add_probe(const std::string& compressor, bool on_device, double elements,
                              double encode_us, double decode_us) {
  CallLines& lines = lines_[on_device][compressor];
  lines.encode.probes.add(elements, encode_us);
  lines.decode.probes.add(elements, decode_us);
}

const CallLines* MeasuredTimes::lines(const std::string& compressor, bool on_device) const {
  const auto& lines = lines_[on_device];
  const auto found = lines.find(compressor);
  return found == lines.end() ? nullptr : &found->second;
}

void MeasuredTimes::add_step(double step_us, double backward_us, double exposed_us) {
  ++n_steps_;
  step_us_ += step_us;
  backward_us_ += backward_us;
  exposed_us_ += exposed_us;
}

// sums: step, backward, exposed, forward, each gradient twice, each bucket twice, each rank.
// maxima: backward, each gradient and whether its use in the forward is unknown, each bucket's last
// exchanges below zero.
MeasuredTimes::Numbers MeasuredTimes::numbers(uint32_t rank, uint32_t world) const {
  const double n = std::max<double>(1, double(n_steps_));
  const auto backward = static_cast<float>(backward_us_ / n);
  Numbers numbers{{static_cast<float>(step_us_ / n), backward, static_cast<float>(exposed_us_ / n)},
                  {backward}};
  const auto add = [](std::vector<float>& to, double value) {
    to.push_back(static_cast<float>(value));
  };
  add(numbers.sums, whole_forward_.value());
  for (size_t i = 0; i < ready_.size(); ++i) {
    add(numbers.sums, ready_[i].value());
    add(numbers.sums, forward_[i].value());
    add(numbers.maxima, ready_[i].value());
    add(numbers.maxima, forward_[i].n == 0 ? 1 : 0);
  }
  for (const Exchanges& bucket : exchanges_) {
    add(numbers.sums, bucket.all.value());
    add(numbers.sums, bucket.kept_us());
    for (size_t i = 0; i < bucket.n_kept(); ++i) numbers.maxima.push_back(-bucket.last_us[i]);
  }
  for (uint32_t r = 0; r < world; ++r) numbers.sums.push_back(r == rank ? backward : 0);
  return numbers;
}

MeasuredTimes::Means MeasuredTimes::means(const Numbers& reduced, uint32_t world) const {
  const double share = 1.0 / double(world);
  auto sum = reduced.sums.begin();
  auto most = reduced.maxima.begin();
  Means means;
  means.n_steps = n_steps_;
  means.step_us = *sum++ * share;
  means.backward_us = *sum++ * share;
  means.exposed_us = *sum++ * share;
  means.slowest_backward_us = *most++;
  means.whole_forward_us = *sum++ * share;
  for (size_t i = 0; i < ready_.size(); ++i) {
    means.ready_us.push_back(*sum++ * share);
    const double forward_us = *sum++ * share;
    means.slowest_ready_us.push_back(*most++);
    const bool unknown = *most++ > 0;
    means.forward_us.push_back(unknown ? -1 : forward_us);
  }
  if (means.whole_forward_us <= 0) means.forward_us.clear();
  for (const Exchanges& bucket : exchanges_) {
    Mean wire;
    for (size_t i = 0; i < bucket.n_kept(); ++i) wire.add(-*most++);
    means.exchange_us.push_back(*sum++ * share);
    means.wire_us.push_back(wire.value());
    means.wait_us.push_back(std::max(0.0, *sum++ * share - wire.value()));
  }
  means.rank_backward_us.assign(sum, reduced.sums.end());
  means.phase_first = phase_first_;
  return means;
}

}  // namespace penstock
