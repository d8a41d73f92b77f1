#include "tools/penstock/plan/measure.hpp"

#include "core/runtime/runtime.hpp"
#include "core/set/set.hpp"

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <fstream>
#include <random>
#include <set>
#include <thread>

namespace penstock::command {

namespace {

constexpr int64_t kFew = 256, kMany = 1024;  // sides of the measured square gradients
constexpr size_t kTries = 8;                 // of each phase, after a first one to warm up

// A compressor and a memory, with the options of the scheme's instances.
struct Method {
  const InstanceConfig* compressor;
  const InstanceConfig* memory;
  std::string name() const { return method_name(*compressor, *memory); }
};

std::vector<Method> methods_of(const Scheme& scheme) {
  std::vector<Method> methods;
  for (size_t rule = 0; rule <= scheme.rules.size(); ++rule) {
    const Choice choice = scheme.choice_of(rule);
    std::set<std::string> compressors(choice.candidates.begin(), choice.candidates.end());
    compressors.insert(choice.compressor);
    for (const std::string& compressor : compressors)
      methods.push_back(
          {scheme.find(Kind::compressor, compressor), scheme.find(Kind::memory, choice.memory)});
  }
  return methods;
}

std::string table_text(const InstanceConfig& instance) {
  std::string text = fmt::format("[{}.{}]\n", kind_name(instance.kind), instance.plugin);
  for (const auto& [key, setting] : instance.options)
    text += fmt::format("{} = {}\n", key, setting.text());
  return text;
}

std::string scheme_text(const Method& method) {
  return fmt::format(
             "[scheme]\ncompressor = {}\nmemory = {}\ncollective = \"loopback\"\n"
             "scheduler = \"wfbp\"\n",
             quoted_text(method.compressor->plugin), quoted_text(method.memory->plugin)) +
         table_text(*method.compressor) + table_text(*method.memory);
}

// Ranks as threads of this process. Each rank has its own runtime.
class Team {
 public:
  static Result<std::unique_ptr<Team>> open(uint32_t size,
                                            const std::vector<std::string>& directories) {
    std::unique_ptr<Team> team(new Team(size));
    std::vector<Status> opened(size);
    team->all([&](uint32_t rank) {
      auto runtime = open_rank(rank, size, directories);
      opened[rank] = runtime.status();
      if (runtime.ok()) team->ranks_[rank] = std::move(runtime.value());
    });
    for (const Status& status : opened) PENSTOCK_TRY(status);
    return team;
  }
  ~Team() {
    all([&](uint32_t rank) { ranks_[rank].reset(); });
  }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  uint32_t size() const { return static_cast<uint32_t>(ranks_.size()); }
  Runtime& runtime(uint32_t rank) { return *ranks_[rank]; }

  // Calls each(rank) on all ranks at once and waits for all calls.
  template <typename Each>
  void all(const Each& each) {
    std::vector<std::jthread> others;
    for (uint32_t rank = 1; rank < size(); ++rank) others.emplace_back(each, rank);
    each(0);
  }

 private:
  explicit Team(uint32_t size) : ranks_(size) {}

  static Result<RuntimeHandle> open_rank(uint32_t rank, uint32_t size,
                                         const std::vector<std::string>& directories) {
    std::vector<std::string> quoted;
    for (const std::string& directory : directories) quoted.push_back(quoted_text(directory));
    std::string config = fmt::format(
        "[scheme]\ncollective = \"loopback\"\n[collective.loopback]\nhub = \"penstock plan\"\n"
        "rank = {}\nsize = {}\n[runtime]\nlog_level = \"error\"\n",
        rank, size);
    if (!quoted.empty()) config += fmt::format("plugin_path = [{}]\n", fmt::join(quoted, ", "));
    penstock_runtime_options options{};
    options.struct_size = sizeof options;
    options.config_text = str(config);
    return Runtime::open(options);
  }

  std::vector<RuntimeHandle> ranks_;
};

// A measurement with a set of one square gradient.
class Trial {
 public:
  static Result<Trial> make(Runtime& runtime, const std::string& scheme, int64_t side) {
    Trial trial;
    trial.shape_ = {side, side};
    penstock_gradient_declaration gradient{};
    gradient.struct_size = sizeof gradient;
    gradient.name = str("gradient");
    gradient.shape = trial.shape_.data();
    gradient.n_dims = trial.shape_.size();
    gradient.dtype = PENSTOCK_FLOAT32;
    gradient.device_type = PENSTOCK_DEVICE_CPU;
    gradient.given_bucket = PENSTOCK_NO_BUCKET;
    const penstock_gradient_declaration* const one[] = {&gradient};
    penstock_set_declaration declaration{};
    declaration.struct_size = sizeof declaration;
    declaration.name = str("trial");
    declaration.gradients = one;
    declaration.n_gradients = 1;
    declaration.scheme = str(scheme);
    PENSTOCK_ASSIGN(trial.set_, Set::create(runtime.services(), declaration));
    trial.source_.resize(static_cast<size_t>(side * side));
    std::mt19937_64 random(1);
    std::normal_distribution<float> normal;
    for (float& value : trial.source_) value = normal(random) * std::exp(normal(random));
    return trial;
  }

