// See sparse_oracle.hpp.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <penstock/views.hpp>
#include <support/coded.hpp>
#include <support/half.hpp>
#include <support/sparse_oracle.hpp>
#include <testing/data.hpp>

namespace penstock::test {

std::vector<uint32_t> by_magnitude(const std::vector<float>& x) {
  std::vector<uint32_t> order(x.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return std::fabs(x[a]) > std::fabs(x[b]); });
  return order;
}

std::vector<uint32_t> largest(const std::vector<float>& x, uint64_t k) {
  k = std::min<uint64_t>(k, x.size());
  if (k == 0) return {};
  std::vector<float> magnitudes(x.size());
  for (size_t i = 0; i < x.size(); ++i) magnitudes[i] = std::fabs(x[i]);
  const auto last = magnitudes.begin() + static_cast<std::ptrdiff_t>(k - 1);
  std::nth_element(magnitudes.begin(), last, magnitudes.end(), std::greater<>());
  const float least = *last;  // the smallest sent magnitude
  auto ties = static_cast<uint64_t>(std::count(magnitudes.begin(), last + 1, least));
  std::vector<uint32_t> chosen;
  for (uint32_t i = 0; i < x.size(); ++i) {
    const bool tie = std::fabs(x[i]) == least && ties > 0;
    if (std::fabs(x[i]) > least || tie) chosen.push_back(i);
    if (tie) --ties;
  }
  return chosen;
}

std::vector<float> only(const std::vector<float>& x, const std::vector<uint32_t>& chosen) {
  std::vector<float> dense(x.size());
  for (const uint32_t i : chosen) dense[i] = x[i];
  return dense;
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

// Zero has no sign, so nothing is sent for it.
static std::vector<float> means_of_signs(const std::vector<float>& values) {
  double above = 0, below = 0, n_above = 0, n_below = 0;
  for (const float value : values) {
    if (value > 0) above += double{value}, n_above += 1;
    if (value < 0) below += double{value}, n_below += 1;
  }
  std::vector<float> means;
  for (const float value : values)
    means.push_back(static_cast<float>(value > 0   ? above / n_above
                                       : value < 0 ? below / n_below
                                                   : 0.0));
  return means;
}

std::vector<float> rounded_to(const std::string& value_type, const std::vector<float>& values) {
  if (value_type == "fp32") return values;
  if (value_type == "sign") return means_of_signs(values);
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::fabs(value));
  const float scale = largest / 127;
  const int power = std::clamp(largest > 0 ? std::ilogb(largest) - 14 : -126, -126, 112);
  std::vector<float> rounded;
  for (const float value : values) {
    float result = 0;
    if (value_type == "fp16") {
      const float code = from_float16(to_float16(std::ldexp(value, -power)));
      result = std::ldexp(std::isinf(code) ? std::copysign(65504.0f, code) : code, power);
    }
    if (value_type == "bf16") result = from_bfloat16(to_bfloat16(value));
    if (value_type == "int8" && scale > 0)
      result = std::clamp(std::nearbyint(value / scale), -127.0f, 127.0f) * scale;
    if (std::isinf(result)) result = std::copysign(from_bfloat16(0x7f7f), value);
    rounded.push_back(result);
  }
  return rounded;
}

std::vector<float> only_as(const std::string& value_type, const std::vector<float>& x,
                           const std::vector<uint32_t>& chosen, std::optional<uint64_t> room) {
  if (value_type == "auto") {
    const uint64_t most = room.value_or(chosen.size());
    return only_as(most >= 8 && most < x.size() ? "fp16" : "fp32", x, chosen);
  }
  std::vector<float> values;
  for (const uint32_t i : chosen) values.push_back(x[i]);
  const std::vector<float> rounded = rounded_to(value_type, values);
  std::vector<float> dense(x.size());
  for (size_t j = 0; j < chosen.size(); ++j) dense[chosen[j]] = rounded[j];
  return dense;
}

void expect_any_scale_arrives_alike(const LoadedPlugin& plugin, const OptionSettings& options) {
  const std::vector<Shape> shapes{{30, 40}, {57}};
  const auto run = [&](int exponent) {
    CompressorRig rig({.ranks = 3, .check_mass = true}, shapes, plugin, options,
                      load_plugin("memory", "residual"));
    RankTensors all;  // the means of the steps, then the work of each rank
    for (uint64_t step = 0; step < 5; ++step) {
      RankTensors gradients = draw_gradients(heavy_tailed, 3, {1200, 57}, step);
      for (Tensors& of_rank : gradients)
        for (std::vector<float>& gradient : of_rank)
          for (float& value : gradient) value = std::ldexp(value, exponent);
      all.push_back(rig.step(gradients));
    }
    for (uint32_t r = 0; r < 3; ++r) all.push_back({rig.work(r, 0), rig.work(r, 1)});
    for (Tensors& tensors : all)
      for (std::vector<float>& tensor : tensors)
        for (float& value : tensor) value = std::ldexp(value, -exponent);
    return all;
  };
  const RankTensors expected = run(0);
  for (const int exponent : {-40, 40})  // 1e-12 and 1e12
    EXPECT_EQ(run(exponent), expected) << "gradients times 2^" << exponent;
}

namespace {
const char* const kFromRank1 = "rank 1 for gradient 'gradient0'";
}  // namespace

