// See sparse_oracle.hpp.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <penstock/views.hpp>
#include <support/data.hpp>
#include <support/half.hpp>
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

std::vector<float> rounded_to(const std::string& value_type, const std::vector<float>& values) {
  if (value_type == "fp32") return values;
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::fabs(value));
  const float scale = largest / 127;
  std::vector<float> rounded;
  for (const float value : values) {
    float result = 0;
    if (value_type == "fp16") result = from_float16(to_float16(value));
    if (value_type == "bf16") result = from_bfloat16(to_bfloat16(value));
    if (value_type == "int8" && scale > 0)
      result = std::clamp(std::nearbyint(value / scale), -127.0f, 127.0f) * scale;
    if (std::isinf(result))
      result = std::copysign(value_type == "fp16" ? 65504.0f : from_bfloat16(0x7f7f), value);
    rounded.push_back(result);
  }
  return rounded;
}

void send_as(const std::string& value_type, const std::vector<uint32_t>& chosen,
             std::vector<float>& work, std::vector<float>& total) {
  std::vector<float> values;
  for (const uint32_t i : chosen) values.push_back(work[i]);
  const std::vector<float> rounded = rounded_to(value_type, values);
  for (size_t j = 0; j < chosen.size(); ++j) {
    total[chosen[j]] += rounded[j];
    work[chosen[j]] -= rounded[j];
  }
}

void expect_folding_changes_no_bit(const LoadedPlugin& compressor, const OptionSettings& options,
                                   const std::vector<Shape>& shapes, double mass_tolerance) {
  struct Memory {
    const char* name;
    OptionSettings options;
    const char* states[2];
  };
  const Memory memories[] = {
      {"residual", {{"beta", 0.75}, {"gamma", 1.5}}, {"residual", "residual"}},
      {"dgc", {}, {"velocity", "momentum"}},
      {"dgc", {{"nesterov", true}}, {"velocity", "momentum"}}};
  for (const Memory& memory : memories)
    for (const Distribution& distribution : distributions()) {
      RigSettings settings{.ranks = 2, .check_mass = true, .mass_tolerance = mass_tolerance};
      const LoadedPlugin plugin = load_plugin("memory", memory.name);
      CompressorRig two_sweeps(settings, shapes, compressor, options, plugin, memory.options);
      settings.fold = true;
      CompressorRig one_sweep(settings, shapes, compressor, options, plugin, memory.options);
      std::vector<uint64_t> numels;
      for (uint64_t i = 0; i < two_sweeps.n_items(); ++i) numels.push_back(two_sweeps.numel(i));
      for (uint64_t step = 0; step < 20; ++step) {
        const RankTensors gradients = draw_gradients(distribution.draw, 2, numels, step);
        StepSettings how;
        if (step % 5 == 2) how.grad_scale = 1024;
        if (step % 7 == 3) how.void_rank = 1;
        if (step % 6 == 4) how.applied = false;
        const Tensors expected = two_sweeps.step(gradients, how);
        const Tensors found = one_sweep.step(gradients, how);
        for (uint64_t i = 0; i < numels.size(); ++i) {
          if (!how.void_rank) {
            ASSERT_EQ(found[i], expected[i]) << distribution.name;
          }
          for (const char* state : memory.states)
            for (uint32_t r = 0; r < 2; ++r)
              ASSERT_EQ(one_sweep.memory_state(r, i, state), two_sweeps.memory_state(r, i, state))
                  << distribution.name << ", " << memory.name << ", " << state << ", step " << step;
        }
      }
    }
}

void expect_narrow_payloads_are_input(CompressorRig& rig) {
  const penstock_step step = rig.step_facts(0);
  const penstock_exec exec = rig.exec();
  penstock_item* item = rig.compressor_item(0, 0);
  const auto decode = [&](OwnedPayload& payload) {
    const penstock_payload* pointer = payload.c();
    const auto& compressor = rig.compressor(0);
    return compressor.table().decode(compressor.self(), &exec, &step, 0, &item, 1, &pointer, 1,
                                     PENSTOCK_DECODE_FIRST | PENSTOCK_DECODE_LAST);
  };
  const auto good = [&] {
    auto payload = std::make_unique<OwnedPayload>(rig.need(0).rounds[0].sections, 1);
    for (uint64_t s = 0; s < payload->n_sections(); ++s) {
      penstock_section& section = payload->section(s);
      std::memset(section.data, 0, section.capacity * sdk::dtype_bytes(section.dtype));
      section.count = section.capacity;
    }
    auto* indices = static_cast<uint32_t*>(payload->section(0).data);
    for (uint32_t j = 0; j < payload->section(0).count; ++j) indices[j] = j;
    payload->c()->kind = PENSTOCK_PAYLOAD_SPARSE;
    return payload;
  };
  const auto refused = [&](OwnedPayload& payload) {
    return fails_with(decode(payload), PENSTOCK_INVALID_PAYLOAD, "rank 1 for gradient 'gradient0'");
  };
  PENSTOCK_EXPECT_OK(decode(*good()));
  PayloadPointer payload = good();
  static_cast<uint32_t*>(payload->section(0).data)[2] = static_cast<uint32_t>(item->numel);
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
  for (const float scale : {-1.0f, std::nanf(""), std::numeric_limits<float>::infinity()}) {
    payload = good();
    static_cast<float*>(payload->section(2).data)[0] = scale;
    EXPECT_TRUE(refused(*payload)) << "scale " << scale;
  }
  payload = good();
  payload->section(2).count = 0;
  EXPECT_TRUE(refused(*payload)) << "no scale";
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
