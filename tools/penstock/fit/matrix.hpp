// Checks without a run whether the plugins of a scheme fit together. Gradients of a few sample
// shapes stand for a model's gradients.
//
// A misfit that depends on the model (sizes, names) or on the run (number of ranks, behaviour of
// the optimizer) shows only when a set is made. Everything else that a run refuses is refused here
// too, with equal words, because both call check_fit.
#pragma once

#include "core/config/config.hpp"
#include "core/fit/rules.hpp"
#include "core/plugin/registry.hpp"

#include <string>
#include <vector>

namespace penstock {

// Runs check_config, then checks the fit of the scheme of every stage, for four ranks and a
// frontend with all abilities of penstock.torch. The error of a misfit begins with the place of
// [scheme] in the file. Returns the warnings, each once.
Result<FitAdvice> check_fit_of_config(const Config& config, Registry& registry);

enum class Verdict { ok, poor, no };
// "ok", "poor" (allowed, seldom meant), "no".
std::string_view verdict_name(Verdict verdict);

struct MatrixCell {
  std::string row;
  std::string column;
  Verdict verdict = Verdict::no;
  std::string note;  // empty for ok; the warning for poor; the reason for no
};

struct Matrix {
  std::string rows;  // the kind of the rows: "compressor", "scheduler"
  std::string about;
  std::vector<MatrixCell> cells;  // row after row, each with the same columns
};

// Returns the tables of combinations, each plugin with its default options:
//   every compressor with every memory, all other parts without limits;
//   every compressor with every route and collective, with the first of its best memories;
//   every scheduler with every route.
// If an instance of a plugin cannot be made with the defaults, all its cells hold the error.
std::vector<Matrix> fit_matrices(Registry& registry);

}  // namespace penstock
