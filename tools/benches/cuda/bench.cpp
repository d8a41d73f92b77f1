// Times the CUDA kernels against a copy from device to device, in rounds. A round runs every row
// once. Before the timing every result is compared with the CPU's result. A wrong row says so
// beside its times, the other rows still run, and the exit status is 1.
//
//   kernels_cuda_bench [--json] [--numel N] [--rounds R] [--table LIBRARY.so]
//
// The fraction of a row is the rate of its necessary bytes divided by the rate of the copy. Both
// count reads and writes. --json prints one line for programs. --table names
// libpenstock_device_cuda.so, whose calls are timed too. If there is no device it prints "skipped"
// and the reason.
#include "bench.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <stdexcept>

namespace penstock::kernels::cuda::bench {

void fail(const std::string& what) {
  throw std::runtime_error(what);
}

void require(cudaError_t error, const char* call) {
  if (error != cudaSuccess) fail(std::string(call) + ": " + cudaGetErrorString(error));
}

void* allocate(uint64_t bytes) {
  void* memory = nullptr;
  SUCCEED(cudaMalloc(&memory, std::max<uint64_t>(bytes, 1)));
  return memory;
}

// A simple generator, because the generators of the library would take longer than the benchmark.
std::vector<float> gradient(uint64_t n) {
  std::vector<float> x(n);
  uint64_t state = 1;
  const auto uniform = [&] {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return static_cast<float>(state >> 40) * 0x1p-24f;
  };
  for (float& value : x) {
    const float sum = uniform() + uniform() + uniform() + uniform() - 2;  // nearly normal
    value = sum / (0.05f + uniform());
  }
  return x;
}

namespace {

struct Options {
  bool json = false;
  uint64_t numel = 100'000'000;
  int rounds = 9;
  std::string table;
};

Options read(int argc, char** argv) {
  Options options;
  for (int a = 1; a < argc; ++a) {
    const std::string name = argv[a];
    if (name == "--json")
      options.json = true;
    else if (name == "--numel" && a + 1 < argc)
      options.numel = std::strtoull(argv[++a], nullptr, 10);
    else if (name == "--rounds" && a + 1 < argc)
      options.rounds = std::atoi(argv[++a]);
    else if (name == "--table" && a + 1 < argc)
      options.table = argv[++a];
    else
      fail("unknown argument '" + name +
           "', expected --json, --numel N, --rounds R or --table LIBRARY.so");
  }
  if (options.numel < 1u << 20 || options.numel > 1u << 30 || options.rounds < 1)
    fail("--numel is between 2^20 and 2^30, --rounds at least 1");
  return options;
}

// Milliseconds of one run, measured by events of the device.
class Timer {
 public:
  Timer() {
    SUCCEED(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    SUCCEED(cudaEventCreate(&begin_));
    SUCCEED(cudaEventCreate(&end_));
  }
  float time(const Row& row) {
    SUCCEED(cudaEventRecord(begin_, stream_));
    SUCCEED(row.run(stream_));
    SUCCEED(cudaEventRecord(end_, stream_));
    SUCCEED(cudaEventSynchronize(end_));
    float milliseconds = 0;
    SUCCEED(cudaEventElapsedTime(&milliseconds, begin_, end_));
    return milliseconds;
  }

 private:
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

struct Spread {
  float median, least, most;
};
Spread spread_of(std::vector<float> times) {
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], times.front(), times.back()};
}

// The outcome of a row.
struct Outcome {
  Row row;
  std::string wrong;         // empty if the result is right
  std::vector<float> times;  // empty if the row cannot run
  // GB/s.
  double rate() const {
    return static_cast<double>(row.bytes) / (double{spread_of(times).median} * 1e6);
  }
};
using Outcomes = std::vector<Outcome>;

// Makes a text valid in a JSON string.
std::string quoted(std::string text) {
  for (char& letter : text)
    if (letter == '"' || letter == '\\' || static_cast<unsigned char>(letter) < ' ') letter = '\'';
  return text;
}

void print_json(const Outcomes& outcomes, const Options& options, const char* device) {
  std::printf("{\"device\": \"%s\", \"numel\": %llu, \"rounds\": %d, \"rows\": [", device,
              static_cast<unsigned long long>(options.numel), options.rounds);
  const Outcome& copy = outcomes.front();
  for (const Outcome& one : outcomes) {
    std::printf("%s{\"what\": \"%s\", \"bytes\": %llu", &one == &copy ? "" : ", ",
                one.row.what.c_str(), static_cast<unsigned long long>(one.row.bytes));
    if (!one.wrong.empty()) std::printf(", \"wrong\": \"%s\"", quoted(one.wrong).c_str());
    if (!one.times.empty() && !copy.times.empty()) {
      const Spread spread = spread_of(one.times);
      std::printf(", \"ms\": [%.5f, %.5f, %.5f], \"fraction_of_copy\": %.4f", spread.median,
                  spread.least, spread.most, one.rate() / copy.rate());
    }
    std::printf("}");
  }
  std::printf("]}\n");
}

void print(const Outcomes& outcomes, const Options& options, const char* device) {
  std::printf("%s, %llu elements, median (least to most) of %d rounds\n", device,
              static_cast<unsigned long long>(options.numel), options.rounds);
  const Outcome& copy = outcomes.front();
  for (const Outcome& one : outcomes) {
    std::printf("%-56s", one.row.what.c_str());
    if (!one.times.empty() && !copy.times.empty()) {
      const Spread spread = spread_of(one.times);
      std::printf(" %8.3f ms (%.3f to %.3f)  %7.1f GB/s  %.2f of a copy", spread.median,
                  spread.least, spread.most, one.rate(), one.rate() / copy.rate());
    }
    std::printf("%s%s\n", one.wrong.empty() ? "" : " WRONG: ", one.wrong.c_str());
  }
}

Row copy_of(uint64_t bytes) {
  void *from = allocate(bytes), *to = allocate(bytes);
  SUCCEED(cudaMemset(from, 1, bytes));
  return {"copy from device to device", 2 * bytes,
          [=](cudaStream_t stream) {
            return static_cast<int32_t>(
                cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream));
          },
          [] { return true; }};
}

// Adds the rows of a group. If there is no memory for a row, it reports and leaves out the rest of
// the group. Returns whether every row was made.
bool add(const char* group, const std::function<void()>& rows) {
  try {
    rows();
    return true;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "kernels_cuda_bench: rows of %s are left out: %s\n", group, error.what());
    return false;
  }
}

