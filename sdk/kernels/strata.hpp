// k of n positions that every rank with the key draws equally. The n entries form a ring that
// starts at a random place. The ring is cut into k strata, of which the first n mod k are longer by
// one entry; each stratum gives one position. Over all starts every entry is chosen with
// probability k / n, exactly.
#pragma once

#include <kernels/random_uniform.hpp>

#include <cstdint>

namespace penstock::kernels {

class Strata {
 public:
  // 1 <= k <= n < 2^32; `word` chooses where the ring starts.
  constexpr Strata(uint64_t n, uint64_t k, uint32_t word)
      : n_(n), k_(k), stratum_(n / k), longer_(n % k), start_(share(word, n)) {}

  constexpr uint64_t n() const { return n_; }
  constexpr uint64_t k() const { return k_; }

  // The position that draw `draw` < k gives; `word` is the random word of this draw.
  [[gnu::always_inline]] constexpr uint32_t position(uint64_t draw, uint32_t word) const {
    const uint64_t begins = draw * stratum_ + (draw < longer_ ? draw : longer_);
    const uint64_t size = stratum_ + (draw < longer_ ? 1 : 0);
    const uint64_t position = start_ + begins + share(word, size);
    return static_cast<uint32_t>(position < n_ ? position : position - n_);
  }

 private:
  // A number below `size`; all are equally likely, apart from 2^-32 of size.
  static constexpr uint64_t share(uint32_t word, uint64_t size) { return word * size >> 32; }

  uint64_t n_;
  uint64_t k_;
  uint64_t stratum_;
  uint64_t longer_;
  uint64_t start_;
};

}  // namespace penstock::kernels
