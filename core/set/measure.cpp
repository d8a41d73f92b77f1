#include "core/set/measure.hpp"

#include "core/bucket/bucket.hpp"

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
  const double n = double(n_);
  const double spread = n * sum_xx_ - sum_x_ * sum_x_;
  if (n_ < 2 || spread <= 0) return 0;  // one size only: all of it counts as fixed
  return std::max(0.0, (n * sum_xy_ - sum_x_ * sum_y_) / spread);
}

double FittedLine::fixed() const {
  return n_ == 0 ? 0 : std::max(0.0, (sum_y_ - per_element() * sum_x_) / double(n_));
}

void MeasuredTimes::begin(size_t n_gradients, size_t n_buckets) {
  n_steps_ = 0;
  step_us_ = backward_us_ = exposed_us_ = 0;
  ready_us_.assign(n_gradients, 0);
  exchange_us_.assign(n_buckets, 0);
}

void MeasuredTimes::add_ready(size_t gradient, double after_first_us) {
  ready_us_[gradient] += after_first_us;
}

void MeasuredTimes::add_bucket(size_t number, const BucketRun& bucket) {
  if (!bucket.ran || bucket.is_void) return;
  if (number < exchange_us_.size()) exchange_us_[number] += double(bucket.exchange_us);
  std::vector<Calls>& calls = calls_;
  calls.clear();
  double elements = 0;
  for (const ItemRun& item : bucket.items) {
    auto mine = std::find_if(calls.begin(), calls.end(),
                             [&](const Calls& c) { return c.compressor == item.compressor; });
    if (mine == calls.end()) mine = calls.insert(calls.end(), Calls{item.compressor});
    if (item.passes_through || item.rounds.empty()) continue;
    mine->any = true;
    mine->elements += double(item.piece.numel);
    elements += double(item.piece.numel);
  }
  const auto share_out = [&](const std::vector<CompressorCall>& made, double whole_us,
                             double Calls::*part) {
    for (const CompressorCall& call : made)
      for (Calls& mine : calls)
        if (mine.compressor == call.compressor) {
          mine.*part += double(call.took_us);
          whole_us -= double(call.took_us);
        }
    // Memories see all items in one call, and what is not a call has no other owner.
    if (elements > 0)
      for (Calls& mine : calls) mine.*part += std::max(0.0, whole_us) * mine.elements / elements;
  };
  share_out(bucket.encode_calls, double(bucket.encode_us), &Calls::encode_us);
  share_out(bucket.decode_calls, double(bucket.decode_us), &Calls::decode_us);
  for (const Calls& mine : calls) {
    CallLines& lines = lines_[mine.compressor->name()];
    if (!mine.any) continue;
    lines.encode.add(mine.elements, mine.encode_us);
    lines.decode.add(mine.elements, mine.decode_us);
  }
}

const CallLines* MeasuredTimes::lines(const std::string& compressor) const {
  const auto found = lines_.find(compressor);
  return found == lines_.end() ? nullptr : &found->second;
}

void MeasuredTimes::add_step(double step_us, double backward_us, double exposed_us) {
  ++n_steps_;
  step_us_ += step_us;
  backward_us_ += backward_us;
  exposed_us_ += exposed_us;
}

std::vector<double> MeasuredTimes::to_numbers() const {
  const double n = std::max<double>(1, double(n_steps_));
  std::vector<double> numbers{double(n_steps_), step_us_ / n, backward_us_ / n, exposed_us_ / n};
  for (double sum : ready_us_) numbers.push_back(sum / n);
  for (double sum : exchange_us_) numbers.push_back(sum / n);
  return numbers;
}

MeasuredTimes::Means MeasuredTimes::join(const std::vector<std::vector<double>>& ranks) const {
  Means means;
  means.ready_us.assign(ready_us_.size(), 0);
  means.slowest_ready_us.assign(ready_us_.size(), 0);
  means.exchange_us.assign(exchange_us_.size(), 0);
  const double share = 1.0 / double(ranks.size());
  for (const auto& numbers : ranks) {
    means.n_steps = static_cast<uint64_t>(numbers[0]);
    means.step_us += numbers[1] * share;
    means.backward_us += numbers[2] * share;
    means.exposed_us += numbers[3] * share;
    means.rank_backward_us.push_back(numbers[2]);
    means.slowest_backward_us = std::max(means.slowest_backward_us, numbers[2]);
    for (size_t i = 0; i < means.ready_us.size(); ++i) {
      means.ready_us[i] += numbers[4 + i] * share;
      means.slowest_ready_us[i] = std::max(means.slowest_ready_us[i], numbers[4 + i]);
    }
    for (size_t i = 0; i < means.exchange_us.size(); ++i)
      means.exchange_us[i] += numbers[4 + means.ready_us.size() + i] * share;
  }
  return means;
}

}  // namespace penstock
