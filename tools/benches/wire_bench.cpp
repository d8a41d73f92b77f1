// The coders of the wire on one core, compared with memcpy: random positions and their values.
//
//   bench_wire [ROUNDS]
//
// Prints one JSON line. Each row has its name, its number of entries and, for each density, the
// bits per position and the entropy of as many random positions. Contestants take turns, and the
// first round warms up. Each contestant is checked before it is timed.

#include <wire/positions.hpp>
#include <wire/values.hpp>

#include <time.h>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace {

namespace wire = penstock::wire;
namespace kernels = penstock::kernels;
using Bytes = std::vector<unsigned char>;

constexpr uint64_t kElements = 25557032;  // of ResNet-50
constexpr int kRepeats = 20;              // in sequence, and the mean counts

// `count` of n positions. Every subset has equal probability.
std::vector<uint32_t> draw(uint64_t n, uint64_t count) {
  std::mt19937_64 generator(1);
  std::vector<uint32_t> drawn;
  for (uint64_t i = 0; i < n && drawn.size() < count; ++i)
    if (generator() % (n - i) < count - drawn.size()) drawn.push_back(static_cast<uint32_t>(i));
  return drawn;
}

double entropy_bits(double n, double count) {
  const auto log2_factorial = [](double x) { return std::lgamma(x + 1) / std::log(2.0); };
  return (log2_factorial(n) - log2_factorial(count) - log2_factorial(n - count)) / count;
}

void expect(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "bench_wire: %s\n", what);
  std::exit(1);
}

struct Contestant {
  std::string what;
  uint64_t entries;
  std::function<void()> work;
  std::vector<double> seconds{};
};

// Processor time of this thread, because other processes disturb it less.
double seconds_now() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void time_all(std::vector<Contestant>& contestants, int rounds) {
  for (int round = 0; round <= rounds; ++round)
    for (Contestant& contestant : contestants) {
      const double begin = seconds_now();
      for (int i = 0; i < kRepeats; ++i) contestant.work();
      if (round > 0) contestant.seconds.push_back((seconds_now() - begin) / kRepeats);
    }
}

std::string spread(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  char text[64];
  std::snprintf(text, sizeof text, "[%.4g, %.4g, %.4g]", values[values.size() / 2], values.front(),
                values.back());
  return text;
}

// Rates in 10^9 entries per second, and speed relative to the first contestant, by round.
void print(const std::vector<Contestant>& contestants) {
  for (const Contestant& contestant : contestants) {
    std::vector<double> rates, times;
    for (size_t round = 0; round < contestant.seconds.size(); ++round) {
      rates.push_back(static_cast<double>(contestant.entries) / contestant.seconds[round] / 1e9);
      times.push_back(contestants[0].seconds[round] / contestant.seconds[round]);
    }
    std::printf("%s{\"what\": \"%s\", \"entries\": %lu, \"rate\": %s, \"memcpy\": %s}",
                &contestant == contestants.data() ? "" : ", ", contestant.what.c_str(),
                contestant.entries, spread(rates).c_str(), spread(times).c_str());
  }
}

// The data of all rows at 1 %.
struct Scene {
  kernels::CodePath path = kernels::widest_code_path();
  std::vector<uint32_t> positions = draw(kElements, kElements / 100);
  std::vector<uint32_t> found = std::vector<uint32_t>(positions.size());
  std::vector<float> values = std::vector<float>(positions.size());
  std::vector<float> seen = std::vector<float>(positions.size());
  Bytes bytes = Bytes(wire::positions_bound(kElements, positions.size()));
  std::span<const uint32_t> all() const { return positions; }

  void add_positions(std::vector<Contestant>& contestants) {
    for (const uint8_t coding : {wire::kRaw, wire::kBlocks, wire::kRice}) {
      const auto plan = wire::plan_positions(all(), kElements, path, 1u << coding);
      if (plan.header.coding != coding) continue;
      const std::string name = coding == wire::kRaw      ? "raw"
                               : coding == wire::kBlocks ? "blocks"
                                                         : "rice";
      Bytes coded(plan.bytes());
      wire::write_positions(plan, all(), kElements, coded.data(), path);
      const auto read = [this, coded] {
        uint64_t count = 0;
        const std::string refused =
            wire::read_positions<uint32_t>(coded, kElements, found, count, path);
        expect(refused.empty(), refused.c_str());
      };
      read();
      expect(found == positions, "positions come back otherwise than they went");
      contestants.push_back({name + ", write", positions.size(), [this, plan] {
                               wire::write_positions(plan, all(), kElements, bytes.data(), path);
                             }});
      contestants.push_back({name + ", read", positions.size(), read});
    }
    contestants.push_back({"choice of the shortest", positions.size(),
                           [this] { wire::plan_positions(all(), kElements, path); }});
  }

  void add_values(std::vector<Contestant>& contestants) {
    for (uint64_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>((i * 2654435761u) % 65521u) / 32761.0f - 1.00001f;
    const std::pair<const char*, uint8_t> types[] = {{"fp32", wire::kFloat32},
                                                     {"fp16", wire::kFloat16},
                                                     {"bf16", wire::kBfloat16},
                                                     {"sign", wire::kSign}};
    for (const auto& [name, type] : types) {
      const uint8_t coding = type;
      Bytes coded(wire::values_bound(values.size()));
      coded.resize(wire::write_values(coding, values, coded.data(), path));
      contestants.push_back({std::string(name) + " values, write", values.size(), [this, coding] {
                               wire::write_values(coding, values, bytes.data(), path);
                             }});
      contestants.push_back({std::string(name) + " values, read", values.size(), [this, coded] {
                               uint64_t count = 0;
                               const std::string refused =
                                   wire::read_values(coded, seen, count, path);
                               expect(refused.empty(), refused.c_str());
                             }});
    }
  }
};

void print_sizes(kernels::CodePath path) {
  const char* separator = "";
  for (const double density : {0.001, 0.01, 0.1}) {
    const auto count = static_cast<uint64_t>(density * static_cast<double>(kElements));
    const std::vector<uint32_t> positions = draw(kElements, count);
    const double entropy = entropy_bits(static_cast<double>(kElements), static_cast<double>(count));
    std::printf("%s{\"density\": %g, \"entropy\": %.5g", separator, density, entropy);
    for (const unsigned coding : {0u, 1u, 2u}) {
      const auto plan =
          wire::plan_positions(std::span<const uint32_t>(positions), kElements, path, 1u << coding);
      const char* const names[] = {"raw", "blocks", "rice"};
      if (plan.header.coding == coding)
        std::printf(", \"%s\": %.5g", names[coding],
                    8.0 * static_cast<double>(plan.bytes()) / static_cast<double>(count));
    }
    std::printf("}");
    separator = ", ";
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 15;
  Scene scene;
  std::vector<Contestant> contestants;
  contestants.push_back({"memcpy of the positions", scene.positions.size(), [&scene] {
                           std::memcpy(scene.bytes.data(), scene.positions.data(),
                                       4 * scene.positions.size());
                         }});
  scene.add_positions(contestants);
  scene.add_values(contestants);
  time_all(contestants, rounds);
  std::printf("{\"code_path\": \"%s\", \"rows\": [",
              std::string(kernels::code_path_name(scene.path)).c_str());
  print(contestants);
  std::printf("], \"sizes\": [");
  print_sizes(scene.path);
  std::printf("]}\n");
}
