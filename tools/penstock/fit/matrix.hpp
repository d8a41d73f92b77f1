// Whether schemes fit together, told without a run: gradients of a few shapes stand for a model's.
//
// What depends on the model (sizes, names) or on the run (how many ranks, what the optimizer does)
// shows only when a set is made; everything else that a run refuses is refused here with the same
// words, by the same check_fit.
#pragma once

#include "core/config/config.hpp"
#include "core/fit/rules.hpp"
#include "core/plugin/registry.hpp"

#include <string>
#include <vector>

namespace penstock {

// check_config, then the fit of what is in force at every stage, over four ranks and a frontend
// that can do all that penstock.torch can. The error of a misfit begins with the place of [scheme];
// returned are the warnings, each once.
Result<FitAdvice> check_fit_of_config(const Config& config, Registry& registry);

enum class Verdict { ok, poor, no };
// "ok", "poor" (allowed, seldom meant), "no".
std::string_view verdict_name(Verdict verdict);

struct MatrixCell {
  std::string row;
  std::string column;
  Verdict verdict = Verdict::no;
  std::string note;  // empty for ok; a warning, or the reason why not
};

struct Matrix {
  std::string rows;  // what they are: "compressor", "scheduler"
  std::string about;
  std::vector<MatrixCell> cells;  // row after row, each with the same columns
};

// What goes with what, each plugin with its default options:
//   every compressor with every memory, all else as able as can be;
//   every compressor with every route and collective, with the first memory that it fits best;
//   every scheduler with every route.
// A plugin that cannot be made with its defaults gives its error in all its cells.
std::vector<Matrix> fit_matrices(Registry& registry);

}  // namespace penstock
