// How long it takes to make a set of many small gradients, and its first step.
//
//   bench_sets [GRADIENTS] [SCHEDULER ...]
//
// Two ranks as threads of this process, over loopback; every gradient has eight elements, under
// top-k with a residual. Prints one JSON line.

#include "tools/benches/training_set.hpp"

#include <chrono>
#include <thread>

namespace {

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Times {
  double make = 0, first_step = 0;
};

Times measure(const std::string& scheduler, size_t n_gradients) {
  Times times;
  std::vector<std::thread> ranks;
  for (uint32_t rank = 0; rank < 2; ++rank)
    ranks.emplace_back([&, rank] {
      auto runtime = penstock::bench::open(
          fmt::format("[scheme]\ncompressor = \"topk\"\nmemory = \"residual\"\ncollective = "
                      "\"loopback\"\nscheduler = \"{}\"\n[runtime]\ndeadline_s = 300\n"
                      "log_level = \"error\"\n"
                      "[collective.loopback]\nhub = \"{}\"\nrank = {}\nsize = 2\n",
                      scheduler, scheduler, rank));
      const double start = seconds();
      penstock::bench::TrainingSet training(
          *runtime, penstock::bench::vectors_of(std::vector<int64_t>(n_gradients, 8)));
      const double made = seconds();
      training.step();
      if (rank == 0) times = {made - start, seconds() - made};
    });
  for (std::thread& rank : ranks) rank.join();
  return times;
}

}  // namespace

int main(int argc, char** argv) {
  const size_t n_gradients = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 20'000;
  std::vector<std::string> schedulers(argv + std::min(argc, 2), argv + argc);
  if (schedulers.empty()) schedulers = {"fusion", "wfbp"};
  std::string parts;
  for (const std::string& scheduler : schedulers) {
    const Times times = measure(scheduler, n_gradients);
    parts += fmt::format(", \"{}\": {{\"make_s\": {:.3f}, \"first_step_s\": {:.3f}}}", scheduler,
                         times.make, times.first_step);
  }
  std::printf("{\"gradients\": %zu%s}\n", n_gradients, parts.c_str());
  return 0;
}
