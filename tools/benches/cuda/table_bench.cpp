// Rows of the device table through which every gradient passes once: the inspection for non-finite
// values, with and without widening, and copies of many arrays within the device.
#include "bench.hpp"
#include "core/device/device_table.h"

#include <penstock/base.h>

#include <dlfcn.h>

#include <cstring>

namespace penstock::kernels::cuda::bench {
namespace {

constexpr int32_t kDevice = 0;

const penstock_device_table& load(const std::string& library) {
  void* const loaded = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (loaded == nullptr) fail(dlerror());
  const void* const table = dlsym(loaded, "penstock_device");
  if (table == nullptr) fail(library + " has no penstock_device");
  return *static_cast<const penstock_device_table*>(table);
}

void add_look(std::vector<Row>& rows, const penstock_device_table& table,
              const std::vector<float>& x) {
  const uint64_t n = x.size();
  auto* const found = array(std::vector<uint32_t>{0});
  const penstock_device_values floats{array(x), nullptr, n, found, PENSTOCK_FLOAT32, 0};
  rows.push_back({"look for what is not finite, float32", n * 4,
                  [=, &table](cudaStream_t stream) {
                    return table.find_nonfinite(kDevice, &floats, 1, stream);
                  },
                  [=] { return fetch(found, 1)[0] == 0; }});

  std::vector<uint16_t> halves(n);
  for (uint64_t i = 0; i < n; ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, &x[i], sizeof bits);
    halves[i] = static_cast<uint16_t>(bits >> 16);
  }
  auto* const widened = array<float>(n);
  const penstock_device_values wide{array(halves), widened, n, found, PENSTOCK_BFLOAT16, 0};
  rows.push_back(
      {"the same of bfloat16, widened", n * 6,
       [=, &table](cudaStream_t stream) { return table.find_nonfinite(kDevice, &wide, 1, stream); },
       [=] {
         std::vector<uint32_t> expected(n), got(n);
         for (uint64_t i = 0; i < n; ++i) expected[i] = uint32_t{halves[i]} << 16;
         const std::vector<float> values = fetch(widened, n);
         std::memcpy(got.data(), values.data(), n * sizeof(float));
         return fetch(found, 1)[0] == 0 && got == expected;
       }});
}

void add_copies(std::vector<Row>& rows, const penstock_device_table& table,
                const std::vector<float>& x) {
  constexpr uint64_t kCopies = 20;
  const uint64_t each = x.size() / kCopies;
  const float* const from = array(x);
  auto* const to = array<float>(x.size());
  std::vector<penstock_device_copy> copies;
  for (uint64_t i = 0; i < kCopies; ++i)
    copies.push_back({from + i * each, to + i * each, each, sizeof(float), 0});
  rows.push_back({"20 arrays copied within the device, at once", 2 * kCopies * each * sizeof(float),
                  [=, &table](cudaStream_t stream) {
                    return table.copy_many(kDevice, copies.data(), kCopies, stream);
                  },
                  [=, &x] {
                    return fetch(to, kCopies * each) ==
                           std::vector<float>(
                               x.begin(), x.begin() + static_cast<std::ptrdiff_t>(kCopies * each));
                  }});
}

}  // namespace

void add_table(std::vector<Row>& rows, const std::vector<float>& x, const std::string& library) {
  const penstock_device_table& table = load(library);
  add_look(rows, table, x);
  add_copies(rows, table, x);
}

}  // namespace penstock::kernels::cuda::bench
