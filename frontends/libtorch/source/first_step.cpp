// What the ranks agree on before the first gradient of an optimizer leaves.

#include "first_step.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "world.hpp"

namespace penstock::torch {
namespace {

// Mixes 8 bytes at a time: values that differ give the same number by chance only.
std::uint64_t checksum(const void* data, std::size_t bytes) {
  const char* next = static_cast<const char*>(data);
  std::uint64_t sum = 0x9e3779b97f4a7c15u ^ bytes;
  while (bytes > 0) {
    std::uint64_t word = 0;
    const std::size_t taken = std::min(bytes, sizeof word);
    std::memcpy(&word, next, taken);
    sum = (sum ^ word) * 0xd6e8feb86659fd93u;
    sum ^= sum >> 32;
    next += taken;
    bytes -= taken;
  }
  return sum;
}

std::vector<std::uint64_t> checksums(const std::vector<NamedParameter>& named) {
  std::vector<std::uint64_t> sums;
  for (const NamedParameter& one : named) {
    const at::Tensor plain = one.tensor.detach().contiguous();
    sums.push_back(checksum(plain.data_ptr(), plain.nbytes()));
  }
  return sums;
}

std::string as_bytes(const std::vector<std::uint64_t>& sums) {
  return {reinterpret_cast<const char*>(sums.data()), sums.size() * sizeof sums[0]};
}

std::uint64_t sum_at(const std::string& bytes, std::size_t number) {
  std::uint64_t sum = 0;
  std::memcpy(&sum, bytes.data() + number * sizeof sum, sizeof sum);
  return sum;
}

// "rank 1, 3 and others do not" hold what rank 0 holds.
std::string ranks_that_differ(const std::vector<std::string>& of_all, std::size_t number,
                              const Ranks& ranks) {
  std::string named;
  std::size_t count = 0;
  for (std::size_t i = 1; i < of_all.size(); ++i) {
    if (sum_at(of_all[i], number) == sum_at(of_all[0], number)) continue;
    if (++count <= 8)
      named += (count > 1 ? ", " : "") + std::to_string(ranks.empty() ? i : ranks[i]);
  }
  return named + (count > 8 ? " and others" : "") + (count == 1 ? " does not" : " do not");
}

[[noreturn]] void refuse_difference(const std::vector<NamedParameter>& named,
                                    const std::vector<std::string>& of_all, const Ranks& ranks) {
  for (const std::string& one : of_all) {
    if (one.size() != of_all[0].size())
      throw Error(PENSTOCK_MISMATCH,
                  "check_parameters of DistributedOptimizer is not the same on every rank");
  }
  std::size_t first = named.size(), differing = 0;
  for (std::size_t i = named.size(); i-- > 0;) {
    const auto same = [&](const std::string& one) {
      return sum_at(one, i) == sum_at(of_all[0], i);
    };
    if (std::all_of(of_all.begin(), of_all.end(), same)) continue;
    first = i;
    ++differing;
  }
  throw Error(
      PENSTOCK_MISMATCH,
      "parameter " + named[first].name + " differs between ranks at the first step: rank " +
          ranks_that_differ(of_all, first, ranks) + " hold the values of rank " +
          std::to_string(ranks.empty() ? 0 : ranks[0]) + " (" + std::to_string(differing) + " of " +
          std::to_string(named.size()) +
          " parameters differ). Call penstock::torch::broadcast_parameters(*model) before "
          "training, or set Options::check_parameters = false if they are meant to differ.");
}

}  // namespace

void agree_on_parameters(const std::string& set_name, const std::vector<NamedParameter>& named,
                         bool compare, const Ranks& ranks) {
  const std::string own = compare ? as_bytes(checksums(named)) : std::string();
  const std::string mine = as_bytes({checksum(own.data(), own.size())});
  const auto told = gather_bytes(current(), "penstock.first_step." + set_name, mine, ranks);
  const auto same = [&](const std::string& one) { return one == told[0]; };
  if (std::all_of(told.begin(), told.end(), same)) return;
  refuse_difference(named, gather_bytes(current(), "penstock.parameters." + set_name, own, ranks),
                    ranks);
}

}  // namespace penstock::torch
