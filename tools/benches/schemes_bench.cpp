// One gradient of 4096 x 4096 on one rank with a scheme, step by step, with a trace of its stages.
//
//   mpirun -np 1 bench_schemes CONFIG TRACE STEPS
//
// Before each step two sweeps over as many floats are timed, as a baseline for the stages. Prints
// one JSON line. The caller reads the trace.

#include "tools/benches/training_set.hpp"

#include <mpi.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <random>
#include <sstream>

namespace {

constexpr int64_t kSide = 4096;
constexpr int kWarmUp = 12;  // by then threshold methods have found their threshold

using Floats = std::vector<float>;

double milliseconds(const auto& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

// Normal times exp(normal), as in gradients.
Floats heavy_tailed(size_t n) {
  std::mt19937_64 generator(1);
  std::normal_distribution<float> normal;
  Floats values(n);
  for (float& value : values) value = normal(generator) * std::exp(normal(generator));
  return values;
}

// In every step the numbers are equal, but shifted.
void rotate(const Floats& from, size_t by, Floats& to) {
  std::memcpy(to.data(), from.data() + by, (from.size() - by) * sizeof(float));
  std::memcpy(to.data() + from.size() - by, from.data(), by * sizeof(float));
}

void print(const char* name, const std::vector<double>& values, const char* end) {
  std::printf("\"%s\": [", name);
  for (size_t i = 0; i < values.size(); ++i) std::printf("%s%.4f", i == 0 ? "" : ", ", values[i]);
  std::printf("]%s", end);
}

struct Sweeps {
  std::vector<double> memcpy_ms, update_ms;
};

// Runs the steps. The trace leaves out the first steps.
Sweeps run(const char* config, const char* trace, int steps) {
  const auto runtime = penstock::bench::open(config);
  penstock::bench::TrainingSet training(*runtime, {penstock::bench::Shape{kSide, kSide}});
  Floats& gradient = training.values[0];
  const Floats source = heavy_tailed(gradient.size());
  Floats target(gradient.size());
  Sweeps sweeps;
  for (int step = -kWarmUp; step < steps; ++step) {
    if (step == 0) penstock::bench::check(runtime->timeline().start(trace));
    const double copy = milliseconds(
        [&] { std::memcpy(target.data(), source.data(), source.size() * sizeof(float)); });
    const double update = milliseconds([&] {
      for (size_t i = 0; i < target.size(); ++i) target[i] += source[i];
    });
    rotate(source, static_cast<size_t>(step + kWarmUp + 1) * 7919 * 64 % source.size(), gradient);
    training.step();
    if (step < 0) continue;
    sweeps.memcpy_ms.push_back(copy);
    sweeps.update_ms.push_back(update);
  }
  penstock::bench::check(runtime->timeline().stop());
  return sweeps;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: mpirun -np 1 %s CONFIG TRACE STEPS\n", argv[0]);
    return 2;
  }
  int provided = 0;
  penstock::bench::go_before_other_sessions();
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  std::stringstream config;
  config << std::ifstream(argv[1]).rdbuf();
  const Sweeps sweeps = run(config.str().c_str(), argv[2], std::atoi(argv[3]));
  std::printf("{");
  print("memcpy_ms", sweeps.memcpy_ms, ", ");
  print("update_ms", sweeps.update_ms, "}\n");
  MPI_Finalize();
  return 0;
}