// One run, whose result is checked.
std::string difference_of(const Row& row, Timer& timer) try {
  (void)timer.time(row);
  return row.verify() ? "" : "the result is not the CPU's";
} catch (const std::exception& error) {
  return error.what();
}

void time(Outcome& of, Timer& timer) try {
  of.times.push_back(timer.time(of.row));
} catch (const std::exception& error) {
  of.wrong = error.what();
}

// Runs and checks each row once. Then runs rounds: each round runs every row once, in order.
// Returns whether every result equals the CPU's.
bool run(const Options& options, const char* device) {
  const std::vector<float> x = gradient(options.numel);
  std::vector<Row> rows{copy_of(options.numel * sizeof(float))};
  bool all_right = add("baselines", [&] { add_baselines(rows, x); });
  all_right = add("selection", [&] { add_selection(rows, x); }) && all_right;
  all_right = add("quantisation", [&] { add_quantisation(rows, x); }) && all_right;
  all_right = add("low rank", [&] { add_low_rank(rows, x); }) && all_right;
  if (!options.table.empty())
    all_right = add("the table", [&] { add_table(rows, x, options.table); }) && all_right;
  Timer timer;
  Outcomes outcomes;
  for (const Row& row : rows) {
    outcomes.push_back({row, difference_of(row, timer), {}});
    if (outcomes.back().wrong.empty()) continue;
    std::fprintf(stderr, "kernels_cuda_bench: %s: %s\n", row.what.c_str(),
                 outcomes.back().wrong.c_str());
    all_right = false;
  }
  for (int round = 0; round < options.rounds; ++round)
    for (Outcome& one : outcomes) time(one, timer);
  (options.json ? print_json : print)(outcomes, options, device);
  return all_right;
}

// Whether there is no device. Then prints the reason.
bool is_skipped(bool json) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count > 0) return false;
  if (error != cudaSuccess && error != cudaErrorInsufficientDriver && error != cudaErrorNoDevice)
    fail(cudaGetErrorString(error));
  std::printf(json ? "{\"skipped\": \"no CUDA device (%s)\"}\n" : "skipped: no CUDA device (%s)\n",
              error == cudaSuccess ? "the driver reports none" : cudaGetErrorString(error));
  return true;
}

}  // namespace
}  // namespace penstock::kernels::cuda::bench

int main(int argc, char** argv) try {
  using namespace penstock::kernels::cuda::bench;
  const Options options = read(argc, argv);
  if (is_skipped(options.json)) return 0;
  cudaDeviceProp found{};
  SUCCEED(cudaGetDeviceProperties(&found, 0));
  return run(options, found.name) ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "kernels_cuda_bench: %s\n", error.what());
  return 1;
}
