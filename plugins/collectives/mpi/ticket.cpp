// See ticket.hpp.
#include "ticket.hpp"

namespace penstock::mpi {

namespace {

bool is_receive(Kind kind) {
  return kind == Kind::kOpeningIn || kind == Kind::kIn || kind == Kind::kResultIn;
}

}  // namespace

void Stream::set(char* first, uint64_t n_bytes, uint64_t n_lead) {
  data = first;
  bytes = n_bytes;
  lead = std::min(n_lead, n_bytes);
  posted = 0;
  done = 0;
  n_segments = bytes == 0 ? 0 : std::max<uint64_t>(1, (bytes - lead + kSegment - 1) / kSegment);
}

MPI_Request* Requests::add(const Event& event) {
  if (free_.empty()) {
    free_.push_back(static_cast<int>(requests_.size()));
    requests_.push_back(MPI_REQUEST_NULL);
    events_.push_back(event);
    indices_.resize(requests_.size());
    statuses_.resize(requests_.size());
  }
  const auto slot = static_cast<size_t>(free_.back());
  free_.pop_back();
  events_[slot] = event;
  ++n_active_;
  return &requests_[slot];
}

void Requests::reserve(uint64_t n) {
  requests_.reserve(n);
  events_.reserve(n);
  free_.reserve(n);
  indices_.reserve(n);
  statuses_.reserve(n);
  finished_.reserve(n);
}

void Requests::collect() {
  finished_.clear();
  if (n_active_ == 0) return;
  int n_done = 0;
  const int code = MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &n_done,
                                indices_.data(), statuses_.data());
  if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) check(code, "MPI_Testsome");
  if (n_done == MPI_UNDEFINED) n_done = 0;
  int failure = MPI_SUCCESS;
  for (int i = 0; i < n_done; ++i) {
    const auto slot = static_cast<size_t>(indices_[static_cast<size_t>(i)]);
    const MPI_Status& status = statuses_[static_cast<size_t>(i)];
    Finished finished{events_[slot], events_[slot].bytes};
    finished.event.bytes = 0;
    if (is_receive(finished.event.kind)) {
      int bytes = 0;
      check(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
      finished.event.bytes = bytes < 0 ? 0 : static_cast<uint64_t>(bytes);
    }
    if (code == MPI_ERR_IN_STATUS && status.MPI_ERROR != MPI_SUCCESS) failure = status.MPI_ERROR;
    finished_.push_back(finished);
    free_.push_back(static_cast<int>(slot));
    --n_active_;
  }
  check(failure, "a request of MPI");
}

void Requests::cancel() {
  for (size_t slot = 0; slot < requests_.size(); ++slot)
    if (requests_[slot] != MPI_REQUEST_NULL && is_receive(events_[slot].kind))
      MPI_Cancel(&requests_[slot]);
}

bool Requests::drain() {
  try {
    collect();
  } catch (const std::exception&) {
    // The ticket has ended already; what matters is which requests are over.
  }
  finished_.clear();
  return n_active_ == 0;
}

bool Ticket::finished() const {
  if (n_opened != n_expected || !requests.empty() || own_copied != own_bytes) return false;
  for (const Peer& peer : peers)
    if (!peer.out.complete() || !peer.in.complete() || !peer.result_out.complete() ||
        !peer.result_in.complete())
      return false;
  return share.complete();
}

// A tag of MPI: the message's own, and the stage, so that openings and segments never mix.
int Channel::tag(const penstock_message& message, Kind kind) const {
  const uint64_t stage = kind == Kind::kOpeningOut || kind == Kind::kOpeningIn ? 0
                         : kind == Kind::kOut || kind == Kind::kIn             ? 1
                                                                               : 2;
  return static_cast<int>(message.tag * 8 + stage);
}

}  // namespace penstock::mpi
