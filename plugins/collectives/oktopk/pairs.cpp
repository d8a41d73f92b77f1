// See pairs.hpp.
#include "pairs.hpp"

#include <algorithm>
#include <functional>

namespace penstock::oktopk {

bool ascends(std::span<const Pair> pairs, uint64_t first, uint64_t end) {
  uint64_t least = first;
  for (const Pair& pair : pairs) {
    if (pair.position < least || pair.position >= end) return false;
    least = uint64_t(pair.position) + 1;
  }
  return true;
}

void equal_count_splits(std::span<const Pair> pairs, uint64_t n_elements, uint32_t parts,
                        uint64_t* splits) {
  for (uint64_t j = 1; j < parts; ++j)
    splits[j - 1] =
        pairs.empty() ? n_elements * j / parts : uint64_t(pairs[pairs.size() * j / parts].position);
}

void add_to(std::vector<Pair>& sum, std::span<const Pair> addend, std::vector<Pair>& spare) {
  spare.resize(sum.size() + addend.size());
  Pair* out = spare.data();
  const Pair* a = sum.data();
  const Pair* const a_end = a + sum.size();
  const Pair* b = addend.data();
  const Pair* const b_end = b + addend.size();
  while (a != a_end && b != b_end) {
    if (a->position < b->position) {
      *out++ = *a++;
    } else if (b->position < a->position) {
      *out++ = *b++;
    } else {
      *out++ = {a->position, a->value + b->value};
      ++a;
      ++b;
    }
  }
  out = std::copy(a, a_end, out);
  out = std::copy(b, b_end, out);
  spare.resize(static_cast<size_t>(out - spare.data()));
  sum.swap(spare);
}

Survival exact_survival(std::span<const uint32_t> all, uint64_t mine, uint64_t k,
                        std::vector<uint32_t>& ranked) {
  Survival survival;
  if (all.size() <= k) {
    survival.least = all.empty() ? 0 : *std::min_element(all.begin(), all.end());
    survival.theta = std::bit_cast<float>(survival.least);
    return survival;
  }
  if (k == 0) {
    survival.ties = 0;
    survival.least = *std::max_element(all.begin(), all.end());
    survival.theta = std::bit_cast<float>(survival.least);
    return survival;
  }
  ranked.assign(all.begin(), all.end());
  const auto kth = ranked.begin() + static_cast<std::ptrdiff_t>(k - 1);
  std::nth_element(ranked.begin(), kth, ranked.end(), std::greater<>());
  survival.least = *kth;
  survival.theta = std::bit_cast<float>(*kth);
  const auto larger = static_cast<uint64_t>(
      std::count_if(ranked.begin(), kth, [&](uint32_t bits) { return bits > survival.least; }));
  const auto before = static_cast<uint64_t>(
      std::count(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(mine), survival.least));
  const uint64_t ties = k - larger;
  survival.ties = ties > before ? ties - before : 0;
  return survival;
}

void keep_survivors(std::vector<Pair>& sums, Survival survival) {
  std::erase_if(sums, [&](const Pair& pair) {
    const uint32_t bits = magnitude(pair.value);
    if (bits == 0) return !survival.zeros;
    if (bits != survival.least) return bits < survival.least;
    if (survival.ties == 0) return true;
    --survival.ties;
    return false;
  });
}

}  // namespace penstock::oktopk
