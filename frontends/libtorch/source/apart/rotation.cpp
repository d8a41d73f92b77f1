// The order of exchanges when ranks train apart.

#include "rotation.hpp"

#include <string>

#include "../door.hpp"

namespace penstock::torch {
namespace {

void check_number(const char* name, std::int64_t value, std::int64_t least, const char* what) {
  if (value < least)
    refuse_argument(std::string(name) + " is " + std::to_string(value) +
                    ", expected a whole number from " + std::to_string(least) + " on: " + what);
}

}  // namespace

Rotation::Rotation(std::int64_t every, std::int64_t fragments, std::int64_t delay)
    : every(every), fragments(fragments), delay(delay) {
  check_number("every", every, 1, "the number of the optimizer's steps in a round");
  check_number("fragments", fragments, 1, "the number of parts that travel in turn");
  check_number("delay", delay, 0, "the number of steps that hide an exchange");
  const std::string steps = std::to_string(every), parts = std::to_string(fragments);
  if (fragments > every)
    refuse_argument("fragments is " + parts + " and every is " + steps +
                    ", expected at most one fragment for each step of a round: raise every to " +
                    parts + " or more, or lower fragments to " + steps + " or less");
  const std::int64_t gap = every / fragments;
  if (delay >= gap)
    refuse_argument("delay is " + std::to_string(delay) +
                    ", expected fewer than every / fragments = " + steps + " / " + parts +
                    " steps: an exchange must land before the next one starts; lower delay to " +
                    std::to_string(gap - 1) + " or less, or raise every");
}

// The step of a round, from 1 to `every`, after which the fragment starts: (f + 1) H / F, rounded
// down. The whole part and the rest of H / F are multiplied apart, so that no product overflows.
std::int64_t Rotation::place_of(std::int64_t fragment) const {
  return (fragment + 1) * (every / fragments) + (fragment + 1) * (every % fragments) / fragments;
}

std::optional<std::size_t> Rotation::starting(std::int64_t step) const {
  if (step < 1) return std::nullopt;
  const std::int64_t place = (step - 1) % every + 1;
  for (std::int64_t fragment = 0; fragment < fragments; ++fragment)
    if (place_of(fragment) == place) return static_cast<std::size_t>(fragment);
  return std::nullopt;
}

}  // namespace penstock::torch
