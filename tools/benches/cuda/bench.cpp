// Times the CUDA kernels against a copy from device to device, in rounds that go through all of
// them in turn; every result is compared with the CPU's before anything is timed.
//
//   kernels_cuda_bench [--json] [--numel N] [--rounds R]
//
// A row's fraction is the rate at which its necessary bytes move over the copy's rate, both
// counting reads and writes. --json prints one line for programs. Without a device it says
// "skipped" and why.
#include "bench.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace penstock::kernels::cuda::bench {

void fail(const std::string& what) {
  std::fprintf(stderr, "kernels_cuda_bench: %s\n", what.c_str());
  std::exit(1);
}

void require(cudaError_t error, const char* call) {
  if (error != cudaSuccess) fail(std::string(call) + ": " + cudaGetErrorString(error));
}

void* allocate(uint64_t bytes) {
  void* memory = nullptr;
  SUCCEED(cudaMalloc(&memory, std::max<uint64_t>(bytes, 1)));
  return memory;
}

// A plain generator: the library's would take longer than the benchmark.
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
    else
      fail("unknown argument '" + name + "', expected --json, --numel N or --rounds R");
  }
  if (options.numel < 1u << 20 || options.numel > 1u << 30 || options.rounds < 1)
    fail("--numel is between 2^20 and 2^30, --rounds at least 1");
  return options;
}

// Milliseconds of one run, by events of the device.
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

double rate(const Row& row, float milliseconds) {
  return static_cast<double>(row.bytes) / (milliseconds * 1e6);  // GB/s
}

void print(const std::vector<Row>& rows, const std::vector<Spread>& times, const Options& options,
           const char* device) {
  const double copy = rate(rows[0], times[0].median);
  if (options.json) {
    std::printf("{\"device\": \"%s\", \"numel\": %llu, \"rounds\": %d, \"rows\": [", device,
                static_cast<unsigned long long>(options.numel), options.rounds);
    for (std::size_t r = 0; r < rows.size(); ++r)
      std::printf(
          "%s{\"what\": \"%s\", \"bytes\": %llu, \"ms\": [%.5f, %.5f, %.5f], "
          "\"fraction_of_copy\": %.4f}",
          r == 0 ? "" : ", ", rows[r].what.c_str(), static_cast<unsigned long long>(rows[r].bytes),
          times[r].median, times[r].least, times[r].most, rate(rows[r], times[r].median) / copy);
    std::printf("]}\n");
    return;
  }
  std::printf("%s, %llu elements, median (least to most) of %d rounds\n", device,
              static_cast<unsigned long long>(options.numel), options.rounds);
  for (std::size_t r = 0; r < rows.size(); ++r)
    std::printf("%-56s %8.3f ms (%.3f to %.3f)  %7.1f GB/s  %.2f of a copy\n", rows[r].what.c_str(),
                times[r].median, times[r].least, times[r].most, rate(rows[r], times[r].median),
                rate(rows[r], times[r].median) / copy);
}

// One run of each that is looked at, then rounds: in each, every row once, one after the other.
void run(const Options& options, const char* device) {
  const std::vector<float> x = gradient(options.numel);
  const uint64_t bytes = options.numel * sizeof(float);
  void *from = allocate(bytes), *to = allocate(bytes);
  SUCCEED(cudaMemset(from, 1, bytes));
  std::vector<Row> rows;
  rows.push_back({"copy from device to device", 2 * bytes,
                  [=](cudaStream_t stream) {
                    return static_cast<int32_t>(
                        cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream));
                  },
                  [] { return true; }});
  add_baselines(rows, x);
  add_selection(rows, x);
  add_quantisation(rows, x);
  add_low_rank(rows, x);
  Timer timer;
  for (const Row& row : rows) {
    (void)timer.time(row);
    if (!row.verify()) fail(row.what + ": the result is not the CPU's");
  }
  std::vector<std::vector<float>> times(rows.size());
  for (int round = 0; round < options.rounds; ++round)
    for (std::size_t r = 0; r < rows.size(); ++r) times[r].push_back(timer.time(rows[r]));
  std::vector<Spread> spreads;
  for (std::vector<float>& of_row : times) spreads.push_back(spread_of(std::move(of_row)));
  print(rows, spreads, options, device);
}

}  // namespace
}  // namespace penstock::kernels::cuda::bench

int main(int argc, char** argv) {
  using namespace penstock::kernels::cuda::bench;
  const Options options = read(argc, argv);
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess && error != cudaErrorInsufficientDriver && error != cudaErrorNoDevice)
    fail(cudaGetErrorString(error));
  if (error != cudaSuccess || count == 0) {
    const char* const why =
        error == cudaSuccess ? "the driver reports none" : cudaGetErrorString(error);
    std::printf(options.json ? "{\"skipped\": \"no CUDA device (%s)\"}\n"
                             : "skipped: no CUDA device (%s)\n",
                why);
    return 0;
  }
  cudaDeviceProp found{};
  SUCCEED(cudaGetDeviceProperties(&found, 0));
  run(options, found.name);
  return 0;
}
