// The majority vote; see sign.hpp. A thread counts 64 elements at once in bit-sliced counters:
// plane k of a counter holds bit k of 64 counts, so that adding a voter is a ripple of word
// operations.
#include <kernels/cuda/queue.hpp>
#include <kernels/cuda/sign.hpp>
#include <kernels/cuda/sign_zeros.cuh>

#include <bit>

namespace penstock::kernels::cuda {
namespace {

// A counter with as many planes as the voters need. All loops over planes have fixed length, so the
// planes stay in registers.
template <uint32_t kPlanes>
struct Counter {
  uint64_t plane[kPlanes] = {};

  // Adds 1 to the elements whose bit is set.
  __device__ void add(uint64_t bits) {
#pragma unroll
    for (uint32_t k = 0; k < kPlanes; ++k) {
      const uint64_t carry = plane[k] & bits;
      plane[k] ^= bits;
      bits = carry;
    }
  }
};

// The number of voters that are not zero, and of voters below zero.
template <uint32_t kPlanes>
struct Tally {
  Counter<kPlanes> votes;
  Counter<kPlanes> nays;
};

// Counts the votes of a tile of kVoteWords words, with one word per thread and one block per tile.
// All threads of the block must call it.
template <uint32_t kPlanes>
__device__ Tally<kPlanes> count_votes(const Senders<Signs>& voters, uint64_t first_word,
                                      uint64_t n_words, TileZeros<kVoteWords>& zeros) {
  const uint64_t word = first_word + threadIdx.x;
  const bool exists = word < n_words;
  Tally<kPlanes> tally;
  zeros.find([&](uint32_t s) { return voters.all[s]; }, voters.n, first_word);
  for (uint32_t s = 0; s < voters.n; ++s) {
    const Signs& signs = voters.all[s];
    uint64_t nonzero = ~uint64_t{0};
    if (signs.nonzero != nullptr) {
      if (exists) nonzero = signs.nonzero[word];
    } else if (zeros.fill(signs, s, first_word)) {
      nonzero = zeros.word(threadIdx.x);
    }
    tally.votes.add(nonzero);
    tally.nays.add(exists ? signs.negative[word] & nonzero : 0);
  }
  return tally;
}

struct Winners {
  uint64_t positive;
  uint64_t negative;
};

// Compares the number of votes with twice the number of nays, from the highest plane down.
template <uint32_t kPlanes>
__device__ Winners compare(const Tally<kPlanes>& tally) {
  Winners winners{0, 0};
  uint64_t open = ~uint64_t{0};  // elements on which all higher planes agree
#pragma unroll
  for (uint32_t k = kPlanes + 1; k-- > 0;) {
    const uint64_t vote = k < kPlanes ? tally.votes.plane[k < kPlanes ? k : 0] : 0;
    const uint64_t nay = k > 0 ? tally.nays.plane[k > 0 ? k - 1 : 0] : 0;  // twice: one plane up
    const uint64_t differ = open & (vote ^ nay);
    winners.positive |= differ & vote;
    winners.negative |= differ & nay;
    open &= ~differ;
  }
  return winners;
}

// Calls write(word of the tile, bit, element) for the elements of a tile: neighbouring threads
// write neighbouring elements.
template <typename Write>
__device__ void each_element_of_tile(uint64_t first_word, uint64_t numel, Write&& write) {
  for (uint32_t e = threadIdx.x; e < kVoteWords * 64; e += kVoteWords) {
    const uint64_t i = first_word * 64 + e;
    if (i < numel) write(e / 64, e % 64, i);
  }
}

// A vote in one call.
template <uint32_t kPlanes>
__global__ void __launch_bounds__(kVoteWords)
    decide(Senders<Signs> voters, uint64_t numel, float one, float* out) {
  __shared__ TileZeros<kVoteWords> zeros;
  __shared__ Winners won[kVoteWords];
  const uint64_t first_word = uint64_t{blockIdx.x} * kVoteWords;
  won[threadIdx.x] = compare(count_votes<kPlanes>(voters, first_word, sign_words(numel), zeros));
  __syncthreads();
  each_element_of_tile(first_word, numel, [&](uint32_t word, uint32_t bit, uint64_t i) {
    const bool above = (won[word].positive >> bit & 1) != 0;
    const bool below = (won[word].negative >> bit & 1) != 0;
    out[i] = above ? one : below ? -one : 0.0f;
  });
}

// One of several calls of a vote. Differences are whole numbers of at most kMaxVoters, so floats
// hold them exactly.
__global__ void __launch_bounds__(kVoteWords)
    add_votes(Senders<Signs> voters, VotePart part, uint64_t numel, float one, float* out) {
  constexpr uint32_t kPlanes = std::bit_width(kMostSenders);
  __shared__ TileZeros<kVoteWords> zeros;
  __shared__ uint64_t votes[kPlanes][kVoteWords], nays[kPlanes][kVoteWords];
  const uint64_t first_word = uint64_t{blockIdx.x} * kVoteWords;
  const Tally<kPlanes> tally = count_votes<kPlanes>(voters, first_word, sign_words(numel), zeros);
#pragma unroll
  for (uint32_t k = 0; k < kPlanes; ++k) {
    votes[k][threadIdx.x] = tally.votes.plane[k];
    nays[k][threadIdx.x] = tally.nays.plane[k];
  }
  __syncthreads();
  each_element_of_tile(first_word, numel, [&](uint32_t word, uint32_t bit, uint64_t i) {
    int32_t more = 0;
#pragma unroll
    for (uint32_t k = 0; k < kPlanes; ++k) {
      more += static_cast<int32_t>(votes[k][word] >> bit & 1) << k;
      more -= static_cast<int32_t>(nays[k][word] >> bit & 1) << (k + 1);
    }
    const float sum = (part.first ? 0.0f : out[i]) + static_cast<float>(more);
    out[i] = !part.last ? sum : sum > 0 ? one : sum < 0 ? -one : 0.0f;
  });
}

}  // namespace

int32_t majority_vote(std::span<const Signs> voters, VotePart part, uint64_t numel, float one,
                      float* out, void* stream) noexcept {
  if (voters.size() > kMostSenders || (numel > 0 && out == nullptr)) return cudaErrorInvalidValue;
  const auto all = by_value(voters);
  const uint64_t tiles = pieces(sign_words(numel), kVoteWords);
  Queue queue(stream);
  if (!part.first || !part.last)
    queue.run<add_votes>(tiles, kVoteWords, all, part, numel, one, out);
  else if (all.n < 8)
    queue.run<decide<3>>(tiles, kVoteWords, all, numel, one, out);
  else
    queue.run<decide<std::bit_width(kMostSenders)>>(tiles, kVoteWords, all, numel, one, out);
  return queue.error();
}

}  // namespace penstock::kernels::cuda
