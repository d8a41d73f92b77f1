// The observations of the machine (misuse, calls, waits of hosts), and the calls that shall fail.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "../simulated.hpp"

namespace penstock::simulated {

class Journal {
 public:
  explicit Journal(bool abort_on_misuse) : abort_on_misuse_(abort_on_misuse) {}

  void report(Misuse misuse, std::string sentence);
  const std::vector<Report>& reports() const { return reports_; }

  void count(Call call);
  void count_wait(uint64_t Waits::*kind);
  void count_copy(uint64_t Copied::*way, uint64_t bytes) { copied_.*way += bytes; }

  uint64_t calls(Call call) const;
  uint64_t calls_of_this_thread(Call call) const;
  const std::map<std::thread::id, Waits>& waits() const { return waits_; }
  const Copied& copied() const { return copied_; }
  void note_context(int device) { contexts_.insert(device); }
  const std::set<int>& contexts() const { return contexts_; }

 private:
  static constexpr std::size_t kCalls = static_cast<std::size_t>(Call::kEnd);
  using Counts = std::array<uint64_t, kCalls>;

  bool abort_on_misuse_;
  std::vector<Report> reports_;
  std::map<std::thread::id, Counts> counts_;
  std::map<std::thread::id, Waits> waits_;
  Copied copied_;
  std::set<int> contexts_;
};

// The ordered faults, by kind of call.
class Orders {
 public:
  void add(Call kind, uint64_t nth, int32_t error) { orders_.push_back({kind, nth, error}); }
  // Counts an event of this kind. Returns its error if it shall fail.
  std::optional<int32_t> come(Call kind);

 private:
  struct Order {
    Call kind;
    uint64_t left;
    int32_t error;
  };
  std::vector<Order> orders_;
};

}  // namespace penstock::simulated
