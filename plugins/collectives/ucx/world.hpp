// The ranks between join and leave: the endpoint and the state of each rank, and their rendezvous.
// Used by the communication thread only.
//
// UCX can notice that a peer is gone only on its network transports, and it does not use shared
// memory if it has to notice this. So ranks of one host use a second context, through memory only
// and without UCX's error handling. The end of such a rank is noticed by watching its process.
#pragma once

#include "context.hpp"
#include "process.hpp"

#include <penstock/collective.h>

#include <chrono>
#include <optional>
#include <vector>

namespace penstock::ucx {

// A tag of 64 bits distinguishes all messages from one rank to another: the number of the channel,
// the sender, and the match number of the channel.
constexpr unsigned kMatchBits = 23;
constexpr unsigned kRankBits = 17;
constexpr uint64_t kMostRanks = uint64_t(1) << kRankBits;
constexpr uint64_t kMostChannels = uint64_t(1) << (64 - kRankBits - kMatchBits);
constexpr ucp_tag_t tag_of(uint64_t channel, uint32_t sender, uint64_t match) {
  return (channel << kRankBits | sender) << kMatchBits | match;
}

class World {
 public:
  // `devices`: whether messages may lie in memory of devices.
  World(const Selection& selection, uint32_t rank, uint32_t size, uint32_t n_senders, bool devices);
  ~World();  // ends all requests; does not wait for other ranks
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // Reads the addresses of the other ranks from the store, and returns when all ranks have done
  // this. `hosts`: the host of each rank. DEADLINE_EXCEEDED or PEER_FAILED name a rank that did not
  // come.
  void connect(const penstock_key_value_store& store, const uint32_t* hosts, uint64_t timeout_us);

  uint32_t rank() const { return rank_; }
  // Whether UCX says that it moves memory of CUDA devices, to every rank.
  bool takes_cuda() const { return takes_cuda_; }

  // Drives all requests, and returns whether anything moved.
  bool progress();
  // Drives all requests, and returns whether all sent data has left, or some rank is gone.
  bool has_let_go();

  // These three take a rank of the world. `endpoint` throws PEER_FAILED if this rank is gone.
  ucp_ep_h endpoint(uint32_t to);
  ucp_worker_h worker_for(uint32_t peer) const { return peers_[peer].context->worker(); }
  void note_send(uint32_t to) { peers_[to].context->note_send(); }

  // The number of ranks that were found to be gone; the state of a rank: UCS_OK, or the reason why
  // it is gone; and whether UCX itself ends the sends to a rank that is gone.
  uint32_t n_failed() const { return n_failed_; }
  ucs_status_t state(uint32_t rank) const { return peers_[rank].state; }
  bool ends_sends_to(uint32_t rank) const { return peers_[rank].context == &network_; }

  // A number that no channel of any member has had. Collective over the `members`, which are ranks
  // of the world; this rank is the `place`-th member. DEADLINE_EXCEEDED if a member does not come.
  uint64_t number_of_channel(const std::vector<uint32_t>& members, uint32_t place, uint64_t id,
                             uint64_t timeout_us);

  // Waits up to two seconds for the other ranks to leave too, so that no rank takes the end of
  // another rank for its death.
  void part();

 private:
  using Clock = std::chrono::steady_clock;
  struct Peer {
    World* world = nullptr;
    Context* context = nullptr;
    std::string address;
    std::string place;  // text for error messages
    ucp_ep_h endpoint = nullptr;
    ucs_status_t state = UCS_OK;
    Process process;  // the process of a rank of this host
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
  bool is_connected_ = false;  // all ranks have connected
  uint32_t n_progress_ = 0;
  Clock::time_point looked_;
  uint64_t next_channel_ = 1;  // number 0 is for rendezvous
};

}  // namespace penstock::ucx
