// The majority vote. It counts with bit-sliced counters: 64 elements at a time, plane k of a
// counter holding bit k of 64 counts, so that adding a voter is a ripple of word operations. If
// there are few voters and no voter has a zero, as is nearly always the case, the counters stay in
// registers.
#include "sign_tile.hpp"

#include <bit>

namespace penstock::kernels {
namespace {

constexpr uint64_t kMaxPlanes = 16;  // kMaxVoters < 2^16

struct Planes {
  uint64_t positive[kTileWords];
  uint64_t negative[kTileWords];
};

// The counters of a tile, stored plane by plane, so that every loop over the words of a tile is a
// plain vector loop.
struct Counters {
  uint64_t plane[kMaxPlanes][kTileWords];

  [[gnu::always_inline]] void clear(uint64_t planes) {
    std::memset(plane, 0, planes * sizeof plane[0]);
  }

  // Adds 2^first to the elements whose bit is set; overwrites `bits`.
  [[gnu::always_inline]] void add(uint64_t* bits, uint64_t first, uint64_t planes) {
    for (uint64_t k = first; k < planes; ++k)
      for (uint64_t w = 0; w < kTileWords; ++w) {
        const uint64_t carry = plane[k][w] & bits[w];
        plane[k][w] ^= bits[w];
        bits[w] = carry;
      }
  }
  // Adds `count` to every element.
  [[gnu::always_inline]] void add_to_all(uint64_t count, uint64_t planes) {
    for (uint64_t k = 0; k < planes; ++k) {
      if (((count >> k) & 1) == 0) continue;
      uint64_t ones[kTileWords];
      std::memset(ones, 0xff, sizeof ones);
      add(ones, k, planes);
    }
  }
};

// Compares the number of votes with twice the number of nays: sets bits in `positive` if it is
// larger, and in `negative` if it is smaller.
[[gnu::always_inline]] inline void compare(const Counters& votes, const Counters& nays,
                                           uint64_t planes, uint64_t* positive,
                                           uint64_t* negative) {
  static constexpr uint64_t kNone[kTileWords] = {};
  uint64_t open[kTileWords];  // elements on which all higher planes agree
  std::memset(open, 0xff, sizeof open);
  std::memset(positive, 0, sizeof open);
  std::memset(negative, 0, sizeof open);
  for (uint64_t k = planes + 1; k-- > 0;) {
    const uint64_t* const vote = k < planes ? votes.plane[k] : kNone;
    const uint64_t* const nay = k > 0 ? nays.plane[k - 1] : kNone;  // twice: one plane up
    for (uint64_t w = 0; w < kTileWords; ++w) {
      const uint64_t differ = open[w] & (vote[w] ^ nay[w]);
      positive[w] |= differ & vote[w];
      negative[w] |= differ & nay[w];
      open[w] &= ~differ;
    }
  }
}

// Counts the voters of one tile.
[[gnu::always_inline]] inline void count_tile(const Signs* voters, uint64_t n_voters,
                                              const Tile& tile, uint64_t planes, Counters& votes,
                                              Counters& nays) {
  votes.clear(planes);
  nays.clear(planes);
  uint64_t without_zeros = 0;
  for (uint64_t r = 0; r < n_voters; ++r) {
    uint64_t nonzero[kTileWords] = {}, nay[kTileWords] = {};
    std::memcpy(nay, voters[r].negative + tile.first_word, tile.words * sizeof(uint64_t));
    if (nonzero_of(voters[r], tile, nonzero)) {
      for (uint64_t w = 0; w < kTileWords; ++w) nay[w] &= nonzero[w];
      votes.add(nonzero, 0, planes);
    } else {
      ++without_zeros;
    }
    nays.add(nay, 0,
             static_cast<uint64_t>(std::bit_width(r + 1)));  // r + 1 counted: no more planes
  }
  votes.add_to_all(without_zeros, planes);
}

// Computes the result of one tile; the counters have enough planes for all voters.
[[gnu::always_inline]] inline void vote_in_tile(const Signs* voters, uint64_t n_voters,
                                                const Tile& tile, Planes& result) {
  const auto planes =
      static_cast<uint64_t>(std::max(1, static_cast<int>(std::bit_width(n_voters))));
  Counters votes, nays;
  count_tile(voters, n_voters, tile, planes, votes, nays);
  compare(votes, nays, planes, result.positive, result.negative);
}

// ---- Few voters ----

constexpr uint64_t kFewPlanes = 4;
constexpr uint64_t kFewVoters = 15;  // counted in kFewPlanes

bool are_few_without_zeros(const Signs* voters, uint64_t n_voters, const Tile& tile) {
  if (n_voters > kFewVoters || tile.words != kTileWords) return false;
  for (uint64_t r = 0; r < n_voters; ++r)
    if (may_have_zero(voters[r], tile)) return false;
  return true;
}

#define PENSTOCK_BODY "sign_vote_body.inc"
#include <kernels/cpu/each_path.inc>

// ---- Any number ----

void vote_portable(const Signs* voters, uint64_t n_voters, const Tile& tile, Planes& result) {
  vote_in_tile(voters, n_voters, tile, result);
}
#if defined(__x86_64__)
__attribute__((target("avx2"))) void vote_avx2(const Signs* voters, uint64_t n_voters,
                                               const Tile& tile, Planes& result) {
  vote_in_tile(voters, n_voters, tile, result);
}
__attribute__((target("avx512f"))) void vote_avx512(const Signs* voters, uint64_t n_voters,
                                                    const Tile& tile, Planes& result) {
  vote_in_tile(voters, n_voters, tile, result);
}
#endif

struct Vote {
  void (*any)(const Signs*, uint64_t, const Tile&, Planes&);
  void (*few)(const Signs*, uint64_t, const Tile&, Planes&);
};
Vote vote_on(CodePath path) {
  const auto few = PENSTOCK_OF_PATH(path, vote_of_few);
#if defined(__x86_64__)
  if (path == CodePath::kAvx2) return {vote_avx2, few};
  if (path == CodePath::kAvx512) return {vote_avx512, few};
#endif
  return {vote_portable, few};
}

// Calls use(tile, planes) with the result of tile after tile.
template <typename Use>
void vote_tiles(const Signs* voters, uint64_t n_voters, uint64_t numel, CodePath path, Use use) {
  const Vote vote = vote_on(path);
  Planes result;
  for (Tile tile{0, 0}; tile.first_word < sign_words(numel); tile.first_word += tile.words) {
    tile.words = std::min(kTileWords, sign_words(numel) - tile.first_word);
    const bool few = are_few_without_zeros(voters, n_voters, tile);
    (few ? vote.few : vote.any)(voters, n_voters, tile, result);
    use(tile, result);
  }
}

}  // namespace

void majority_planes(const Signs* voters, uint64_t n_voters, uint64_t numel, uint64_t* positive,
                     uint64_t* negative, CodePath path) noexcept {
  vote_tiles(voters, n_voters, numel, path, [&](const Tile& tile, const Planes& result) {
    std::memcpy(positive + tile.first_word, result.positive, tile.words * sizeof(uint64_t));
    std::memcpy(negative + tile.first_word, result.negative, tile.words * sizeof(uint64_t));
  });
}

// The result is itself a sender of signs, whose values are 1 and -1.
void majority_vote(const Signs* voters, uint64_t n_voters, uint64_t numel, float* out,
                   CodePath path) noexcept {
  static constexpr float kOne[2] = {1.0f, -1.0f};
  vote_tiles(voters, n_voters, numel, path, [&](const Tile& tile, Planes& result) {
    const uint64_t first = tile.first_word * 64;
    const uint64_t count = std::min(tile.words * 64, numel - first);
    for (uint64_t w = 0; w < tile.words; ++w) result.positive[w] |= result.negative[w];
    const ValuedSigns winner{{result.negative, nullptr, 0, result.positive}, kOne};
    sum_valued_signs(&winner, 1, count, kTileWords * 64, true, out + first, path);
  });
}

}  // namespace penstock::kernels