  struct Times {
    double encode_us = 0, decode_us = 0;
  };
  // Returns the least times of a few steps. For a method with several phases, the mean over the
  // phases.
  Result<Times> measure() {
    PENSTOCK_ASSIGN(std::vector<Times> least, step());
    const size_t period = least.size();
    for (size_t i = 1; i < (kTries + 1) * period; ++i) {
      PENSTOCK_ASSIGN(const std::vector<Times> now, step());
      for (size_t b = 0; b < period; ++b) {
        // Skip the bucket of another phase, which did not run. The first run of a bucket warms up.
        if (now[b].encode_us + now[b].decode_us == 0) continue;
        const bool is_first = i < 2 * period;
        const auto keep = [&](double& kept, double took) {
          kept = is_first ? took : std::min(kept, took);
        };
        keep(least[b].encode_us, now[b].encode_us);
        keep(least[b].decode_us, now[b].decode_us);
      }
    }
    Times mean;
    for (const Times& times : least) {
      mean.encode_us += times.encode_us / double(period);
      mean.decode_us += times.decode_us / double(period);
    }
    return mean;
  }

 private:
  // Runs a step and returns the times of the bucket of each phase; every phase has one bucket.
  Result<std::vector<Times>> step() {
    work_ = source_;
    penstock_tensor tensor{};
    tensor.struct_size = sizeof tensor;
    tensor.data = work_.data();
    tensor.shape = shape_.data();
    tensor.n_dims = shape_.size();
    tensor.numel = work_.size();
    tensor.dtype = PENSTOCK_FLOAT32;
    tensor.device_type = PENSTOCK_DEVICE_CPU;
    PENSTOCK_TRY(set_->gradient_ready(0, tensor));
    PENSTOCK_TRY(set_->wait_all());
    PENSTOCK_ASSIGN(const std::string text, set_->report());  // the step's end drops its times
    PENSTOCK_TRY(set_->step_end());
    const nlohmann::json report = nlohmann::json::parse(text);
    std::vector<Times> times;
    for (const auto& bucket : report.at("buckets"))
      times.push_back({bucket.at("encode_us").get<double>(), bucket.at("decode_us").get<double>()});
    return times;
  }

  std::vector<int64_t> shape_;
  std::vector<float> source_, work_;
  SetHandle set_;
};

// The name of the processor according to the system.
std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name") && line.find(": ") != std::string::npos)
      return line.substr(line.find(": ") + 2);
  return "an unknown processor";
}

// Measures on all ranks and returns the times of the first rank.
Result<Trial::Times> measure(Team& team, const std::string& scheme, int64_t side) {
  std::vector<Status> ended(team.size());
  Trial::Times first;
  team.all([&](uint32_t rank) {
    const auto times = [&]() -> Result<Trial::Times> {
      PENSTOCK_ASSIGN(Trial trial, Trial::make(team.runtime(rank), scheme, side));
      return trial.measure();
    }();
    ended[rank] = times.status();
    if (rank == 0 && times.ok()) first = times.value();
  });
  for (const Status& status : ended) PENSTOCK_TRY(status);
  return first;
}

// Sets a line through the times of a call with few elements and a call with many elements.
void set_line(double few_us, double many_us, double& fixed_us, double& each_ns) {
  constexpr double kFewElements = kFew * kFew, kManyElements = kMany * kMany;
  const double slope = std::max(0.0, (many_us - few_us) / (kManyElements - kFewElements));
  fixed_us = std::max(0.0, few_us - slope * kFewElements);
  each_ns = 1000 * slope;
}

// Measures a method with one rank, and with two ranks the additional time to decode a second
// payload.
Result<MethodCost> measure(Team& alone, Team& pair, const std::string& scheme) {
  PENSTOCK_ASSIGN(const Trial::Times few, measure(alone, scheme, kFew));
  PENSTOCK_ASSIGN(const Trial::Times many, measure(alone, scheme, kMany));
  PENSTOCK_ASSIGN(const Trial::Times of_two, measure(pair, scheme, kMany));
  MethodCost cost;
  set_line(few.encode_us, many.encode_us, cost.encode_us, cost.encode_ns);
  set_line(few.decode_us, many.decode_us, cost.decode_us, cost.decode_ns);
  const double more_us = std::max(0.0, of_two.decode_us - many.decode_us);
  cost.further_ns = std::min(cost.decode_ns, 1000 * more_us / double(kMany * kMany));
  return cost;
}

}  // namespace

Result<CostTable> measure_costs(const std::vector<SchemeFile>& schemes) {
  CostTable costs;
  costs.about = fmt::format("measured on this machine, {} cores of {}",
                            std::thread::hardware_concurrency(), processor());
  for (const SchemeFile& file : schemes) {
    std::unique_ptr<Team> alone, pair;
    for (const Method& method : methods_of(file.scheme)) {
      if (costs.methods.contains(method.name())) continue;
      if (alone == nullptr) {
        PENSTOCK_ASSIGN(alone, Team::open(1, file.directories));
        PENSTOCK_ASSIGN(pair, Team::open(2, file.directories));
      }
      auto cost = measure(*alone, *pair, scheme_text(method));
      PENSTOCK_TRY(cost.status().with_context(
          fmt::format("measuring {} of scheme {}", method.name(), file.name)));
      costs.methods[method.name()] = cost.value();
    }
  }
  return costs;
}

}  // namespace penstock::command
