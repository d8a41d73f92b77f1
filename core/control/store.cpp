#include "core/control/store.hpp"

#include <algorithm>

namespace penstock::control {

void Store::put(uint32_t rank, Reader& reader) {
  const uint64_t id = reader.u64();
  const std::string key(reader.text());
  const std::string value(reader.text());
  if (!reader.finished()) return;
  for (const PendingGet& waiting : gets_) {
    if (waiting.key == key) send_(waiting.rank, encode(Reply{.id = waiting.id, .value = value}));
  }
  std::erase_if(gets_, [&](const PendingGet& waiting) { return waiting.key == key; });
  values_[key] = value;
  send_(rank, encode(Reply{.id = id}));
}

void Store::get(uint32_t rank, Reader& reader, uint64_t now_us) {
  const uint64_t id = reader.u64();
  const std::string_view key = reader.text();
  const uint64_t timeout_us = reader.u64();
  if (!reader.finished()) return;
  if (const auto found = values_.find(key); found != values_.end()) {
    send_(rank, encode(Reply{.id = id, .value = found->second}));
  } else {
    gets_.push_back({rank, id, std::string(key), timeout_us, later(now_us, timeout_us)});
  }
}

void Store::tick(uint64_t now_us) {
  for (const PendingGet& waiting : gets_) {
    if (now_us < waiting.until_us) continue;
    const Status late = deadline_exceeded("key '{}': no rank has put it within {}", waiting.key,
                                          seconds(waiting.timeout_us));
    send_(waiting.rank, encode(Reply{.id = waiting.id, .status = late}));
  }
  std::erase_if(gets_, [&](const PendingGet& waiting) { return now_us >= waiting.until_us; });
}

void Store::leave(uint32_t rank) {
  std::erase_if(gets_, [&](const PendingGet& waiting) { return waiting.rank == rank; });
}

uint64_t Store::next_us() const {
  uint64_t next = kNever;
  for (const PendingGet& waiting : gets_) next = std::min(next, waiting.until_us);
  return next;
}

}  // namespace penstock::control
