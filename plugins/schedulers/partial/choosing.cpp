#include "choosing.hpp"

#include <algorithm>

#include <planning/choosing.hpp>

namespace partial {

namespace planning = penstock::planning;

namespace {

const penstock_candidate& chosen(const penstock_model& model, uint64_t gradient, uint32_t choice) {
  return *model.gradients[gradient]->candidates[choice];
}

// The time of a bucket. Its dense and its sparse message share one link, so their times are added.
double time_of(const penstock_model& model, const std::vector<uint64_t>& bucket,
               const std::vector<uint32_t>& choices) {
  double time = 0;
  for (uint32_t phase = 0; phase < model.period; ++phase) {
    planning::Together together(model, phase);
    for (size_t i = 0; i < bucket.size(); ++i) together.add(bucket[i], choices[i]);
    time += together.encode() + together.exchange() + together.decode();
  }
  return time;
}

double bytes_of(const penstock_model& model, const penstock_candidate& candidate) {
  double bytes = 0;
  for (uint32_t phase = 0; phase < model.period; ++phase)
    bytes += static_cast<double>(candidate.phase_bytes[phase]);
  return bytes;
}

}  // namespace

Choices choose(const penstock_model& model, const std::vector<uint64_t>& bucket,
               std::string_view dense, bool within_budget) {
  std::vector<uint32_t> choices(bucket.size(), 0);
  double budget = 0;
  std::vector<size_t> by_size;  // positions of gradients that may stay dense
  for (size_t i = 0; i < bucket.size(); ++i) {
    budget += bytes_of(model, chosen(model, bucket[i], 0));
    if (planning::dense_choice(*model.gradients[bucket[i]], dense) >= 0) by_size.push_back(i);
  }
  const auto size = [&](size_t position) { return model.gradients[bucket[position]]->numel; };
  std::stable_sort(by_size.begin(), by_size.end(),
                   [&](size_t a, size_t b) { return size(a) < size(b); });

  Choices best;
  best.of = choices;
  best.time_us = best.sparse_time_us = time_of(model, bucket, choices);
  double dense_bytes = 0;
  for (size_t i = 0; i < by_size.size(); ++i) {
    const uint64_t gradient = bucket[by_size[i]];
    const auto choice =
        static_cast<uint32_t>(planning::dense_choice(*model.gradients[gradient], dense));
    choices[by_size[i]] = choice;
    dense_bytes += bytes_of(model, chosen(model, gradient, choice));
    if (within_budget && dense_bytes > budget) break;
    if (i + 1 < by_size.size() && size(by_size[i + 1]) == size(by_size[i])) continue;
    const double time = time_of(model, bucket, choices);
    if (!(time < best.time_us)) continue;
    best.of = choices;
    best.n_dense = i + 1;
    best.time_us = time;
  }
  return best;
}

}  // namespace partial
