// Saving, restoring and resetting a set.

#include "core/base/bytes.hpp"
#include "core/base/hash.hpp"
#include "core/bucket/engine.hpp"
#include "core/set/set.hpp"

namespace penstock {
namespace {

constexpr uint64_t kPatienceUs = 1'000'000;
constexpr uint64_t kStateMagic = 0x3145544154534b50u;  // "PKSTATE1"

}  // namespace

Status Set::save(std::string& out) {
  PENSTOCK_TRY(flush());
  if (step_.under_way())
    return failed_precondition("set '{}' is saved in the middle of step {}: end the step first",
                               name, step.index);
  ByteWriter writer(out);
  writer.put(kStateMagic);
  writer.text(name);
  writer.put(rank);
  writer.put(world);
  writer.put(step.index);
  writer.text(plan_bytes(works_->plan()));
  for (const auto& gradient : gradients_) {
    const bool carries = gradient->has_carry;
    writer.text(carries ? std::string_view(gradient->carry.as<char>(), gradient->carry.bytes())
                        : std::string_view());
  }
  std::string tensors;
  works_->states().write(tensors);
  writer.text(tensors);
  writer.put(hash64(out));
  return {};
}

Status Set::load(std::string_view bytes) {
  PENSTOCK_TRY(services_.state());
  if (bytes.size() < 16)
    return invalid_argument("the saved state of set '{}' is truncated: {} bytes", name,
                            bytes.size());
  const std::string_view body = bytes.substr(0, bytes.size() - sizeof(uint64_t));
  if (ByteReader(bytes.substr(body.size())).get<uint64_t>() != hash64(body))
    return invalid_argument(
        "the saved state of set '{}' is damaged or truncated: its checksum does not match", name);
  ByteReader reader(body);
  if (reader.get<uint64_t>() != kStateMagic)
    return invalid_argument("these bytes are not a saved state");
  const std::string saved_name(reader.text());
  const auto saved_rank = reader.get<uint32_t>();
  const auto saved_world = reader.get<uint32_t>();
  const auto saved_step = reader.get<uint64_t>();
  const std::string_view saved_plan = reader.text();
  std::vector<std::string_view> carries;
  for (size_t i = 0; i < gradients_.size(); ++i) carries.push_back(reader.text());
  const std::string_view tensors = reader.text();
  if (!reader.at_end())
    return invalid_argument("the saved state of set '{}' is of another model", name);
  // The name may differ: gradients are what state is kept for.
  if (saved_rank != rank || saved_world != world)
    return mismatch(
        "this state was saved by rank {} of {} of set '{}', it cannot be loaded by rank {} of {} "
        "of set '{}'",
        saved_rank, saved_world, saved_name, rank, world, name);
  PENSTOCK_ASSIGN(Plan plan, plan_from_bytes(saved_plan));
  if (step_.runs())
    return failed_precondition("set '{}' is loaded while step {} is under way", name, step.index);
  PENSTOCK_ASSIGN(std::unique_ptr<Works> works,
                  prepare_saved(saved_step, std::move(plan), tensors));
  std::vector<Buffer> kept;
  for (size_t i = 0; i < carries.size(); ++i) {
    kept.emplace_back(carries[i].empty() ? 0 : gradients_[i]->numel * sizeof(float));
    if (carries[i].size() != kept.back().bytes())
      return mismatch("the saved state of set '{}' keeps {} bytes for gradient '{}', expected {}",
                      name, carries[i].size(), gradients_[i]->name, kept.back().bytes());
    if (!carries[i].empty())
      std::memcpy(kept.back().data(), carries[i].data(), kept.back().bytes());
  }
  // Nothing that runs a step has changed so far, and nothing fails from here on.
  step_.drop();
  step.index = saved_step;
  install(std::move(works));
  for (size_t i = 0; i < gradients_.size(); ++i) {
    gradients_[i]->has_carry = kept[i].bytes() != 0;
    if (gradients_[i]->has_carry) gradients_[i]->carry = std::move(kept[i]);
  }
  need_agreement(saved_step);
  step_.arm(*works_);
  return {};
}

void Set::need_agreement(std::optional<uint64_t> loaded) {
  if (world == 1) return;
  std::string carries;
  for (const auto& gradient : gradients_)
    if (gradient->has_carry) carries += gradient->name + '\n';
  agreement_.need(
      fmt::format("next step {}{}\nplan {}, left to add {}\n", step.index,
                  loaded ? " of a loaded state" : "", hash_text(hash64(plan_bytes(works_->plan()))),
                  hash_text(hash64(carries))),
      loaded);
}

// All of a load that can fail.
Result<std::unique_ptr<Works>> Set::prepare_saved(uint64_t saved_step, Plan plan,
                                                  std::string_view tensors) {
  PENSTOCK_ASSIGN(const auto fitting, fit(saved_step));
  // A checksum has passed: the plan is whole, and of another set or scheme.
  if (const Status fits = check_plan(plan, fitting->plan_facts(), fitting->scheduler()->name());
      !fits.ok())
    return mismatch(
        "the saved plan does not fit set '{}' ({}): load it under the configuration it was saved "
        "with",
        name, fits.message());
  // What the scheme's route was checked for holds for no other.
  const uint32_t route = fitting->scheme().route;
  for (const planning::Bucket& bucket : plan.buckets)
    if (bucket.route != route)
      return mismatch(
          "the saved plan of set '{}' takes the route \"{}\", its scheme the route \"{}\": load it "
          "under the configuration it was saved with",
          name, route_name(bucket.route), route_name(route));
  PENSTOCK_ASSIGN(auto works, Works::make(*this, fitting, std::move(plan), gradients_, nullptr));
  PENSTOCK_TRY(works->states().read(tensors));
  return works;
}

Status Set::reset() {
  PENSTOCK_TRY(services_.state());
  (void)flush();  // to its end, well or not: no later message meets one of this step
  while (!step_.wait_until_idle(kPatienceUs)) {
  }
  step_.drop();
  works_->states().zero();
  for (auto& gradient : gradients_) gradient->has_carry = false;
  step_.arm(*works_);
  return {};
}

}  // namespace penstock
