// Loads libpenstock_device_cuda.so, or the simulated library, as the core does. Checks its table on
// every device: copies, the order that events make between streams, queries while work is under
// way. If there is no device it prints "skipped: no CUDA device (reason)" and exits with 0.
//
//   device_cuda_check LIBRARY.so
#include "core/device/cuda/check/check.hpp"

#include <cuda_runtime.h>
#include <dlfcn.h>

#include <cstring>
#include <functional>

namespace penstock::device_check {

const penstock_device_table* table = nullptr;

namespace {

bool all_given_back = true;

bool succeeds(int32_t error, const char* call) {
  if (error != 0) std::fprintf(stderr, "%s: error %d, %s\n", call, error, table->error_text(error));
  return error == 0;
}

}  // namespace

void require(int32_t error, const char* call) {
  if (!succeeds(error, call)) throw Difference{};
}

void note(int32_t error, const char* call) {
  if (!succeeds(error, call)) all_given_back = false;
}

namespace {

// Runs for about `cycles` clock ticks and then writes, so the work is certainly still under way
// when the host queries.
__global__ void write_late(float* data, uint64_t n, float value, long long cycles) {
  const long long start = clock64();
  while (clock64() - start < cycles) {
  }
  for (uint64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    data[i] = value;
}

constexpr long long kLateCycles = 200'000'000;  // about 0.1 s, far longer than a launch

void check_copies(int32_t device) {
  const Streams streams(device);
  for (const uint64_t n : kSizes) {
    OnHost<float> host(device, n), back(device, n);
    const OnDevice<float> one(device, n), two(device, n);
    for (uint64_t i = 0; i < n; ++i) host[i] = static_cast<float>(i) * 0.5f;
    std::memset(back.data, 0xff, n * sizeof(float));
    host.send(one.data, n, streams.first);
    SUCCEED(copy_on_device, device, two.data, one.data, n * sizeof(float), streams.first);
    back.bring(two.data, n, streams.first);
    REQUIRE(std::memcmp(host.data, back.data, n * sizeof(float)) == 0);
  }
}

void launch_late_write(int32_t device, float* data, uint64_t n, float value, void* stream) {
  int before = -1;
  REQUIRE(cudaGetDevice(&before) == cudaSuccess);
  SUCCEED(make_current, device);
  REQUIRE(cudaSetDevice(device) == cudaSuccess);
  cudaLaunchConfig_t config{};  // no <<<...>>>, because other compilers than nvcc compile this
  config.gridDim = dim3(4);
  config.blockDim = dim3(128);
  config.stream = static_cast<cudaStream_t>(stream);
  REQUIRE(cudaLaunchKernelEx(&config, write_late, data, n, value, kLateCycles) == cudaSuccess);
  REQUIRE(cudaSetDevice(before) == cudaSuccess);
}

bool has_passed(int32_t device, void* event) {
  uint32_t done = 7;
  SUCCEED(event_query, device, event, &done);
  REQUIRE(done <= 1);
  return done == 1;
}

// The second stream reads values that a slow kernel on the first stream writes. They are right only
// if the event orders the streams.
void check_events(int32_t device) {
  constexpr uint64_t kNumel = 4096;
  const Streams streams(device);
  const OnDevice<float> data(device, kNumel);
  OnHost<float> host(device, kNumel);
  void *event = nullptr, *begin = nullptr, *end = nullptr;
  SUCCEED(event_create, device, &event);
  for (void** timed : {&begin, &end}) SUCCEED(event_create_timed, device, timed);
  REQUIRE(has_passed(device, event));  // before a record

  SUCCEED(event_record, device, begin, streams.first);
  launch_late_write(device, data.data, kNumel, 3.0f, streams.first);
  SUCCEED(event_record, device, end, streams.first);
  SUCCEED(event_record, device, event, streams.first);
  REQUIRE(!has_passed(device, event));  // the kernel has just begun
  SUCCEED(event_wait, device, streams.second, event);
  host.bring(data.data, kNumel, streams.second);
  for (uint64_t i = 0; i < kNumel; ++i) REQUIRE(host[i] == 3.0f);
  REQUIRE(has_passed(device, event));
  REQUIRE(has_passed(device, end));
  double us = 0, us_of_none = -1;
  SUCCEED(event_elapsed, device, begin, end, &us);
  SUCCEED(event_elapsed, device, end, end, &us_of_none);
  REQUIRE(us > 0 && us_of_none == 0);
  for (void* const made : {event, begin, end}) SUCCEED(event_destroy, device, made);
}

// Errors are numbers with a text, and do not affect the next call.
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

// Runs every part, also after a failed part. Returns whether every part has passed.
bool check(int32_t device, int32_t count) {
  const struct {
    const char* name;
    std::function<void()> run;
  } parts[] = {
      {"properties", [=] { print(device); }},
      {"copies", [=] { check_copies(device); }},
      {"events", [=] { check_events(device); }},
      {"elements", [=] { check_elements(device); }},
      {"elements of 16 bits", [=] { check_16_bits(device); }},
      {"offsets", [=] { check_offsets(device); }},
      {"many arrays", [=] { check_many_arrays(device); }},
      {"many lists", [=] { check_many_lists(device); }},
      {"errors", [=] { check_errors(device, count); }},
  };
  bool all_right = true;
  for (const auto& part : parts) {
    all_given_back = true;
    bool right = true;
    try {
      part.run();
    } catch (const Difference&) {
      right = false;
    }
    right = right && all_given_back;
    std::printf("device %d: %s: %s\n", device, part.name, right ? "right" : "WRONG");
    std::fflush(stdout);
    all_right = all_right && right;
  }
  return all_right;
}

// Checks the devices of the library. Returns whether its table is right.
bool check_all() {
  REQUIRE(table != nullptr);
  REQUIRE(table->struct_size == sizeof(penstock_device_table));
  int32_t count = -1;
  const char* why_none = nullptr;
  SUCCEED(device_count, &count, &why_none);
  if (count == 0) {
    REQUIRE(why_none != nullptr);
    std::printf("skipped: no CUDA device (%s)\n", why_none);
  }
  bool all_right = true;
  for (int32_t device = 0; device < count; ++device) all_right = check(device, count) && all_right;
  return all_right;
}

}  // namespace
}  // namespace penstock::device_check

int main(int argc, char** argv) {
  namespace check = penstock::device_check;
  if (argc != 2) {
    std::fprintf(stderr, "usage: device_cuda_check LIBRARY.so\n");
    return 2;
  }
  void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  check::table = static_cast<const penstock_device_table*>(dlsym(library, "penstock_device"));
  try {
    return check::check_all() ? 0 : 1;
  } catch (const check::Difference&) {  // already printed
    return 1;
  }
}
