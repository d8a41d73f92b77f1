// Schedulers against each other, step by step: the gradients of a network become ready as they do
// in its backward, which is slept, and go through one set per scheduler; all sets are alive in the
// same processes and take turns.
//
//   mpirun -np 4 bench_schedulers --gradients CSV --contestants JSON --backward-ms 200
//       --rounds 7 --steps 3 --warm-up 30 [--slow-rank R --slow-factor 1.3]
//
// CSV has a line per gradient: name, elements, share of backward after which it is ready. JSON is a
// list of {"name", "scheme": TOML, "dense": whether the result is the mean}. A step counts from the
// start of backward to the end of the wait, on the rank where that is longest; what is exposed is
// the part of it after the last gradient of the slowest backward. Prints one JSON line on rank 0.

#include "tools/benches/training_set.hpp"

#include <fmt/format.h>
#include <mpi.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <cstring>
#include <ctime>
#include <fstream>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <sstream>

namespace {

using nlohmann::json;
using penstock::bench::check;

constexpr size_t kShift = 7919 * 64;  // entries by which the values move from step to step

struct Gradient {
  std::string name;
  int64_t elements;
  double share;
  size_t first;  // in a buffer that holds all gradients
};

// Ends the program: the named option or file is wrong.
[[noreturn]] void refuse(const std::string& what) {
  std::fprintf(stderr, "bench_schedulers: %s\n", what.c_str());
  std::_Exit(2);
}

class Options {
 public:
  Options(int argc, char** argv) {
    for (int i = 1; i + 1 < argc; i += 2) texts_[argv[i]] = argv[i + 1];
    if (argc % 2 == 0)
      refuse(fmt::format("{} has no value, expected --name value", argv[argc - 1]));
    for (const auto& [name, text] : texts_)
      if (!numbers_.contains(name) && name != "--gradients" && name != "--contestants")
        refuse(fmt::format("there is no option {}; see the head of schedulers_bench.cpp", name));
  }
  std::string text(const std::string& name) const {
    const auto found = texts_.find(name);
    if (found == texts_.end()) refuse(fmt::format("expected {} and a file", name));
    return found->second;
  }
  double number(const std::string& name) const {
    const auto found = texts_.find(name);
    if (found == texts_.end()) return numbers_.at(name);
    char* end = nullptr;
    const double value = std::strtod(found->second.c_str(), &end);
    if (*end != 0 || !std::isfinite(value))
      refuse(fmt::format("{} is {}, expected a number", name, found->second));
    return value;
  }

 private:
  std::map<std::string, std::string> texts_;
  std::map<std::string, double> numbers_{{"--backward-ms", 200}, {"--rounds", 7},
                                         {"--steps", 3},         {"--warm-up", 30},
                                         {"--slow-rank", -1},    {"--slow-factor", 1.3}};
};

std::vector<Gradient> read_gradients(const std::string& path) {
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

// Normal times exp(normal), as gradients look; other ones on every rank.
std::vector<float> heavy_tailed(size_t n, uint32_t rank) {
  std::mt19937_64 generator(rank + 1);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values) value = normal(generator) * std::exp(normal(generator));
  return values;
}

int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

void sleep_until(int64_t moment_ns) {
  const timespec moment{moment_ns / 1'000'000'000, moment_ns % 1'000'000'000};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &moment, nullptr) == EINTR) {
  }
}

double most_of_all_ranks(double mine, MPI_Comm world) {
  double most = 0;
  MPI_Allreduce(&mine, &most, 1, MPI_DOUBLE, MPI_MAX, world);
  return most;
}

// The values of a rank, which all contestants share: `source` stays, `work` is what a step gets and
// leaves its result in.
struct Values {
  std::vector<float> source, work;

  // The same numbers elsewhere in every step.
  void refresh(uint64_t step) {
    const size_t by = step * kShift % source.size();
    std::memcpy(work.data(), source.data() + by, (source.size() - by) * sizeof(float));
    std::memcpy(work.data() + source.size() - by, source.data(), by * sizeof(float));
  }
};

// What is the same for every contestant of a rank.
struct Bench {
  std::vector<Gradient> gradients;
  std::vector<size_t> order;  // of readiness
  int64_t backward_ns;        // of this rank
  Values values;
  MPI_Comm world;
  int rank, ranks;
};

// One scheduler: its set, and what was measured. Figures of rank 0 are printed.
class Contestant {
 public:
  Contestant(penstock::Runtime& runtime, const Bench& bench, const json& told)
      : name_(told.at("name")), scheme_(told.at("scheme")), dense_(told.at("dense")) {
    std::vector<penstock_gradient_declaration> declarations(bench.gradients.size());
    std::vector<const penstock_gradient_declaration*> pointers;
    for (size_t i = 0; i < declarations.size(); ++i) {
      penstock_gradient_declaration& one = declarations[i];
      one.struct_size = sizeof one;
      one.name = penstock::str(bench.gradients[i].name);
      one.shape = &bench.gradients[i].elements;
      one.n_dims = 1;
      one.dtype = PENSTOCK_FLOAT32;
      one.device_type = PENSTOCK_DEVICE_CPU;
      one.given_bucket = PENSTOCK_NO_BUCKET;
      pointers.push_back(&one);
    }
    penstock_set_declaration declaration{};
    declaration.struct_size = sizeof declaration;
    declaration.name = penstock::str(name_);
    declaration.gradients = pointers.data();
    declaration.n_gradients = pointers.size();
    declaration.scheme = penstock::str(scheme_);
    auto made = penstock::Set::create(runtime.services(), declaration);
    check(made.status());
    set_ = std::move(made.value());
  }

