// See wire.hpp.
#include "wire.hpp"

#include <penstock/error.hpp>

#include <algorithm>
#include <functional>

namespace penstock::mpi {

namespace {

constexpr size_t kUsualRequests = 1024;

}  // namespace

void Wire::send(Ticket& ticket, const Event& event, uint64_t match, const void* data) {
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Isend(data, static_cast<int>(event.bytes), MPI_BYTE, static_cast<int>(event.peer),
                  static_cast<int>(match), communicator_, &request),
        "MPI_Isend");
  add(ticket, event, request);
}

void Wire::receive(Ticket& ticket, const Event& event, uint64_t match, void* data) {
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Irecv(data, static_cast<int>(event.bytes), MPI_BYTE, static_cast<int>(event.peer),
                  static_cast<int>(match), communicator_, &request),
        "MPI_Irecv");
  add(ticket, event, request);
}

void Wire::fail(const Ended& ended) const {
  check(ended.code, "a request of MPI");
  throw sdk::internal("a request of MPI that ended well was taken for a failure");
}

void Wire::add(Ticket& ticket, const Event& event, MPI_Request request) {
  if (requests_.capacity() == 0) {
    requests_.reserve(kUsualRequests);
    owners_.reserve(kUsualRequests);
  }
  requests_.push_back(request);
  owners_.push_back({&ticket, event, false});
  // Room for all requests that may end at once, so that `test` never allocates.
  if (indices_.size() < requests_.size()) {
    indices_.resize(requests_.capacity());
    statuses_.resize(requests_.capacity());
    ended_.reserve(requests_.capacity());
  }
}

const std::vector<Ended>& Wire::test() {
  ended_.clear();
  if (requests_.empty()) return ended_;
  int n_ended = 0;
  const int code = MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &n_ended,
                                indices_.data(), statuses_.data());
  if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) check(code, "MPI_Testsome");
  if (n_ended == MPI_UNDEFINED) n_ended = 0;
  for (int i = 0; i < n_ended; ++i) {
    const Owner& owner = owners_[static_cast<size_t>(indices_[static_cast<size_t>(i)])];
    const MPI_Status& status = statuses_[static_cast<size_t>(i)];
    Ended ended{owner.ticket, owner.event, 0, MPI_SUCCESS};
    if (collectives::is_receive(owner.event.kind)) {
      int bytes = 0;
      check(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
      ended.bytes = bytes < 0 ? 0 : static_cast<uint64_t>(bytes);
    }
    if (code == MPI_ERR_IN_STATUS) ended.code = status.MPI_ERROR;
    ended_.push_back(ended);
  }
  // From the highest slot down, so that the request that fills a gap has not ended.
  std::sort(indices_.begin(), indices_.begin() + n_ended, std::greater<int>());
  for (int i = 0; i < n_ended; ++i) forget(static_cast<size_t>(indices_[static_cast<size_t>(i)]));
  return ended_;
}

void Wire::forget(size_t slot) {
  requests_[slot] = requests_.back();
  owners_[slot] = owners_.back();
  requests_.pop_back();
  owners_.pop_back();
}

void Wire::cancel(const Ticket& ticket) {
  for (size_t slot = 0; slot < requests_.size(); ++slot)
    if (owners_[slot].ticket == &ticket) cancel(slot);
}

void Wire::cancel_all() {
  for (size_t slot = 0; slot < requests_.size(); ++slot) cancel(slot);
}

// Cancels a receive once, because Open MPI does not survive a second cancel of a request.
void Wire::cancel(size_t slot) {
  if (!collectives::is_receive(owners_[slot].event.kind) || owners_[slot].cancelled) return;
  owners_[slot].cancelled = true;
  MPI_Cancel(&requests_[slot]);
}

}  // namespace penstock::mpi
