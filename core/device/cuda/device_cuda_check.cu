// Loads libpenstock_device_cuda.so, or the simulated one, as the core does and checks its table on
// every device there is: copies, the order that events make between streams, queries while work is
// under way. Prints "skipped: no CUDA device (reason)" and ends well where there is none.
//
//   device_cuda_check LIBRARY.so
#include "core/device/device_table.h"

#include <penstock/base.h>

#include <cuda_runtime.h>
#include <dlfcn.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

#define REQUIRE(condition)                                                         \
  do {                                                                             \
    if (!(condition)) {                                                            \
      std::fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition); \
      std::exit(1);                                                                \
    }                                                                              \
  } while (0)

const penstock_device_table* table = nullptr;

// Every call that must succeed goes through here.
void require(int32_t error, const char* call) {
  if (error == 0) return;
  std::fprintf(stderr, "%s: error %d, %s\n", call, error, table->error_text(error));
  std::exit(1);
}
#define SUCCEED(function, ...) require(table->function(__VA_ARGS__), #function)

// Busy for about `cycles` clock ticks, then writes: work that is surely still under way when the
// host looks.
__global__ void write_late(float* data, uint64_t n, float value, long long cycles) {
  const long long start = clock64();
  while (clock64() - start < cycles) {
  }
  for (uint64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    data[i] = value;
}

constexpr uint64_t kSizes[] = {0, 1, 1023, 1 << 20};
constexpr uint32_t kFloat32 = PENSTOCK_FLOAT32, kFloat16 = PENSTOCK_FLOAT16,
                   kBfloat16 = PENSTOCK_BFLOAT16;
constexpr long long kLateCycles = 200'000'000;  // about 0.1 s: far longer than a launch takes

struct Pair {
  void* first = nullptr;
  void* second = nullptr;
};

Pair make_streams(int32_t device) {
  Pair streams;
  SUCCEED(stream_create, device, 0, &streams.first);
  SUCCEED(stream_create, device, 1, &streams.second);
  return streams;
}

void check_copies(int32_t device) {
  const Pair streams = make_streams(device);
  for (const uint64_t n : kSizes) {
    const uint64_t bytes = n * sizeof(float);
    void *host = nullptr, *back = nullptr, *one = nullptr, *two = nullptr;
    SUCCEED(host_allocate, device, bytes, &host);
    SUCCEED(host_allocate, device, bytes, &back);
    SUCCEED(allocate, device, bytes, &one);
    SUCCEED(allocate, device, bytes, &two);
    for (uint64_t i = 0; i < n; ++i) static_cast<float*>(host)[i] = static_cast<float>(i) * 0.5f;
    std::memset(back, 0xff, bytes);
    SUCCEED(copy_to_device, device, one, host, bytes, streams.first);
    SUCCEED(copy_on_device, device, two, one, bytes, streams.first);
    SUCCEED(copy_to_host, device, back, two, bytes, streams.first);
    SUCCEED(stream_wait, device, streams.first);
    REQUIRE(std::memcmp(host, back, bytes) == 0);
    SUCCEED(host_free, device, host);
    SUCCEED(host_free, device, back);
    SUCCEED(free, device, one);
    SUCCEED(free, device, two);
  }
  SUCCEED(stream_destroy, device, streams.first);
  SUCCEED(stream_destroy, device, streams.second);
}

// The second stream reads what a slow kernel on the first writes: right only if the event orders
// them.
void check_events(int32_t device) {
  constexpr uint64_t kNumel = 4096;
  const Pair streams = make_streams(device);
  void *event = nullptr, *begin = nullptr, *end = nullptr, *data = nullptr, *host = nullptr;
  SUCCEED(event_create, device, &event);
  for (void** timed : {&begin, &end}) SUCCEED(event_create_timed, device, timed);
  SUCCEED(allocate, device, kNumel * sizeof(float), &data);
  SUCCEED(host_allocate, device, kNumel * sizeof(float), &host);

  uint32_t done = 7;
  SUCCEED(event_query, device, event, &done);
  REQUIRE(done == 1);  // nothing was recorded

  int before = -1;
  REQUIRE(cudaGetDevice(&before) == cudaSuccess);
  SUCCEED(make_current, device);
  REQUIRE(cudaSetDevice(device) == cudaSuccess);
  cudaLaunchConfig_t config{};  // and no <<<...>>>, for compilers other than nvcc
  config.gridDim = dim3(4);
  config.blockDim = dim3(128);
  config.stream = static_cast<cudaStream_t>(streams.first);
  SUCCEED(event_record, device, begin, streams.first);
  REQUIRE(cudaLaunchKernelEx(&config, write_late, static_cast<float*>(data), uint64_t{kNumel}, 3.0f,
                             kLateCycles) == cudaSuccess);
  REQUIRE(cudaSetDevice(before) == cudaSuccess);
  SUCCEED(event_record, device, end, streams.first);

  SUCCEED(event_record, device, event, streams.first);
  SUCCEED(event_query, device, event, &done);
  REQUIRE(done == 0);  // the kernel has just begun
  SUCCEED(event_wait, device, streams.second, event);
  SUCCEED(copy_to_host, device, host, data, kNumel * sizeof(float), streams.second);
  SUCCEED(stream_wait, device, streams.second);
  for (uint64_t i = 0; i < kNumel; ++i) REQUIRE(static_cast<float*>(host)[i] == 3.0f);
  for (void* const passed : {event, end}) {
    SUCCEED(event_query, device, passed, &done);
    REQUIRE(done == 1);
  }
  double us = 0, us_of_none = -1;
  SUCCEED(event_elapsed, device, begin, end, &us);
  SUCCEED(event_elapsed, device, end, end, &us_of_none);
  REQUIRE(us > 0 && us_of_none == 0);

  SUCCEED(host_free, device, host);
  SUCCEED(free, device, data);
  for (void* const made : {event, begin, end}) SUCCEED(event_destroy, device, made);
  SUCCEED(stream_destroy, device, streams.first);
  SUCCEED(stream_destroy, device, streams.second);
}

// Of every size: what is looked for is found wherever it lies, and what is written ends where it
// should.
void check_elements(int32_t device) {
  const Pair streams = make_streams(device);
  void* const stream = streams.first;
  for (const uint64_t n : kSizes) {
    const uint64_t bytes = (n + 1) * sizeof(float);
    void *host = nullptr, *data = nullptr, *found = nullptr;
    SUCCEED(host_allocate, device, bytes, &host);
    SUCCEED(allocate, device, bytes, &data);
    SUCCEED(allocate, device, sizeof(uint32_t), &found);
    auto* const values = static_cast<float*>(host);
    auto* const on_device = static_cast<float*>(data);
    uint32_t is_found = 7;
    const auto look = [&](float last) {
      for (uint64_t i = 0; i <= n; ++i) values[i] = static_cast<float>(i) * 0.5f;
      if (n > 0) values[n - 1] = last;
      values[n] = NAN;  // behind the end
      SUCCEED(copy_to_device, device, data, host, bytes, stream);
      SUCCEED(clear, device, found, sizeof(uint32_t), stream);
      const penstock_device_values array{on_device, nullptr, n, static_cast<uint32_t*>(found),
                                         kFloat32,  0};
      SUCCEED(find_nonfinite, device, &array, 1, stream);
      SUCCEED(copy_to_host, device, host, found, sizeof(uint32_t), stream);
      SUCCEED(stream_wait, device, stream);
      std::memcpy(&is_found, host, sizeof is_found);
    };
    const auto read_back = [&] {
      SUCCEED(copy_to_host, device, host, data, bytes, stream);
      SUCCEED(stream_wait, device, stream);
      REQUIRE(std::isnan(values[n]));
    };
    look(INFINITY);
    REQUIRE(is_found == (n > 0 ? 1u : 0u));
    look(3e38f);
    REQUIRE(is_found == 0);
    SUCCEED(scale, device, on_device, n, kFloat32, 1.0f / 3, stream);
    read_back();
    for (uint64_t i = 0; i < n; ++i)
      REQUIRE(values[i] == (i + 1 == n ? 3e38f : static_cast<float>(i) * 0.5f) * (1.0f / 3));
    SUCCEED(fill_nan, device, on_device, n, kFloat32, stream);
    read_back();
    for (uint64_t i = 0; i < n; ++i) REQUIRE(std::isnan(values[i]));
    SUCCEED(clear, device, data, n * sizeof(float), stream);
    read_back();
    for (uint64_t i = 0; i < n; ++i) REQUIRE(values[i] == 0);
    SUCCEED(host_free, device, host);
    SUCCEED(free, device, data);
    SUCCEED(free, device, found);
  }
  SUCCEED(stream_destroy, device, streams.first);
  SUCCEED(stream_destroy, device, streams.second);
}

// All floats of 16 bits there are, widened and rounded back, with their products; then copied one
// element further, which no wider copy could do.
void check_16_bits(int32_t device) {
  constexpr uint64_t n = 1 << 16;
  const Pair streams = make_streams(device);
  void* const stream = streams.first;
  void *host = nullptr, *halves = nullptr, *moved = nullptr, *wide = nullptr, *found = nullptr;
  SUCCEED(host_allocate, device, n * sizeof(float), &host);
  SUCCEED(allocate, device, n * sizeof(uint16_t), &halves);
  SUCCEED(allocate, device, (n + 1) * sizeof(uint16_t), &moved);
  SUCCEED(allocate, device, n * sizeof(float), &wide);
  SUCCEED(allocate, device, sizeof(uint32_t), &found);
  auto* const bits = static_cast<uint16_t*>(host);
  auto* const words = static_cast<uint32_t*>(host);
  auto* const widened = static_cast<float*>(wide);
  const auto bring = [&](const void* from, uint64_t bytes) {
    SUCCEED(copy_to_host, device, host, from, bytes, stream);
    SUCCEED(stream_wait, device, stream);
  };
  for (const uint32_t dtype : {kFloat16, kBfloat16}) {
    const uint16_t exponent = dtype == kFloat16 ? 0x7c00 : 0x7f80;
    const uint16_t quiet = dtype == kFloat16 ? 0x0200 : 0x0040;
    const uint16_t one = dtype == kFloat16 ? 0x3c00 : 0x3f80;
    const auto expected = [&](uint64_t i) {
      const bool is_nan = (i & exponent) == exponent && (i & (exponent ^ 0x7fffu)) != 0;
      return static_cast<uint16_t>(is_nan ? i | quiet : i);
    };
    for (uint64_t i = 0; i < n; ++i) bits[i] = static_cast<uint16_t>(i);
    SUCCEED(copy_to_device, device, halves, host, n * sizeof(uint16_t), stream);
    const auto look = [&](uint64_t first, uint64_t count) {
      const penstock_device_values array{
          static_cast<uint16_t*>(halves) + first, widened + first, count,
          static_cast<uint32_t*>(found),          dtype,           0};
      SUCCEED(clear, device, found, sizeof(uint32_t), stream);
      SUCCEED(find_nonfinite, device, &array, 1, stream);
      bring(found, sizeof(uint32_t));
      return words[0];
    };
    REQUIRE(look(0, exponent) == 0);
    REQUIRE(look(exponent, 1) == 1);
    REQUIRE(look(0x8000, exponent) == 0);
    REQUIRE(look(0, n) == 1);
    bring(wide, n * sizeof(float));
    float first = 0;
    std::memcpy(&first, words + one, sizeof first);
    REQUIRE(first == 1);
    SUCCEED(clear, device, halves, n * sizeof(uint16_t), stream);
    SUCCEED(narrow, device, widened, halves, n, dtype, stream);
    const penstock_device_copy copy{halves, static_cast<uint16_t*>(moved) + 1, n, sizeof(uint16_t),
                                    0};
    SUCCEED(copy_many, device, &copy, 1, stream);
    bring(static_cast<uint16_t*>(moved) + 1, n * sizeof(uint16_t));
    for (uint64_t i = 0; i < n; ++i) REQUIRE(bits[i] == expected(i));
    SUCCEED(scale, device, halves, n, dtype, -1.0f, stream);
    bring(halves, n * sizeof(uint16_t));
    for (uint64_t i = 0; i < n; ++i)
      REQUIRE((i & exponent) == exponent || bits[i] == (i ^ 0x8000u));
    SUCCEED(fill_nan, device, halves, n, dtype, stream);
    bring(halves, n * sizeof(uint16_t));
    for (uint64_t i = 0; i < n; ++i) REQUIRE(bits[i] == (exponent | quiet));
  }
  SUCCEED(host_free, device, host);
  for (void* const made : {halves, moved, wide, found}) SUCCEED(free, device, made);
  SUCCEED(stream_destroy, device, streams.first);
  SUCCEED(stream_destroy, device, streams.second);
}

// More arrays than one launch takes, of all sizes, every third with a NaN.
void check_many_arrays(int32_t device) {
  constexpr uint64_t kArrays = 300;
  const Pair streams = make_streams(device);
  std::vector<uint64_t> begins{0};
  for (uint64_t i = 0; i < kArrays; ++i) begins.push_back(begins[i] + i * 37 % 5000);
  const uint64_t bytes = begins[kArrays] * sizeof(float);
  void *host = nullptr, *data = nullptr, *found = nullptr, *host_found = nullptr;
  SUCCEED(host_allocate, device, bytes, &host);
  SUCCEED(host_allocate, device, kArrays * sizeof(uint32_t), &host_found);
  SUCCEED(allocate, device, bytes, &data);
  SUCCEED(allocate, device, kArrays * sizeof(uint32_t), &found);
  auto* const values = static_cast<float*>(host);
  std::vector<penstock_device_values> arrays;
  for (uint64_t i = 0; i < kArrays; ++i) {
    for (uint64_t j = begins[i]; j < begins[i + 1]; ++j) values[j] = 1;
    if (i % 3 == 0 && begins[i] < begins[i + 1]) values[begins[i + 1] - 1] = NAN;
    arrays.push_back({static_cast<const float*>(data) + begins[i], nullptr,
                      begins[i + 1] - begins[i], static_cast<uint32_t*>(found) + i, kFloat32, 0});
  }
  SUCCEED(copy_to_device, device, data, host, bytes, streams.first);
  SUCCEED(clear, device, found, kArrays * sizeof(uint32_t), streams.first);
  SUCCEED(find_nonfinite, device, arrays.data(), kArrays, streams.first);
  SUCCEED(copy_to_host, device, host_found, found, kArrays * sizeof(uint32_t), streams.first);
  SUCCEED(stream_wait, device, streams.first);
  for (uint64_t i = 0; i < kArrays; ++i)
    REQUIRE(static_cast<uint32_t*>(host_found)[i] == (i % 3 == 0 && arrays[i].count > 0 ? 1u : 0u));
  SUCCEED(host_free, device, host);
  SUCCEED(host_free, device, host_found);
  SUCCEED(free, device, data);
  SUCCEED(free, device, found);
  SUCCEED(stream_destroy, device, streams.first);
  SUCCEED(stream_destroy, device, streams.second);
}

// Lists of indices, copied first: of three one repeats an index and one ends too high.
void check_many_lists(int32_t device) {
  constexpr uint64_t kLists = 250, kMost = 5000;
  const Pair streams = make_streams(device);
  const uint64_t bytes = kLists * kMost * sizeof(uint32_t);
  void *host = nullptr, *data = nullptr, *twin = nullptr, *wrong = nullptr;
  SUCCEED(host_allocate, device, bytes, &host);
  SUCCEED(allocate, device, bytes, &data);
  SUCCEED(allocate, device, bytes, &twin);
  SUCCEED(allocate, device, kLists * sizeof(uint32_t), &wrong);
  auto* const indices = static_cast<uint32_t*>(host);
  std::vector<penstock_index_list> lists;
  std::vector<penstock_device_copy> copies;
  for (uint64_t i = 0; i < kLists; ++i) {
    const uint64_t first = i * kMost, count = i * 53 % kMost;
    for (uint64_t j = 0; j < kMost; ++j) indices[first + j] = static_cast<uint32_t>(2 * j);
    if (i % 3 == 0 && count > 1) indices[first + count - 1] = indices[first + count - 2];
    if (i % 3 == 1 && count > 0) indices[first + count - 1] = static_cast<uint32_t>(2 * count);
    lists.push_back({static_cast<uint32_t*>(twin) + first, count, 2 * count,
                     static_cast<uint32_t*>(wrong) + i});
    copies.push_back({static_cast<const float*>(data) + first, static_cast<float*>(twin) + first,
                      count, sizeof(float), 0});
  }
  SUCCEED(copy_to_device, device, data, host, bytes, streams.first);
  SUCCEED(copy_many, device, copies.data(), kLists, streams.first);
  SUCCEED(clear, device, wrong, kLists * sizeof(uint32_t), streams.first);
  SUCCEED(check_indices, device, lists.data(), kLists, streams.first);
  SUCCEED(copy_to_host, device, host, wrong, kLists * sizeof(uint32_t), streams.first);
  SUCCEED(stream_wait, device, streams.first);
  for (uint64_t i = 0; i < kLists; ++i) {
    const bool is_wrong = (i % 3 == 0 && lists[i].count > 1) || (i % 3 == 1 && lists[i].count > 0);
    REQUIRE(indices[i] == (is_wrong ? 1u : 0u));
  }
  SUCCEED(host_free, device, host);
  SUCCEED(free, device, data);
  SUCCEED(free, device, twin);
  SUCCEED(free, device, wrong);
  SUCCEED(stream_destroy, device, streams.first);
  SUCCEED(stream_destroy, device, streams.second);
}

// Errors come back as numbers with a text, and do not stick to the next call.
void check_errors(int32_t device, int32_t count) {
  void* stream = nullptr;
  const int32_t error = table->stream_create(count + 100, 0, &stream);
  REQUIRE(error != 0);
  REQUIRE(std::strlen(table->error_text(error)) > 0);
  SUCCEED(stream_create, device, 0, &stream);
  SUCCEED(stream_destroy, device, stream);
}

void print(int32_t device) {
  penstock_device_properties found{};
  found.struct_size = sizeof found;
  SUCCEED(properties, device, &found);
  std::printf(
      "device %d: %s, compute capability %d.%d, %d multiprocessors, %.1f GiB, %d copy engines\n",
      device, found.name, found.major, found.minor, found.n_multiprocessors,
      static_cast<double>(found.memory_bytes) / (1 << 30), found.n_copy_engines);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: device_cuda_check LIBRARY.so\n");
    return 2;
  }
  void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  table = static_cast<const penstock_device_table*>(dlsym(library, "penstock_device"));
  REQUIRE(table != nullptr);
  REQUIRE(table->struct_size == sizeof(penstock_device_table));

  int32_t count = -1;
  const char* why_none = nullptr;
  SUCCEED(device_count, &count, &why_none);
  if (count == 0) {
    REQUIRE(why_none != nullptr);
    std::printf("skipped: no CUDA device (%s)\n", why_none);
    return 0;
  }
  for (int32_t device = 0; device < count; ++device) {
    print(device);
    check_copies(device);
    check_events(device);
    check_elements(device);
    check_16_bits(device);
    check_many_arrays(device);
    check_many_lists(device);
    check_errors(device, count);
    std::printf("device %d: copies, events, streams, elements and errors are right\n", device);
  }
  return 0;
}