  const std::string& name() const { return name_; }

  // A step on fresh values, from a common start; the result is in bench.values.work then.
  void step(Bench& bench) {
    bench.values.refresh(steps_++);
    MPI_Barrier(bench.world);
    const int64_t start = now_ns();
    for (const size_t i : bench.order) {
      const Gradient& gradient = bench.gradients[i];
      const int64_t moment = start + int64_t(gradient.share * double(bench.backward_ns));
      if (moment > now_ns()) sleep_until(moment);
      penstock_tensor tensor{};
      tensor.struct_size = sizeof tensor;
      tensor.data = bench.values.work.data() + gradient.first;
      tensor.shape = &gradient.elements;
      tensor.n_dims = 1;
      tensor.numel = uint64_t(gradient.elements);
      tensor.dtype = PENSTOCK_FLOAT32;
      tensor.device_type = PENSTOCK_DEVICE_CPU;
      check(set_->gradient_ready(i, tensor));
    }
    const double backward_ms = double(now_ns() - start) * 1e-6;
    check(set_->wait_all());
    const double step_ms = double(now_ns() - start) * 1e-6;
    if (bench.rank == 0) read_report();  // before a new plan is made
    check(set_->step_end(true));
    step_ms_ = most_of_all_ranks(step_ms, bench.world);
    exposed_ms_ = step_ms_ - most_of_all_ranks(backward_ms, bench.world);
  }

  // The last step is one that counts.
  void note(size_t round) {
    for (const auto& [what, value] : {std::pair{"step_ms", step_ms_},
                                      {"exposed_ms", exposed_ms_},
                                      {"encode_ms", encode_ms_},
                                      {"exchange_ms", exchange_ms_},
                                      {"decode_ms", decode_ms_}})
      figures_[what][round].push_back(value);
  }
  // Plans made so far do not count as made while it was timed.
  void end_of_warm_up() { plans_in_warm_up_ = plans_; }

  // Against the mean, where the scheme is dense, and rank against rank. Ends the program where
  // wrong.
  void check_result(const Bench& bench, const std::vector<float>& mean) const {
    const std::vector<float>& result = bench.values.work;
    uint64_t hash = 14695981039346656037u, least = 0, most = 0, not_zero = 0;
    for (size_t i = 0; i < result.size(); ++i) {
      // The order of a sum may differ: a rounding per rank, at the size of its largest value (some
      // hundreds).
      if (dense_ && std::abs(result[i] - mean[i]) > 1e-4f * (1.0f + std::abs(mean[i])))
        check(penstock::internal("{}: entry {} is {}, expected the mean {}", name_, i, result[i],
                                 mean[i]));
      uint32_t bits = 0;
      std::memcpy(&bits, &result[i], sizeof bits);
      hash = (hash ^ bits) * 1099511628211u;
      not_zero += result[i] != 0.0f;
    }
    MPI_Allreduce(&hash, &least, 1, MPI_UINT64_T, MPI_MIN, bench.world);
    MPI_Allreduce(&hash, &most, 1, MPI_UINT64_T, MPI_MAX, bench.world);
    if (least != most || not_zero == 0)
      check(
          penstock::internal("{}: {} entries are not zero, and hashes of ranks go from {:x} to "
                             "{:x}, expected the same result on every rank",
                             name_, not_zero, least, most));
  }

  json told() const {
    penstock_counters totals{};
    totals.struct_size = sizeof totals;
    set_->counters(totals);
    json figures{{"name", name_},
                 {"dense", dense_},
                 {"buckets", buckets_},
                 {"explanation", explanation_},
                 {"plans_in_warm_up", plans_in_warm_up_},
                 {"plans_while_timed", plans_ - plans_in_warm_up_},
                 {"moved_bytes_per_step", double(totals.moved_bytes) / double(totals.steps)}};
    for (const auto& [what, rounds] : figures_) {
      figures[what] = json::array();
      for (const auto& [round, values] : rounds) figures[what].push_back(values);
    }
    return figures;
  }

 private:
  // Stages of this step, summed over its buckets, and whether the plan is another than before.
  void read_report() {
    auto text = set_->report();
    check(text.status());
    const json report = json::parse(text.value());
    std::vector<int> buckets;
    std::string layout;
    encode_ms_ = exchange_ms_ = decode_ms_ = 0;
    for (const json& bucket : report.at("buckets")) {
      const size_t phase = bucket.at("phase");
      if (buckets.size() <= phase) buckets.resize(phase + 1);
      ++buckets[phase];
      layout += "\nbucket";
      for (const json& item : bucket.at("items"))
        layout += fmt::format(" {}[{}]", item.at("gradient").get<std::string>(),
                              item.at("first").get<uint64_t>());
      encode_ms_ += bucket.at("encode_us").get<double>() * 1e-3;
      exchange_ms_ += bucket.at("exchange_us").get<double>() * 1e-3;
      decode_ms_ += bucket.at("decode_us").get<double>() * 1e-3;
    }
    if (layout != layout_ && !layout_.empty()) ++plans_;
    layout_ = std::move(layout);
    buckets_ = std::move(buckets);
    explanation_ = report.at("explanation");
  }

