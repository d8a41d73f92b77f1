// For the tests of oktopk: one rank of it on the loopback transport, with items, payloads and
// states as the core would keep them.
#pragma once

#include <loopback/loopback_testing.hpp>

#include <algorithm>
#include <deque>
#include <numeric>

namespace penstock::test {

constexpr uint64_t kTags = 8;

inline const LoadedPlugin& plugin() {
  static const LoadedPlugin loaded = load_plugin(PENSTOCK_PLUGIN_FILE);
  return loaded;
}
inline const LoadedPlugin& loopback() {
  static const LoadedPlugin loaded = load_plugin("collective", "loopback");
  return loaded;
}

// The entries of one item on one rank.
struct Entries {
  std::vector<uint32_t> indices;
  std::vector<float> values;
  bool absent = false;
};

// A sparse payload with room for `capacity` entries.
class Payload {
 public:
  explicit Payload(uint64_t capacity) : indices_(capacity), values_(capacity) {
    for (penstock_section* section : {&index_section_, &value_section_}) {
      *section = {};
      section->struct_size = sizeof *section;
      section->capacity = capacity;
    }
    index_section_.data = indices_.data();
    index_section_.dtype = PENSTOCK_UINT32;
    index_section_.role = PENSTOCK_ROLE_INDICES;
    value_section_.data = values_.data();
    value_section_.dtype = PENSTOCK_FLOAT32;
    c.struct_size = sizeof c;
    c.sections = sections_;
    c.n_sections = 2;
    c.kind = PENSTOCK_PAYLOAD_ABSENT;
  }
  Payload(const Payload&) = delete;
  void set(const Entries& entries) {
    c.kind = entries.absent ? PENSTOCK_PAYLOAD_ABSENT : PENSTOCK_PAYLOAD_SPARSE;
    index_section_.count = value_section_.count = entries.indices.size();
    std::copy(entries.indices.begin(), entries.indices.end(), indices_.begin());
    std::copy(entries.values.begin(), entries.values.end(), values_.begin());
  }
  uint64_t count() const { return c.kind == PENSTOCK_PAYLOAD_SPARSE ? index_section_.count : 0; }
  uint32_t index(uint64_t i) const { return indices_[i]; }
  float value(uint64_t i) const { return values_[i]; }

  penstock_payload c{};

 private:
  std::vector<uint32_t> indices_;
  std::vector<float> values_;
  penstock_section index_section_{};
  penstock_section value_section_{};
  penstock_section* sections_[2] = {&index_section_, &value_section_};
};

struct Shape {
  std::vector<uint64_t> sizes;       // elements per item
  std::vector<uint64_t> capacities;  // entries per item
  int threshold_period = 4;
  int boundary_period = 8;
  uint64_t n_elements() const { return std::accumulate(sizes.begin(), sizes.end(), uint64_t(0)); }
  uint64_t k() const { return std::accumulate(capacities.begin(), capacities.end(), uint64_t(0)); }
};

// Bytes that this thread's rank hands to others through the base channel.
inline thread_local uint64_t sent_bytes = 0;
inline thread_local uint32_t sent_size = 1;
inline thread_local uint32_t sent_rank = 0;
inline const penstock_collective* real_base = nullptr;

inline penstock_status* counting_submit(void* self, penstock_channel* channel,
                                        const penstock_message* message, penstock_ticket** ticket) {
  const uint64_t width = message->dtype == PENSTOCK_UINT32 ? 4 : 8;
  if (message->pattern == PENSTOCK_ALL_GATHER)
    sent_bytes += width * message->count * (sent_size - 1);
  else if (message->pattern == PENSTOCK_ALL_REDUCE)
    sent_bytes += 2 * width * message->count;
  else
    sent_bytes += width * (message->count - message->send_counts[sent_rank]);
  return real_base->submit(self, channel, message, ticket);
}

inline const penstock_collective& counting_base() {
  static const penstock_collective table = [] {
    real_base = &loopback().collective();
    penstock_collective counting = *real_base;
    counting.submit = counting_submit;
    return counting;
  }();
  return table;
}

inline penstock_base_channel base_of(LoopbackRank& rank) {
  penstock_base_channel base{};
  base.struct_size = sizeof base;
  base.collective = &counting_base();
  base.instance = rank.self;
  base.channel = rank.channel;
  base.n_tags = kTags;
  return base;
}

// One rank of oktopk: items, payloads and states as the core would keep them.
class Member {
 public:
  Member(LoopbackRank& transport, const Shape& shape)
      : table(plugin().collective()),
        shape_(shape),
        instance_(table, *plugin().module,
                  {{"threshold_period", shape.threshold_period},
                   {"boundary_period", shape.boundary_period}}),
        base_(base_of(transport)),
        size_(transport.world.size) {
    sent_size = size_;
    sent_rank = transport.world.rank;
    std::vector<uint32_t> all(size_);
    std::iota(all.begin(), all.end(), 0u);
    penstock_group group{};
    group.struct_size = sizeof group;
    group.world_ranks = group.hosts = all.data();
    group.rank = transport.world.rank;
    group.size = size_;
    require(take(table.open(instance_.self(), &group, &base_, nullptr, 0, &channel)));
    for (size_t i = 0; i < shape.sizes.size(); ++i) {
      penstock_item& item = items_.emplace_back();
      item.struct_size = sizeof item;
      item.name = {"gradient", 8};
      item.numel = shape.sizes[i];
      payload_pointers_.push_back(&payloads.emplace_back(shape.capacities[i]).c);
      refused_pointers_.push_back(&refused.emplace_back(shape.capacities[i]).c);
    }
    for (auto& item : items_) item_pointers_.push_back(&item);
    plan();
  }
  ~Member() { table.close(instance_.self(), channel); }

