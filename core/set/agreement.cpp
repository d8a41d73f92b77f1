#include "core/set/agreement.hpp"

#include "core/base/hash.hpp"

namespace penstock {

std::string where_to_go_on(uint64_t step, const Plan& plan, std::string_view how,
                           std::string_view left_to_add) {
  return fmt::format("next step {}{}\nplan {}, left to add {}\n", step, how,
                     hash_text(hash64(plan_bytes(plan))), hash_text(hash64(left_to_add)));
}

void Agreement::need(std::string where, std::optional<uint64_t> loaded) {
  if (group_.size() == 1) return;
  const Lock lock(guard_->mutex);
  where_ = std::move(where);
  loaded_ = loaded;
  asked_ = false;
  step_.hold([this] { ask(); });
}

// [application] Asks, and does not wait for the answer.
void Agreement::ask() {
  OperationRequest request;
  std::optional<uint64_t> loaded;
  uint64_t number = 0;
  {
    const Lock lock(guard_->mutex);
    number = ++number_;
    asked_ = true;
    loaded = loaded_;
    request.name = fmt::format("penstock set-up: where set '{}' goes on ({})", set_, number);
    request.ranks = group_.ranks();
    request.holds = set_;
    request.signature = where_;
  }
  if (loaded)
    services_.control.note(fmt::format(
        "loaded step {} into set '{}', waits for the others to load it too", *loaded, set_));
  services_.control.request(std::move(request),
                            [guard = guard_, number](Status status, const OperationResponse&) {
                              hear(*guard, number, std::move(status));
                            });
}

// [watch]
void Agreement::hear(Guard& guard, uint64_t number, Status status) {
  const Lock lock(guard.mutex);
  if (guard.agreement != nullptr) guard.agreement->answered(number, std::move(status));
}

void Agreement::answered(uint64_t number, Status status) {
  if (number != number_ || !asked_) return;  // belongs to an earlier load
  if (status.ok()) {
    asked_ = false;
    loaded_.reset();
    return step_.release();
  }
  if (status.code() == Code::mismatch)
    status = mismatch(
        "set '{}': the ranks would go on from different states ({}); each rank saves and loads its "
        "own state: load the states of one step on all ranks, or load no state",
        set_, status.message());
  else if (loaded_)
    status = only_here(status);
  step_.tear(status);
}

void Agreement::compare(std::string text) {
  if (group_.size() == 1) return;
  {
    const Lock lock(guard_->mutex);
    ++guard_->n_open;
  }
  OperationRequest request;
  request.name = fmt::format("what ranks share in set '{}' ({})", set_, ++n_compared_);
  request.ranks = group_.ranks();
  request.signature = std::move(text);
  // A rank that has joined makes steps without its frontend, so it has nothing to compare.
  request.if_joined = OperationRequest::IfJoined::left_out;
  services_.control.request(std::move(request),
                            [guard = guard_](Status status, const OperationResponse&) {
                              hear_of_text(*guard, std::move(status));
                            });
}

// [watch]
void Agreement::hear_of_text(Guard& guard, Status status) {
  const Lock lock(guard.mutex);
  --guard.n_open;
  if (guard.difference.ok()) guard.difference = std::move(status);
  guard.answered.notify_all();
}

Status Agreement::compared() {
  Lock lock(guard_->mutex);
  while (guard_->n_open > 0) guard_->answered.wait(guard_->mutex);
  return std::exchange(guard_->difference, Status());
}

Status Agreement::explain(const Status& reason) const {
  const Lock lock(guard_->mutex);
  return loaded_ && asked_ ? only_here(reason) : reason;
}

Status Agreement::only_here(const Status& reason) const {
  return reason.with_context(fmt::format(
      "set '{}' has loaded step {} and waited for the other ranks to load it too", set_, *loaded_));
}

void Agreement::end() {
  const Lock lock(guard_->mutex);
  guard_->agreement = nullptr;
}

}  // namespace penstock
