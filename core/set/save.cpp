// Saving, restoring and resetting a set.

#include "core/base/bytes.hpp"
#include "core/base/hash.hpp"
#include "core/bucket/engine.hpp"
#include "core/set/set.hpp"

namespace penstock {
namespace {

constexpr uint64_t kPatienceUs = 1'000'000;
constexpr uint64_t kStateMagic = 0x3245544154534b50u;  // "PKSTATE2"

}  // namespace

Status Set::save(std::string& out) {
  PENSTOCK_TRY(flush());
  // What is current is of before the step.
  if (step_.under_way() && !forgets && works_->states().keeps_anything())
    return failed_precondition(
        "set '{}' is saved in the middle of step {}, and [runtime] forget = false: save after the "
        "optimizer's step, or remove that line",
        name, step.index);
  ByteWriter writer(out);
  writer.put(kStateMagic);
  writer.text(name);
  writer.put(rank);
  writer.put(world);
  writer.put(step.index);
  writer.text(plan_bytes(works_->plan()));
  carries_.write(writer);
  std::string tensors;
  PENSTOCK_TRY(works_->states().write(tensors));
  writer.text(tensors);
  writer.put(hash64(out));
  return {};
}

Result<SavedSet> read_saved(std::string_view bytes, std::string_view set, size_t n_gradients) {
  if (bytes.size() < 16)
    return invalid_argument("the saved state of set '{}' is truncated: {} bytes", set,
                            bytes.size());
  const std::string_view body = bytes.substr(0, bytes.size() - sizeof(uint64_t));
  if (ByteReader(bytes.substr(body.size())).get<uint64_t>() != hash64(body))
    return invalid_argument(
        "the saved state of set '{}' is damaged or truncated: its checksum does not match", set);
  ByteReader reader(body);
  if (reader.get<uint64_t>() != kStateMagic)
    return invalid_argument("these bytes are not a saved state");
  SavedSet saved;
  saved.name = reader.text();
  saved.rank = reader.get<uint32_t>();
  saved.world = reader.get<uint32_t>();
  saved.step = reader.get<uint64_t>();
  saved.plan = reader.text();
  for (size_t i = 0; i < n_gradients; ++i) saved.carries.push_back(reader.text());
  saved.tensors = reader.text();
  if (!reader.at_end())
    return invalid_argument("the saved state of set '{}' is of another model", set);
  return saved;
}

Status Set::load(std::string_view bytes) {
  PENSTOCK_TRY(services_.state());
  PENSTOCK_ASSIGN(const SavedSet saved, read_saved(bytes, name, gradients_.size()));
  // The name may differ: gradients are what state is kept for.
  if (saved.rank != rank || saved.world != world)
    return mismatch(
        "this state was saved by rank {} of {} of set '{}', it cannot be loaded by rank {} of {} "
        "of set '{}'; to load that of another number of ranks, give all of it "
        "(penstock_set_load_shards)",
        saved.rank, saved.world, saved.name, rank, world, name);
  PENSTOCK_ASSIGN(Plan plan, plan_from_bytes(saved.plan));
  PENSTOCK_TRY(loadable());
  PENSTOCK_ASSIGN(std::unique_ptr<Works> works,
                  prepare_saved(saved.step, std::move(plan), saved.tensors));
  PENSTOCK_ASSIGN(Carries::Kept carries, carries_.read(saved));
  go_on_from(saved.step, std::move(works), std::move(carries));
  return {};
}

Status Set::loadable() {
  if (!step_.runs()) return drain_devices();
  return failed_precondition("set '{}' is loaded while step {} is under way", name, step.index);
}

void Set::go_on_from(uint64_t saved_step, std::unique_ptr<Works> works, Carries::Kept carries) {
  std::string left_to_add;
  for (size_t i = 0; i < carries.size(); ++i)
    if (carries[i].bytes() != 0) left_to_add += gradients_[i]->name + '\n';
  std::string where = where_to_go_on(saved_step, works->plan(), " of a loaded state", left_to_add);
  // Nothing that runs a step has changed so far, and once this has not thrown nothing fails.
  const std::unique_ptr<Works> replaced = install(std::move(works));
  step_.drop();
  step.index = saved_step;
  carries_.replace(std::move(carries));
  need_agreement(std::move(where), saved_step);
  begin_attempt();
}

void Set::need_agreement(std::string where, std::optional<uint64_t> loaded) {
  if (world != 1) agreement_.need(std::move(where), loaded);
}

// A checksum has passed: the plan is whole, and perhaps of another set or scheme.
Status Set::check_saved_plan(const Plan& plan, const PlanFacts& facts,
                             const Fitting& fitting) const {
  const Status fits = check_plan(plan, facts, fitting.scheduler()->name());
  if (fits.ok()) return {};
  return mismatch(
      "the saved plan does not fit set '{}' ({}): load it under the configuration it was saved "
      "with",
      name, fits.message());
}

// All of a load that can fail.
Result<std::unique_ptr<Works>> Set::prepare_saved(uint64_t saved_step, Plan plan,
                                                  std::string_view tensors) {
  PENSTOCK_ASSIGN(const auto fitting, fit(saved_step));
  PENSTOCK_TRY(check_saved_plan(plan, plan_facts_of(*fitting), *fitting));
  PENSTOCK_TRY(channels_.open_levels_of(plan));
  PENSTOCK_ASSIGN(auto works, Works::make(*this, fitting, std::move(plan), gradients_, nullptr));
  PENSTOCK_TRY(works->states().read(tensors));
  return works;
}

Status Set::reset() {
  PENSTOCK_TRY(services_.state());
  (void)flush();  // to its end, well or not: no later message meets one of this step
  while (!step_.wait_until_idle(kPatienceUs)) {
  }
  PENSTOCK_TRY(drain_devices());
  step_.drop();
  PENSTOCK_TRY(works_->states().zero());
  carries_.drop();
  begin_attempt();
  return {};
}

}  // namespace penstock
