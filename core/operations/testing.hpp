// Helpers for the tests of Operations: a transport between threads of one process, and ranks that
// use it.
#pragma once

#include "core/control/testing.hpp"
#include "core/operations/operations.hpp"
#include "core/tensor/dtype.hpp"
#include "core/tensor/elements.hpp"

#include <penstock/mean.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <numeric>
#include <vector>

namespace penstock::testing {

// The object that all ranks of a test share. When all ranks have come, the first thread that polls
// executes the message.
class ThreadHub {
 public:
  ThreadHub(uint32_t size, bool ordered) : ordered(ordered), hosts(size) {}

  struct Slot {
    std::vector<const penstock_message*> messages;
    size_t arrived = 0;
    bool done = false;
    Status error;
  };
  const bool ordered;
  const std::vector<uint32_t> hosts;
  std::mutex mutex;
  std::map<std::pair<uint64_t, uint64_t>, Slot> slots;  // by group id, and tag or position
  std::vector<std::pair<uint64_t, std::vector<uint32_t>>> opened;
  bool refuse = false;  // every message ends in an error
  bool takes_means = true;

  static void carry_out(Slot& slot);
};

// Calls `use` with a zero of the C++ type of `dtype`. 16-bit floats have no C++ type: `use` gets
// their bits.
template <typename Use>
auto with_type(uint32_t dtype, Use&& use) {
  switch (dtype) {
    case PENSTOCK_FLOAT32:
      return use(float{});
    case PENSTOCK_FLOAT64:
      return use(double{});
    case PENSTOCK_INT8:
      return use(int8_t{});
    case PENSTOCK_UINT8:
    case PENSTOCK_BOOL:
      return use(uint8_t{});
    case PENSTOCK_INT16:
      return use(int16_t{});
    case PENSTOCK_INT32:
      return use(int32_t{});
    case PENSTOCK_UINT32:
      return use(uint32_t{});
    case PENSTOCK_INT64:
      return use(int64_t{});
    case PENSTOCK_UINT64:
      return use(uint64_t{});
    default:
      return use(uint16_t{});
  }
}
inline bool is_half(uint32_t dtype) {
  return dtype == PENSTOCK_FLOAT16 || dtype == PENSTOCK_BFLOAT16;
}

inline double element(uint32_t dtype, const void* data, uint64_t i) {
  if (is_half(dtype)) {
    float value = 0;
    to_float32(dtype, static_cast<const uint16_t*>(data) + i, &value, 1);
    return value;
  }
  return with_type(dtype, [&](auto zero) {
    return static_cast<double>(static_cast<const decltype(zero)*>(data)[i]);
  });
}

inline void set_element(uint32_t dtype, void* data, uint64_t i, double value) {
  if (is_half(dtype)) {
    const auto narrow = static_cast<float>(value);
    return from_float32(dtype, &narrow, static_cast<uint16_t*>(data) + i, 1);
  }
  with_type(dtype, [&](auto zero) {
    static_cast<decltype(zero)*>(data)[i] = static_cast<decltype(zero)>(value);
  });
}

inline double reduced(uint32_t reduction, double left, double right) {
  switch (reduction) {
    case PENSTOCK_REDUCE_SUM:
    case PENSTOCK_REDUCE_MEAN:
      return left + right;
    case PENSTOCK_REDUCE_MIN:
      return std::min(left, right);
    case PENSTOCK_REDUCE_MAX:
      return std::max(left, right);
    default:
      return left * right;
  }
}

// Computes in double, which is exact for the small numbers of tests. Computes all results before it
// writes any, because buffers may be shared.
inline void ThreadHub::carry_out(Slot& slot) {
  const auto& messages = slot.messages;
  const size_t size = messages.size();
  const penstock_message& first = *messages[0];
  std::vector<std::vector<double>> sent(size), received(size);
  for (size_t r = 0; r < size; ++r) {
    const penstock_message& message = *messages[r];
    if (message.pattern != first.pattern || message.dtype != first.dtype ||
        message.tag != first.tag || message.id != first.id ||
        message.reduction != first.reduction) {
      slot.error = internal("messages of another kind met");
    }
    for (uint64_t i = 0; i < message.count; ++i)
      sent[r].push_back(element(first.dtype, message.send, i));
  }
  std::vector<double> all;
  for (uint64_t i = 0; i < first.count && first.reduction != 0; ++i) {
    double value = sent[0][i];
    for (size_t r = 1; r < size; ++r) value = reduced(first.reduction, value, sent[r][i]);
    all.push_back(first.reduction == PENSTOCK_REDUCE_MEAN ? value / double(size) : value);
  }
  for (size_t r = 0; r < size; ++r) {
    const penstock_message& message = *messages[r];
    std::vector<double>& mine = received[r];
    if (first.pattern == PENSTOCK_ALL_REDUCE) mine = all;
    if (first.pattern == PENSTOCK_BROADCAST) mine = sent[message.peer];
    if (first.pattern == PENSTOCK_REDUCE_SCATTER) {
      const uint64_t begin =
          std::accumulate(message.receive_counts, message.receive_counts + r, uint64_t{0});
      mine.assign(all.begin() + static_cast<ptrdiff_t>(begin),
                  all.begin() + static_cast<ptrdiff_t>(begin + message.receive_counts[r]));
    }
    if (first.pattern != PENSTOCK_ALL_GATHER && first.pattern != PENSTOCK_ALL_TO_ALL) continue;
    for (size_t from = 0; from < size; ++from) {
      const penstock_message& source = *messages[from];
      uint64_t begin = 0;
      uint64_t count = source.count;
      if (first.pattern == PENSTOCK_ALL_TO_ALL) {
        begin = std::accumulate(source.send_counts, source.send_counts + r, uint64_t{0});
        count = source.send_counts[r];
      }
      if (count != message.receive_counts[from] || message.receive_offsets[from] != mine.size()) {
        slot.error = internal("counts do not meet: {} sent, {} expected", count,
                              message.receive_counts[from]);
      }
      mine.insert(mine.end(), sent[from].begin() + static_cast<ptrdiff_t>(begin),
                  sent[from].begin() + static_cast<ptrdiff_t>(begin + count));
    }
  }
  for (size_t r = 0; r < size; ++r) {
    for (size_t i = 0; i < received[r].size(); ++i)
      set_element(first.dtype, messages[r]->receive, i, received[r][i]);
  }
  slot.done = true;
}

// The collective table over a hub; the instance is the hub.
struct ThreadChannel {
  penstock_group group;
  uint64_t submitted = 0;
};
struct ThreadTicket {
  ThreadHub* hub;
  std::pair<uint64_t, uint64_t> slot;
};

inline penstock_status* thread_describe(void* instance, penstock_collective_traits* traits) {
  traits->patterns =
      PENSTOCK_PATTERN_BIT(PENSTOCK_ALL_REDUCE) | PENSTOCK_PATTERN_BIT(PENSTOCK_ALL_GATHER) |
      PENSTOCK_PATTERN_BIT(PENSTOCK_BROADCAST) | PENSTOCK_PATTERN_BIT(PENSTOCK_ALL_TO_ALL) |
      PENSTOCK_PATTERN_BIT(PENSTOCK_REDUCE_SCATTER);
  traits->dtypes = ~(PENSTOCK_DTYPE_BIT(PENSTOCK_BOOL) | PENSTOCK_DTYPE_BIT(PENSTOCK_UINT16));
  traits->flags = static_cast<ThreadHub*>(instance)->ordered ? PENSTOCK_COLLECTIVE_ORDERED : 0;
  return nullptr;
}

inline penstock_status* thread_open(void* instance, const penstock_group* group,
                                    const penstock_base_channel*, const penstock_key_value_store*,
                                    uint64_t, penstock_channel** channel) {
  auto* hub = static_cast<ThreadHub*>(instance);
  const std::lock_guard lock(hub->mutex);
  hub->opened.push_back({group->id, {group->world_ranks, group->world_ranks + group->size}});
  *channel = reinterpret_cast<penstock_channel*>(new ThreadChannel{*group});
  return nullptr;
}

inline penstock_status* thread_submit(void* instance, penstock_channel* handle,
                                      const penstock_message* message, penstock_ticket** ticket) {
  auto* hub = static_cast<ThreadHub*>(instance);
  auto* channel = reinterpret_cast<ThreadChannel*>(handle);
  const std::lock_guard lock(hub->mutex);
  if (hub->refuse) return to_c(device_error("the cable is cut"));
  const uint64_t position = hub->ordered ? channel->submitted++ : message->tag;
  const std::pair<uint64_t, uint64_t> key{channel->group.id, position};
  ThreadHub::Slot& slot = hub->slots[key];
  slot.messages.resize(channel->group.size);
  slot.messages[channel->group.rank] = message;
  ++slot.arrived;
  *ticket = reinterpret_cast<penstock_ticket*>(new ThreadTicket{hub, key});
  return nullptr;
}

inline penstock_status* thread_progress(void*, penstock_ticket* handle, uint32_t* state) {
  auto* ticket = reinterpret_cast<ThreadTicket*>(handle);
  const std::lock_guard lock(ticket->hub->mutex);
  ThreadHub::Slot& slot = ticket->hub->slots[ticket->slot];
  if (!slot.done && slot.arrived == slot.messages.size()) ThreadHub::carry_out(slot);
  *state = slot.done ? PENSTOCK_DONE : PENSTOCK_PENDING;
  return to_c(slot.error);
}

inline const void* thread_extension(void* instance, penstock_str id) {
  static constexpr penstock_mean mean{
      sizeof mean, PENSTOCK_DTYPE_BIT(PENSTOCK_FLOAT16) | PENSTOCK_DTYPE_BIT(PENSTOCK_BFLOAT16)};
  const bool takes = static_cast<ThreadHub*>(instance)->takes_means;
  return takes && view(id) == PENSTOCK_MEAN_EXTENSION ? &mean : nullptr;
}

inline penstock_collective thread_table() {
  penstock_collective table{};
  table.struct_size = sizeof table;
  table.describe = thread_describe;
  table.open = thread_open;
  table.submit = thread_submit;
  table.progress = thread_progress;
  table.release = [](void*, penstock_ticket* ticket) {
    delete reinterpret_cast<ThreadTicket*>(ticket);
  };
  table.extension = thread_extension;
  table.abort = [](void*, penstock_channel*) {};
  table.close = [](void*, penstock_channel* channel) {
    delete reinterpret_cast<ThreadChannel*>(channel);
  };
  return table;
}

struct OperationsRank {
  Control& control;
  Communication& communication;
  Operations& operations;
  uint32_t rank() const { return control.rank(); }
  uint32_t size() const { return control.size(); }
};

inline void run_operations(ThreadHub& hub, const std::function<void(OperationsRank rank)>& body) {
  const penstock_collective table = thread_table();
  run_world(static_cast<uint32_t>(hub.hosts.size()), [&](Control& control) {
    Communication communication;
    Operations::Options options;
    options.control = &control;
    options.communication = &communication;
    options.table = &table;
    options.instance = &hub;
    options.world = Group::joined(control.rank(), hub.hosts).value();
    Result<std::unique_ptr<Operations>> operations = Operations::make(options);
    ASSERT_TRUE(operations.ok()) << operations.status().message();
    body({control, communication, **operations});
    // All ranks finish with the transport before any rank closes its channels.
    (void)control.agree("end of test", "", {}, kLongUs);
  });
}

// A tensor and its description.
struct Array {
  Array(uint32_t dtype, std::vector<int64_t> dimensions,
        const std::function<double(uint64_t)>& value)
      : shape(std::move(dimensions)) {
    uint64_t numel = 1;
    for (int64_t size : shape) numel *= static_cast<uint64_t>(size);
    bytes.resize(numel * dtype_bytes(dtype));
    tensor = {sizeof tensor, bytes.data(), shape.data(),        nullptr, shape.size(),
              numel,         dtype,        PENSTOCK_DEVICE_CPU, 0,       0};
    for (uint64_t i = 0; i < numel; ++i) set_element(dtype, bytes.data(), i, value(i));
  }
  Array(const Array&) = delete;
  std::vector<double> values() const {
    std::vector<double> all;
    for (uint64_t i = 0; i < tensor.numel; ++i)
      all.push_back(element(tensor.dtype, bytes.data(), i));
    return all;
  }
  std::vector<int64_t> shape;
  std::vector<unsigned char> bytes;
  penstock_tensor tensor;
};

inline penstock_operation_declaration declare(uint32_t pattern, std::string_view name,
                                              const Array* input, const Array* output = nullptr) {
  penstock_operation_declaration declaration{};
  declaration.struct_size = sizeof declaration;
  declaration.name = str(name);
  declaration.input = input != nullptr ? &input->tensor : nullptr;
  declaration.output = output != nullptr ? &output->tensor : nullptr;
  declaration.pattern = pattern;
  declaration.reduction = PENSTOCK_REDUCE_SUM;
  declaration.prescale = declaration.postscale = 1;
  return declaration;
}

inline std::shared_ptr<Operation> submit(OperationsRank rank,
                                         const penstock_operation_declaration& declaration) {
  Result<std::shared_ptr<Operation>> operation = rank.operations.submit(declaration);
  EXPECT_TRUE(operation.ok()) << operation.status().message();
  return operation.ok() ? *operation : nullptr;
}

inline Status carry(OperationsRank rank, const penstock_operation_declaration& declaration) {
  return submit(rank, declaration)->wait();
}

}  // namespace penstock::testing
