// See fastest_path.hpp. Each family is measured on one typical piece of work that fits the
// second-level cache, so that arithmetic is compared, not memory.
#include <kernels/fastest_path.hpp>

#include <kernels/low_rank.hpp>
#include <kernels/norm.hpp>
#include <kernels/select.hpp>
#include <kernels/sign.hpp>

#include <array>
#include <chrono>
#include <vector>

namespace penstock::kernels {
namespace {

using Clock = std::chrono::steady_clock;
using Duration = Clock::duration;

// A family stops repeating after this time; each path has run once by then.
constexpr auto kBudget = std::chrono::microseconds(1500);
constexpr int kRepetitions = 8;
// A wider path is chosen only if it needs at most this share of the narrower path's time. Between
// equal paths the narrower is better, because it does not lower the clock of the code that runs
// next.
constexpr double kClearlyFaster = 0.95;

template <typename Work>
CodePath fastest(Work&& work) {
  std::array<Duration, std::size(kAllCodePaths)> best;
  best.fill(Duration::max());
  const auto start = Clock::now();
  for (int repetition = 0; repetition < kRepetitions; ++repetition) {
    if (repetition > 0 && Clock::now() - start > kBudget) break;
    for (const CodePath path : kAllCodePaths) {
      if (!code_path_supported(path)) continue;
      const auto before = Clock::now();
      work(path);
      Duration& least = best[static_cast<std::size_t>(path)];
      least = std::min(least, Clock::now() - before);
    }
  }
  CodePath chosen = CodePath::kPortable;
  for (const CodePath path : kAllCodePaths) {
    const double wider = static_cast<double>(best[static_cast<std::size_t>(path)].count());
    const double known = static_cast<double>(best[static_cast<std::size_t>(chosen)].count());
    if (code_path_supported(path) && wider <= kClearlyFaster * known) chosen = path;
  }
  return chosen;
}

// Values of mixed sign, without zeros, that look random to a branch predictor.
std::vector<float> values(std::size_t n) {
  std::vector<float> result(n);
  for (std::size_t i = 0; i < n; ++i)
    result[i] = static_cast<float>((i * 2654435761u) % 65521u) / 32761.0f - 1.00001f;
  return result;
}

CodePath measure_low_rank() {
  constexpr low_rank::Shape kShape{64, 256, 4};
  const std::vector<float> matrix = values(kShape.rows * kShape.cols);
  const std::vector<float> right = values(kShape.cols * kShape.rank);
  std::vector<float> left(kShape.rows * kShape.rank);
  std::vector<float> scratch(low_rank::scratch_floats(kShape) + 16);
  const auto address = reinterpret_cast<std::uintptr_t>(scratch.data());
  float* aligned = scratch.data() + (64 - address % 64) % 64 / sizeof(float);
  return fastest([&](CodePath path) {
    low_rank::multiply(kShape, matrix.data(), right.data(), left.data(), aligned, path);
  });
}

CodePath measure_sign() {
  constexpr uint64_t kEntries = 32 * 1024;
  const std::vector<float> x = values(kEntries);
  std::vector<uint64_t> negative(sign_words(kEntries));
  std::vector<uint32_t> zeros(sign_zero_capacity(kEntries));
  return fastest([&](CodePath path) {
    pack_signs(x.data(), kEntries, negative.data(), zeros.data(), zeros.size(), path);
  });
}

CodePath measure_others() {
  const std::vector<float> x = values(32 * 1024);
  [[maybe_unused]] volatile double kept = 0;
  return fastest([&](CodePath path) { kept = sum_of_squares(x.data(), x.size(), path); });
}

constexpr std::array<std::string_view, 4> kFamilies{"select", "low_rank", "sign", ""};

}  // namespace

std::span<const std::string_view> code_path_families() noexcept {
  return kFamilies;
}

CodePath fastest_code_path(std::string_view family) {
  if (family == "select") return select_code_path({});
  if (family == "low_rank") {
    static const CodePath path = measure_low_rank();
    return path;
  }
  if (family == "sign") {
    static const CodePath path = measure_sign();
    return path;
  }
  static const CodePath path = measure_others();
  return path;
}

}  // namespace penstock::kernels
