#include "journal.hpp"

#include <cstdio>
#include <cstdlib>

namespace penstock::simulated {

void Journal::report(Misuse misuse, std::string sentence) {
  if (abort_on_misuse_) {
    std::fprintf(stderr, "simulated device: %s\n", sentence.c_str());
    std::abort();
  }
  reports_.push_back({misuse, std::move(sentence)});
}

void Journal::count(Call call) {
  ++counts_[std::this_thread::get_id()][static_cast<std::size_t>(call)];
}

void Journal::count_wait(uint64_t Waits::*kind) {
  ++(waits_[std::this_thread::get_id()].*kind);
}

uint64_t Journal::calls(Call call) const {
  uint64_t sum = 0;
  for (const auto& [thread, counts] : counts_) sum += counts[static_cast<std::size_t>(call)];
  return sum;
}

uint64_t Journal::calls_of_this_thread(Call call) const {
  const auto found = counts_.find(std::this_thread::get_id());
  return found == counts_.end() ? 0 : found->second[static_cast<std::size_t>(call)];
}

std::optional<int32_t> Orders::come(Call kind) {
  std::optional<int32_t> error;
  for (auto order = orders_.begin(); order != orders_.end();) {
    if (order->kind == kind && --order->left == 0) {
      error = order->error;
      order = orders_.erase(order);
    } else {
      ++order;
    }
  }
  return error;
}

}  // namespace penstock::simulated
