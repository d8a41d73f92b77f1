// One scheduler in the contest: its set, its turns, and what was measured of them.
//
// Without a forward a turn is one step: from a common start through backward to the last result.
//
// With one, steps follow each other as in a training: forward sleeps its layers, and a set that
// defers waits in front of each for the layer's gradient, as the frontends do it; others have
// waited for all behind backward. A turn's first step is not timed. The clock goes from the moment
// at which a forward may begin behind it to the same moment behind the last step. So what the first
// step left to be gathered is waited for inside, and what the last one leaves outside: as many
// steps are reduced, gathered and waited for as are counted, for those that defer and for those
// that do not.
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
  // `told` is an entry of the file of contestants.
  Contestant(Runtime& runtime, const Training& training, const nlohmann::json& told);

  const std::string& name() const { return name_; }

  // Collective over the ranks, as all that follows. Its figures wait for note().
  void turn(Training& training);
  // The last turn is one that counts.
  void note(size_t round);
  // Plans made so far do not count as made while it was timed.
  void end_of_warm_up() { plans_in_warm_up_ = plans_; }
  // The last step against the mean of all ranks, where the scheme is dense, and rank against rank.
  // `mean` is that of step 0. Ends the program where wrong.
  void check_result(Training& training, const std::vector<float>& mean) const;

  nlohmann::json told() const;

 private:
  // Parts of a step, in this order; the last of a turn's ends with its results.
  void forward(const Training& training);
  void backward(Training& training);
  void wait_for_all();
  void end_step();

  void read_report();

  std::string name_;
  bool dense_;
  SetHandle set_;
  uint64_t steps_ = 0;         // begun so far
  bool is_under_way_ = false;  // results of the last one are not all here
  int64_t computed_ns_ = 0;    // by forward and backward, without waits
  double step_ms_ = 0, exposed_ms_ = 0, encode_ms_ = 0, exchange_ms_ = 0, decode_ms_ = 0;
  std::map<std::string, std::map<size_t, std::vector<double>>> figures_;  // [what][round]
  std::vector<int> buckets_;                                              // [phase]
  std::string layout_;
  nlohmann::json explanation_;
  int plans_ = 0, plans_in_warm_up_ = 0;
};

}  // namespace penstock::bench
