// Communicators, and the rendezvous of their ranks' streams. The machine's lock protects
// everything.
#pragma once

#include <nccl.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "../machine/machine.hpp"

namespace penstock::simulated {

enum class Pattern { kSend, kReceive, kAllReduce, kReduce, kReduceScatter, kAllGather, kBroadcast };

// The part of one rank in one operation.
struct Part {
  Pattern pattern;
  const char* source;
  char* target;
  uint64_t count;  // the argument of the call
  ncclDataType_t type;
  ncclRedOp_t operation;
  int peer;         // of a send or receive; the root of a broadcast or reduce
  uint64_t number;  // counts the collectives of the communicator, or the messages between two ranks

  bool is_message() const { return pattern == Pattern::kSend || pattern == Pattern::kReceive; }
};

struct Clique;

// A call of an operation, before it reaches its stream.
struct Said {
  ncclComm_t communicator;
  cudaStream_t stream;
  Part part;
};

struct Communicator {
  uint64_t id;
  std::shared_ptr<Clique> clique;
  int rank;
  int device;
  ncclResult_t error = ncclSuccess;
  uint64_t n_collectives = 0;
  std::map<int, uint64_t> n_sent{}, n_received{};  // by peer
  // If not blocking: the operations of the last group reach their streams only after a number of
  // questions about the communicator's state.
  bool blocking = true;
  std::vector<Said> late{};
  uint64_t n_groups = 0, asked_until_there = 0;
};

class Batch;

struct Clique {
  int n_ranks;
  std::vector<Communicator*> members;  // by rank; null: not there yet, or destroyed
  std::vector<Batch*> batches;         // queued and not moved; owned by their streams
  bool aborted = false;
  int n_joined = 0;
  bool is_complete() const { return n_joined == n_ranks; }
  bool is_aborted() const { return aborted; }
  void abort() {
    aborted = true;
    batches.clear();
  }
  // The batch of `rank` for the operation to which `part` of `from` belongs. Null if there is no
  // such batch yet.
  Batch* find(int rank, const Part& part, int from) const;
};

// The operations that one rank queued in one group on one communicator. They move together.
class Batch : public Rendezvous {
 public:
  Batch(std::shared_ptr<Clique> clique, int rank, Stream& stream)
      : kept_(std::move(clique)), clique_(*kept_), rank_(rank), stream_(stream) {
    clique_.batches.push_back(this);
  }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;
  ~Batch() override { std::erase(clique_.batches, this); }

  bool complete() override;
  bool all_queued() override;
  std::vector<Stream*> streams() override;

  // The first of the batches that meet moves the bytes of all batches.
  void move();

  std::vector<Part> parts;
  bool moved = false;
  int rank() const { return rank_; }

 private:
  std::vector<Part> parts_of_all(const Part& part) const;
  void move_part(const Part& part) const;
  bool is_first() const;
  // Collects this batch and every batch that must move with it. False if a rank has not queued its
  // batch yet.
  bool gather(std::vector<Batch*>& all);

  std::shared_ptr<Clique> kept_;
  Clique& clique_;
  int rank_;
  Stream& stream_;
};

// The collectives whose rendezvous are open, in the order in which each device issued them.
struct Issued {
  const Clique* clique;
  uint64_t number;
  bool operator==(const Issued&) const = default;
};

struct Communicators {
  std::map<std::string, std::shared_ptr<Clique>> cliques;  // by their unique id
  std::map<uint64_t, std::unique_ptr<Communicator>> members;
  std::map<int, std::deque<Issued>> issued;  // by device
  uint64_t generation = 0;
};
// A reset of the machine also empties them.
Communicators& communicators(Machine& machine);

// Puts the operations of a group on their streams, one batch for each communicator and stream.
ncclResult_t queue_group(Machine& machine, const std::vector<Said>& all);

// Reports ranks that issue collectives of several communicators in different orders.
void note_issue(Machine& machine, const Clique& clique, int device, uint64_t number);
void forget_issue(Machine& machine, const Clique& clique, uint64_t number);

uint64_t bytes_of(ncclDataType_t type);
// Writes the reduction of all ranks' values, which is equal on every rank. `by_rank`: see
// Settings::sums_by_rank.
void reduce(const std::vector<const char*>& sources, char* target, uint64_t count,
            ncclDataType_t type, ncclRedOp_t operation, bool by_rank);

}  // namespace penstock::simulated
