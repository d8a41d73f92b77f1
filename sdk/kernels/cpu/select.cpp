// See select.hpp.
//
// A selection takes one pass over the input: a small sample gives a threshold that is almost surely
// below the k-th largest magnitude; one compaction collects the few entries that reach it, in
// order; the exact threshold is found among these entries. If the sample misleads (too few or too
// many entries pass), the exact threshold is found among all entries, in three passes.
#include <kernels/select.hpp>
#include <kernels/stream.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include <kernels/cpu/compact.hpp>
#include <kernels/cpu/radix_select.hpp>

namespace penstock::kernels {
namespace {

// Each entry of the sample takes one or two misses of the cache. With four times as many, the sweep
// collects a quarter fewer candidates, which takes less time than the sample.
constexpr uint64_t kSamples = 4 * 1024;
constexpr uint64_t kAlwaysAll = 16 * 1024;  // up to this n a sample would not pay

static_assert(kRadixBytes <= kSelectFixedBytes);

uint64_t sample_size(uint64_t n) {
  return std::clamp<uint64_t>(n / 16, 1024, kSamples);
}

// The number of sample entries above the wanted threshold: four standard deviations more than
// expected.
uint64_t sample_rank(uint64_t n, uint64_t k) {
  const double expected =
      static_cast<double>(sample_size(n)) * static_cast<double>(k) / static_cast<double>(n);
  return static_cast<uint64_t>(std::ceil(expected + 4 * std::sqrt(expected) + 4));
}

// The parts of a scratch. The sample is no longer needed when the first entry is collected, so both
// share one place.
struct Workspace {
  explicit Workspace(SelectScratch scratch) : histogram(static_cast<uint32_t*>(scratch.data)) {
    const uint64_t room = (scratch.bytes - kSelectFixedBytes) / (2 * sizeof(uint32_t));
    capacity = room > kCompactPad ? room - kCompactPad : 0;
    indices = reinterpret_cast<uint32_t*>(static_cast<char*>(scratch.data) + kSelectFixedBytes);
    bits = indices + room;
  }
  uint32_t* sample() const { return indices; }  // [2 * capacity]
  uint32_t* histogram;
  uint32_t* indices;  // [capacity + kCompactPad]
  uint32_t* bits;     // bits of the entries at `indices`
  uint64_t capacity;
};

uint64_t total(std::span<const SelectSegment> segments) {
  uint64_t n = 0;
  for (const SelectSegment& segment : segments) n += segment.n;
  return n;
}

// A hash scatters the positions of the sample, one per stride, so that they do not match a period
// of the data.
constexpr uint64_t sample_position(uint64_t j, uint64_t stride) {
  return j * stride + (((j * 0x9E3779B97F4A7C15u) >> 32) * stride >> 32);
}

// A key that at least k entries should reach; 1 (every entry but zeros) if sampling does not help.
uint32_t sampled_threshold(std::span<const SelectSegment> segments, uint64_t n, uint64_t k,
                           const Workspace& work) {
  const uint64_t rank = sample_rank(n, k);
  const uint64_t samples = sample_size(n);
  if (n <= kAlwaysAll || rank > samples) return 1;
  const uint64_t stride = n / samples;
  uint64_t segment = 0;
  uint64_t begins = 0;  // position at which the segment begins
  for (uint64_t j = 0; j < samples; ++j) {
    const uint64_t position = sample_position(j, stride);
    while (position - begins >= segments[segment].n) begins += segments[segment++].n;
    const SelectSegment& at = segments[segment];
    at.fetch(sample_position(j + kFetchedEarly, stride) - begins);
    work.sample()[j] = magnitude_key(at.at(position - begins));
  }
  const auto keys = [&](auto&& body) {
    for (uint64_t j = 0; j < samples; ++j) body(j, work.sample()[j]);
  };
  return std::max(1u, select_exactly(keys, samples, rank, work.histogram).threshold);
}

void compensate_all(std::span<SelectSegment> segments, CodePath path) {
  for (SelectSegment& segment : segments)
    if (segment.fold != nullptr) compensate(*segment.fold, segment.n, path);
  for (SelectSegment& segment : segments) segment.fold = nullptr;
}

// Collects the entries of all segments that reach `threshold`. Segments with a fold are compensated
// in this pass, to the end even if too many entries pass.
uint64_t compact_all(std::span<SelectSegment> segments, uint32_t threshold, const Workspace& work,
                     CodePath path) {
  const Compact compact = compact_on(path);
  alignas(64) float room[kFoldTile];
  uint64_t count = 0;
  uint64_t offset = 0;
  for (SelectSegment& segment : segments) {
    const uint64_t tile = segment.fold == nullptr ? segment.n : kFoldTile;
    for (uint64_t begin = 0; begin < segment.n; begin += tile) {
      const uint64_t size = std::min(tile, segment.n - begin);
      const float* x = segment.fold == nullptr ? segment.x + begin
                                               : compensate_tile(segment.fold->from(begin), size,
                                                                 segment.n, path, room);
      if (count > work.capacity) continue;
      count = compact(x, size, kCompactRun, static_cast<uint32_t>(offset + begin), threshold,
                      work.indices, work.bits, count, work.capacity);
    }
    segment.fold = nullptr;
    offset += segment.n;
  }
  end_stream();
  return count;
}

// Writes positions, which come in ascending order, to their segments.
class Emitter {
 public:
  explicit Emitter(std::span<SelectSegment> segments) : segments_(segments) {
    for (SelectSegment& segment : segments) segment.count = 0;
  }
  void operator()(uint64_t position) {
    SelectSegment& segment = at(position);
    put(segment, position, segment.x[position - begins_]);
  }
  // Writes a position whose value is known, because x may have left the cache.
  void operator()(uint64_t position, uint32_t bits) {
    put(at(position), position, std::bit_cast<float>(bits));
  }

