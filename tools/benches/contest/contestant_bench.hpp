// One scheduler in the contest: its set, its turns and its measurements.
//
// Without a forward, a turn is one step. It begins at a common time, runs backward and ends with
// the last result.
//
// With a forward, steps follow each other as in training. The forward sleeps layer by layer. A set
// that defers waits before each layer for the layer's gradient, as frontends do. Other sets wait
// for all results after backward. The first step of a turn is not timed. The clock runs from the
// earliest begin of the forward after the first step to the earliest begin of the forward after the
// last step. So the wait for legs of the first step counts, and the wait for legs of the last step
// does not. The number of timed reductions, gathers and waits equals the number of counted steps,
// for sets with and without deferred legs.
#pragma once

#include "tools/benches/contest/training_bench.hpp"
#include "tools/benches/training_set.hpp"

#include <nlohmann/json.hpp>

#include <map>
#include <string>
#include <vector>

namespace penstock::bench {

class Contestant {
 public:
  // `entry` is an entry in the file of contestants.
  Contestant(Runtime& runtime, const Training& training, const nlohmann::json& entry);

  const std::string& name() const { return name_; }

  // Collective over the ranks, as are the next functions. note() stores the figures of the turn.
  void turn(Training& training);
  // Counts the last turn.
  void note(size_t round);
  // Plans of the warm-up do not count as plans of the timed steps.
  void end_of_warm_up() { plans_in_warm_up_ = plans_; }
  // Compares the last step with the mean of all ranks if the scheme is dense, and the ranks with
  // each other. `mean` is the mean of step 0. Ends the program if a result is wrong.
  void check_result(Training& training, const std::vector<float>& mean) const;

  nlohmann::json figures() const;

 private:
  // The parts of a step, in this order. The last step of a turn ends with its results.
  void forward(const Training& training);
  void backward(Training& training);
  void wait_for_all();
  void end_step();

  void read_report();

  std::string name_;
  bool dense_;
  SetHandle set_;
  uint64_t steps_ = 0;         // number of begun steps
  bool is_under_way_ = false;  // some results of the last step are missing
  int64_t computed_ns_ = 0;    // in forward and backward, without waits
  double step_ms_ = 0, exposed_ms_ = 0, encode_ms_ = 0, exchange_ms_ = 0, decode_ms_ = 0;
  std::map<std::string, std::map<size_t, std::vector<double>>> figures_;  // [what][round]
  std::vector<int> buckets_;                                              // [phase]
  std::string layout_;
  nlohmann::json explanation_;
  int plans_ = 0, plans_in_warm_up_ = 0;
};

}  // namespace penstock::bench
