#include <kernels/cuda/masking.hpp>

#include <memory>
#include <random>

#include "check.hpp"

namespace penstock::kernels::cuda::check {
namespace {

constexpr uint64_t kMark = 41;

// A momentum of n entries on the device, what is masked of it, and the same in plain loops.
struct Momentum {
  explicit Momentum(uint64_t n) : before(normal(n, 5)), there(n), values(n), indices(n), undo(2) {
    std::mt19937 random(static_cast<uint32_t>(n));
    for (uint64_t i = 0; i < n; i += 1 + random() % 9) chosen.push_back(static_cast<uint32_t>(i));
    sent = std::make_unique<Array<uint32_t>>(chosen);
  }
  Masked masked() const {
    return {there.data(), before.size(), values.data(), indices.data(), undo.data()};
  }
  void begin() {
    there.put(before);
    undo.put({7, 7});
  }
  std::vector<float> without_chosen() const {
    std::vector<float> rest = before;
    for (const uint32_t i : chosen) rest[i] = 0;
    return rest;
  }

  std::vector<float> before;
  std::vector<uint32_t> chosen;
  std::unique_ptr<Array<uint32_t>> sent;
  Array<float> there, values;
  Array<uint32_t> indices;
  Array<uint64_t> undo;
};

// What masks it, what is left of it, and what is noted.
void check_way(Momentum& of, const std::function<int32_t(void*)>& mask,
               const std::vector<float>& left, uint64_t count) {
  const uint64_t n = of.before.size();
  both_ways([&] { of.begin(); }, mask,
            [&] {
              REQUIRE(same_bits(of.there.host(), left), "masked", n, count);
              REQUIRE(of.undo.host() == std::vector<uint64_t>({kMark, count}), "noted", n, count);
            });
  // Another step's mark changes nothing; its own brings all back, once.
  for (const uint64_t mark : {kMark + 1, kMark}) {
    const bool is_own = mark == kMark;
    both_ways(
        [&] {
          of.begin();
          SUCCEED(mask(nullptr));
        },
        [&](void* s) { return unmask(of.masked(), mark, s); },
        [&] {
          REQUIRE(same_bits(of.there.host(), is_own ? of.before : left), "unmasked", n, mark);
          REQUIRE(of.undo.host()[0] == (is_own ? 0 : kMark), "undone", n, mark);
        });
  }
}

}  // namespace

void check_masking(const Extent& extent) {
  for (const uint64_t n : extent.sizes) {
    Momentum of(n);
    const uint64_t count = of.chosen.size();
    check_way(
        of, [&](void* s) { return mask_entries(of.masked(), of.sent->data(), count, kMark, s); },
        of.without_chosen(), count);
    check_way(
        of,
        [&](void* s) { return mask_entries_of_all(of.masked(), of.sent->data(), count, kMark, s); },
        of.without_chosen(), kMaskedAll);
    check_way(
        of, [&](void* s) { return mask_all(of.masked(), kMark, s); }, std::vector<float>(n),
        kMaskedAll);
  }
}

}  // namespace penstock::kernels::cuda::check