 private:
  SelectSegment& at(uint64_t position) {
    while (position - begins_ >= segments_[current_].n) begins_ += segments_[current_++].n;
    return segments_[current_];
  }
  void put(SelectSegment& segment, uint64_t position, float value) {
    segment.indices[segment.count] = static_cast<uint32_t>(position - begins_);
    if (segment.values != nullptr) segment.values[segment.count] = value;
    ++segment.count;
  }

  std::span<SelectSegment> segments_;
  uint64_t current_ = 0;
  uint64_t begins_ = 0;
};

// Moves the k largest of `count` > k collected entries, whose keys are all at least `lowest`, to
// the front.
void keep_largest(const Workspace& work, uint64_t count, uint64_t k, uint32_t lowest,
                  CodePath path) {
  uint32_t highest = lowest;
  for (uint64_t j = 0; j < count; ++j) highest = std::max(highest, key_of_bits(work.bits[j]));
  const auto keys = [&](auto&& body) {
    for (uint64_t j = 0; j < count; ++j) body(j, key_of_bits(work.bits[j]));
  };
  const ExactThreshold exact = select_exactly(keys, count, k, work.histogram, lowest, highest);
  const uint64_t reach = keep_on(path)(work.indices, work.bits, count, exact.threshold);
  if (reach > k) drop_later_ties(work.indices, work.bits, reach, exact.threshold, exact.ties);
}

// Writes the k largest of `count` >= k collected entries, whose keys are all at least `lowest`.
void emit_collected(std::span<SelectSegment> segments, uint64_t k, uint64_t count, uint32_t lowest,
                    const Workspace& work, CodePath path) {
  if (count > k) keep_largest(work, count, k, lowest, path);
  uint64_t j = 0;
  uint64_t begins = 0;  // position at which the segment begins
  for (SelectSegment& segment : segments) {
    const uint64_t first = j;
    for (; j < k && work.indices[j] - begins < segment.n; ++j)
      segment.indices[j - first] = static_cast<uint32_t>(work.indices[j] - begins);
    segment.count = j - first;
    if (segment.values != nullptr && segment.count > 0)
      std::memcpy(segment.values, work.bits + first, segment.count * sizeof(float));
    begins += segment.n;
  }
}

// Writes all `count` < k entries that are not zero, and zeros from the front, to give k entries.
void emit_with_zeros(std::span<SelectSegment> segments, uint64_t k, uint64_t count,
                     const Workspace& work) {
  Emitter emit(segments);
  uint64_t zeros = k - count;
  uint64_t position = 0;
  for (uint64_t j = 0; j < count; ++j) {
    for (; position < work.indices[j] && zeros > 0; ++position, --zeros) emit(position);
    emit(work.indices[j], work.bits[j]);
    position = uint64_t{work.indices[j]} + 1;
  }
  for (; zeros > 0; --zeros) emit(position++);
}

// Selects without a sample: three passes find the threshold, one pass writes.
void emit_from_all(std::span<SelectSegment> segments, uint64_t k, const Workspace& work) {
  const auto keys = [&](auto&& body) {
    uint64_t position = 0;
    for (const SelectSegment& segment : segments)
      for (uint64_t i = 0; i < segment.n; ++i) body(position++, magnitude_key(segment.x[i]));
  };
  ExactThreshold exact = select_exactly(keys, total(segments), k, work.histogram);
  Emitter emit(segments);
  keys([&](uint64_t position, uint32_t key) {
    if (key < exact.threshold) return;
    if (key == exact.threshold && exact.ties == 0) return;
    if (key == exact.threshold) --exact.ties;
    emit(position);
  });
}

void emit_everything(std::span<SelectSegment> segments) {
  for (SelectSegment& segment : segments) {
    for (uint64_t i = 0; i < segment.n; ++i) segment.indices[i] = static_cast<uint32_t>(i);
    if (segment.n > 0 && segment.values != nullptr)
      std::memcpy(segment.values, segment.x, segment.n * sizeof(float));
    segment.count = segment.n;
  }
}

CodePath measure() noexcept {
  constexpr uint64_t kEntries = 16 * 1024;
  static float values[kEntries];
  static uint32_t found[2][1024 + kCompactPad];
  for (uint64_t i = 0; i < kEntries; ++i)
    values[i] = static_cast<float>((i * 2654435761u) & 0xffffu) / 65536.0f;
  const uint32_t one_percent = std::bit_cast<uint32_t>(0.99f);
  CodePath best = CodePath::kPortable;
  auto best_time = std::chrono::steady_clock::duration::max();
  for (const CodePath path : kAllCodePaths) {
    if (!code_path_supported(path)) continue;
    const Compact compact = compact_on(path);
    for (int repetition = 0; repetition < 8; ++repetition) {
      const auto start = std::chrono::steady_clock::now();
      compact(values, kEntries, kCompactRun, 0, one_percent, found[0], found[1], 0, 1024);
      const auto time = std::chrono::steady_clock::now() - start;
      if (time >= best_time) continue;
      best_time = time;
      best = path;
    }
  }
  return best;
}

}  // namespace

uint64_t select_scratch_bytes(uint64_t n, uint64_t k) noexcept {
  if (n == 0 || k == 0) return kSelectFixedBytes;
  uint64_t candidates = n;
  if (n > kAlwaysAll) {
    // Twice the slack that the sample is expected to give.
    const double share =
        static_cast<double>(sample_rank(n, k)) / static_cast<double>(sample_size(n));
    const double expected = share * static_cast<double>(n);
    const double slack = std::max(0.0, expected - static_cast<double>(k)) + 4096;
    candidates = std::min(n, static_cast<uint64_t>(expected + slack));
    candidates = std::max(candidates, sample_size(n));
  }
  const uint64_t bytes = kSelectFixedBytes + (candidates + kCompactPad) * 2 * sizeof(uint32_t);
  return (bytes + 63) / 64 * 64;
}

CodePath select_code_path(std::string_view name) noexcept {
  for (const CodePath path : kAllCodePaths)
    if (name == code_path_name(path) && code_path_supported(path)) return path;
  static const CodePath fastest = measure();
  return fastest;
}

void select_largest(std::span<SelectSegment> segments, uint64_t k, SelectScratch scratch,
                    CodePath path) noexcept {
  for (SelectSegment& segment : segments) segment.count = 0;
  const uint64_t n = total(segments);
  const Workspace work(scratch);
  const bool samples = work.capacity >= std::max(k, sample_size(n) / 2);
  if (k == 0 || k >= n || !samples) compensate_all(segments, path);
  if (k == 0) return;
  if (k >= n) return emit_everything(segments);
  if (!samples) return emit_from_all(segments, k, work);
  const uint32_t threshold = sampled_threshold(segments, n, k, work);
  const uint64_t count = compact_all(segments, threshold, work, path);
  if (count > work.capacity || (count < k && threshold > 1)) {
    emit_from_all(segments, k, work);
  } else if (count < k) {
    emit_with_zeros(segments, k, count, work);
  } else {
    emit_collected(segments, k, count, threshold, work, path);
  }
}

void select_largest(const float* x, uint64_t n, uint64_t k, uint32_t* indices, float* values,
                    SelectScratch scratch, CodePath path) noexcept {
  SelectSegment segment{x, n, indices, values};
  select_largest({&segment, 1}, k, scratch, path);
}

void take_largest(float* work, uint64_t n, uint64_t k, uint32_t* indices, float* values,
                  SelectScratch scratch, CodePath path) noexcept {
  select_largest(work, n, k, indices, values, scratch, path);
  const uint64_t chosen = std::min(n, k);
  for (uint64_t j = 0; j < chosen; ++j) work[indices[j]] = 0;
}

void select_above(SelectSegment& segment, float threshold, uint64_t capacity, SelectScratch scratch,
                  CodePath path) noexcept {
  const uint32_t key = threshold_key(threshold);
  const std::span<SelectSegment> segments{&segment, 1};
  segment.count = 0;
  if (segment.n == 0 || capacity == 0 || key > kInfinityKey) return compensate_all(segments, path);
  const Workspace work(scratch);
  const uint64_t count = compact_all(segments, key, work, path);
  if (count <= work.capacity) {
    if (count > 0) emit_collected(segments, std::min(count, capacity), count, key, work, path);
  } else if (work.capacity >= capacity) {  // more than `capacity` pass
    select_largest(segments, capacity, scratch, path);
  } else {  // the scratch is smaller than planned
    uint64_t passed = 0;
    count_above(segment.x, segment.n, {&threshold, 1}, &passed, path);
    emit_from_all(segments, std::min(passed, capacity), work);
  }
}

uint64_t select_above(const float* x, uint64_t n, float threshold, uint64_t capacity,
                      uint32_t* indices, float* values, SelectScratch scratch,
                      CodePath path) noexcept {
  SelectSegment segment{x, n, indices, values};
  select_above(segment, threshold, capacity, scratch, path);
  return segment.count;
}

uint64_t take_above(float* work, uint64_t n, float threshold, uint64_t capacity, uint32_t* indices,
                    float* values, SelectScratch scratch, CodePath path) noexcept {
  const uint64_t count = select_above(work, n, threshold, capacity, indices, values, scratch, path);
  for (uint64_t j = 0; j < count; ++j) work[indices[j]] = 0;
  return count;
}

float kth_magnitude(const float* x, uint64_t n, uint64_t stride, uint64_t k, uint32_t* keys,
                    SelectScratch scratch) noexcept {
  for (uint64_t i = 0; i < n; ++i) keys[i] = magnitude_key(x[i * stride]);
  const auto all = [&](auto&& body) {
    for (uint64_t i = 0; i < n; ++i) body(i, keys[i]);
  };
  const Workspace work(scratch);
  return std::bit_cast<float>(select_exactly(all, n, k, work.histogram).threshold);
}

}  // namespace penstock::kernels
