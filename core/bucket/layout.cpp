#include "core/bucket/layout.hpp"

#include "core/bucket/wire.hpp"

#include <algorithm>
#include <map>
#include <set>

namespace penstock {
namespace {

uint32_t round_count(const BucketRun& bucket) {
  size_t most = 0;
  for (const ItemRun& item : bucket.items) most = std::max(most, item.rounds.size());
  return static_cast<uint32_t>(most);
}

// What people see of it: "optimizer.0 bucket 3: layer4.weight to fc.bias, 12 gradients".
void name_bucket(BucketRun& bucket) {
  bucket.label = fmt::format("bucket {}", bucket.number);
  bucket.lane = fmt::format("{} {}", bucket.context.name, bucket.label);
  if (bucket.items.empty()) return;
  bucket.lane += fmt::format(": {}", bucket.items.front().gradient->name);
  if (bucket.items.size() > 1)
    bucket.lane += fmt::format(" to {}, {} gradients", bucket.items.back().gradient->name,
                               bucket.items.size());
  std::set<std::string> schemes;
  for (const ItemRun& item : bucket.items)
    schemes.insert(fmt::format("{} + {}", item.compressor->name(), item.memory->name()));
  bucket.scheme = fmt::format("{}", fmt::join(schemes, ", "));
}

void lay_out_prologue(BucketRun& bucket) {
  uint64_t count = 0;
  for (MemoryCall& call : bucket.memory_calls) {
    call.scalars_first = count;
    count += call.items.size() * call.n_scalars;
  }
  const bool travels_coded =
      std::any_of(bucket.items.begin(), bucket.items.end(),
                  [](const ItemRun& item) { return !item.passes_through && !item.rounds.empty(); });
  if (count == 0 && !(bucket.context.nonfinite_is_strict && travels_coded)) return;
  bucket.prologue = make_message(bucket, MessageRun::Kind::prologue, bucket.context.channel,
                                 PENSTOCK_ALL_REDUCE, PENSTOCK_FLOAT32);
  MessageRun& message = *bucket.prologue;
  message.has_flag = true;
  message.flag_index = count;
  message.send = Buffer((count + 1) * sizeof(float));
  message.message.send = message.send.data();
  message.message.receive = message.send.data();
  message.message.count = count + 1;
}

void shape_payloads(BucketRun& bucket) {
  for (ItemRun& item : bucket.items) {
    for (size_t r = 0; r < item.rounds.size(); ++r) {
      const RoundNeed& need = item.rounds[r];
      item.own.emplace_back().shape(need, int32_t(bucket.context.rank));
      auto& received = item.received.emplace_back();
      const bool joined = need.combine == PENSTOCK_COMBINE_SUM ||
                          (item.on_composite && r + 1 == item.rounds.size());
      for (uint32_t rank = 0; rank < (joined ? 1 : bucket.context.world); ++rank)
        received.emplace_back().shape(need, joined ? -1 : int32_t(rank));
    }
  }
}

// Groups items by compressor and way of meeting; encode and decode have the same groups.
void list_compressor_calls(BucketRun& bucket) {
  for (uint32_t round = 0; round < bucket.n_rounds; ++round) {
    std::vector<CompressorCall> calls;
    for (size_t i = 0; i < bucket.items.size(); ++i) {
      ItemRun& item = bucket.items[i];
      if (item.rounds.size() <= round || item.passes_through) continue;
      const uint64_t n_ranks = item.received[round].size();
      auto call = std::find_if(calls.begin(), calls.end(), [&](const CompressorCall& c) {
        return c.compressor == item.compressor && c.n_ranks == n_ranks;
      });
      if (call == calls.end()) {
        call = calls.emplace(calls.end());
        call->compressor = item.compressor;
        call->round = round;
        call->n_ranks = n_ranks;
      }
      call->positions.push_back(i);
      call->items.push_back(&item.for_compressor);
      call->own.push_back(item.own[round].c());
      const bool folds = item.folded && round == 0;  // later rounds find it compensated
      call->folds.push_back(folds ? &item.fold : nullptr);
      if (folds) call->fold_encoder = fold_encoder(*item.compressor);
      for (PayloadStorage& payload : item.received[round]) call->received.push_back(payload.c());
    }
    for (CompressorCall& call : calls) {
      bucket.encode_calls.push_back(call);
      bucket.decode_calls.push_back(std::move(call));
    }
  }
}

void list_memory_calls(BucketRun& bucket) {
  for (size_t i = 0; i < bucket.items.size(); ++i) {
    ItemRun& item = bucket.items[i];
    auto call = std::find_if(bucket.memory_calls.begin(), bucket.memory_calls.end(),
                             [&](const MemoryCall& c) {
                               return c.memory == item.memory && c.n_scalars == item.n_scalars;
                             });
    if (call == bucket.memory_calls.end()) {
      bucket.memory_calls.emplace_back();
      call = bucket.memory_calls.end() - 1;
      call->memory = item.memory;
      call->n_scalars = item.n_scalars;
    }
    call->positions.push_back(i);
    call->items.push_back(&item.for_memory);
    if (!item.folded) call->unfolded.push_back(&item.for_memory);
    const PayloadStorage* taken = item.rounds.empty() ? nullptr
                                  : item.on_composite ? &item.taken
                                                      : &item.own.back();
    if (taken == nullptr) {
      item.taken.shape(RoundNeed{}, int32_t(bucket.context.rank));
      taken = &item.taken;
    }
    call->taken.push_back(taken->c());
    call->give_back.push_back(nullptr);
  }
}

}  // namespace

const penstock_fold_encoder* fold_encoder(const CompressorInstance& compressor) {
  if (!PENSTOCK_HAS_MEMBER(compressor.table(), penstock_compressor, extension)) return nullptr;
  const penstock_str id{PENSTOCK_FOLD_EXTENSION, sizeof PENSTOCK_FOLD_EXTENSION - 1};
  const auto* encoder =
      static_cast<const penstock_fold_encoder*>(compressor->extension(compressor.self(), id));
  return encoder != nullptr && PENSTOCK_HAS_MEMBER(encoder, penstock_fold_encoder, encode)
             ? encoder
             : nullptr;
}

uint64_t message_bytes(const BucketRun& bucket) {
  uint64_t total = 0;
  const uint64_t world = bucket.context.world;
  for (const ItemRun& item : bucket.items) {
    if (item.passes_through) continue;
    for (size_t r = 0; r < item.rounds.size(); ++r)
      for (const SectionNeed& section : item.rounds[r].sections) {
        const bool gathered = item.rounds[r].combine == PENSTOCK_COMBINE_GATHER;
        total += section.bytes() * (gathered ? 1 + world : 2);
      }
  }
  return total;
}

Status lay_out(BucketRun& bucket, StateStore& states) {
  name_bucket(bucket);
  bucket.n_rounds = round_count(bucket);
  if (bucket.n_rounds > 0)
    for (const LegKind& kind : legs_of(bucket.plan.route))
      bucket.legs.emplace_back(kind).messages.resize(bucket.n_rounds);
  shape_payloads(bucket);
  list_memory_calls(bucket);
  lay_out_prologue(bucket);
  for (uint32_t round = 0; round < bucket.n_rounds; ++round)
    PENSTOCK_TRY(lay_out_round(bucket, states, round));
  list_compressor_calls(bucket);
  return {};
}

}  // namespace penstock
