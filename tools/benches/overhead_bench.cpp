// The cost of the runtime in addition to direct MPI calls, with compressor `none` and one message
// per gradient.
//
//   mpirun -np P bench_overhead [ROUNDS]
//
// Two lists of 161 gradients: ResNet-50's own sizes, where the transport's algorithm matters too,
// and single elements, where only overhead is left. Contestants take turns within each round. Rank
// 0 prints one JSON line.

#include "tests/support/allocations.hpp"
#include "tools/benches/training_set.hpp"

#include <mpi.h>

#include <chrono>
#include <cmath>

namespace {

using penstock::bench::Spread;
using penstock::bench::TrainingSet;
using penstock::test::process_allocations;

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Direct calls: one Iallreduce per gradient, one Waitall, one division.
void direct_step(std::vector<std::vector<float>>& values, MPI_Comm world,
                 std::vector<MPI_Request>& requests, int size) {
  for (size_t i = values.size(); i-- > 0;)
    MPI_Iallreduce(MPI_IN_PLACE, values[i].data(), int(values[i].size()), MPI_FLOAT, MPI_SUM, world,
                   &requests[i]);
  MPI_Waitall(int(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
  const float share = 1.0f / float(size);
  for (auto& gradient : values)
    for (float& value : gradient) value *= share;
}

struct Outcome {
  Spread ours, direct, extra_us_per_gradient;
  double allocations_per_step;
};

Outcome measure(penstock::Runtime& runtime, const std::vector<int64_t>& sizes, int rounds,
                int steps) {
  TrainingSet training(runtime, penstock::bench::vectors_of(sizes));
  const auto topology = runtime.topology();
  MPI_Comm world;
  MPI_Comm_dup(MPI_COMM_WORLD, &world);
  std::vector<std::vector<float>> values;
  for (int64_t size : sizes) values.emplace_back(static_cast<size_t>(size), 1.0f);
  std::vector<MPI_Request> requests(sizes.size());

  for (auto& gradient : training.values)
    std::fill(gradient.begin(), gradient.end(), float(topology.rank + 1));
  training.step();
  const float mean = float(topology.size + 1) / 2;
  for (const auto& gradient : training.values)
    for (float value : gradient)
      if (std::abs(value - mean) > 1e-5f * mean)
        penstock::bench::check(penstock::internal("wrong result {} instead of {}", value, mean));

  std::vector<double> ours, direct, extra;
  uint64_t counted = 0;
  for (int round = 0; round < rounds + 1; ++round) {  // the first warms up
    MPI_Barrier(world);
    const uint64_t allocations_before = process_allocations.load();
    double start = seconds();
    for (int step = 0; step < steps; ++step) training.step();
    const double our_time = (seconds() - start) / steps;
    if (round > 0) counted += process_allocations.load() - allocations_before;
    MPI_Barrier(world);
    start = seconds();
    for (int step = 0; step < steps; ++step)
      direct_step(values, world, requests, int(topology.size));
    const double direct_time = (seconds() - start) / steps;
    if (round == 0) continue;
    ours.push_back(our_time * 1e3);
    direct.push_back(direct_time * 1e3);
    extra.push_back((our_time - direct_time) * 1e6 / double(sizes.size()));
  }
  return {penstock::bench::spread(ours), penstock::bench::spread(direct),
          penstock::bench::spread(extra), double(counted) / double(rounds * steps)};
}

void print(const char* name, const Outcome& outcome, bool last) {
  std::printf(
      "\"%s\": {\"ours_ms\": [%.4f, %.4f, %.4f], \"direct_ms\": [%.4f, %.4f, %.4f], "
      "\"extra_us_per_gradient\": [%.3f, %.3f, %.3f], "
      "\"allocations_per_step\": %.3f}%s",
      name, outcome.ours.median, outcome.ours.least, outcome.ours.most, outcome.direct.median,
      outcome.direct.least, outcome.direct.most, outcome.extra_us_per_gradient.median,
      outcome.extra_us_per_gradient.least, outcome.extra_us_per_gradient.most,
      outcome.allocations_per_step, last ? "" : ", ");
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 9;
  int provided = 0;
  penstock::bench::go_before_other_sessions();
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  {
    auto runtime =
        penstock::bench::open("[scheme]\nscheduler = \"wfbp\"\n[runtime]\ndeadline_s = 120\n");
    const Outcome tiny = measure(*runtime, std::vector<int64_t>(161, 1), rounds, 20);
    const Outcome resnet = measure(*runtime, penstock::bench::resnet50(), rounds, 1);
    if (runtime->topology().rank == 0) {
      std::printf("{\"ranks\": %u, \"rounds\": %d, ", runtime->topology().size, rounds);
      print("single_elements", tiny, false);
      print("resnet50", resnet, true);
      std::printf("}\n");
    }
  }
  MPI_Finalize();
  return 0;
}
