#include <wire/rice.hpp>

#include <kernels/on_code_path.hpp>
#include <wire/remainders.hpp>

#include <algorithm>
#include <cstring>

namespace penstock::wire {
namespace {

// The gaps of `count` positions; the first position is at least `lowest`.
template <typename Position>
[[gnu::always_inline]] inline void find_gaps(const Position* p, uint64_t count, Position lowest,
                                             Position* gaps) {
  gaps[0] = p[0] - lowest;
  for (uint64_t j = 1; j < count; ++j) gaps[j] = p[j] - p[j - 1] - 1;
}

// The bits of the unary parts for three neighbouring parameters, less one bit per position.
struct Quotients {
  uint64_t sums[3];
};

template <typename Position>
Quotients sum_quotients(const Position* p, uint64_t count, unsigned lowest,
                        kernels::CodePath path) {
  return kernels::on_code_path(path, [=]() PENSTOCK_LOOP {
    Position sums[3] = {};  // at most the last position, if all positions ascend
    for (unsigned i = 0; i < 3; ++i) sums[i] = p[0] >> (lowest + i);
    for (uint64_t j = 1; j < count; ++j) {
      const Position quotient = (p[j] - p[j - 1] - 1) >> lowest;
      sums[0] += quotient;
      sums[1] += quotient >> 1;
      sums[2] += quotient >> 2;
    }
    return Quotients{{sums[0], sums[1], sums[2]}};
  });
}

// Two quotients in unary usually fit in one word; all pairs of a group are joined at once, before
// they are appended to the string.
typedef uint64_t Words __attribute__((vector_size(64)));
constexpr uint64_t kWords = sizeof(Words) / sizeof(uint64_t);

struct Pairs {
  uint64_t bits[kSlice / 2];
  uint64_t lengths[kSlice / 2];  // above 64: the bits are of no use
};

[[gnu::always_inline]] inline void put_together(const uint32_t* quotients, Pairs& pairs) {
  const Words one = Words{} + 1;
  for (uint64_t i = 0; i < kSlice / 2; i += kWords) {
    Words both;
    std::memcpy(&both, quotients + 2 * i, sizeof both);
    const Words first = both & 0xffffffffu, last = first + (both >> 32) + 1;
    const Words bits = (one << (first & 63)) | (one << (last & 63)), lengths = last + 1;
    std::memcpy(pairs.bits + i, &bits, sizeof bits);
    std::memcpy(pairs.lengths + i, &lengths, sizeof lengths);
  }
}

// A group of positions, split into remainders and quotients.
template <typename Position>
struct Group {
  Position gaps[kSlice];
  uint32_t remainders[kSlice];
  uint32_t quotients[kSlice];  // larger quotients are replaced by the largest number
  Pairs pairs;

  [[gnu::always_inline]] void divide(const Position* p, uint64_t count, Position lowest,
                                     unsigned width) {
    const uint32_t mask = (uint32_t{1} << width) - 1;
    find_gaps(p, count, lowest, gaps);
    for (uint64_t j = 0; j < count; ++j) {
      remainders[j] = static_cast<uint32_t>(gaps[j]) & mask;
      const Position quotient = gaps[j] >> width;
      quotients[j] = static_cast<uint32_t>(std::min<Position>(quotient, ~uint32_t{0}));
    }
    for (uint64_t j = count; j < kSlice; ++j) quotients[j] = 0;
    put_together(quotients, pairs);
  }

