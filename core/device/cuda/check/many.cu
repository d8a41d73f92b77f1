#include "core/device/cuda/check/check.hpp"

#include <cmath>
#include <vector>

namespace penstock::device_check {

// More arrays than one launch takes, of all sizes. Every third array has a NaN.
void check_many_arrays(int32_t device) {
  constexpr uint64_t kArrays = 300;
  std::vector<uint64_t> begins{0};
  for (uint64_t i = 0; i < kArrays; ++i) begins.push_back(begins[i] + i * 37 % 5000);
  const Streams streams(device);
  OnHost<float> values(device, begins[kArrays]);
  OnHost<uint32_t> is_found(device, kArrays);
  const OnDevice<float> there(device, begins[kArrays]);
  const OnDevice<uint32_t> found(device, kArrays);
  std::vector<penstock_device_values> arrays;
  for (uint64_t i = 0; i < kArrays; ++i) {
    for (uint64_t j = begins[i]; j < begins[i + 1]; ++j) values[j] = 1;
    if (i % 3 == 0 && begins[i] < begins[i + 1]) values[begins[i + 1] - 1] = NAN;
    arrays.push_back(
        {there.data + begins[i], nullptr, begins[i + 1] - begins[i], found.data + i, kFloat32, 0});
  }
  values.send(there.data, begins[kArrays], streams.first);
  SUCCEED(clear, device, found.data, kArrays * sizeof(uint32_t), streams.first);
  SUCCEED(find_nonfinite, device, arrays.data(), kArrays, streams.first);
  is_found.bring(found.data, kArrays, streams.first);
  for (uint64_t i = 0; i < kArrays; ++i)
    REQUIRE(is_found[i] == (i % 3 == 0 && arrays[i].count > 0 ? 1u : 0u));
}

// Lists of indices, copied first. By turns a list repeats an index, ends too high, or is right.
void check_many_lists(int32_t device) {
  constexpr uint64_t kLists = 250, kMost = 5000;
  const Streams streams(device);
  OnHost<uint32_t> indices(device, kLists * kMost), is_wrong(device, kLists);
  const OnDevice<uint32_t> there(device, kLists * kMost), twin(device, kLists * kMost);
  const OnDevice<uint32_t> wrong(device, kLists);
  std::vector<penstock_index_list> lists;
  std::vector<penstock_device_copy> copies;
  for (uint64_t i = 0; i < kLists; ++i) {
    const uint64_t first = i * kMost, count = i * 53 % kMost;
    for (uint64_t j = 0; j < kMost; ++j) indices[first + j] = static_cast<uint32_t>(2 * j);
    if (i % 3 == 0 && count > 1) indices[first + count - 1] = indices[first + count - 2];
    if (i % 3 == 1 && count > 0) indices[first + count - 1] = static_cast<uint32_t>(2 * count);
    lists.push_back({twin.data + first, count, 2 * count, wrong.data + i});
    copies.push_back({there.data + first, twin.data + first, count, sizeof(uint32_t), 0});
  }
  indices.send(there.data, kLists * kMost, streams.first);
  SUCCEED(copy_many, device, copies.data(), kLists, streams.first);
  SUCCEED(clear, device, wrong.data, kLists * sizeof(uint32_t), streams.first);
  SUCCEED(check_indices, device, lists.data(), kLists, streams.first);
  is_wrong.bring(wrong.data, kLists, streams.first);
  for (uint64_t i = 0; i < kLists; ++i) {
    const uint64_t count = lists[i].count;
    REQUIRE(is_wrong[i] == ((i % 3 == 0 && count > 1) || (i % 3 == 1 && count > 0) ? 1u : 0u));
  }
}

}  // namespace penstock::device_check
