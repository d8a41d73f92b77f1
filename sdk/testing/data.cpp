// Inputs for tests; see data.hpp.
#include <algorithm>
#include <cmath>
#include <testing/data.hpp>

namespace penstock::test {
namespace {

template <typename Value>
std::vector<float> fill(uint64_t n, Value&& value) {
  std::vector<float> values(n);
  for (uint64_t i = 0; i < n; ++i) values[i] = static_cast<float>(value(i));
  return values;
}

std::vector<float> gauss(uint64_t n, uint64_t seed) {
  Random random(seed);
  return fill(n, [&](uint64_t) { return random.gauss(); });
}

std::vector<float> laplace(uint64_t n, uint64_t seed) {
  Random random(seed);
  return fill(n, [&](uint64_t) {
    const double magnitude = -std::log(random.uniform());
    return random.bits() % 2 == 0 ? magnitude : -magnitude;
  });
}

std::vector<float> student_t(uint64_t n, uint64_t seed) {
  Random random(seed);
  return fill(n, [&](uint64_t) {
    double squares = 0;
    for (int i = 0; i < 3; ++i) squares += std::pow(random.gauss(), 2);
    return random.gauss() / std::sqrt(squares / 3);
  });
}

std::vector<float> constant(uint64_t n, uint64_t) {
  return fill(n, [](uint64_t) { return -0.75; });
}

std::vector<float> sparse(uint64_t n, uint64_t seed) {
  Random random(seed);
  return fill(n, [&](uint64_t) { return random.below(100) == 0 ? random.gauss() : 0.0; });
}

std::vector<float> spike(uint64_t n, uint64_t seed) {
  std::vector<float> values = gauss(n, seed);
  if (n > 0) values[seed % n] = -1e6f;
  return values;
}

std::vector<float> sorted(uint64_t n, uint64_t seed) {
  std::vector<float> values = gauss(n, seed);
  std::sort(values.begin(), values.end());
  return values;
}

std::vector<float> alternating(uint64_t n, uint64_t) {
  return fill(n, [](uint64_t i) { return (i % 2 == 0 ? 1.0 : -1.0) * (i % 3 == 0 ? 0.5 : 0.25); });
}

std::vector<float> subnormal(uint64_t n, uint64_t seed) {
  Random random(seed);
  return fill(n, [&](uint64_t) { return random.gauss() * 1e-40; });
}

}  // namespace

uint64_t Random::bits() {
  uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

double Random::uniform() {
  return (static_cast<double>(bits() >> 12) + 0.5) / 4503599627370496.0;
}

uint64_t Random::below(uint64_t bound) {
  return bits() % bound;
}

double Random::gauss() {
  const double radius = std::sqrt(-2 * std::log(uniform()));
  return radius * std::cos(6.283185307179586 * uniform());
}

std::vector<float> heavy_tailed(uint64_t n, uint64_t seed) {
  Random random(seed);
  return fill(n, [&](uint64_t) {
    const double scale = std::exp(random.gauss());
    return random.gauss() * scale;
  });
}

std::vector<float> zeros(uint64_t n, uint64_t) {
  return std::vector<float>(n);
}

std::vector<float> small_spike(uint64_t n, uint64_t seed) {
  std::vector<float> values(n);
  if (n > 0) values[Random(seed).below(n)] = seed % 2 == 0 ? 1e4f : -1e4f;
  return values;
}

const std::vector<Distribution>& distributions() {
  static const std::vector<Distribution> all{
      {"gauss", gauss},        {"laplace", laplace}, {"student_t", student_t},
      {"constant", constant},  {"zero", zeros},      {"sparse", sparse},
      {"spike", spike},        {"sorted", sorted},   {"alternating", alternating},
      {"subnormal", subnormal}};
  return all;
}

const std::vector<uint64_t>& awkward_sizes() {
  static const std::vector<uint64_t> sizes{0, 1, 2, 3, 31, 64, 1000, 65537};
  return sizes;
}

const std::vector<AwkwardInput>& awkward_inputs() {
  static const std::vector<AwkwardInput> all = [] {
    const std::vector<uint64_t> small(awkward_sizes().begin(), awkward_sizes().end() - 1);
    std::vector<AwkwardInput> inputs{{{"heavy_tailed", heavy_tailed}, awkward_sizes()}};
    for (const Distribution& distribution : distributions()) {
      const std::string& name = distribution.name;
      const bool also_large = name == "constant" || name == "sparse" || name == "alternating";
      inputs.push_back({distribution, also_large ? awkward_sizes() : small});
    }
    return inputs;
  }();
  return all;
}

}  // namespace penstock::test
