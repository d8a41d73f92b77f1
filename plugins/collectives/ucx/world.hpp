// The ranks between join and leave: an endpoint for each, what has become of them, and how they
// meet. Used by the communication thread only.
//
// UCX notices that a peer is gone on its network transports only, and gives up shared memory for
// that. So ranks of one host have a context of their own, through memory alone and without UCX's
// handling of errors: that one of them is gone is learned from its process.
#pragma once

#include "context.hpp"
#include "process.hpp"

#include <penstock/collective.h>

#include <chrono>
#include <optional>
#include <vector>

namespace penstock::ucx {

// Everything one rank sends another is told apart by 64 bits: the number of the channel, the
// sender, and what the channel matches by.
constexpr unsigned kMatchBits = 23;
constexpr unsigned kRankBits = 17;
constexpr uint64_t kMostRanks = uint64_t(1) << kRankBits;
constexpr uint64_t kMostChannels = uint64_t(1) << (64 - kRankBits - kMatchBits);
constexpr ucp_tag_t tag_of(uint64_t channel, uint32_t sender, uint64_t match) {
  return (channel << kRankBits | sender) << kMatchBits | match;
}

class World {
 public:
  // `devices`: whether memory of theirs may come.
  World(const Selection& selection, uint32_t rank, uint32_t size, uint32_t n_senders, bool devices);
  ~World();  // whatever is under way ends; waits for nobody
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // Learns the others' addresses from the store, and returns when all ranks have. `hosts`: of each
  // rank. DEADLINE_EXCEEDED or PEER_FAILED with the rank that did not come.
  void connect(const penstock_key_value_store& store, const uint32_t* hosts, uint64_t timeout_us);

  uint32_t rank() const { return rank_; }
  // Whether UCX says that it moves memory of CUDA devices, to whichever rank.
  bool takes_cuda() const { return takes_cuda_; }

  // Drives everything under way, and returns whether something moved.
  bool progress();
  // Drives it, and returns whether all that was sent has left, or some rank is gone.
  bool has_let_go();

  // Of a rank of the world. `endpoint` throws PEER_FAILED when that one is gone.
  ucp_ep_h endpoint(uint32_t to);
  ucp_worker_h worker_for(uint32_t peer) const { return peers_[peer].context->worker(); }
  void note_send(uint32_t to) { peers_[to].context->note_send(); }

  // How many ranks were found to be gone; whether one is: UCS_OK, or why it is gone; and whether
  // UCX then ends what is sent to it.
  uint32_t n_failed() const { return n_failed_; }
  ucs_status_t state(uint32_t rank) const { return peers_[rank].state; }
  bool ends_sends_to(uint32_t rank) const { return peers_[rank].context == &network_; }

  // A number that no open channel of any member has; collective over the `members`, ranks of the
  // world, of which this rank is the `place`-th. DEADLINE_EXCEEDED when not all come.
  uint64_t number_of_channel(const std::vector<uint32_t>& members, uint32_t place, uint64_t id,
                             uint64_t timeout_us);

  // Waits a moment for the others to come here too, so that none takes the end of another for its
  // death.
  void part();

 private:
  using Clock = std::chrono::steady_clock;
  struct Peer {
    World* world = nullptr;
    Context* context = nullptr;
    std::string address;
    std::string place;  // for people
    ucp_ep_h endpoint = nullptr;
    ucs_status_t state = UCS_OK;
    Process process;  // of a rank of this host
  };
  struct Pair;
  std::string own_words() const;
  void learn(uint32_t rank, const std::string& words, bool is_here);
  ucs_status_t make_endpoint(Peer& peer);
  [[noreturn]] void refuse(uint32_t rank, ucs_status_t status) const;
  std::string way_to(uint32_t rank) const;
  void look_after_processes();
  void meet_all(uint64_t id, uint64_t timeout_us);
  uint64_t meet(const std::vector<uint32_t>& members, uint32_t place, uint64_t id, uint64_t value,
                uint64_t timeout_us);
  bool exchange(uint32_t to, uint32_t from, uint64_t match, uint64_t& value, Clock::time_point end);
  static void failed(void* peer, ucp_ep_h endpoint, ucs_status_t status);

  const uint32_t rank_;
  const std::string place_;
  Context network_;
  bool takes_cuda_;
  std::optional<Context> memory_;
  std::vector<Peer> peers_;  // by rank of the world
  uint32_t n_failed_ = 0;
  bool uses_network_ = false;
  bool is_connected_ = false;  // all have met once
  uint32_t n_progress_ = 0;
  Clock::time_point looked_;
  uint64_t next_channel_ = 1;  // 0 is for meetings
};

}  // namespace penstock::ucx
