// The majority vote; see sign.hpp. A thread counts 64 elements at once in bit-sliced counters:
// plane k of a counter holds bit k of 64 counts, so that adding a voter is a ripple of word
// operations.
#include <kernels/cuda/queue.hpp>
#include <kernels/cuda/sign.hpp>
#include <kernels/cuda/sign_zeros.cuh>

#include <bit>

namespace penstock::kernels::cuda {
namespace {

// As many planes as kVoters need; all loops over planes have fixed length, so they stay in
// registers.
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

struct Winners {
  uint64_t positive;
  uint64_t negative;
};

// Compares the number of votes with twice the number of nays, from the highest plane down.
template <uint32_t kPlanes>
__device__ Winners compare(const Counter<kPlanes>& votes, const Counter<kPlanes>& nays) {
  Winners winners{0, 0};
  uint64_t open = ~uint64_t{0};  // elements on which all higher planes agree
#pragma unroll
  for (uint32_t k = kPlanes + 1; k-- > 0;) {
    const uint64_t vote = k < kPlanes ? votes.plane[k < kPlanes ? k : 0] : 0;
    const uint64_t nay = k > 0 ? nays.plane[k > 0 ? k - 1 : 0] : 0;  // twice: one plane up
    const uint64_t differ = open & (vote ^ nay);
    winners.positive |= differ & vote;
    winners.negative |= differ & nay;
    open &= ~differ;
  }
  return winners;
}

// One block per tile of kVoteWords words, a word to a thread. For all threads of the block.
template <uint32_t kPlanes>
__device__ Winners count_votes(const Signs* voters, uint32_t n_voters, uint64_t first_word,
                               uint64_t n_words, TileZeros<kVoteWords>& zeros) {
  const uint64_t word = first_word + threadIdx.x;
  const bool exists = word < n_words;
  Counter<kPlanes> votes, nays;
  for (uint32_t first = 0; first < n_voters; first += kSendersAtOnce) {
    const uint32_t count = n_voters - first < kSendersAtOnce ? n_voters - first : kSendersAtOnce;
    zeros.find([&](uint64_t r) { return voters[r]; }, first, count, first_word);
    for (uint32_t s = 0; s < count; ++s) {
      const Signs signs = voters[first + s];
      uint64_t nonzero = ~uint64_t{0};
      if (signs.nonzero != nullptr) {
        if (exists) nonzero = signs.nonzero[word];
      } else if (zeros.fill(signs, s, first_word)) {
        nonzero = zeros.word(threadIdx.x);
      }
      votes.add(nonzero);
      nays.add(exists ? signs.negative[word] & nonzero : 0);
    }
  }
  return compare(votes, nays);
}

template <uint32_t kPlanes>
__global__ void __launch_bounds__(kVoteWords)
    vote_planes(const Signs* voters, uint32_t n_voters, uint64_t n_words, uint64_t* positive,
                uint64_t* negative) {
  __shared__ TileZeros<kVoteWords> zeros;
  const uint64_t first_word = uint64_t{blockIdx.x} * kVoteWords;
  const Winners winners = count_votes<kPlanes>(voters, n_voters, first_word, n_words, zeros);
  const uint64_t word = first_word + threadIdx.x;
  if (word >= n_words) return;
  positive[word] = winners.positive;
  negative[word] = winners.negative;
}

template <uint32_t kPlanes>
__global__ void __launch_bounds__(kVoteWords)
    vote_values(const Signs* voters, uint32_t n_voters, uint64_t numel, float* out) {
  __shared__ TileZeros<kVoteWords> zeros;
  __shared__ Winners won[kVoteWords];
  const uint64_t first_word = uint64_t{blockIdx.x} * kVoteWords;
  won[threadIdx.x] = count_votes<kPlanes>(voters, n_voters, first_word, sign_words(numel), zeros);
  __syncthreads();
  // Neighbouring threads write neighbouring elements.
  for (uint32_t e = threadIdx.x; e < kVoteWords * 64; e += kVoteWords) {
    const uint64_t i = first_word * 64 + e;
    if (i >= numel) break;
    const Winners& winners = won[e / 64];
    const bool above = (winners.positive >> (e % 64) & 1) != 0;
    const bool below = (winners.negative >> (e % 64) & 1) != 0;
    out[i] = above ? 1.0f : below ? -1.0f : 0.0f;
  }
}

// Calls use.template operator()<kPlanes>() with enough planes for n_voters.
template <typename Use>
void with_planes(uint64_t n_voters, Use&& use) {
  const int planes = std::bit_width(n_voters);
  if (planes <= 3)
    use.template operator()<3>();
  else if (planes <= 6)
    use.template operator()<6>();
  else if (planes <= 10)
    use.template operator()<10>();
  else
    use.template operator()<16>();
}

bool legal(const Signs* voters, uint64_t n_voters) {
  return n_voters <= kMaxVoters && (n_voters == 0 || voters != nullptr);
}

}  // namespace

int32_t majority_planes(const Signs* voters, uint64_t n_voters, uint64_t numel, uint64_t* positive,
                        uint64_t* negative, void* stream) noexcept {
  if (!legal(voters, n_voters) || (numel > 0 && (positive == nullptr || negative == nullptr)))
    return cudaErrorInvalidValue;
  const uint64_t words = sign_words(numel);
  Queue queue(stream);
  with_planes(n_voters, [&]<uint32_t kPlanes>() {
    queue.run(vote_planes<kPlanes>, pieces(words, kVoteWords), kVoteWords, voters,
              static_cast<uint32_t>(n_voters), words, positive, negative);
  });
  return queue.error();
}

int32_t majority_vote(const Signs* voters, uint64_t n_voters, uint64_t numel, float* out,
                      void* stream) noexcept {
  if (!legal(voters, n_voters) || (numel > 0 && out == nullptr)) return cudaErrorInvalidValue;
  Queue queue(stream);
  with_planes(n_voters, [&]<uint32_t kPlanes>() {
    queue.run(vote_values<kPlanes>, pieces(sign_words(numel), kVoteWords), kVoteWords, voters,
              static_cast<uint32_t>(n_voters), numel, out);
  });
  return queue.error();
}

}  // namespace penstock::kernels::cuda
