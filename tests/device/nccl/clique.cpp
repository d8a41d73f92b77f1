// The rendezvous of ranks in an operation, and the movement of its bytes.
#include "clique.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace penstock::simulated {
namespace {

bool is_counterpart(const Part& mine, int me, const Part& other, int them) {
  if (mine.number != other.number) return false;
  if (!mine.is_message()) return !other.is_message();
  return other.is_message() && other.pattern != mine.pattern && mine.peer == them &&
         other.peer == me;
}

bool agree(const Part& a, const Part& b) {
  if (a.count != b.count || a.type != b.type) return false;
  if (a.is_message()) return true;
  return a.pattern == b.pattern && a.operation == b.operation && a.peer == b.peer;
}

void copy(const char* source, char* target, uint64_t bytes) {
  if (source != target) std::memmove(target, source, bytes);
}

// `parts` by rank, for one collective.
void move_collective(const std::vector<Part>& parts) {
  const Part& first = parts.front();
  const uint64_t bytes = first.count * bytes_of(first.type);
  if (first.pattern == Pattern::kBroadcast) {
    for (const Part& part : parts) copy(parts[first.peer].source, part.target, bytes);
    return;
  }
  // A target may be the source of another rank, or of this rank.
  const bool scatters = first.pattern == Pattern::kReduceScatter;
  const uint64_t source_bytes = scatters ? bytes * parts.size() : bytes;
  std::vector<std::vector<char>> sources;
  for (const Part& part : parts) sources.emplace_back(part.source, part.source + source_bytes);
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    if (first.pattern == Pattern::kAllGather) {
      for (std::size_t from = 0; from < parts.size(); ++from)
        copy(sources[from].data(), parts[rank].target + from * bytes, bytes);
      continue;
    }
    if (first.pattern == Pattern::kReduce && rank != static_cast<std::size_t>(first.peer)) continue;
    std::vector<const char*> pieces;
    for (const std::vector<char>& source : sources)
      pieces.push_back(source.data() + (scatters ? rank * bytes : 0));
    reduce(pieces, parts[rank].target, first.count, first.type, first.operation,
           machine().settings.sums_by_rank);
  }
}

}  // namespace

Communicators& communicators(Machine& machine) {
  static Communicators all;
  if (all.generation != machine.generation()) {
    all = Communicators{};
    all.generation = machine.generation();
  }
  return all;
}

Batch* Clique::find(int rank, const Part& part, int from) const {
  for (Batch* batch : batches) {
    if (batch->rank() != rank) continue;
    for (const Part& other : batch->parts)
      if (is_counterpart(part, from, other, rank)) return batch;
  }
  return nullptr;
}

bool Batch::is_first() const {
  return !stream_.queue.empty() && stream_.queue.front().rendezvous.get() == this;
}

bool Batch::gather(std::vector<Batch*>& all) {
  bool whole = true;
  all.push_back(this);
  for (std::size_t looked = 0; looked < all.size(); ++looked) {
    const Batch& batch = *all[looked];
    for (const Part& part : batch.parts) {
      for (int rank = 0; rank < clique_.n_ranks; ++rank) {
        const bool meets = part.is_message() ? rank == part.peer : rank != batch.rank_;
        if (!meets) continue;
        Batch* other = clique_.find(rank, part, batch.rank_);
        whole = whole && other != nullptr;
        if (other != nullptr && std::find(all.begin(), all.end(), other) == all.end())
          all.push_back(other);
      }
    }
  }
  return whole;
}

bool Batch::complete() {
  if (moved || clique_.is_aborted()) return true;
  std::vector<Batch*> all;
  return gather(all) &&
         std::all_of(all.begin(), all.end(), [](const Batch* batch) { return batch->is_first(); });
}

bool Batch::all_queued() {
  std::vector<Batch*> all;
  return gather(all);
}

std::vector<Stream*> Batch::streams() {
  std::vector<Batch*> all;
  (void)gather(all);
  std::vector<Stream*> found;
  for (Batch* batch : all) found.push_back(&batch->stream_);
  return found;
}

// The part of each rank in the operation of `part`. Empty for ranks outside a message.
std::vector<Part> Batch::parts_of_all(const Part& part) const {
  std::vector<Part> all(clique_.n_ranks, part);
  for (int rank = 0; rank < clique_.n_ranks; ++rank) {
    if (part.is_message() ? rank != part.peer : rank == rank_) continue;
    for (const Part& other : clique_.find(rank, part, rank_)->parts)
      if (is_counterpart(part, rank_, other, rank)) all[rank] = other;
  }
  return all;
}

void Batch::move_part(const Part& part) const {
  const std::vector<Part> all = parts_of_all(part);
  if (!std::all_of(all.begin(), all.end(), [&](const Part& other) { return agree(part, other); }))
    machine().journal.report(
        Misuse::kRanksDiffer,
        fmt::format("operation {} of a communicator of {} ranks has other arguments on rank {} "
                    "than on another",
                    part.number, clique_.n_ranks, rank_));
  else if (part.pattern == Pattern::kSend)
    copy(part.source, all[part.peer].target, part.count * bytes_of(part.type));
  else if (!part.is_message() && rank_ == 0)
    move_collective(all);
  if (!part.is_message()) forget_issue(machine(), clique_, part.number);
}

void Batch::move() {
  if (moved || clique_.is_aborted()) return;
  std::vector<Batch*> all;
  (void)gather(all);
  for (const Batch* batch : all)
    for (const Part& part : batch->parts) batch->move_part(part);
  for (Batch* batch : all) batch->moved = true;
  std::erase_if(clique_.batches, [](const Batch* batch) { return batch->moved; });
}

void note_issue(Machine& machine, const Clique& clique, int device, uint64_t number) {
  auto& issued = communicators(machine).issued;
  const Issued now{&clique, number};
  const std::deque<Issued>& mine = issued[device];
  for (const auto& [other_device, theirs] : issued) {
    auto behind = std::find(theirs.begin(), theirs.end(), now);
    if (other_device == device || behind == theirs.end()) continue;
    for (++behind; behind != theirs.end(); ++behind) {
      if (std::find(mine.begin(), mine.end(), *behind) == mine.end()) continue;
      machine.journal.report(
          Misuse::kRanksDiffer,
          fmt::format("device {} issued a collective of another communicator before collective {} "
                      "of one of {} ranks, device {} behind it: this can deadlock",
                      device, number, clique.n_ranks, other_device));
      break;
    }
  }
  issued[device].push_back(now);
}

void forget_issue(Machine& machine, const Clique& clique, uint64_t number) {
  for (auto& [device, issued] : communicators(machine).issued)
    std::erase(issued, Issued{&clique, number});
}

}  // namespace penstock::simulated
