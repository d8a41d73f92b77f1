// See wire.hpp.
#include "wire.hpp"

#include <penstock/error.hpp>

#include <algorithm>
#include <utility>

namespace penstock::ucx {

namespace {

constexpr size_t kUsualRequests = 512;  // requests to and from each rank
constexpr size_t kEndedPerSlot = 4;
// The most progress steps in one call of `test`; the next call finds the rest.
constexpr int kMostProgress = 64;

}  // namespace

// Reserves room for the requests that end between two tests, so that `test` never allocates. A slot
// may end several requests in that time, because a send that UCX completes at once frees its slot.
Wire::Slot& Wire::take_slot(Ticket& ticket, const Event& event) {
  if (free_.empty()) {
    const size_t n = std::max(kUsualRequests * members_.size(), slots_.size());
    free_.reserve(slots_.size() + n);
    for (size_t i = 0; i < n; ++i) free_.push_back(&slots_.emplace_back());
    ended_.reserve(kEndedPerSlot * slots_.size());
    tested_.reserve(kEndedPerSlot * slots_.size());
  }
  Slot& slot = *free_.back();
  free_.pop_back();
  slot = {this, &ticket, event, nullptr};
  return slot;
}

void Wire::begun(Slot& slot, void* request) {
  if (slot.ticket == nullptr) return;  // the callback has ended it already
  slot.request = request;
  if (!UCS_PTR_IS_PTR(request)) end(slot, UCS_PTR_STATUS(request), 0);
}

void Wire::end(Slot& slot, ucs_status_t status, uint64_t bytes) {
  if (slot.ticket != nullptr)
    ended_.push_back({slot.ticket, slot.event, bytes, static_cast<int>(status)});
  slot.ticket = nullptr;
  slot.request = nullptr;
  free_.push_back(&slot);
}

// Reports to UCX whether the memory lies on a device; otherwise UCX finds this out itself.
void Wire::tell_memory(const Event& event, ucp_request_param_t& param) const {
#if UCP_API_VERSION >= UCP_VERSION(1, 11)
  if (!world_.takes_cuda()) return;
  param.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  param.memory_type = event.on_device ? UCS_MEMORY_TYPE_CUDA : UCS_MEMORY_TYPE_HOST;
#else
  (void)event, (void)param;
#endif
}

void Wire::send(Ticket& ticket, const Event& event, uint64_t match, const void* data) {
  const ucp_ep_h to = world_.endpoint(members_[event.peer]);
  world_.note_send(members_[event.peer]);
  Slot& slot = take_slot(ticket, event);
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.user_data = &slot;
  param.cb.send = [](void* request, ucs_status_t status, void* user) {
    Slot& ended = *static_cast<Slot*>(user);
    ended.wire->end(ended, status, 0);
    ucp_request_free(request);
  };
  tell_memory(event, param);
  begun(slot,
        ucp_tag_send_nbx(to, data, event.bytes, tag_of(number_, world_.rank(), match), &param));
}

void Wire::receive(Ticket& ticket, const Event& event, uint64_t match, void* data) {
  const uint32_t from = members_[event.peer];
  (void)world_.endpoint(from);  // an endpoint notices when the other rank is gone
  Slot& slot = take_slot(ticket, event);
  ucp_request_param_t param{};
  // A receive whose data is here already ends in its callback, before the call returns, because
  // otherwise UCX 1.13 does not report the length.
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  param.user_data = &slot;
  param.cb.recv = [](void* request, ucs_status_t status, const ucp_tag_recv_info_t* came,
                     void* user) {
    Slot& ended = *static_cast<Slot*>(user);
    ended.wire->end(ended, status, status == UCS_OK ? came->length : 0);
    ucp_request_free(request);
  };
  tell_memory(event, param);
  begun(slot, ucp_tag_recv_nbx(world_.worker_for(from), data, event.bytes,
                               tag_of(number_, from, match), UINT64_MAX, &param));
}

const std::vector<Ended>& Wire::test() {
  for (int i = 0; i < kMostProgress && world_.progress(); ++i) {
  }
  if (n_failed_ != world_.n_failed()) give_up_on_failed();
  tested_.clear();
  std::swap(tested_, ended_);
  return tested_;
}

// Receives from a rank that is gone would never end, and neither would sends to it through memory:
// UCX keeps such a send and does nothing more with it.
void Wire::give_up_on_failed() {
  n_failed_ = world_.n_failed();
  for (Slot& slot : slots_) {
    const uint32_t peer = members_[slot.event.peer];
    if (slot.ticket == nullptr || slot.request == nullptr || world_.state(peer) == UCS_OK) continue;
    cancel(slot);
    if (collectives::is_receive(slot.event.kind) || world_.ends_sends_to(peer)) continue;
    ended_.push_back({slot.ticket, slot.event, 0, world_.state(peer)});
    slot.ticket = nullptr;
  }
}

bool Wire::is_used() const {
  return std::any_of(slots_.begin(), slots_.end(),
                     [](const Slot& slot) { return slot.request != nullptr; });
}

void Wire::fail(const Ended& ended) const {
  const uint32_t rank = members_[ended.event.peer];
  const ucs_status_t gone = world_.state(rank);
  const auto code = gone != UCS_OK ? gone : static_cast<ucs_status_t>(ended.code);
  throw sdk::Error(PENSTOCK_PEER_FAILED,
                   sdk::text("rank ", rank, " of the run ",
                             gone != UCS_OK ? "is gone: " : "cannot be reached over UCX: ",
                             ucs_status_string(code)));
}

void Wire::cancel(const Ticket& ticket) {
  for (const Slot& slot : slots_)
    if (slot.ticket == &ticket) cancel(slot);
}

void Wire::cancel_all() {
  for (const Slot& slot : slots_) cancel(slot);
}

void Wire::cancel(const Slot& slot) {
  if (slot.request != nullptr && collectives::is_receive(slot.event.kind))
    ucp_request_cancel(world_.worker_for(members_[slot.event.peer]), slot.request);
}

}  // namespace penstock::ucx
