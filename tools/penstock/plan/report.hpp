// The report of `penstock plan`: as text, as JSON, and as a page.
#pragma once

#include "tools/penstock/output.hpp"
#include "tools/penstock/plan/programs.hpp"
#include "tools/penstock/plan/sweep.hpp"

#include <string>
#include <vector>

namespace penstock::command {

// All results of a command. The first scheme is the dense reference.
struct Predicted {
  const ModelProfile* profile;
  const std::vector<SchemeFile>* schemes;
  Cluster cluster;
  std::string costs;                 // the source of the times to encode and decode
  std::vector<Prediction> outcomes;  // by scheme
  size_t best = 0;                   // the index of the scheme to take
  double worth = 0;                  // the share of a step that compression has to save
  std::vector<Sweep> sweeps;

  const std::string& name(size_t scheme) const { return (*schemes)[scheme].name; }
  // The time of the dense reference's step divided by the time of this scheme's step.
  double against_dense(const Prediction& outcome) const {
    return ratio(outcomes.front().step_us, outcome.step_us);
  }
  // The ratio of two times; 1 if both are equal, also if both are 0.
  static double ratio(double us, double other_us) { return us == other_us ? 1 : us / other_us; }
  // The indices of the schemes, the fastest first; schemes without a prediction come last.
  std::vector<size_t> by_speed() const;
};

// The reservation that every verdict states, because the fastest scheme may train worst.
inline constexpr const char* kPerStep = "per step, steps to a loss not counted";

// Lines about the model, the cluster and the costs, each with a name and a sentence.
std::vector<std::pair<std::string, std::string>> premises(const Predicted& predicted);
// A sentence that names the scheme to take or advises not to compress.
std::string verdict(const Predicted& predicted);
// "dgc; from 2.3 Gbit/s on dense (do not compress)".
std::string best_over(const Predicted& predicted, const Sweep& sweep);
// best_over() as a sentence that names the swept quantity.
std::string verdict(const Predicted& predicted, const Sweep& sweep);

std::string text_of(const Predicted& predicted);
Json json_of(const Predicted& predicted);
// The report of a command that predicts one scheme, with the programs of its buckets.
std::string text_of(const Predicted& predicted, const Programs& programs);
Json json_of(const Predicted& predicted, const Programs& programs);
// An HTML page without scripts, other files or network access.
std::string page_of(const Predicted& predicted);

// Writes microseconds for people: "52.9 ms", "1.31 s".
std::string time_text(double us);

}  // namespace penstock::command
