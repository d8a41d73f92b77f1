#include "core/set/set.hpp"

#include "core/base/leak.hpp"
#include "core/set/parameters.hpp"

#include <fmt/format.h>

namespace penstock {

Set::Set(const Services& services)
    : services_(services),
      declaration_(*this, services_),
      residence_(*this, services_, declaration_),
      consensus_(*this, services_, declaration_.group()),
      carries_(*this, declaration_.gradients()),
      rates_(*this, declaration_.gradients()),
      step_(*this, declaration_.gradients(), declaration_.group(), services_, rates_),
      waits_(*this, declaration_.gradients(), step_),
      agreement_(services_, name, declaration_.group(), step_),
      channels_(*this, services_),
      traffic_(*this, channels_.opened(), services_.log),
      measurements_(*this,
                    {services_.control, services_.registry, services_.log, services_.transports,
                     services_.config.runtime().deterministic},
                    declaration_.group(), declaration_.gradients()),
      fits_(*this, services_, declaration_, channels_),
      plans_(*this, services_, declaration_, consensus_, channels_, measurements_),
      reporter_(*this, services_, {declaration_, step_, plans_, channels_, traffic_, residence_}),
      change_(*this, services_,
              {declaration_, consensus_, fits_, plans_, measurements_, channels_, traffic_,
               carries_, residence_, step_}),
      step_end_(*this, services_,
                {declaration_, consensus_, step_, waits_, plans_, carries_, residence_, change_,
                 measurements_, reporter_}),
      saver_(*this, services_,
             {declaration_, consensus_, step_, step_end_, agreement_, channels_, fits_, plans_,
              carries_, change_, residence_}),
      joined_(*this, step_, step_end_) {
  listener = &step_;
}

Set::~Set() {
  services_.run.forget(*this);
}

// ---- making a set ----

Result<SetHandle> Set::create(const Services& services,
                              const penstock_set_declaration& declaration) {
  PENSTOCK_TRY(services.state());
  SetHandle set(new Set(services));
  services.run.remember(*set);
  PENSTOCK_TRY(set->make(declaration));
  return set;
}

// A rank that cannot go on reports its error where the other ranks wait next, in bounded time and
// by name.
Status Set::make(const penstock_set_declaration& declaration) {
  const auto in_set = [&](const Status& status) {
    return status.with_context(fmt::format("set '{}'", name));
  };
  PENSTOCK_TRY(declaration_.take_ranks(declaration));
  Status declared = declaration_.take(declaration);
  if (declared.ok()) declared = residence_.find_devices();
  if (!declared.ok())
    return services_.control.refuse("set " + name, declared, declaration_.group().ranks());
  step_end_.resize(declaration_.gradients().size());
  step_.announce_in(services_.activity.add_set(name));
  PENSTOCK_TRY(declaration_.compare());
  PENSTOCK_TRY(in_set(channels_.open(declaration_.config().at_step(0))));

  std::shared_ptr<const BoundScheme> bound_scheme;  // of the first stage, after all stages fit
  {
    Result<std::vector<SchemeStage>> stages = fits_.all_stages();
    Status fits = stages.status();
    if (fits.ok()) {
      traffic_.compare(fits_.traffic_of(*stages), declaration_.flags());
      fits = residence_.settle(*stages);
    }
    PENSTOCK_TRY(consensus_.at_start("fit", in_set(fits)));
    bound_scheme = stages->front().bound_scheme;
  }
  measurements_.probe(*bound_scheme);
  PENSTOCK_ASSIGN(Plan plan, plans_.agree_on_plan(*bound_scheme));
  Result<std::unique_ptr<CompiledPlan>> compiled =
      plans_.agree_on_compiled_plan(bound_scheme, std::move(plan));
  PENSTOCK_TRY(in_set(compiled.status()));
  plans_.install(std::move(*compiled));
  traffic_.start();
  agreement_.need(where_to_go_on(step.index, plans_.compiled().plan()), std::nullopt);
  step_end_.begin_next();
  reporter_.begin();
  return {};
}

Status Set::compare_parameters(std::span<const penstock_str> names,
                               std::span<const uint64_t> checksums, std::string_view advice) {
  if (step_.under_way())
    return failed_precondition(
        "set '{}': parameters are compared between two steps, but step {} is in progress", name,
        step.index);
  compared_at_ = attempt;
  return Parameters(*this, services_, declaration_.group()).compare(names, checksums, advice);
}

bool Set::comparison_due() {
  const uint64_t every = services_.config.runtime().check_parameters_every;
  return every != 0 && attempt != compared_at_ && attempt % every == 0 && !step_.under_way();
}

// The flag is kept only if it fits the scheme, so that the set can go on after a refusal.
Status Set::optimizer_momentum() {
  const uint32_t before = declaration_.flags();
  declaration_.set_flags(before | PENSTOCK_SET_OPTIMIZER_MOMENTUM);
  const Status status = fits_.check(plans_.compiled().bound_scheme()).status();
  if (!status.ok()) declaration_.set_flags(before);
  return status;
}

Status Set::given_buckets(std::span<const uint32_t> buckets) {
  PENSTOCK_TRY(change_.give_buckets(buckets));
  step_end_.begin_next();
  return {};
}

// ---- steps ----

Status Set::wait(uint64_t index) {
  const Status status = waits_.one(index);
  reporter_.warn_of_nonfinite();
  return status;
}

Status Set::wait_stream(uint64_t index, void* stream) {
  const Status status = waits_.on_stream(index, stream);
  reporter_.warn_of_nonfinite();
  return status;
}

Status Set::wait_all() {
  const Status status = waits_.all();
  reporter_.warn_of_nonfinite();
  return status;
}

uint32_t Set::defers() const {
  if (plans_.compiled().defers()) return PENSTOCK_DEFERS_LEGS;
  const bool is_late = plans_.compiled().bound_scheme().scheme().applies_previous();
  return is_late ? PENSTOCK_DEFERS_STEP : PENSTOCK_DEFERS_NOTHING;
}

Status Set::backward_end() {
  const Status status = waits_.backward();
  reporter_.warn_of_nonfinite();
  return status;
}

Status Set::flush() {
  PENSTOCK_TRY(step_.failure());
  return step_.under_way() ? wait_all() : Status();
}

Status Set::save(std::string& out) {
  PENSTOCK_TRY(flush());
  return saver_.save(out);
}

Status Set::reset() {
  PENSTOCK_TRY(services_.state());
  (void)flush();  // ends the step, even with an error, so that later messages cannot match its own
  return saver_.reset();
}

// ---- the end of a set that may be in the middle of a step ----

void SetCloser::operator()(Set* set) const {
  if (set->end()) delete set;
}

bool Set::end() {
  agreement_.end();
  reporter_.end();
  step_.let_go();
  if (services_.state().ok() && !step_.wait_until_idle(services_.limits.deadline_us))
    services_.run.give_up(
        aborted("set '{}' was destroyed in the middle of step {}, which other ranks "
                "have not come to within {} s",
                name, step.index, double(services_.limits.deadline_us) * 1e-6));
  if (!step_.wait_until_idle(services_.limits.end_us) || !services_.run.answers()) {
    services_.run.abandon(fmt::format("set '{}'", name));
    return false;
  }
  if (residence_.abandons_compiled_plan_at_end()) leak(plans_.release());
  channels_.close();
  step_.stop();
  return true;
}

}  // namespace penstock
