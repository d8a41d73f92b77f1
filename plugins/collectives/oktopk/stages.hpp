// One sparse all-reduce in progress: a chain of base messages, and the computations between them.
//
//   boundaries   all-reduce of every rank's equal-count splits         every boundary_period steps
//   scatter      all-to-all: each entry to the owner of its region
//   magnitudes   all-gather of the sums' magnitudes                    every threshold_period steps
//   counts       all-gather: how many sums each owner keeps
//   balance      all-to-all: every rank gets an equal share of the kept sums
//   gather       all-gather of the shares
#pragma once

#include "pairs.hpp"

#include <penstock/collective.h>

#include <string>
#include <vector>

namespace penstock::oktopk {

struct Rule {
  uint64_t threshold_period;
  uint64_t boundary_period;
  float adjust;
};

struct Channel;

enum class Stage { kBoundaries, kScatter, kMagnitudes, kCounts, kBalance, kGather, kDone };

struct Ticket {
  Channel* channel = nullptr;
  penstock_message message{};
  Stage stage = Stage::kDone;
  penstock_ticket* base = nullptr;  // the base message in progress
  penstock_message carried{};

  uint64_t n_elements = 0;
  uint64_t k = 0;  // most entries that survive: the capacity of all payloads
  bool keep_all = false;
  bool exact = false;  // the threshold is computed in this step
  float theta = 0;
  std::vector<uint64_t> edges;  // [size + 1]: region r is [edges[r], edges[r + 1])
  std::vector<uint64_t> splits;

  std::vector<Pair> own;   // the entries that this rank sends
  std::vector<Pair> sums;  // sums of this rank's region, later only the survivors
  std::vector<Pair> spare;
  std::vector<uint32_t> ranked;
  std::vector<uint32_t> mine;  // magnitudes
  Room<Pair> pairs;            // received pairs
  Room<uint32_t> magnitudes;
  Room<Pair> share;  // the share of this rank after balancing
  std::vector<uint64_t> send_counts, counts, offsets, kept, goals;
  uint64_t n_kept = 0;  // surviving sums of all regions
};

struct Channel {
  penstock_base_channel base{};
  Rule rule{};
  uint32_t rank = 0;
  uint32_t size = 1;
  std::vector<std::unique_ptr<Ticket>> tickets;  // all tickets that were ever made
  std::vector<Ticket*> free;
};

// Reads the payloads and starts the first stage. Throws for payloads that are not sparse.
void start(Ticket& ticket);

// Takes one step; true once the results are written.
bool advance(Ticket& ticket);

// Releases the base message in progress, if there is one.
void drop_base(Ticket& ticket);

// Writes the entries that this rank sent and that did not survive, as payloads of the message's
// items.
void give_back(Ticket& ticket, penstock_payload* const* payloads);

}  // namespace penstock::oktopk
