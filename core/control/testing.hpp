// Helpers for the tests of Control: a world whose ranks are threads of this process.
#pragma once

#include "core/control/control.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace penstock::testing {

inline bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// Broadcasts rank 0's address between threads.
class AddressBoard {
 public:
  std::function<Result<std::string>(std::string)> exchange(uint32_t rank) {
    return [this, rank](std::string mine) -> Result<std::string> {
      if (rank == 0) address_.set_value(mine);
      return text_.get();
    };
  }
  std::string address() const { return text_.get(); }

 private:
  std::promise<std::string> address_;
  std::shared_future<std::string> text_ = address_.get_future().share();
};

inline Control::Options quick_options(uint32_t rank, uint32_t size) {
  Control::Options options;
  options.rank = rank;
  options.size = size;
  options.deadline_us = 20'000'000;  // much longer than a loaded machine needs
  options.heartbeat_us = 20'000;
  return options;
}

constexpr uint64_t kLongUs = 20'000'000;

// Runs `body` once per rank, each on a thread of its own with a started Control, and stops them
// all.
inline void run_world(uint32_t size, const std::function<void(Control& control)>& body,
                      const std::function<void(Control::Options& options)>& adjust = {}) {
  AddressBoard board;
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      Control::Options options = quick_options(rank, size);
      options.exchange_address = board.exchange(rank);
      if (adjust) adjust(options);
      Result<std::unique_ptr<Control>> control = Control::start(std::move(options));
      ASSERT_TRUE(control.ok()) << control.status().message();
      body(**control);
      (*control)->stop();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace penstock::testing
