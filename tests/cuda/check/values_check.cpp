// Conversions, narrow types, single entries, packed codes, random numbers.
#include <kernels/convert.hpp>
#include <kernels/cuda/sparse_sum.hpp>
#include <kernels/cuda/values.hpp>
#include <kernels/narrow_values.hpp>
#include <kernels/pack_bits.hpp>
#include <kernels/random_normal.hpp>
#include <kernels/scatter.hpp>
#include "check.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <deque>
#include <random>

namespace penstock::kernels::cuda::check {
namespace {

template <typename From, typename To>
void check_conversion(const std::vector<From>& source,
                      void (*on_host)(const From*, To*, uint64_t) noexcept,
                      int32_t (*on_device)(const From*, To*, uint64_t, void*) noexcept) {
  const uint64_t n = source.size();
  std::vector<To> expected(n);
  on_host(source.data(), expected.data(), n);
  Array<From> from(source);
  Array<To> to(n);
  both_ways([&] { to.spoil(); }, [&](void* s) { return on_device(from.data(), to.data(), n, s); },
            [&] { REQUIRE(same_bits(to.host(), expected), "conversion", n); });
}

// Every 16-bit float, and floats of all exponents and both signs with mantissas around ties.
void check_conversions() {
  std::vector<uint16_t> all(65536);
  for (uint32_t bits = 0; bits < 65536; ++bits) all[bits] = static_cast<uint16_t>(bits);
  check_conversion(all, kernels::halves_to_floats, halves_to_floats);
  check_conversion(all, kernels::bfloat16s_to_floats, bfloat16s_to_floats);
  std::vector<float> floats;
  for (uint32_t upper = 0; upper < 65536; upper += 7)
    for (const uint32_t lower : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xefffu, 0xf000u, 0xffffu})
      floats.push_back(std::bit_cast<float>(upper << 16 | lower));
  check_conversion(floats, kernels::floats_to_halves, floats_to_halves);
  check_conversion(floats, kernels::floats_to_bfloat16s, floats_to_bfloat16s);
}

void check_widen(const Input& input, ValueType type, uint64_t width) {
  const uint64_t n = input.x.size();
  const std::string what = describe(input.name, n, width);
  float largest = 0;
  for (const float x : input.x) largest = std::max(largest, std::fabs(x));
  const float scale = kernels::value_scale(type, largest);
  std::vector<float> rounded = input.x, widened(n);
  std::vector<uint8_t> bytes(n * width);
  kernels::narrow_values(type, rounded.data(), n, bytes.data(), scale);
  kernels::widen_values(type, bytes.data(), n, widened.data(), scale);
  Array<float> out(n), scale_at(std::vector<float>{scale});
  const Array<uint8_t> narrow(bytes);
  both_ways(
      [&] { out.spoil(); },
      [&](void* s) { return widen_values(type, narrow.data(), n, out.data(), scale_at.data(), s); },
      [&] { REQUIRE(same_bits(out.host(), widened), what); });
}

// Indices below n, or some beyond n; ascending or not; single or repeated.
void check_entries(std::vector<uint32_t> indices, uint64_t n, const char* name) {
  const uint64_t count = indices.size();
  const std::vector<float> values = normal(count, 5), before = normal(n, 6);
  std::vector<float> added = before, zeroed = before, gathered(count, 0.25f);
  const uint64_t good = kernels::scatter_add(indices.data(), values.data(), count, added.data(), n);
  (void)kernels::zero_at(indices.data(), count, zeroed.data(), n);
  (void)kernels::gather(before.data(), n, indices.data(), count, gathered.data());
  const Array<uint32_t> at(indices);
  const Array<float> from(values);
  Array<float> array(n), found(count);
  Array<uint64_t> good_at(1);
  Scratch scratch(kScatterWorkspaceBytes);
  const auto prepare = [&] {
    array.put(before), good_at.spoil(), scratch.spoil();
    found.put(std::vector<float>(count, 0.25f));
  };
  const auto verify = [&](const std::vector<float>& expected) {
    REQUIRE(good_at.host()[0] == good, name, n, count);
    REQUIRE(same_bits(array.host(), expected), name, n, count);
  };
  both_ways(
      prepare,
      [&](void* s) {
        return scatter_add(at.data(), from.data(), count, array.data(), n, good_at.data(),
                           scratch.get(), s);
      },
      [&] { verify(added); });
  both_ways(
      prepare,
      [&](void* s) { return zero_at(at.data(), count, array.data(), n, good_at.data(), s); },
      [&] { verify(zeroed); });
  both_ways(
      prepare,
      [&](void* s) {
        return gather(array.data(), n, at.data(), count, found.data(), good_at.data(), s);
      },
      [&] {
        verify(before);
        REQUIRE(same_bits(found.host(), gathered), name, n, count);
      });
}

void check_scatter(uint64_t n) {
  std::mt19937 random(static_cast<uint32_t>(n));
  std::vector<uint32_t> ascending, repeated;
  for (uint64_t i = random() % 3; i < n; i += 1 + random() % 5)
    ascending.push_back(static_cast<uint32_t>(i));
  for (uint64_t j = 0; j < std::min<uint64_t>(n, 3000); ++j)
    repeated.push_back(static_cast<uint32_t>(random() % std::min<uint64_t>(n, 40)));
  check_entries(ascending, n, "ascending");
  check_entries(repeated, n, "repeated");
  for (auto* indices : {&ascending, &repeated}) {
    if (indices->empty()) indices->push_back(0);
    (*indices)[indices->size() / 2] = static_cast<uint32_t>(n);
    indices->push_back(0xffffffffu);
    check_entries(*indices, n, "out of range");
  }
}

void check_packing(uint64_t n, unsigned bits) {
  std::mt19937 random(bits);
  std::vector<uint8_t> codes(n), unpacked(n);
  for (uint8_t& code : codes) code = static_cast<uint8_t>(random());
  std::vector<uint64_t> words(packed_words(n, bits));
  kernels::pack_bits(codes.data(), n, bits, words.data());
  kernels::unpack_bits(words.data(), n, bits, unpacked.data());
  const Array<uint8_t> from(codes);
  Array<uint64_t> packed(words.size());
  Array<uint8_t> back(n);
  both_ways([&] { packed.spoil(), back.spoil(); },
            [&](void* s) {
              const int32_t error = pack_bits(from.data(), n, bits, packed.data(), s);
              return error != 0 ? error : unpack_bits(packed.data(), n, bits, back.data(), s);
            },
            [&] {
              REQUIRE(same_bits(packed.host(), words), "packed", n, bits);
              REQUIRE(same_bits(back.host(), unpacked), "unpacked", n, bits);
            });
}

void check_random(uint64_t n, uint64_t first) {
  const RandomKey key = random_key({9, 8, 7, 6});
  std::vector<uint32_t> words(n);
  std::vector<float> uniform(n), normals(n);
  kernels::random_words(key, first, n, words.data(), kernels::widest_code_path());
  kernels::random_uniform(key, first, n, uniform.data(), kernels::widest_code_path());
  kernels::random_normal(3, 2, 1, first, n, normals.data());
  Array<uint32_t> got_words(n);
  Array<float> got_uniform(n), got_normals(n);
  both_ways([&] { got_words.spoil(), got_uniform.spoil(), got_normals.spoil(); },
            [&](void* s) {
              int32_t error = random_words(key, first, n, got_words.data(), s);
              if (error == 0) error = random_uniform(key, first, n, got_uniform.data(), s);
              return error != 0 ? error : random_normal(3, 2, 1, first, n, got_normals.data(), s);
            },
            [&] {
              REQUIRE(same_bits(got_words.host(), words), "words", n, first);
              REQUIRE(same_bits(got_uniform.host(), uniform), "uniform", n, first);
              REQUIRE(same_bits(got_normals.host(), normals), "normal", n, first);
            });
}

// Senders whose entries share some places. The first sender has every entry, the last has none.
void check_sparse_sum(uint64_t n, uint64_t n_senders) {
  std::mt19937 random(static_cast<uint32_t>(n + n_senders));
  std::deque<Array<uint32_t>> indices;
  std::deque<Array<float>> values;
  std::vector<SparseSender> senders;
  std::vector<float> before = normal(n, 8), sums[2] = {std::vector<float>(n), before};
  for (uint64_t s = 0; s < n_senders; ++s) {
    std::vector<uint32_t> chosen;
    const uint64_t most = s + 1 == n_senders && s > 0 ? 0 : n;
    for (uint64_t i = 0; i < most; i += s == 0 ? 1 : 1 + random() % 9)
      chosen.push_back(static_cast<uint32_t>(i));
    const std::vector<float> sent = normal(chosen.size(), 10 + s);
    for (std::vector<float>& sum : sums)
      for (uint64_t j = 0; j < chosen.size(); ++j) sum[chosen[j]] += sent[j];
    senders.push_back(
        {indices.emplace_back(chosen).data(), values.emplace_back(sent).data(), chosen.size()});
  }
  Array<float> out(n);
  for (const SumOver over : {SumOver::kZeros, SumOver::kWhatIsThere})
    for (const float scale : {1.0f, 1.0f / 3}) {
      std::vector<float> expected = sums[over == SumOver::kZeros ? 0 : 1];
      if (scale != 1)
        for (float& value : expected) value *= scale;
      both_ways([&] { out.put(before); },
                [&](void* s) { return sum_sparse(senders, over, scale, out.data(), n, s); },
                [&] { REQUIRE(same_bits(out.host(), expected), "sparse sum", n, n_senders); });
    }
}

}  // namespace

void check_values(const Extent& extent) {
  check_conversions();
  for (const uint64_t n : extent.sizes) {
    for (const Input& input : extent.inputs(n, false)) {
      check_widen(input, ValueType::kFloat32, 4);
      check_widen(input, ValueType::kFloat16, 2);
      check_widen(input, ValueType::kBfloat16, 2);
      check_widen(input, ValueType::kInt8, 1);
    }
    check_scatter(n);
    for (const uint64_t n_senders : {uint64_t{0}, uint64_t{1}, uint64_t{5}, kMostSenders})
      check_sparse_sum(n, n_senders);
    for (unsigned bits = 1; bits <= kMaxPackedBits; ++bits) check_packing(n, bits);
    for (const uint64_t first : {uint64_t{0}, (uint64_t{1} << 32) - 100}) check_random(n, first);
  }
}

}  // namespace penstock::kernels::cuda::check
