// Compares the CUDA kernels with the CPU's kernels, which other tests compare with plain loops.
// There are many kinds of input and sizes from nothing to more than 2^24, and calls run directly
// and as a replayed graph. A difference ends its part, and the next parts still run. If there is no
// device it prints "skipped: no CUDA device (reason)" and exits with 0.
//
//   kernels_cuda_check [--short] [--list] [PART]
//
// --list prints the names of the parts, also if there is no device.
#include "check.hpp"

#include <algorithm>
#include <cmath>
#include <exception>
#include <iterator>
#include <random>

namespace penstock::kernels::cuda::check {
namespace {

// replays of every graph; one in short runs
int n_replays = 2;

// Thrown to end a part, after the difference was printed.
struct Difference {};
bool any_difference = false;

constexpr uint64_t kGuard = 256;
constexpr int kPattern = 0xa5;

cudaStream_t stream() {
  static cudaStream_t made = [] {
    cudaStream_t stream = nullptr;
    SUCCEED(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
  }();
  return made;
}

// Arrays are filled on the default stream.
void settle() {
  SUCCEED(cudaStreamSynchronize(nullptr));
}

}  // namespace

void fail(const char* file, int line, const std::string& what) {
  std::fprintf(stderr, "%s:%d: failed: %s\n", file, line, what.c_str());
  any_difference = true;
  throw Difference{};
}

void require(cudaError_t error, const char* call, const char* file, int line) {
  if (error != cudaSuccess) fail(file, line, std::string(call) + ": " + cudaGetErrorString(error));
}

Bytes::Bytes(uint64_t bytes) : bytes_(bytes) {
  SUCCEED(cudaMalloc(&data_, bytes + kGuard));
  SUCCEED(cudaMemset(data_, kPattern, bytes + kGuard));
}

// A difference is printed, and the part continues.
Bytes::~Bytes() {
  try {
    std::vector<unsigned char> guard(kGuard);
    SUCCEED(cudaMemcpy(guard.data(), static_cast<char*>(data_) + bytes_, kGuard,
                       cudaMemcpyDeviceToHost));
    for (const unsigned char byte : guard) REQUIRE(byte == kPattern, "written behind an array");
    SUCCEED(cudaFree(data_));
  } catch (const Difference&) {
    (void)cudaFree(data_);
  }
}

void Bytes::spoil() {
  if (bytes_ > 0) SUCCEED(cudaMemset(data_, kPattern, bytes_));
}

void Bytes::put(const void* from) {
  if (bytes_ > 0) SUCCEED(cudaMemcpy(data_, from, bytes_, cudaMemcpyHostToDevice));
}

void Bytes::get(void* to) const {
  if (bytes_ > 0) SUCCEED(cudaMemcpy(to, data_, bytes_, cudaMemcpyDeviceToHost));
}

void both_ways(const std::function<void()>& prepare, const std::function<int32_t(void*)>& queue,
               const std::function<void()>& verify) {
  prepare();
  settle();
  SUCCEED(queue(stream()));
  SUCCEED(cudaStreamSynchronize(stream()));
  verify();

  cudaGraph_t graph = nullptr;
  cudaGraphExec_t ready = nullptr;
  SUCCEED(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeThreadLocal));
  const int32_t error = queue(stream());
  SUCCEED(cudaStreamEndCapture(stream(), &graph));
  SUCCEED(error);
  SUCCEED(cudaGraphInstantiate(&ready, graph, 0));
  for (int replay = 0; replay < n_replays; ++replay) {
    prepare();
    settle();
    SUCCEED(cudaGraphLaunch(ready, stream()));
    SUCCEED(cudaStreamSynchronize(stream()));
    verify();
  }
  SUCCEED(cudaGraphExecDestroy(ready));
  SUCCEED(cudaGraphDestroy(graph));
}

std::vector<float> normal(uint64_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> gauss;
  std::vector<float> x(n);
  for (float& value : x) value = gauss(random);
  return x;
}

std::vector<Input> Extent::inputs(uint64_t n, bool finite) const {
  std::mt19937_64 random(n + 1);
  std::normal_distribution<float> gauss;
  std::exponential_distribution<float> exponential;
  std::student_t_distribution<float> student(3);
  std::vector<Input> all;
  const std::string few[] = {"normal", "constant", "sparse", "not finite"};
  const auto add = [&](const char* name, auto&& value) {
    if ((n < all_kinds_from || n > all_kinds_up_to) &&
        std::find(std::begin(few), std::end(few), name) == std::end(few))
      return;
    std::vector<float> x(n);
    for (uint64_t i = 0; i < n; ++i) x[i] = static_cast<float>(value(i));
    all.push_back({name, std::move(x)});
  };
  add("normal", [&](uint64_t) { return gauss(random); });
  add("laplace",
      [&](uint64_t) { return (random() % 2 == 0 ? 1.0f : -1.0f) * exponential(random); });
  add("student", [&](uint64_t) { return student(random); });
  add("constant", [&](uint64_t) { return -2.5f; });
  add("zeros", [&](uint64_t i) { return i % 2 == 0 ? 0.0f : -0.0f; });
  add("sparse", [&](uint64_t) { return random() % 50 == 0 ? gauss(random) : 0.0f; });
  add("spike", [&](uint64_t i) { return i == n / 2 ? 1e30f : 1e-30f * gauss(random); });
  add("ascending", [&](uint64_t i) { return static_cast<float>(i); });
  add("alternating", [&](uint64_t i) { return i % 2 == 0 ? 1.0f : -0.5f; });
  add("few values", [&](uint64_t) { return static_cast<float>(random() % 4) - 2; });
  add("subnormal", [&](uint64_t) { return gauss(random) * 1e-41f; });
  if (finite) return all;
  add("not finite", [&](uint64_t) {
    const uint64_t kind = random() % 100;
    if (kind == 0) return std::nanf("");
    if (kind == 1) return -INFINITY;
    return gauss(random);
  });
  return all;
}

namespace {

struct Part {
  const char* name;
  void (*run)(const Extent&);
};
constexpr Part kParts[] = {
    {"selection", check_selection},
    {"rows", check_rows},
    {"pairs", check_pairs},
    {"many together", check_many_together},
    {"thresholds", check_thresholds},
    {"steered", check_steered},
    {"sums", check_sums},
    {"signs", check_signs},
    {"stochastic", check_stochastic},
    {"codes", check_codes},
    {"values", check_values},
    {"one sign", check_one_sign},
    {"masking", check_masking},
    {"clipping", check_clipping},
    {"low-rank", check_low_rank},
    {"orthogonalise", check_orthogonalise},
    {"factors", check_factors},
    {"dense", check_dense},
};

Extent extent_of(bool is_short) {
  Extent extent;
  extent.sizes = {0, 1, 2, 3, 31, 64, 1000, is_short ? 4999u : 65537u};
  extent.few_sizes = {0, 1, 65, 5000};
  extent.all_kinds_from = is_short ? 64 : 0;
  extent.all_kinds_up_to = is_short ? 64 : 1 << 30;
  extent.most_rows = is_short ? 100 : 1 << 20;
  if (!is_short) {
    extent.sizes.push_back((1u << 24) + 3);
    extent.few_sizes.insert(extent.few_sizes.end(), {17000, (1u << 20) + 3});
  }
  return extent;
}

// Whether the part ended without a difference.
bool passes(const char* name, const std::function<void()>& run) {
  any_difference = false;
  try {
    run();
  } catch (const Difference&) {  // already printed
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    any_difference = true;
  }
  std::printf("%s: %s\n", name, any_difference ? "NOT as on the CPU" : "as on the CPU");
  std::fflush(stdout);
  return !any_difference;
}

// Runs every part, or only the part `only`.
int check(const Extent& extent, const std::string& only) {
  bool all_pass = true, found = only.empty();
  if (only.empty() || only == "refusals") {
    found = true;
    all_pass = passes("refusals", check_refusals);
  }
  for (const Part& part : kParts) {
    if (!only.empty() && only != part.name) continue;
    found = true;
    all_pass = passes(part.name, [&] { part.run(extent); }) && all_pass;
  }
  if (!found) std::fprintf(stderr, "kernels_cuda_check: there is no part '%s'\n", only.c_str());
  return !found ? 2 : all_pass ? 0 : 1;
}

int list() {
  std::printf("refusals\n");
  for (const Part& part : kParts) std::printf("%s\n", part.name);
  return 0;
}

}  // namespace
}  // namespace penstock::kernels::cuda::check

int main(int argc, char** argv) {
  using namespace penstock::kernels::cuda::check;
  bool is_short = false;
  std::string only;
  for (int a = 1; a < argc; ++a) {
    if (std::string(argv[a]) == "--list") return list();
    if (std::string(argv[a]) == "--short")
      is_short = true;
    else
      only = argv[a];
  }
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess && error != cudaErrorInsufficientDriver && error != cudaErrorNoDevice) {
    std::fprintf(stderr, "cudaGetDeviceCount: %s\n", cudaGetErrorString(error));
    return 1;
  }
  if (error != cudaSuccess || count == 0) {
    std::printf("skipped: no CUDA device (%s)\n",
                error == cudaSuccess ? "the driver reports none" : cudaGetErrorString(error));
    return 0;
  }
  if (is_short) n_replays = 1;
  return check(extent_of(is_short), only);
}
