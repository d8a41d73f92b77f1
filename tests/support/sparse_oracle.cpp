// See sparse_oracle.hpp.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <support/sparse_oracle.hpp>

namespace penstock::test {

std::vector<uint32_t> by_magnitude(const std::vector<float>& x) {
  std::vector<uint32_t> order(x.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return std::fabs(x[a]) > std::fabs(x[b]); });
  return order;
}

std::vector<uint32_t> largest(const std::vector<float>& x, uint64_t k) {
  std::vector<uint32_t> order = by_magnitude(x);
  order.resize(std::min<uint64_t>(k, order.size()));
  std::sort(order.begin(), order.end());
  return order;
}

uint64_t kept_of(uint64_t n, double share) {
  const auto millionths = static_cast<uint64_t>(std::llround(share * 1e6));
  const uint64_t k = (n * millionths + 999999) / 1000000;
  return std::min(n, std::max<uint64_t>(k, 1));
}

void send(const std::vector<uint32_t>& chosen, std::vector<float>& work,
          std::vector<float>& total) {
  for (const uint32_t i : chosen) {
    total[i] += work[i];
    work[i] = 0;
  }
}

void expect_sparse_payloads_are_input(CompressorRig& rig) {
  const penstock_step step = rig.step_facts(0);
  const penstock_exec exec = rig.exec();
  penstock_item* item = rig.compressor_item(0, 0);
  const auto decode = [&](OwnedPayload& payload) {
    const penstock_payload* pointer = payload.c();
    const auto& compressor = rig.compressor(0);
    return compressor.table().decode(compressor.self(), &exec, &step, 0, &item, 1, &pointer, 1,
                                     PENSTOCK_DECODE_FIRST | PENSTOCK_DECODE_LAST);
  };
  const auto n = static_cast<uint32_t>(item->numel);
  const char* whose = "rank 1 for gradient 'gradient0'";
  const auto refused = [&](OwnedPayload& payload) {
    return fails_with(decode(payload), PENSTOCK_INVALID_PAYLOAD, whose);
  };
  for (const uint32_t index : {n, n + 1, UINT32_MAX})
    EXPECT_TRUE(refused(*sparse_payload({0, index, 1}, {1, 2, 3}, 1))) << "index " << index;
  PayloadPointer payload = sparse_payload({0, 1, 2}, {1, 2, 3}, 1);
  payload->section(1).count = 2;
  EXPECT_TRUE(refused(*payload)) << "fewer values than indices";
  payload->section(0).count = payload->section(1).count = UINT64_MAX;
  EXPECT_TRUE(refused(*payload)) << "a count above the capacity";
  payload->section(0).count = payload->section(1).count = 3;
  for (const uint32_t kind :
       {0u, uint32_t{PENSTOCK_PAYLOAD_DENSE}, uint32_t{PENSTOCK_PAYLOAD_CODED}, 77u}) {
    payload->c()->kind = kind;
    EXPECT_TRUE(refused(*payload)) << "kind " << kind;
  }
  payload->c()->kind = PENSTOCK_PAYLOAD_SPARSE;
  payload->section(1).dtype = PENSTOCK_FLOAT64;
  EXPECT_TRUE(refused(*payload)) << "values of another dtype";
  payload->section(1).dtype = PENSTOCK_FLOAT32;
  payload->c()->n_sections = 1;
  EXPECT_TRUE(refused(*payload)) << "no values";
  payload->c()->n_sections = 2;
  PENSTOCK_EXPECT_OK(decode(*payload));
  const float* out = static_cast<const float*>(item->out.data);
  EXPECT_EQ(std::vector<float>(out, out + 3), (std::vector<float>{1, 2, 3}));
}

}  // namespace penstock::test
