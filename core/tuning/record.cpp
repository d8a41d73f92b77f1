#include "core/tuning/record.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <numeric>

namespace penstock {

namespace {

// Makes a name valid in a cell of the table: commas and line breaks would end the cell.
std::string cell(std::string name) {
  for (char& c : name)
    if (c == ',' || static_cast<unsigned char>(c) < ' ') c = '_';
  if (name.empty() || name.front() == '#') name.insert(name.begin(), '_');
  return name;
}

// A profile has no scalars and no gradients without elements. A scalar becomes one element, and a
// gradient without elements becomes work without a gradient.
std::string shape_of(const DeclaredGradient& gradient) {
  if (gradient.numel == 0) return {};
  return gradient.shape.empty() ? "1" : fmt::format("{}", fmt::join(gradient.shape, "x"));
}

}  // namespace

void ModelRecord::Recent::add(double value) {
  if (values.size() < kSteps) {
    values.push_back(value);
    return;
  }
  values[next] = value;
  next = (next + 1) % kSteps;
}

double ModelRecord::Recent::median() const {
  if (values.empty()) return 0;
  std::vector<double> sorted = values;
  const auto middle = sorted.begin() + static_cast<ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

ModelRecord::ModelRecord(std::string path, std::string set, std::vector<DeclaredGradient> gradients)
    : path_(std::move(path)),
      set_(std::move(set)),
      gradients_(std::move(gradients)),
      ready_(gradients_.size()) {}

void ModelRecord::add(std::span<const double> ready_us, double outside_us) {
  for (size_t i = 0; i < ready_us.size(); ++i)
    if (ready_us[i] >= 0) ready_[i].add(ready_us[i]);
  if (outside_us >= 0) outside_.add(outside_us);
  ++n_steps_;
}

// By then the ring has no value of the first two steps.
bool ModelRecord::is_due() {
  return n_steps_ == kSteps + 2;
}

// Rows in the order of the forward, so the gradient that is ready last comes first. Backward reads
// the rows from the end. The time of a row is the time between its gradient and the gradient
// before.
std::string ModelRecord::text() const {
  std::vector<double> ready;
  for (const Recent& recent : ready_) ready.push_back(recent.median());
  std::vector<size_t> order(gradients_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return ready[a] > ready[b]; });
  const double backward_us = order.empty() ? 0 : ready[order.front()];
  std::string text = fmt::format(
      "# about = recorded on rank 0 of set '{}' over {} steps; forward is the part of the step "
      "outside backward\n# forward_ms = {:.6f}\n# backward_ms = {:.6f}\nname,shape,work\n",
      cell(set_), std::min<uint64_t>(n_steps_, kSteps), outside_.median() / 1000,
      backward_us / 1000);
  for (size_t place = 0; place < order.size(); ++place) {
    const DeclaredGradient& gradient = gradients_[order[place]];
    const double before = place + 1 < order.size() ? ready[order[place + 1]] : 0;
    text += fmt::format("{},{},{:.3f}\n", cell(gradient.name), shape_of(gradient),
                        ready[order[place]] - before);
  }
  return text;
}

Status ModelRecord::write() const {
  std::ofstream file(path_, std::ios::binary | std::ios::trunc);
  file << text();
  file.close();
  if (file.fail())
    return failed_precondition(
        "the profile of set '{}' cannot be written to '{}'; check its folder", set_, path_);
  return {};
}

}  // namespace penstock
