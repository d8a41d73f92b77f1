// Values of sparse payloads as one sign each and two means, for value_type = "sign" of SparseValues
// (sparse_values.hpp). The receiver adds the mean of the sent positive values where one was sent,
// and subtracts the mean magnitude of the sent negative values where one of these was sent. The
// difference between a value and its mean stays in `work`. The payload is coded and has three
// sections:
//
//   0  indices of the sent entries, ascending, as in every sparse payload
//   1  a bit for each entry, in the order of the indices: 1 if the value is negative. Bits behind
//      the last entry are 0
//   2  the two means, the mean of positive values first; the mean of a sign without entries is 0.
//      Without any entry the section is empty
//
// Zeros are not sent, because zero has no sign, so counts vary. Means are summed in double in the
// order of the indices, so they are equal on every code path.
// Sources: Sattler, Wiedemann, Müller, Samek, "Sparse Binary Compression: Towards Distributed Deep
// Learning with minimal Communication", IJCNN 2019, sends one of the two signs. "Robust and
// Communication-Efficient Federated Learning from Non-i.i.d. Data", TNNLS 2019, sends both with one
// mean.
#pragma once

#include <penstock/compressor.hpp>

#include <cmath>

namespace penstock::sdk {

class SignValues {
 public:
  // The values of a payload that are not read yet.
  class Reader {
   public:
    Reader() = default;
    Reader(const uint64_t* negative, float positive_mean, float negative_mean)
        : negative_(negative), means_{positive_mean, -negative_mean} {}
    explicit operator bool() const { return negative_ != nullptr; }

    // Writes the next `count` values.
    void take(uint64_t count, float* values) {
      for (uint64_t j = 0; j < count; ++j, ++at_)
        values[j] = means_[negative_[at_ / kWordBits] >> at_ % kWordBits & 1];
    }

   private:
    const uint64_t* negative_ = nullptr;
    uint64_t at_ = 0;
    float means_[2] = {};
  };

  // Plans a gathered round with room for `capacity` entries.
  static Round& plan(CompressorNeed& need, uint64_t capacity) {
    return need.round(PENSTOCK_COMBINE_GATHER)
        .section(PENSTOCK_ROLE_INDICES, PENSTOCK_UINT32, capacity, false, PENSTOCK_SPLIT_BY_INDEX)
        .section(PENSTOCK_ROLE_BITS, PENSTOCK_UINT64, words(capacity), false)
        .section(PENSTOCK_ROLE_SCALES, PENSTOCK_FLOAT32, 2, false, PENSTOCK_SPLIT_COPY);
  }

  // Whether a payload was planned here.
  static bool are_in(const penstock_payload& payload) {
    return payload.n_sections == 3 && payload.sections[0]->role == PENSTOCK_ROLE_INDICES &&
           payload.sections[1]->role == PENSTOCK_ROLE_BITS;
  }

  // Completes the payload whose first `count` indices are written: removes the indices of zeros,
  // writes signs and means, and if the item keeps, takes the sent values out of work.
  static void write(const Item& item, PayloadWriter& payload, uint64_t count) {
    const std::span<float> work = item.work();
    uint32_t* const indices = payload.room<uint32_t>(0).data();
    uint64_t* const negative = payload.room<uint64_t>(1).data();
    double sums[2] = {};
    uint64_t of_sign[2] = {};
    uint64_t sent = 0;
    for (uint64_t j = 0; j < count; ++j) {
      const float value = work[indices[j]];
      if (value == 0) continue;
      const uint64_t sign = value < 0 ? 1 : 0;
      sums[sign] += double{std::fabs(value)};
      ++of_sign[sign];
      indices[sent] = indices[j];
      const uint64_t bit = sent % kWordBits;
      if (bit == 0) negative[sent / kWordBits] = 0;
      negative[sent / kWordBits] |= sign << bit;
      ++sent;
    }
    payload.kind(PENSTOCK_PAYLOAD_CODED);
    payload.count(0, sent);
    payload.count(1, words(sent));
    payload.count(2, sent == 0 ? 0 : 2);
    if (sent == 0) return;
    const std::span<float> means = payload.room<float>(2);
    for (const int sign : {0, 1})
      means[sign] = of_sign[sign] == 0
                        ? 0.0f
                        : static_cast<float>(sums[sign] / static_cast<double>(of_sign[sign]));
    if (!item.keeps()) return;
    for (uint64_t j = 0; j < sent; ++j) {
      float& value = work[indices[j]];
      value = value < 0 ? value + means[1] : value - means[0];
    }
  }

  // The values of a payload with `count` indices. Throws INVALID_PAYLOAD for another kind or count,
  // and for a mean that no sender computes.
  static Reader checked(const PayloadReader& payload, uint64_t count) {
    if (payload.kind() != PENSTOCK_PAYLOAD_CODED)
      throw payload.error("is of kind ", payload.kind(), ", expected coded");
    const std::span<const uint64_t> negative = payload.section<uint64_t>(1, words(count));
    const std::span<const float> means = payload.section<float>(2, count == 0 ? 0 : 2);
    if (count == 0) return {};
    for (const float mean : means)
      if (!(mean >= 0) || !std::isfinite(mean))
        throw payload.error("has the mean ", mean, ", expected a finite one of at least 0");
    return {negative.data(), means[0], means[1]};
  }

 private:
  static constexpr uint64_t kWordBits = 64;
  static uint64_t words(uint64_t entries) { return (entries + kWordBits - 1) / kWordBits; }
};

}  // namespace penstock::sdk
