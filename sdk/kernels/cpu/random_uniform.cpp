// See random_uniform.hpp. One loop is compiled for several instruction sets; integers have no
// rounding that could differ.
#include <kernels/random_uniform.hpp>

#include <algorithm>

namespace penstock::kernels {
namespace {

struct AsWord {
  using Result = uint32_t;
  [[gnu::always_inline]] static uint32_t of(uint32_t word) { return word; }
};
struct AsNumber {
  using Result = float;
  [[gnu::always_inline]] static float of(uint32_t word) { return unit_interval(word); }
};

// Fills elements that all lie in one block.
template <typename As>
[[gnu::always_inline]] inline void fill_block(RandomBlock block, uint32_t first, uint64_t count,
                                              typename As::Result* out) {
  for (uint64_t k = 0; k < count; ++k)
    out[k] = As::of(random_word(block, first + static_cast<uint32_t>(k)));
}

template <typename As>
void fill_portable(RandomBlock block, uint32_t first, uint64_t count, typename As::Result* out) {
  fill_block<As>(block, first, count, out);
}
#if defined(__x86_64__)
template <typename As>
__attribute__((target("avx2"))) void fill_avx2(RandomBlock block, uint32_t first, uint64_t count,
                                               typename As::Result* out) {
  fill_block<As>(block, first, count, out);
}
template <typename As>
__attribute__((target("avx512f"))) void fill_avx512(RandomBlock block, uint32_t first,
                                                    uint64_t count, typename As::Result* out) {
  fill_block<As>(block, first, count, out);
}
#endif

template <typename As>
void fill(RandomKey key, uint64_t first, uint64_t count, typename As::Result* out, CodePath path) {
  auto* on_path = fill_portable<As>;
#if defined(__x86_64__)
  if (path == CodePath::kAvx2) on_path = fill_avx2<As>;
  if (path == CodePath::kAvx512) on_path = fill_avx512<As>;
#endif
  (void)path;
  while (count > 0) {
    const uint64_t in_block = std::min(count, (uint64_t{1} << 32) - (first & 0xFFFFFFFFu));
    on_path(random_block(key, first), static_cast<uint32_t>(first), in_block, out);
    first += in_block;
    out += in_block;
    count -= in_block;
  }
}

}  // namespace

void random_words(RandomKey key, uint64_t first, uint64_t count, uint32_t* out,
                  CodePath path) noexcept {
  fill<AsWord>(key, first, count, out, path);
}

void random_uniform(RandomKey key, uint64_t first, uint64_t count, float* out,
                    CodePath path) noexcept {
  fill<AsNumber>(key, first, count, out, path);
}

}  // namespace penstock::kernels
