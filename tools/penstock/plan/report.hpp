// What `penstock plan` says: as text, as JSON, and as a page.
#pragma once

#include "tools/penstock/output.hpp"
#include "tools/penstock/plan/programs.hpp"
#include "tools/penstock/plan/sweep.hpp"

#include <string>
#include <vector>

namespace penstock::command {

// All that was found out; the first scheme is the dense reference.
struct Predicted {
  const ModelProfile* profile;
  const std::vector<SchemeFile>* schemes;
  Cluster cluster;
  std::string costs;                 // where those of encoding and decoding come from
  std::vector<Prediction> outcomes;  // of each scheme
  size_t best = 0;                   // of them the one to take
  double worth = 0;                  // the share of a step that compression has to save
  std::vector<Sweep> sweeps;

  const std::string& name(size_t scheme) const { return (*schemes)[scheme].name; }
  // Of the dense reference's step, how many of this scheme's.
  double against_dense(const Prediction& outcome) const {
    return ratio(outcomes.front().step_us, outcome.step_us);
  }
  // Of two times; of two that are nothing 1.
  static double ratio(double us, double other_us) { return us == other_us ? 1 : us / other_us; }
  // Indices, the fastest first; those of which nothing is predicted at the end.
  std::vector<size_t> by_speed() const;
};

// What every verdict says of itself: a scheme that is fastest may train worst.
inline constexpr const char* kPerStep = "per step, steps to a loss not counted";

// Lines about model, cluster and costs: name and sentence.
std::vector<std::pair<std::string, std::string>> premises(const Predicted& told);
// Which to take, or not to compress, as a sentence.
std::string verdict(const Predicted& told);
// "dgc; from 2.3 Gbit/s on dense (do not compress)".
std::string best_over(const Predicted& told, const Sweep& sweep);
// The same as a sentence that says over what.
std::string verdict(const Predicted& told, const Sweep& sweep);

std::string text_of(const Predicted& told);
Json json_of(const Predicted& told);
// Of the last scheme, whose step is the one outcome, what its buckets run.
std::string text_of(const Predicted& told, const Programs& programs);
Json json_of(const Predicted& told, const Programs& programs);
// A page of its own: no script, no other file, no network.
std::string page_of(const Predicted& told);

// "52.9 ms", "1.31 s": of microseconds, for people.
std::string time_text(double us);

}  // namespace penstock::command
