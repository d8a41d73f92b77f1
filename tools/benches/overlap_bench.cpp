// Communication during compute: one 16 MB gradient, and compute of the length that its exchange
// takes alone.
//
//   mpirun -np 2 bench_overlap [ROUNDS [MEGABYTES]]
//
// Contestants in turn within each round: ours (ready, compute, wait) and MPI_Iallreduce (start,
// compute, MPI_Wait). Each against the longer of its own exchange alone and the compute. Prints one
// JSON line on rank 0.

#include "tools/benches/training_set.hpp"

#include <mpi.h>

#include <chrono>
#include <cmath>

namespace {

using penstock::bench::spread;
using penstock::bench::Spread;
using penstock::bench::TrainingSet;

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Arithmetic in registers and first-level cache: `units` of it.
double compute(uint64_t units) {
  static double sink[64];
  for (uint64_t unit = 0; unit < units; ++unit)
    for (int i = 0; i < 64; ++i) sink[i] = sink[i] * 1.0000001 + 1e-9;
  return sink[0];
}

// Units of compute that take `wanted` seconds on this core just now.
uint64_t units_for(double wanted) {
  const double start = seconds();
  compute(1000000);
  return uint64_t(1e6 * wanted / (seconds() - start));
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 7;
  const int64_t count = (argc > 2 ? std::atoi(argv[2]) : 16) * (int64_t{1} << 18);
  int provided = 0;
  penstock::bench::go_before_other_sessions();
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  {
    auto runtime =
        penstock::bench::open("[scheme]\nscheduler = \"wfbp\"\n[runtime]\ndeadline_s = 120\n");
    TrainingSet training(*runtime, {penstock::bench::Shape{count}});
    MPI_Comm world;
    MPI_Comm_dup(MPI_COMM_WORLD, &world);
    const auto topology = runtime->topology();
    std::vector<float> buffer(static_cast<size_t>(count), 1.0f);
    std::fill(training.values[0].begin(), training.values[0].end(), float(topology.rank + 1));
    training.step();
    const float mean = float(topology.size + 1) / 2;
    for (float value : training.values[0])
      if (std::abs(value - mean) > 1e-5f)
        penstock::bench::check(penstock::internal("wrong result {}", value));

    std::vector<double> ours_alone, mpi_alone, ours_both, mpi_both, compute_times, ours_ratio,
        mpi_ratio, mpi_sum_ratio;
    for (int round = 0; round < rounds + 1; ++round) {
      const auto timed = [&](auto&& body) {
        MPI_Barrier(world);
        const double start = seconds();
        body();
        double mine = seconds() - start, slowest = 0;
        MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, world);
        return slowest;
      };
      const double alone = timed([&] { training.step(); });
      const double direct = timed([&] {
        MPI_Request request;
        MPI_Iallreduce(MPI_IN_PLACE, buffer.data(), int(count), MPI_FLOAT, MPI_SUM, world,
                       &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
      });
      uint64_t units = units_for(alone), agreed = 0;
      MPI_Allreduce(&units, &agreed, 1, MPI_UINT64_T, MPI_MIN, world);
      const double computing = timed([&] { compute(agreed); });
      const double both = timed([&] {
        training.ready(0);
        compute(agreed);
        penstock::bench::check(training.set().wait_all());
        penstock::bench::check(training.set().step_end());
      });
      const double direct_both = timed([&] {
        MPI_Request request;
        MPI_Iallreduce(MPI_IN_PLACE, buffer.data(), int(count), MPI_FLOAT, MPI_SUM, world,
                       &request);
        compute(agreed);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
      });
      if (round == 0) continue;
      ours_alone.push_back(alone * 1e3);
      mpi_alone.push_back(direct * 1e3);
      compute_times.push_back(computing * 1e3);
      ours_both.push_back(both * 1e3);
      mpi_both.push_back(direct_both * 1e3);
      ours_ratio.push_back(both / std::max(alone, computing));
      mpi_ratio.push_back(direct_both / std::max(direct, computing));
      mpi_sum_ratio.push_back(direct_both / (direct + computing));
    }
    if (topology.rank == 0) {
      const auto print = [](const char* name, const std::vector<double>& values, const char* end) {
        const Spread s = spread(values);
        std::printf("\"%s\": [%.3f, %.3f, %.3f]%s", name, s.median, s.least, s.most, end);
      };
      std::printf("{\"ranks\": %u, \"megabytes\": %.0f, \"rounds\": %d, ", topology.size,
                  double(count) * 4 / (1 << 20), rounds);
      print("ours_alone_ms", ours_alone, ", ");
      print("mpi_alone_ms", mpi_alone, ", ");
      print("compute_ms", compute_times, ", ");
      print("ours_both_ms", ours_both, ", ");
      print("mpi_both_ms", mpi_both, ", ");
      print("ours_over_longer", ours_ratio, ", ");
      print("mpi_over_longer", mpi_ratio, ", ");
      print("mpi_over_sum", mpi_sum_ratio, "}\n");
    }
  }
  MPI_Finalize();
  return 0;
}
