// The identity of this process, and the way in which it meets the other ranks: given by the
// frontend, by a launcher, or by the transport.

#include "core/comm/rendezvous.hpp"
#include "core/fit/resolve.hpp"
#include "core/plugin/c_struct.hpp"
#include "core/runtime/runtime.hpp"

namespace penstock {
namespace {

Introduction introduction_of(const penstock_introduction& given) {
  Introduction made{given.rank, given.size, std::string(view(given.by)), {}};
  made.gather = [context = given.context, gather = given.gather, size = given.size](
                    std::string_view text, uint64_t timeout_us,
                    uint64_t warning_us) -> Result<std::vector<std::string>> {
    std::vector<std::string> texts;
    const auto take = [](void* found, penstock_str each) {
      static_cast<std::vector<std::string>*>(found)->emplace_back(view(each));
    };
    const uint32_t code =
        gather(context, {text.data(), text.size()}, timeout_us, warning_us, &texts, take);
    if (code != PENSTOCK_OK)
      return Status(static_cast<Code>(code), texts.empty() ? "no reason was given" : texts.front());
    if (texts.size() != size)
      return internal("the frontend gathered {} texts of {} ranks", texts.size(), size);
    return texts;
  };
  return made;
}

}  // namespace

Status Runtime::be_introduced(const penstock_runtime_options& options) {
  if (options.introduction == nullptr) return {};
  penstock_introduction given{};
  PENSTOCK_TRY(take_struct(options.introduction, "penstock_introduction", given));
  if (given.gather == nullptr || given.rank >= given.size)
    return invalid_argument(
        "penstock_introduction: rank {} of {} {} gather, expected a rank below the size, and "
        "gather",
        given.rank, given.size, given.gather == nullptr ? "without" : "with");
  introduction_ = introduction_of(given);
  return {};
}

Launched Runtime::launched() const {
  return introduction_ ? launched_as(introduction_->rank, introduction_->size) : launched_by();
}

// Without an introduction by the frontend, and without variables for several ranks, the run has one
// rank.
Status Runtime::meet_before() {
  PENSTOCK_ASSIGN(
      const std::optional<Rendezvous> rendezvous,
      introduction_ ? named_store(introduction_->rank, introduction_->size) : rendezvous_of());
  Control::Options options = control_options();
  if (!rendezvous && !introduction_) {
    PENSTOCK_ASSIGN(control_, Control::start(std::move(options)));
    return {};
  }
  options.rendezvous_us = arrival_us();
  PENSTOCK_ASSIGN(JoinedRanks joined, rendezvous
                                          ? meet_at(*rendezvous, std::move(options))
                                          : meet_through(*introduction_, std::move(options)));
  met_ = joined.world;
  control_ = std::move(joined.control);
  return {};
}

// Checks the world after the join.
Status Runtime::check_identity(const std::string& transport) {
  if (!introduction_) return check_launcher(world_.rank(), world_.size(), transport);
  if (world_.rank() != introduction_->rank || world_.size() != introduction_->size)
    return failed_precondition(
        "over '{}' this process is rank {} of {}, but rank {} of {} in {}; start the program so "
        "that both agree (`penstock run -np N -- ...`), or name collective = \"{}\" in [scheme], "
        "which uses the ranks of the group",
        transport, world_.rank(), world_.size(), introduction_->rank, introduction_->size,
        introduction_->by, usual_transports(Launched::otherwise).front());
  const std::string other = other_word(world_.rank(), world_.size());
  if (world_.rank() == 0 && !other.empty())
    log_.write(
        LogLevel::warning, "runtime",
        fmt::format("this process is rank 0 of {} in {}, but its launcher says {}: the ranks of "
                    "the group are used",
                    world_.size(), introduction_->by, other));
  return {};
}

Control::Options Runtime::control_options() {
  const RuntimeConfig& runtime = config_.runtime();
  Control::Options control;
  // Shorter than messages_us. So a rank that waits for a silent rank, perhaps through other ranks,
  // gets its name, and not only a timeout of a message.
  control.deadline_us = deadline_us();
  control.heartbeat_us = static_cast<uint64_t>(runtime.heartbeat_s * 1e6);
  control.warning_us = static_cast<uint64_t>(runtime.stall_warning_s * 1e6);
  control.busy_limit_us = busy_limit_us();
  constexpr uint64_t kHalfAnHourUs = 1'800'000'000;
  control.linger_us = busy_limit_us() != 0 ? busy_limit_us() : kHalfAnHourUs;
  control.circle_us = control.warning_us == 0 ? 0 : deadline_us();
  control.activity = activity_;
  control.on_abort = [this](Status reason) { on_abort(reason); };
  control.on_warning = [this](std::string text) { log_.write(LogLevel::warning, "control", text); };
  control.on_beat = [this] { look_at_calls(); };
  control.on_joined = [this] { tell_where(); };
  return control;
}

Status Runtime::meet_over_transport() {
  PENSTOCK_ASSIGN(JoinedRanks joined,
                  meet_over(*communication_, *world_channel_, deadline_us(), control_options()));
  control_ = std::move(joined.control);
  return {};
}

}  // namespace penstock