  std::string name_, scheme_;
  bool dense_;
  penstock::SetHandle set_;
  uint64_t steps_ = 0;
  double step_ms_ = 0, exposed_ms_ = 0, encode_ms_ = 0, exchange_ms_ = 0, decode_ms_ = 0;
  std::map<std::string, std::map<size_t, std::vector<double>>> figures_;  // [what][round]
  std::vector<int> buckets_;                                              // [phase]
  std::string layout_;
  json explanation_;
  int plans_ = 0, plans_in_warm_up_ = 0;
};

using Contestants = std::vector<std::unique_ptr<Contestant>>;

void say(const Bench& bench, const std::string& what) {
  if (bench.rank == 0) std::fprintf(stderr, "[schedulers] %s\n", what.c_str());
}

// Every contestant's first step, of which the right result is known.
void check_results(Bench& bench, const Contestants& contestants) {
  std::vector<float> mean(bench.values.source.size());
  for (const Gradient& gradient : bench.gradients)
    MPI_Allreduce(bench.values.source.data() + gradient.first, mean.data() + gradient.first,
                  int(gradient.elements), MPI_FLOAT, MPI_SUM, bench.world);
  for (float& value : mean) value /= float(bench.ranks);
  for (const auto& contestant : contestants) {
    contestant->step(bench);
    contestant->check_result(bench, mean);
    say(bench, contestant->name() + ": the result is right");
  }
}

void compete(Bench& bench, const Contestants& contestants, const Options& options) {
  const int warm_up = int(options.number("--warm-up"));
  const size_t steps = size_t(options.number("--steps"));
  const size_t rounds = size_t(options.number("--rounds"));
  for (int step = 1; step <= warm_up; ++step) {
    for (const auto& contestant : contestants) contestant->step(bench);
    if (step % 5 == 0 || step == warm_up)
      say(bench, fmt::format("warm-up {} of {}", step, warm_up));
  }
  for (const auto& contestant : contestants) contestant->end_of_warm_up();
  for (size_t round = 0; round < rounds; ++round) {
    // Step by step in turn, so that what else the machine does meets all alike; another one begins
    // in every pass, so that none always follows the same one.
    for (size_t turn = 0; turn < contestants.size() * steps; ++turn) {
      const size_t pass = round * steps + turn / contestants.size();
      Contestant& contestant = *contestants[(pass + turn) % contestants.size()];
      contestant.step(bench);
      contestant.note(round);
    }
    say(bench, fmt::format("round {} of {}", round + 1, rounds));
  }
}

void run(const Options& options) {
  auto runtime = penstock::bench::open(
      "[scheme]\ncollective = \"mpi\"\nscheduler = \"wfbp\"\n[runtime]\ndeadline_s = 300\n");
  Bench bench{};
  MPI_Comm_dup(MPI_COMM_WORLD, &bench.world);
  MPI_Comm_rank(bench.world, &bench.rank);
  MPI_Comm_size(bench.world, &bench.ranks);
  bench.gradients = read_gradients(options.text("--gradients"));
  bench.order.resize(bench.gradients.size());
  std::iota(bench.order.rbegin(), bench.order.rend(), size_t{0});
  std::stable_sort(bench.order.begin(), bench.order.end(), [&](size_t a, size_t b) {
    return bench.gradients[a].share < bench.gradients[b].share;
  });
  const bool slow = bench.rank == int(options.number("--slow-rank"));
  bench.backward_ns = int64_t(options.number("--backward-ms") * 1e6 *
                              (slow ? options.number("--slow-factor") : 1.0));
  const Gradient& last = bench.gradients.back();
  bench.values.source = heavy_tailed(last.first + size_t(last.elements), uint32_t(bench.rank));
  bench.values.work.resize(bench.values.source.size());

  std::ifstream file(options.text("--contestants"));
  const json told = json::parse(file, nullptr, false);
  if (!told.is_array() || told.empty())
    refuse(fmt::format("{} holds no list of contestants", options.text("--contestants")));
  Contestants contestants;
  for (const json& one : told)
    contestants.push_back(std::make_unique<Contestant>(*runtime, bench, one));
  check_results(bench, contestants);
  compete(bench, contestants, options);
  json figures{{"ranks", bench.ranks},
               {"gradients", bench.gradients.size()},
               {"elements", bench.values.source.size()},
               {"contestants", json::array()}};
  for (const auto& contestant : contestants) figures["contestants"].push_back(contestant->told());
  if (bench.rank == 0) std::printf("%s\n", figures.dump().c_str());
  MPI_Barrier(bench.world);  // the sets go together
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
