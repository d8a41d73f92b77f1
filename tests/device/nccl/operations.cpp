// Sends, receives, collectives and groups. Operations in a group are queued at the end of the
// group.
#include <fmt/format.h>

#include <map>
#include <utility>

#include "call.hpp"

namespace penstock::simulated {
namespace {

struct Group {
  int depth = 0;
  std::vector<Said> said;
};
Group& this_group() {
  static thread_local Group group;
  return group;
}

uint64_t next_number(Communicator& communicator, const Part& part) {
  if (part.pattern == Pattern::kSend) return ++communicator.n_sent[part.peer];
  if (part.pattern == Pattern::kReceive) return ++communicator.n_received[part.peer];
  return ++communicator.n_collectives;
}

// Checks only the address. A wrong length is found when the bytes move.
bool is_reachable(Machine& machine, const void* pointer, const char* what) {
  if (pointer == nullptr || machine.memory.find(pointer) != nullptr) return true;
  machine.journal.report(Misuse::kWrongPointer,
                         fmt::format("the {} of an operation of NCCL is pageable memory of the "
                                     "host, expected memory of a device",
                                     what));
  return false;
}

ncclResult_t check(Machine& machine, const Said& said) {
  const Communicator* communicator = find_communicator(machine, said.communicator);
  const Stream* stream = find_stream(machine, said.stream, "an operation of NCCL");
  if (communicator == nullptr || stream == nullptr) return ncclInvalidArgument;
  if (communicator->error != ncclSuccess) return communicator->error;
  if (!communicator->clique->is_complete()) return ncclInvalidUsage;
  if (stream->device != communicator->device) return ncclInvalidUsage;
  if (stream->captured != nullptr) return ncclInvalidUsage;  // not simulated
  if (said.part.count > 0 && (!is_reachable(machine, said.part.source, "source") ||
                              !is_reachable(machine, said.part.target, "target")))
    return ncclInvalidArgument;
  const int peer = said.part.peer;
  if (peer < 0 || peer >= communicator->clique->n_ranks) return ncclInvalidArgument;
  return ncclSuccess;
}

// False if a non-blocking communicator has not yet finished its last group.
bool is_settled(Machine& machine, const Said& said) {
  const Communicator& communicator = *find_communicator(machine, said.communicator);
  if (communicator.late.empty()) return true;
  machine.journal.report(Misuse::kCommunicatorUsedEarly,
                         fmt::format("rank {} of a communicator of {} was given an operation while "
                                     "the one before was under way; ask for its state first",
                                     communicator.rank, communicator.clique->n_ranks));
  return false;
}

ncclResult_t end_group(const std::vector<Said>& said) {
  return nccl_call([&](Machine& machine, Lock&) {
    constexpr uint64_t kLatest = 3;
    for (const Said& one : said) {
      if (const ncclResult_t error = check(machine, one); error != ncclSuccess) return error;
      if (!is_settled(machine, one)) return ncclInvalidUsage;
    }
    Communicator& first = *find_communicator(machine, said.front().communicator);
    const uint64_t times = first.n_groups++ % (kLatest + 1);
    if (first.blocking || times == 0) return queue_group(machine, said);
    first.late = said;
    first.asked_until_there = times;
    return ncclInProgress;
  });
}

ncclResult_t say(ncclComm_t communicator, cudaStream_t stream, const Part& part) {
  Group& group = this_group();
  if (group.depth == 0) return end_group({{communicator, stream, part}});
  group.said.push_back({communicator, stream, part});
  return ncclSuccess;
}

Part part_of(Pattern pattern, const void* source, void* target, std::size_t count,
             ncclDataType_t type) {
  return {pattern,
          static_cast<const char*>(source),
          static_cast<char*>(target),
          count,
          type,
          ncclSum,
          0,
          0};
}

}  // namespace

// Queues in the order of the first parts.
ncclResult_t queue_group(Machine& machine, const std::vector<Said>& all) {
  std::vector<std::pair<Stream*, std::shared_ptr<Batch>>> made;
  std::map<std::pair<ncclComm_t, Stream*>, std::shared_ptr<Batch>> batches;
  for (const Said& said : all) {
    Communicator& communicator = *find_communicator(machine, said.communicator);
    Stream* stream = find_stream(machine, said.stream, "an operation of NCCL");
    std::shared_ptr<Batch>& batch = batches[{said.communicator, stream}];
    if (batch == nullptr) {
      batch = std::make_shared<Batch>(communicator.clique, communicator.rank, *stream);
      made.emplace_back(stream, batch);
    }
    Part part = said.part;
    part.number = next_number(communicator, part);
    if (!part.is_message())
      note_issue(machine, *communicator.clique, communicator.device, part.number);
    batch->parts.push_back(part);
  }
  for (const auto& [stream, batch] : made) {
    Operation operation{.kind = Kind::kRendezvous};
    operation.rendezvous = batch;
    operation.run = [batch] { batch->move(); };
    machine.queue(*stream, std::move(operation));
  }
  return ncclSuccess;
}

}  // namespace penstock::simulated

using namespace penstock::simulated;

ncclResult_t ncclGroupStart() {
  ++this_group().depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  Group& group = this_group();
  if (group.depth == 0) return ncclInvalidUsage;
  if (--group.depth > 0 || group.said.empty()) return ncclSuccess;
  return end_group(std::exchange(group.said, {}));
}

ncclResult_t ncclSend(const void* source, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t communicator, cudaStream_t stream) {
  Part part = part_of(Pattern::kSend, source, nullptr, count, type);
  part.peer = peer;
  return say(communicator, stream, part);
}
ncclResult_t ncclRecv(void* target, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t communicator, cudaStream_t stream) {
  Part part = part_of(Pattern::kReceive, nullptr, target, count, type);
  part.peer = peer;
  return say(communicator, stream, part);
}
ncclResult_t ncclAllReduce(const void* source, void* target, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t operation, ncclComm_t communicator, cudaStream_t stream) {
  Part part = part_of(Pattern::kAllReduce, source, target, count, type);
  part.operation = operation;
  return say(communicator, stream, part);
}
ncclResult_t ncclReduce(const void* source, void* target, std::size_t count, ncclDataType_t type,
                        ncclRedOp_t operation, int root, ncclComm_t communicator,
                        cudaStream_t stream) {
  Part part = part_of(Pattern::kReduce, source, target, count, type);
  part.operation = operation;
  part.peer = root;
  return say(communicator, stream, part);
}
ncclResult_t ncclReduceScatter(const void* source, void* target, std::size_t count_received,
                               ncclDataType_t type, ncclRedOp_t operation, ncclComm_t communicator,
                               cudaStream_t stream) {
  Part part = part_of(Pattern::kReduceScatter, source, target, count_received, type);
  part.operation = operation;
  return say(communicator, stream, part);
}
ncclResult_t ncclAllGather(const void* source, void* target, std::size_t count_sent,
                           ncclDataType_t type, ncclComm_t communicator, cudaStream_t stream) {
  return say(communicator, stream, part_of(Pattern::kAllGather, source, target, count_sent, type));
}
ncclResult_t ncclBroadcast(const void* source, void* target, std::size_t count, ncclDataType_t type,
                           int root, ncclComm_t communicator, cudaStream_t stream) {
  Part part = part_of(Pattern::kBroadcast, source, target, count, type);
  part.peer = root;
  return say(communicator, stream, part);
}
