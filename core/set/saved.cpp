#include "core/set/saved.hpp"

#include "core/base/bytes.hpp"
#include "core/base/hash.hpp"

#include <fmt/format.h>

namespace penstock {
namespace {

constexpr uint64_t kStateMagic = 0x3245544154534b50u;  // "PKSTATE2"

// Checks that each rank has one state, and that all states have one step and plan.
Status check_whole(const std::vector<SavedSet>& saved, std::string_view set) {
  const SavedSet& first = saved.front();
  for (size_t i = 0; i < saved.size(); ++i) {
    const SavedSet& one = saved[i];
    if (one.world != saved.size() || one.rank != i || one.step != first.step)
      return mismatch(
          "shard {} of {} for set '{}' was saved by rank {} of {} at step {}, expected rank {} of "
          "{} at step {}: give the shards of all ranks, in rank order, of one step",
          i, saved.size(), set, one.rank, one.world, one.step, i, saved.size(), first.step);
    if (one.plan != first.plan)
      return mismatch("shards 0 and {} for set '{}' have different plans: they are of two runs", i,
                      set);
  }
  return {};
}

}  // namespace

void write_saved(const SavedSet& saved, std::string& out) {
  const size_t begin = out.size();
  ByteWriter writer(out);
  writer.put(kStateMagic);
  writer.text(saved.name);
  writer.put(saved.rank);
  writer.put(saved.world);
  writer.put(saved.step);
  writer.text(saved.plan);
  for (const std::string_view carry : saved.carries) writer.text(carry);
  writer.text(saved.tensors);
  writer.put(hash64(std::string_view(out).substr(begin)));
}

Result<SavedSet> read_saved(std::string_view bytes, std::string_view set, size_t n_gradients) {
  if (bytes.size() < 16)
    return invalid_argument("the saved state of set '{}' is truncated: {} bytes", set,
                            bytes.size());
  const std::string_view body = bytes.substr(0, bytes.size() - sizeof(uint64_t));
  if (ByteReader(bytes.substr(body.size())).get<uint64_t>() != hash64(body))
    return invalid_argument(
        "the saved state of set '{}' is damaged or truncated: its checksum does not match", set);
  ByteReader reader(body);
  if (reader.get<uint64_t>() != kStateMagic)
    return invalid_argument("these bytes are not a saved state");
  SavedSet saved;
  saved.name = reader.text();
  saved.rank = reader.get<uint32_t>();
  saved.world = reader.get<uint32_t>();
  saved.step = reader.get<uint64_t>();
  saved.plan = reader.text();
  for (size_t i = 0; i < n_gradients; ++i) saved.carries.push_back(reader.text());
  saved.tensors = reader.text();
  if (!reader.at_end())
    return invalid_argument("the saved state of set '{}' is of another model", set);
  return saved;
}

Result<std::vector<SavedSet>> read_all_saved(std::span<const std::string_view> shards,
                                             std::string_view set, size_t n_gradients) {
  if (shards.empty()) return invalid_argument("set '{}' got no shard to load", set);
  std::vector<SavedSet> saved;
  for (size_t i = 0; i < shards.size(); ++i) {
    Result<SavedSet> one = read_saved(shards[i], set, n_gradients);
    if (!one.ok()) return one.status().with_context(fmt::format("shard {}", i));
    saved.push_back(std::move(*one));
  }
  PENSTOCK_TRY(check_whole(saved, set));
  return saved;
}

}  // namespace penstock