void expect_narrow_payloads_are_input(CompressorRig& rig) {
  const auto good = [&] {
    auto payload = std::make_unique<OwnedPayload>(rig.need(0).rounds[0].sections, 1);
    for (uint64_t s = 0; s < payload->n_sections(); ++s) {
      penstock_section& section = payload->section(s);
      std::memset(section.data, 0, section.capacity * sdk::dtype_bytes(section.dtype));
      section.count = section.capacity;
      if (section.role == PENSTOCK_ROLE_SCALES) *static_cast<float*>(section.data) = 1;
    }
    auto* indices = static_cast<uint32_t*>(payload->section(0).data);
    for (uint32_t j = 0; j < payload->section(0).count; ++j) indices[j] = j;
    payload->c()->kind = PENSTOCK_PAYLOAD_SPARSE;
    return payload;
  };
  const auto refused = [&](OwnedPayload& payload) { return refuses(rig, payload, kFromRank1); };
  EXPECT_TRUE(decode_once(rig, *good()).ok());
  PayloadPointer payload = good();
  static_cast<uint32_t*>(payload->section(0).data)[2] = static_cast<uint32_t>(rig.numel(0));
  EXPECT_TRUE(refused(*payload)) << "an index out of range";
  payload = good();
  payload->section(1).count -= 1;
  EXPECT_TRUE(refused(*payload)) << "fewer values than indices";
  payload = good();
  payload->section(1).dtype = PENSTOCK_FLOAT64;
  EXPECT_TRUE(refused(*payload)) << "values of another dtype";
  payload = good();
  payload->c()->kind = PENSTOCK_PAYLOAD_CODED;
  EXPECT_TRUE(refused(*payload)) << "coded";
  if (good()->n_sections() < 3) return;
  std::vector<float> wrong{-1.0f, std::nanf(""), std::numeric_limits<float>::infinity()};
  if (good()->section(1).dtype == PENSTOCK_FLOAT16)  // not a power of two, or beyond the legal ones
    wrong.insert(wrong.end(), {0.0f, -0.0f, 3.0f, 1e-45f, 0x1p-127f, 0x1p113f, 0x1.000002p0f});
  for (const float scale : wrong) {
    payload = good();
    static_cast<float*>(payload->section(2).data)[0] = scale;
    EXPECT_TRUE(refused(*payload)) << "scale " << scale;
  }
  payload = good();
  payload->section(2).count = 0;
  EXPECT_TRUE(refused(*payload)) << "no scale";
}

void expect_sign_payloads_are_input(CompressorRig& rig) {
  const auto good = [&] {
    auto payload = std::make_unique<OwnedPayload>(rig.need(0).rounds[0].sections, 1);
    for (const uint32_t j : {0u, 1u, 2u}) entry<uint32_t>(*payload, 0, j) = 5 * j;
    entry<uint64_t>(*payload, 1, 0) = 2;
    entry<float>(*payload, 2, 0) = 1.5f;
    entry<float>(*payload, 2, 1) = 4;
    payload->section(0).count = 3;
    payload->section(1).count = 1;
    payload->section(2).count = 2;
    payload->c()->kind = PENSTOCK_PAYLOAD_CODED;
    return payload;
  };
  const auto refused = [&](const std::function<void(OwnedPayload&)>& change) {
    const PayloadPointer payload = good();
    change(*payload);
    return refuses(rig, *payload, kFromRank1);
  };
  EXPECT_TRUE(decode_once(rig, *good()).ok());
  const auto* out = static_cast<const float*>(rig.compressor_item(0, 0)->out.data);
  EXPECT_EQ(std::vector<float>(out, out + 16),
            (std::vector<float>{1.5f, 0, 0, 0, 0, -4, 0, 0, 0, 0, 1.5f, 0, 0, 0, 0, 0}));
  for (const uint32_t index : {16u, UINT32_MAX})
    EXPECT_TRUE(refused([&](OwnedPayload& p) { entry<uint32_t>(p, 0, 2) = index; })) << index;
  EXPECT_TRUE(refused([](OwnedPayload& p) { entry<uint32_t>(p, 0, 1) = 11; })) << "no ascent";
  for (const auto& [section, count] : {std::pair{0, 9}, {1, 0}, {1, 2}, {2, 0}, {2, 1}, {2, 3}})
    EXPECT_TRUE(refused([&, s = section, c = count](OwnedPayload& p) {
      p.section(static_cast<uint64_t>(s)).count = static_cast<uint64_t>(c);
    })) << count
        << " elements in section " << section;
  EXPECT_TRUE(refused([](OwnedPayload& p) { p.section(0).count = 0; })) << "means of no entry";
  for (const uint64_t mean : {0, 1})
    for (const float wrong : {-1.0f, std::nanf(""), std::numeric_limits<float>::infinity()})
      EXPECT_TRUE(refused([&](OwnedPayload& p) { entry<float>(p, 2, mean) = wrong; })) << wrong;
  for (const uint32_t kind : {uint32_t{PENSTOCK_PAYLOAD_SPARSE}, uint32_t{PENSTOCK_PAYLOAD_DENSE}})
    EXPECT_TRUE(refused([&](OwnedPayload& p) { p.c()->kind = kind; })) << "kind " << kind;
}

void expect_sparse_payloads_are_input(CompressorRig& rig) {
  const auto n = static_cast<uint32_t>(rig.numel(0));
  const auto refused = [&](OwnedPayload& payload) { return refuses(rig, payload, kFromRank1); };
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
  EXPECT_TRUE(decode_once(rig, *payload).ok());
  const auto* out = static_cast<const float*>(rig.compressor_item(0, 0)->out.data);
  EXPECT_EQ(std::vector<float>(out, out + 3), (std::vector<float>{1, 2, 3}));
}

}  // namespace penstock::test
