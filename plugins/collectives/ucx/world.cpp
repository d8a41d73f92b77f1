// See world.hpp.
#include "world.hpp"

#include "place.hpp"

#include <penstock/error.hpp>

#include <collectives/store.hpp>
#include <kernels/message.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>
#include <thread>

namespace penstock::ucx {

namespace {

using collectives::bytes_of;
using collectives::get;
using collectives::letters_of;
using collectives::put;

constexpr uint64_t kPartingUs = 2'000'000;
constexpr std::chrono::milliseconds kBetweenLooks{20};
// for closing an endpoint, which does not wait for the other rank
constexpr std::chrono::milliseconds kClosing{500};
// Ids for rendezvous of the whole world. The rendezvous of a channel uses the id of its group.
constexpr uint64_t kConnected = UINT64_MAX;
constexpr uint64_t kForgotten = UINT64_MAX - 1;
constexpr uint64_t kParting = UINT64_MAX - 2;

std::string key_of(uint32_t rank) {
  return sdk::text("collective/ucx address of rank ", rank);
}

uint64_t left_us(std::chrono::steady_clock::time_point end) {
  const auto left =
      std::chrono::duration_cast<std::chrono::microseconds>(end - std::chrono::steady_clock::now());
  return left.count() <= 0 ? 0 : static_cast<uint64_t>(left.count());
}

}  // namespace

World::World(const Selection& selection, uint32_t rank, uint32_t size, uint32_t n_senders,
             bool devices)
    : rank_(rank),
      place_(place_of(selection.devices)),
      network_(network_of(selection, n_senders), size),
      takes_cuda_(devices && allows_cuda(selection) && network_.takes_cuda()),
      peers_(size) {
  const Selection memory = memory_of(selection, takes_cuda_);
  if (!memory.transports.empty()) memory_.emplace(memory, size);
  takes_cuda_ = takes_cuda_ && (!memory_ || memory_->takes_cuda());
  for (Peer& peer : peers_) {
    peer.world = this;
    peer.context = &network_;
  }
  learn(rank, own_words(), true);
}

World::~World() {
  for (Peer& peer : peers_) {
    // Endpoints through memory end with their worker.
    if (peer.endpoint == nullptr || peer.context != &network_) continue;
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = UCP_EP_CLOSE_FLAG_FORCE;
    const ucs_status_ptr_t closing = ucp_ep_close_nbx(peer.endpoint, &param);
    if (!UCS_PTR_IS_PTR(closing)) continue;
    const auto end = Clock::now() + kClosing;
    while (ucp_request_check_status(closing) == UCS_INPROGRESS && Clock::now() < end)
      network_.progress();
    ucp_request_free(closing);
  }
}

// The text with which a rank describes itself to the others: its addresses over a network and in
// memory, its process, and its place.
std::string World::own_words() const {
  return letters_of(network_.address()) + " " + (memory_ ? letters_of(memory_->address()) : "") +
         " " + Process::this_one() + " " + letters_of(place_);
}

void World::learn(uint32_t rank, const std::string& words, bool is_here) {
  const size_t first = words.find(' ');
  const size_t second = words.find(' ', first + 1);
  const size_t third = words.find(' ', second + 1);
  if (second == std::string::npos || third == std::string::npos)
    throw sdk::internal("rank ", rank, " said \"", words, "\" of itself, expected four words");
  Peer& peer = peers_[rank];
  peer.place = bytes_of(words.substr(third + 1));
  if (is_here && memory_ && second != first + 1) {
    peer.context = &*memory_;
    peer.address = bytes_of(words.substr(first + 1, second - first - 1));
    if (make_endpoint(peer) == UCS_OK) {
      peer.process = Process(words.substr(second + 1, third - second - 1));
      return;
    }
    peer.context = &network_;
  }
  peer.address = bytes_of(words.substr(0, first));
  uses_network_ = true;
}

// An address is removed from the store as soon as all ranks have read it, so ranks that join again
// over this store find the new addresses.
void World::connect(const penstock_key_value_store& store, const uint32_t* hosts,
                    uint64_t timeout_us) {
  const auto end = Clock::now() + std::chrono::microseconds(timeout_us);
  put(store, key_of(rank_), own_words());
  for (uint32_t r = 0; r < peers_.size(); ++r) {
    if (r == rank_) continue;
    std::string words = get(store, key_of(r), left_us(end));
    for (; words.empty(); words = get(store, key_of(r), left_us(end))) {
      if (Clock::now() > end)
        throw sdk::Error(PENSTOCK_DEADLINE_EXCEEDED,
                         sdk::text("rank ", rank_, " waited ", sdk::seconds_text(timeout_us),
                                   " for rank ", r, " to join over UCX"));
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    learn(r, words, hosts[r] == hosts[rank_]);
  }
  meet_all(kConnected, left_us(end));
  is_connected_ = true;
  put(store, key_of(rank_), "");
  meet_all(kForgotten, left_us(end));
}

bool World::progress() {
  // Calls between two readings of the clock.
  constexpr uint32_t kProgress = 32;
  if (memory_ && ++n_progress_ % kProgress == 0) look_after_processes();
  const bool moved = memory_ && memory_->progress();
  return (uses_network_ && network_.progress()) || moved;
}

bool World::has_let_go() {
  progress();
  const bool network = network_.has_let_go();
  const bool memory = !memory_ || memory_->has_let_go();
  return (network && memory) || n_failed_ != 0;
}

void World::look_after_processes() {
  const auto now = Clock::now();
  if (now - looked_ < kBetweenLooks) return;
  looked_ = now;
  for (Peer& peer : peers_)
    if (peer.state == UCS_OK && peer.process.ended())
      failed(&peer, peer.endpoint, UCS_ERR_CONNECTION_RESET);
}

void World::failed(void* peer, ucp_ep_h, ucs_status_t status) {
  Peer& gone = *static_cast<Peer*>(peer);
  if (gone.state == UCS_OK) ++gone.world->n_failed_;
  gone.state = status;
}

ucp_ep_h World::endpoint(uint32_t to) {
  Peer& peer = peers_[to];
  if (peer.state != UCS_OK) refuse(to, peer.state);
  if (peer.endpoint != nullptr) return peer.endpoint;
  if (const ucs_status_t status = make_endpoint(peer); status != UCS_OK) refuse(to, status);
  return peer.endpoint;
}

// A rank that never connected may be alive, on a network that this host does not reach.
void World::refuse(uint32_t rank, ucs_status_t status) const {
  const bool was_there = is_connected_ || peers_[rank].context != &network_;
  const std::string why = ucs_status_string(status);
  throw sdk::Error(PENSTOCK_PEER_FAILED,
                   was_there ? sdk::text("rank ", rank, " of the run is gone: ", why)
                             : sdk::text("rank ", rank_, " at ", place_, " does not reach rank ",
                                         rank, " over UCX: ", why, way_to(rank)));
}

// The end of a message that says that a rank was not reached.
std::string World::way_to(uint32_t rank) const {
  if (is_connected_ || peers_[rank].context != &network_) return "";
  return sdk::text("; rank ", rank, " is at ", peers_[rank].place,
                   ". If it lives, name a network that both hosts have, with devices = \"eth0\" in "
                   "[collective.ucx] or UCX_NET_DEVICES, and let its ports through");
}

ucs_status_t World::make_endpoint(Peer& peer) {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
  params.address = reinterpret_cast<const ucp_address_t*>(peer.address.data());
  if (peer.context == &network_) {
    params.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler = {failed, &peer};
  }
  return ucp_ep_create(peer.context->worker(), &params, &peer.endpoint);
}

// One number in each direction. It lies on the heap, so that a caller that stops waiting can leave
// it to UCX.
struct World::Pair {
  uint64_t out = 0;
  uint64_t in = 0;
  void* receiving = nullptr;
  bool sent = false;
  bool came = false;
  ucs_status_t status = UCS_OK;

  void post(ucp_worker_h worker, ucp_ep_h to, ucp_tag_t send_tag, ucp_tag_t receive_tag) {
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    param.user_data = this;
    param.cb.recv = [](void* request, ucs_status_t code, const ucp_tag_recv_info_t*, void* user) {
      static_cast<Pair*>(user)->end(&Pair::came, code);
      ucp_request_free(request);
    };
    receiving = ucp_tag_recv_nbx(worker, &in, sizeof in, receive_tag, UINT64_MAX, &param);
    if (!UCS_PTR_IS_PTR(receiving)) end(&Pair::came, UCS_PTR_STATUS(receiving));
    param.cb.send = [](void* request, ucs_status_t code, void* user) {
      static_cast<Pair*>(user)->end(&Pair::sent, code);
      ucp_request_free(request);
    };
    void* const sending = ucp_tag_send_nbx(to, &out, sizeof out, send_tag, &param);
    if (!UCS_PTR_IS_PTR(sending)) end(&Pair::sent, UCS_PTR_STATUS(sending));
  }
  void end(bool Pair::*which, ucs_status_t code) {
    this->*which = true;
    if (status == UCS_OK) status = code;
  }
};

// Returns whether both numbers have arrived in time.
bool World::exchange(uint32_t to, uint32_t from, uint64_t match, uint64_t& value,
                     Clock::time_point end) {
  auto pair = std::make_unique<Pair>();
  pair->out = value;
  (void)endpoint(from);  // an endpoint notices when the other rank is gone
  pair->post(worker_for(from), endpoint(to), tag_of(0, rank_, match), tag_of(0, from, match));
  while (!pair->sent || !pair->came) {
    if (progress()) continue;
    if (Clock::now() > end || peers_[from].state != UCS_OK || peers_[to].state != UCS_OK) break;
    std::this_thread::yield();
  }
  const bool well = pair->sent && pair->came && pair->status == UCS_OK;
  if (well) value = std::max(value, pair->in);
  if (!pair->came) ucp_request_cancel(worker_for(from), pair->receiving);
  if (!pair->sent) (void)pair.release();
  if (well) return true;
  for (const uint32_t r : {from, to}) (void)endpoint(r);  // throws if either rank is gone
  return false;
}

// A dissemination barrier: a rank that hears from the ranks 1, 2, 4, ... places before it knows
// that all ranks are here, and the highest of their values.
uint64_t World::meet(const std::vector<uint32_t>& members, uint32_t place, uint64_t id,
                     uint64_t value, uint64_t timeout_us) {
  const auto end = Clock::now() + std::chrono::microseconds(timeout_us);
  const uint64_t match = id % (uint64_t(1) << kMatchBits);
  const size_t n = members.size();
  for (size_t distance = 1; distance < n; distance *= 2) {
    const uint32_t from = members[(place + n - distance) % n];
    if (!exchange(members[(place + distance) % n], from, match, value, end))
      throw sdk::Error(PENSTOCK_DEADLINE_EXCEEDED,
                       sdk::text("rank ", rank_, " waited ", sdk::seconds_text(timeout_us),
                                 " for all ", n, " members of a group to open it over UCX; rank ",
                                 from, " has not come, or waits for another", way_to(from)));
  }
  return value;
}

// The number is above all numbers that any member has had, so two channels with a common rank never
// have equal numbers.
uint64_t World::number_of_channel(const std::vector<uint32_t>& members, uint32_t place, uint64_t id,
                                  uint64_t timeout_us) {
  const uint64_t number = meet(members, place, id, next_channel_, timeout_us);
  if (number >= kMostChannels)
    throw sdk::Error(PENSTOCK_FAILED_PRECONDITION,
                     sdk::text("collective/ucx has opened ", kMostChannels,
                               " channels, which is all it can; leave and join again"));
  next_channel_ = number + 1;
  return number;
}

void World::meet_all(uint64_t id, uint64_t timeout_us) {
  std::vector<uint32_t> all(peers_.size());
  std::iota(all.begin(), all.end(), 0u);
  meet(all, rank_, id, 0, timeout_us);
}

void World::part() {
  try {
    meet_all(kParting, kPartingUs);
  } catch (const sdk::Error&) {
    // A rank that is gone has left already.
  }
}

}  // namespace penstock::ucx
