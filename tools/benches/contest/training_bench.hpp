// A training that sleeps in place of computation: the time of each layer, and the values of its
// gradients.
#pragma once

#include "tools/benches/contest/options.hpp"

#include <mpi.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <ctime>
#include <fstream>
#include <numeric>
#include <random>
#include <sstream>
#include <vector>

namespace penstock::bench {

struct Gradient {
  std::string name;
  int64_t elements;
  double share;  // of backward, after which it is ready
  size_t first;  // index in a buffer of all gradients
};

inline std::vector<Gradient> read_gradients(const std::string& path) {
  std::ifstream file(path);
  std::vector<Gradient> gradients;
  size_t first = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#' || line.starts_with("name,")) continue;
    std::istringstream fields(line);
    Gradient gradient{};
    char comma = 0;
    if (!std::getline(fields, gradient.name, ',') ||
        !(fields >> gradient.elements >> comma >> gradient.share))
      refuse(fmt::format("{} has the line {}, expected name,elements,share", path, line));
    gradient.first = first;
    first += size_t(gradient.elements);
    gradients.push_back(std::move(gradient));
  }
  if (gradients.empty()) refuse(fmt::format("{} has no gradients", path));
  return gradients;
}

inline int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

inline void sleep_until(int64_t moment_ns) {
  const timespec moment{moment_ns / 1'000'000'000, moment_ns % 1'000'000'000};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &moment, nullptr) == EINTR) {
  }
}

// The data that all contestants of a rank share.
class Training {
 public:
  // The durations of backward and forward of this rank, in nanoseconds. A turn of `steps` steps
  // needs as many buffers, and one more if the turn has an extra step before the counted steps.
  Training(std::vector<Gradient> made, double backward_ns, double forward_ns, size_t steps)
      : gradients(std::move(made)), forward_ns(int64_t(forward_ns)), steps(steps) {
    MPI_Comm_dup(MPI_COMM_WORLD, &world);
    MPI_Comm_rank(world, &rank);
    MPI_Comm_size(world, &ranks);
    set_moments(backward_ns, forward_ns);
    source_ = heavy_tailed(gradients.back().first + size_t(gradients.back().elements));
    buffers_.assign(is_steady() ? steps + 1 : 1, std::vector<float>(source_.size()));
  }

  // Steps follow each other, each with a forward, so deferred legs count in the next step.
  bool is_steady() const { return forward_ns > 0; }

  // Fills a buffer with the values of step `number` and returns it. In each step the numbers are
  // equal, but shifted.
  std::vector<float>& refresh(uint64_t number) {
    const size_t by = shift(number);
    std::vector<float>& buffer = buffer_of(number);
    std::memcpy(buffer.data(), source_.data() + by, (source_.size() - by) * sizeof(float));
    std::memcpy(buffer.data() + source_.size() - by, source_.data(), by * sizeof(float));
    return buffer;
  }
  std::vector<float>& buffer_of(uint64_t number) { return buffers_[number % buffers_.size()]; }
  size_t shift(uint64_t number) const { return number * kShift % source_.size(); }

  // The mean over all ranks of the values of step 0.
  std::vector<float> mean() const {
    std::vector<float> mean(source_.size());
    for (const Gradient& gradient : gradients)
      MPI_Allreduce(source_.data() + gradient.first, mean.data() + gradient.first,
                    int(gradient.elements), MPI_FLOAT, MPI_SUM, world);
    for (float& value : mean) value /= float(ranks);
    return mean;
  }

  double most_of_all_ranks(double mine) const {
    double most = 0;
    MPI_Allreduce(&mine, &most, 1, MPI_DOUBLE, MPI_MAX, world);
    return most;
  }

  const std::vector<Gradient> gradients;
  std::vector<size_t> order;          // in which they become ready
  std::vector<int64_t> ready_ns;      // per gradient, after the begin of backward
  std::vector<int64_t> first_use_ns;  // per gradient, after the begin of forward
  const int64_t forward_ns;
  const size_t steps;  // counted steps of a turn
  MPI_Comm world;
  int rank, ranks;

 private:
  static constexpr size_t kShift = 7919 * 64;  // shift of the values from step to step, in entries

  // Each layer takes an equal share of forward and backward, as resnet50_backward.py tells
  // `penstock plan`. The medians in the file may be out of order, but the forward is in order.
  void set_moments(double backward_ns, double forward_ns) {
    order.resize(gradients.size());
    std::iota(order.rbegin(), order.rend(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return gradients[a].share < gradients[b].share; });
    first_use_ns.resize(gradients.size());
    double behind = 0;
    for (size_t i = gradients.size(); i-- > 0;) {
      behind = std::max(behind, gradients[i].share);
      first_use_ns[i] = int64_t((1 - behind) * forward_ns);
    }
    for (const Gradient& gradient : gradients)
      ready_ns.push_back(int64_t(gradient.share * backward_ns));
  }

  // Normal times exp(normal), as in gradients. Each rank has other values.
  std::vector<float> heavy_tailed(size_t n) const {
    std::mt19937_64 generator(uint32_t(rank) + 1);
    std::normal_distribution<float> normal;
    std::vector<float> values(n);
    for (float& value : values) value = normal(generator) * std::exp(normal(generator));
    return values;
  }

  std::vector<float> source_;                // shared by all contestants
  std::vector<std::vector<float>> buffers_;  // gradients of a step, then its results
};

}  // namespace penstock::bench
