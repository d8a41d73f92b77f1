// penstock check: tests the rules for every scheduler.
#include "core/plan/planner.hpp"
#include "tools/penstock/check/tests.hpp"

#include <map>
#include <numeric>

namespace penstock::command {

namespace {

struct ModelCase {
  size_t n = 0;
  uint32_t period = 1;
  uint32_t flags = 0;
  std::string text() const {
    return fmt::format("{} gradients, {} phase(s){}{}", n, period,
                       (flags & PENSTOCK_MODEL_GIVEN_BUCKETS) != 0 ? ", given buckets" : "",
                       (flags & PENSTOCK_MODEL_MEASURED) != 0 ? ", measured" : "");
  }
};

// A model with sizes from 1 to 4 Mi elements in mixed order, and some gradients without elements.
planning::ModelEntries make_model(const ModelCase& given) {
  planning::ModelEntries model;
  for (size_t i = 0; i < given.n; ++i) {
    planning::GradientEntry& gradient = model.gradients.emplace_back();
    gradient.name = fmt::format("layer.{}.weight", i);
    const uint64_t numel = i % 97 == 5 ? 0 : uint64_t{1} << (i * 7 % 23);
    gradient.shape = {static_cast<int64_t>(numel)};
    gradient.bytes = numel * 4;
    planning::CandidateEntry& candidate = gradient.candidates.emplace_back();
    candidate.compressor = "none";
    candidate.phase_bytes.assign(given.period, numel * 4);
    candidate.part_alignment = 1;
    candidate.combine = PENSTOCK_COMBINE_SUM;
    candidate.n_rounds = 1;
    if ((given.flags & PENSTOCK_MODEL_GIVEN_BUCKETS) != 0)
      gradient.given_bucket = static_cast<uint32_t>((given.n - 1 - i) / 3);
    if ((given.flags & PENSTOCK_MODEL_MEASURED) == 0) continue;
    gradient.ready_us = 10.0 * static_cast<double>(given.n - i);
    gradient.forward_us = 5.0 * static_cast<double>(i);
    candidate.encode_fixed_us = 2;
    candidate.encode_per_element_us = 1e-3;
    candidate.decode_fixed_us = 2;
    candidate.decode_per_element_us = 1e-3;
  }
  model.order.resize(given.n);
  std::iota(model.order.rbegin(), model.order.rend(), uint64_t{0});
  model.links = {{5, 1e-4, PENSTOCK_LEVEL_LOCAL}, {50, 8e-3, PENSTOCK_LEVEL_CROSS}};
  if ((given.flags & PENSTOCK_MODEL_MEASURED) != 0) {
    model.backward_us = 10.0 * static_cast<double>(given.n + 1);
    model.forward_us = 5.0 * static_cast<double>(given.n + 1);
  }
  model.world = 4;
  model.hosts = 2;
  model.ranks_per_host = 2;
  model.period = given.period;
  model.flags = given.flags | PENSTOCK_MODEL_FORWARD_WAITS;
  return model;
}

// Checks a plan for given buckets. A scheduler may order and route given buckets but must not join
// them. It may split a bucket, with a warning: each part then waits only for its own gradients, and
// DDP's bucket travels in more messages than DDP intended.
Status check_given(const Plan& plan, const planning::ModelEntries& model, std::string& warning) {
  for (const planning::Bucket& bucket : plan.buckets)
    for (const planning::Piece& piece : bucket.pieces)
      if (model.gradients[piece.gradient].given_bucket !=
          model.gradients[bucket.pieces[0].gradient].given_bucket)
        return internal("it joins gradients of different given buckets");
  std::map<std::pair<uint32_t, uint32_t>, int> seen;
  for (const planning::Bucket& bucket : plan.buckets)
    if (++seen[{bucket.phase, model.gradients[bucket.pieces[0].gradient].given_bucket}] > 1)
      warning =
          "it splits given buckets, so that they travel in more messages than the frontend gave";
  return {};
}

Status check_model(const Subject& subject, const ModelCase& given, std::string& warning) {
  doing(fmt::format("plan of a model with {}", given.text()));
  const planning::ModelEntries model = make_model(given);
  const planning::OwnedModel owned(model);
  PENSTOCK_ASSIGN(const auto one, make_default<penstock_scheduler>(subject));
  PENSTOCK_ASSIGN(const auto other, make_default<penstock_scheduler>(subject));
  PENSTOCK_ASSIGN(const Plan first, make_plan(*one, owned.model()));
  PENSTOCK_ASSIGN(const Plan again, make_plan(*one, owned.model()));
  PENSTOCK_ASSIGN(const Plan elsewhere, make_plan(*other, owned.model()));
  if (plan_bytes(first) != plan_bytes(again) || plan_bytes(first) != plan_bytes(elsewhere))
    return internal("equal models gave different plans; plan must depend on the model only");
  for (const planning::Bucket& bucket : first.buckets)
    if ((one->traits().routes & (uint64_t{1} << bucket.route)) == 0)
      return internal("a bucket takes route {}, which describe does not name", bucket.route);
  if ((given.flags & PENSTOCK_MODEL_GIVEN_BUCKETS) != 0) return check_given(first, model, warning);
  return {};
}

template <uint32_t flags>
TestOutcome test_models(const Subject& subject) {
  std::string warning;
  for (const size_t n : {0u, 1u, 10u, 1000u})
    for (const uint32_t period : {1u, 2u}) {
      const ModelCase given{n, period, flags};
      if (Status status = check_model(subject, given, warning); !status.ok())
        return status.with_context(given.text());
    }
  return warning.empty() ? TestOutcome() : TestOutcome(Verdict::warning, warning);
}

}  // namespace

std::vector<Test> scheduler_tests() {
  return {loaded("plans before measuring", test_models<0>),
          loaded("plans from measured times", test_models<PENSTOCK_MODEL_MEASURED>),
          loaded("given buckets", test_models<PENSTOCK_MODEL_GIVEN_BUCKETS>)};
}

}  // namespace penstock::command