  void append_to(OnesWriter& string, uint64_t count, unsigned width) const {
    uint64_t j = 0;
    for (; j + 4 <= count; j += 4) {
      const uint64_t first = pairs.lengths[j / 2], both = first + pairs.lengths[j / 2 + 1];
      if (both <= 64)
        string.append_bits(pairs.bits[j / 2] | pairs.bits[j / 2 + 1] << (first & 63),
                           static_cast<unsigned>(both));
      else
        for (uint64_t i = j; i < j + 4; ++i) string.append_one(gaps[i] >> width);
    }
    for (; j < count; ++j) string.append_one(gaps[j] >> width);
  }
};

uint64_t body_bytes(uint64_t count, unsigned parameter, uint64_t quotients) {
  return packed_bytes(count, parameter) + (quotients + count + 7) / 8;
}

}  // namespace

// Searches downhill from the parameter for the mean gap. A parameter larger by 1 costs a bit for
// each position and saves half of each quotient, rounded up, which is less each time: the bits
// fall, then rise, so the search never turns back.
// It takes the parameter with the fewest bytes among the last three, because each part ends in a
// whole byte.
template <typename Position>
Fit Rice<Position>::fit(std::span<const Position> positions, uint64_t,
                        kernels::CodePath path) noexcept {
  const uint64_t count = positions.size();
  if (first_fall(positions, path) < count) return {0, kNever};
  const uint64_t mean = (positions.back() - (count - 1)) / count;
  int lowest = std::clamp(static_cast<int>(std::bit_width(mean)) - 2, 0, kMostParameter - 2);
  for (;;) {
    const Quotients found =
        sum_quotients(positions.data(), count, static_cast<unsigned>(lowest), path);
    if (found.sums[0] < count + found.sums[1] && lowest > 0) {
      --lowest;
    } else if (count + found.sums[2] < found.sums[1] && lowest + 2 < kMostParameter) {
      ++lowest;
    } else {
      Fit best{0, kNever};
      for (int i = 0; i < 3; ++i) {
        const uint64_t length = body_bytes(count, static_cast<unsigned>(lowest + i), found.sums[i]);
        if (length < best.length) best = {static_cast<int16_t>(lowest + i), length};
      }
      return best;
    }
  }
}

template <typename Position>
void Rice<Position>::write(std::span<const Position> positions, uint64_t, int16_t parameter,
                           unsigned char* body, kernels::CodePath path) noexcept {
  const auto width = static_cast<unsigned>(parameter);
  OnesWriter quotients(body + packed_bytes(positions.size(), width));
  Position lowest = 0;
  Group<Position> group;
  for (uint64_t at = 0; at < positions.size(); at += kSlice) {
    const Position* p = positions.data() + at;
    const uint64_t count = std::min(kSlice, positions.size() - at);
    kernels::on_code_path(path,
                          [&, p, count]() PENSTOCK_LOOP { group.divide(p, count, lowest, width); });
    lowest = p[count - 1] + 1;
    if (width > 0) {
      pack_remainders(group.remainders, count, width, body, path);
      body += packed_bytes(count, width);
    }
    group.append_to(quotients, count, width);
  }
  quotients.finish();
}

// The last one-bit gives the sum of the quotients, which must fit below n; so sums cannot overflow
// later.
template <typename Position>
std::string Rice<Position>::open(const Section& section, uint64_t n, kernels::CodePath path) {
  const Header& header = section.header;
  if (header.parameter < 0 || header.parameter > kMostParameter)
    return sentence("has the parameter ", header.parameter, ", expected 0 to ", kMostParameter);
  parameter_ = static_cast<unsigned>(header.parameter);
  const uint64_t packed = packed_bytes(header.count, parameter_);
  if (section.body.size() <= packed || section.body.back() == 0)
    return sentence("has ", section.body.size(), " bytes that end in ",
                    section.body.empty() ? 0 : section.body.back(), " for ", header.count,
                    " positions with ", parameter_, " bits and a one");
  const uint64_t unary = section.body.size() - packed;
  const uint64_t bits =
      8 * (unary - 1) +
      static_cast<uint64_t>(std::bit_width(static_cast<unsigned>(section.body.back())));
  if (bits < header.count || bits - header.count > (n - header.count) >> parameter_)
    return sentence("has ", bits, " bits in unary for ", header.count, " positions below ", n,
                    " with parameter ", parameter_);
  remainders_ = section.body.data();
  quotients_ = BitString(remainders_ + packed, unary);
  n_ = n;
  count_ = header.count;
  path_ = path;
  return {};
}

// Position j is (sum of quotients << parameter) + sum of remainders + j. The j-th one-bit of the
// unary part gives the sum of quotients: it is the number of zeros before this bit.
template <typename Position>
std::string Rice<Position>::take_group(std::span<Position> group) {
  const uint64_t count = group.size();
  Position places[kSlice + kOnesPad];
  uint32_t remainders[kSlice];
  if (take_ones(quotients_, count, places, path_) < count)
    return sentence("has fewer ones than positions, which are ", count_);
  if (parameter_ > 0) {
    unpack_remainders(remainders_, count, parameter_, remainders, path_);
    remainders_ += packed_bytes(count, parameter_);
  } else {
    std::fill_n(remainders, count, 0u);
  }
  uint64_t sum = sum_;
  for (uint64_t j = 0; j < count; ++j) {
    sum += remainders[j];
    group[j] = static_cast<Position>(((places[j] - (taken_ + j)) << parameter_) + sum + taken_ + j);
  }
  const uint64_t last =
      ((places[count - 1] - (taken_ + count - 1)) << parameter_) + sum + taken_ + count - 1;
  if (last >= n_) return sentence("has the position ", last, ", expected one below ", n_);
  sum_ = sum;
  taken_ += count;
  return {};
}

template <typename Position>
std::string Rice<Position>::take(std::span<Position> slice) {
  while (!slice.empty()) {
    const uint64_t some = std::min<uint64_t>(kSlice, slice.size());
    std::string refused = take_group(slice.first(some));
    if (!refused.empty()) return refused;
    slice = slice.subspan(some);
  }
  if (taken_ == count_ && quotients_.has_ones())
    return sentence("has more ones than positions, which are ", count_);
  return {};
}

template class Rice<uint32_t>;
template class Rice<uint64_t>;

}  // namespace penstock::wire
