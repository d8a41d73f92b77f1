// Compares schedulers by turns. The gradients of a network become ready at the times of its
// backward, and the benchmark sleeps in place of the computation. Each scheduler has one set, and
// all sets live in one process per rank.
//
//   mpirun -np 4 bench_schedulers --gradients CSV --contestants JSON --backward-ms 200
//       [--forward-ms 0] --rounds 7 --steps 3 --warm-up 30 [--slow-rank R --slow-factor 1.3]
//       [--timeline FILE]
//
// CSV has a line per gradient: name, elements, share of backward after which the gradient is ready.
// JSON is a list of {"name", "scheme": TOML, "dense": whether the result is the mean}.
// contest/contestant_bench.hpp defines a step, with and without a forward. The figure of a step is
// the time on the slowest rank. Its exposed part is the time in which the rank with the slowest
// compute does not compute. FILE is a Chrome trace of rank 0 in the rounds. Rank 0 prints one JSON
// line.

#include "tools/benches/contest/contestant_bench.hpp"

#include <memory>

namespace {

using nlohmann::json;
using penstock::bench::check;
using penstock::bench::Contestant;
using penstock::bench::Options;
using penstock::bench::Training;

using Contestants = std::vector<std::unique_ptr<Contestant>>;

void say(const Training& training, const std::string& what) {
  if (training.rank == 0) std::fprintf(stderr, "[schedulers] %s\n", what.c_str());
}

// Checks the first turn of every contestant, because its right result is known.
void check_results(Training& training, const Contestants& contestants) {
  const std::vector<float> mean = training.mean();
  for (const auto& contestant : contestants) {
    contestant->turn(training);
    contestant->check_result(training, mean);
    say(training, contestant->name() + ": the result is right");
  }
}

void warm_up(Training& training, const Contestants& contestants, int steps) {
  const int of_turn = training.is_steady() ? int(training.steps) + 1 : 1;
  for (int step = 0; step < steps; step += of_turn) {
    for (const auto& contestant : contestants) contestant->turn(training);
    if (step % 5 == 4 || step + of_turn >= steps)
      say(training, fmt::format("warm-up {} of {}", std::min(step + of_turn, steps), steps));
  }
  for (const auto& contestant : contestants) contestant->end_of_warm_up();
}

// Contestants take turns, so that other load on the machine affects all equally. Each pass begins
// with another contestant, so that no contestant always follows another. With a forward, a turn has
// all steps of a round.
void compete(Training& training, const Contestants& contestants, size_t rounds) {
  const size_t turns = training.is_steady() ? 1 : training.steps;
  for (size_t round = 0; round < rounds; ++round) {
    for (size_t turn = 0; turn < contestants.size() * turns; ++turn) {
      const size_t pass = round * turns + turn / contestants.size();
      Contestant& contestant = *contestants[(pass + turn) % contestants.size()];
      contestant.turn(training);
      contestant.note(round);
    }
    say(training, fmt::format("round {} of {}", round + 1, rounds));
  }
}

Training training_of(const Options& options) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const bool slow = rank == int(options.number("--slow-rank"));
  const double ns_per_ms = 1e6 * (slow ? options.number("--slow-factor") : 1.0);
  return {penstock::bench::read_gradients(options.text("--gradients")),
          options.number("--backward-ms") * ns_per_ms, options.number("--forward-ms") * ns_per_ms,
          size_t(options.number("--steps"))};
}

Contestants contestants_of(const Options& options, penstock::Runtime& runtime,
                           const Training& training) {
  std::ifstream file(options.text("--contestants"));
  const json entries = json::parse(file, nullptr, false);
  if (!entries.is_array() || entries.empty())
    penstock::bench::refuse(
        fmt::format("{} holds no list of contestants", options.text("--contestants")));
  Contestants contestants;
  for (const json& one : entries)
    contestants.push_back(std::make_unique<Contestant>(runtime, training, one));
  return contestants;
}

void run(const Options& options) {
  auto runtime = penstock::bench::open(
      "[scheme]\ncollective = \"mpi\"\nscheduler = \"wfbp\"\n[runtime]\ndeadline_s = 300\n");
  Training training = training_of(options);
  const Contestants contestants = contestants_of(options, *runtime, training);
  check_results(training, contestants);
  warm_up(training, contestants, int(options.number("--warm-up")));
  const std::string timeline = options.text("--timeline");
  if (training.rank == 0 && !timeline.empty()) check(runtime->timeline().start(timeline));
  compete(training, contestants, size_t(options.number("--rounds")));
  if (training.rank == 0 && !timeline.empty()) check(runtime->timeline().stop());
  json figures{{"ranks", training.ranks},
               {"gradients", training.gradients.size()},
               {"elements", training.buffer_of(0).size()},
               {"contestants", json::array()}};
  for (const auto& contestant : contestants)
    figures["contestants"].push_back(contestant->figures());
  if (training.rank == 0) std::printf("%s\n", figures.dump().c_str());
  MPI_Barrier(training.world);  // all sets end together
}

}  // namespace

int main(int argc, char** argv) {
  const Options options(argc, argv);
  int provided = 0;
  penstock::bench::go_before_other_sessions();
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  run(options);
  MPI_Finalize();
  return 0;
}