  // Starts a step, which `poll` drives on.
  Outcome begin(uint64_t index, const std::vector<Entries>& mine, uint64_t tag) {
    for (size_t i = 0; i < mine.size(); ++i) payloads[i].set(mine[i]);
    step_ = {};
    step_.struct_size = sizeof step_;
    step_.index = index;
    message_ = sparse_message(tag);
    message_.step = &step_;
    return take(table.submit(instance_.self(), channel, &message_, &ticket_));
  }
  // True at the end of the step; `outcome` then has its result.
  bool poll(Outcome& outcome) {
    uint32_t state = PENSTOCK_PENDING;
    outcome = take(table.progress(instance_.self(), ticket_, &state));
    if (outcome.ok() && state == PENSTOCK_PENDING) return false;
    if (outcome.ok())
      outcome = take(table.returned(instance_.self(), ticket_, refused_pointers_.data(),
                                    refused_pointers_.size()));
    table.release(instance_.self(), ticket_);
    return true;
  }
  Outcome step(uint64_t index, const std::vector<Entries>& mine, uint64_t tag = 5) {
    Outcome outcome = begin(index, mine, tag);
    if (!outcome.ok()) return outcome;
    while (!poll(outcome)) std::this_thread::yield();
    return outcome;
  }
  void forget_states() {
    for (auto& storage : state_storage_) std::fill(storage.begin(), storage.end(), 0);
  }

  const penstock_collective& table;
  penstock_channel* channel = nullptr;
  std::deque<Payload> payloads, results, refused;

 private:
  static void require(const Outcome& outcome) {
    if (!outcome.ok()) throw std::runtime_error(outcome.message);
  }
  penstock_message sparse_message(uint64_t tag) {
    penstock_message message = message_of(PENSTOCK_SPARSE_ALL_REDUCE, tag);
    message.items = item_pointers_.data();
    message.payloads = payload_pointers_.data();
    message.results = result_pointers_.data();
    message.n_items = items_.size();
    message.states = state_pointers_.data();
    message.n_states = state_pointers_.size();
    return message;
  }
  void plan() {
    const penstock_message message = sparse_message(0);
    const penstock_message* const messages[] = {&message};
    penstock_collective_need need{};
    need.struct_size = sizeof need;
    penstock_collective_need* const needs[] = {&need};
    require(take(table.plan(instance_.self(), channel, messages, 1, needs)));
    for (uint64_t s = 0; s < need.n_states; ++s) {
      const penstock_state_declaration& declared = *need.states[s];
      EXPECT_EQ(declared.state_class, static_cast<uint32_t>(PENSTOCK_STATE_SOFT));
      auto& storage = state_storage_.emplace_back(declared.rows * declared.cols, 0);
      penstock_tensor& tensor = states_.emplace_back();
      tensor.struct_size = sizeof tensor;
      tensor.data = storage.data();
      tensor.numel = declared.rows * declared.cols;
      tensor.dtype = declared.dtype;
      state_pointers_.push_back(&tensor);
    }
    for (uint64_t size : shape_.sizes)
      result_pointers_.push_back(&results.emplace_back(std::min(size, need.result_capacity)).c);
  }

  const Shape shape_;
  Instance<penstock_collective> instance_;
  penstock_base_channel base_;
  uint32_t size_;
  penstock_step step_{};
  penstock_message message_{};
  penstock_ticket* ticket_ = nullptr;
  std::deque<penstock_item> items_;
  std::vector<const penstock_item*> item_pointers_;
  std::vector<const penstock_payload*> payload_pointers_;
  std::vector<penstock_payload*> result_pointers_, refused_pointers_;
  std::deque<std::vector<uint64_t>> state_storage_;
  std::deque<penstock_tensor> states_;
  std::vector<const penstock_tensor*> state_pointers_;
};

}  // namespace penstock::test
