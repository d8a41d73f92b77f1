#include "core/bucket/layout.hpp"

#include "core/bucket/dense.hpp"
#include "core/bucket/messages.hpp"
#include "core/bucket/slices.hpp"
#include "core/bucket/sums.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

namespace penstock {
namespace {

uint32_t round_count(const Coding& coding) {
  size_t most = 0;
  for (const ItemRun& item : coding.items) most = std::max(most, item.rounds.size());
  return static_cast<uint32_t>(most);
}

// Sets the names that people see: "optimizer.0 bucket 3: layer4.weight to fc.bias, 12 gradients".
void name_bucket(BucketRun& bucket) {
  bucket.label = fmt::format("bucket {}", bucket.number);
  bucket.lane = fmt::format("{} {}", bucket.context.name, bucket.label);
  if (bucket.pieces.empty()) return;
  bucket.lane += fmt::format(": {}", bucket.pieces.front().gradient->name);
  if (bucket.pieces.size() > 1)
    bucket.lane += fmt::format(" to {}, {} gradients", bucket.pieces.back().gradient->name,
                               bucket.pieces.size());
  std::set<std::string> schemes;
  for (const ItemRun& item : bucket.codings.front()->items)
    schemes.insert(fmt::format("{} + {}", item.compressor->name(), item.memory->name()));
  bucket.scheme = fmt::format("{}", fmt::join(schemes, ", "));
}

void lay_out_prologue(BucketRun& bucket, Coding& coding) {
  uint64_t count = 0;
  for (MemoryCall& call : coding.memory_calls) {
    call.scalars_first = count;
    count += call.items.size() * call.n_scalars;
  }
  const bool travels_coded =
      std::any_of(coding.items.begin(), coding.items.end(), [](const ItemRun& item) {
        return item.encodes && !item.passes_through && !item.rounds.empty();
      });
  // An owner encodes its sums alone, so it has no other rank to ask.
  const bool asks_first =
      (bucket.context.nonfinite_is_strict && travels_coded && !coding.of_sums) ||
      has_slices(bucket, coding);
  if (count == 0 && !asks_first) return;
  coding.prologue = make_flag(bucket, coding, count);
}

// The payloads of an item that arrive joined: one for all ranks together.
bool arrives_joined(const ItemRun& item, uint32_t round) {
  return item.rounds[round].combine == PENSTOCK_COMBINE_SUM ||
         (item.on_composite && round + 1 == item.rounds.size());
}

// The number of payloads that decode receives in one call.
uint32_t n_payloads(const BucketRun& bucket, const Coding& coding, const ItemRun& item,
                    uint32_t round) {
  if (arrives_joined(item, round)) return 1;
  return comes_in_slices(bucket, coding, item, round) ? bucket.ranks_at_once : coding.n_ranks();
}

Status shape_payloads(const BucketRun& bucket, Coding& coding) {
  const auto me = int32_t(coding.links->group.rank());
  for (ItemRun& item : coding.items) {
    if (item.encodes && item.records_decoded && !item.rounds.empty() &&
        !item.rounds.back().sparse())
      PENSTOCK_TRY(make_returned(coding, item));
    for (uint32_t r = 0; r < item.rounds.size(); ++r) {
      const RoundNeed& need = item.rounds[r];
      auto& own = item.own.emplace_back();
      auto& received = item.received.emplace_back();
      if (item.encodes) own.shape(need, me);
      if (!item.decodes) continue;
      if (coding.of_sums) {
        received.emplace_back().shape(need, int32_t(item.owner));
        continue;
      }
      const bool joined = arrives_joined(item, r);
      for (uint32_t rank = 0; rank < n_payloads(bucket, coding, item, r); ++rank)
        received.emplace_back().shape(need, joined ? -1 : int32_t(rank));
    }
  }
  return {};
}

// Lists the calls of a round. Items are grouped by compressor, number of payloads, place of work,
// and whether means arrive.
template <typename Takes, typename Count, typename Add>
void list_calls(Coding& coding, uint32_t round, std::vector<CompressorCall>& calls,
                const Takes& takes, const Count& count, const Add& add) {
  const auto first = static_cast<ptrdiff_t>(calls.size());
  for (size_t i = 0; i < coding.items.size(); ++i) {
    ItemRun& item = coding.items[i];
    if (!takes(item) || item.rounds.size() <= round || item.passes_through) continue;
    const uint64_t n_ranks = count(item);
    auto call = std::find_if(calls.begin() + first, calls.end(), [&](const CompressorCall& c) {
      return c.compressor == item.compressor && c.n_ranks == n_ranks && c.place == &item.place() &&
             c.of_means == item.arrives_as_mean;
    });
    if (call == calls.end()) {
      call = calls.emplace(calls.end());
      call->of_means = item.arrives_as_mean;
      call->compressor = item.compressor;
      call->place = &item.place();
      call->round = round;
      call->n_ranks = n_ranks;
    }
    call->positions.push_back(i);
    call->items.push_back(&item.for_compressor);
    add(*call, item);
  }
}

void list_compressor_calls(const BucketRun& bucket, Coding& coding) {
  for (uint32_t round = 0; round < coding.n_rounds; ++round) {
    list_calls(
        coding, round, coding.encode_calls, [](const ItemRun& item) { return item.encodes; },
        [&](const ItemRun& item) { return arrives_joined(item, round) ? 1 : coding.n_ranks(); },
        [&](CompressorCall& call, ItemRun& item) {
          call.own.push_back(item.own[round].c());
          const bool folds = item.folded && round == 0;  // else it is compensated already
          call.folds.push_back(folds ? &item.fold : nullptr);
          if (folds) call.fold_encoder = fold_encoder(*item.compressor).table;
        });
    list_calls(
        coding, round, coding.decode_calls, [](const ItemRun& item) { return item.decodes; },
        [&](const ItemRun& item) { return n_payloads(bucket, coding, item, round); },
        [&](CompressorCall& call, ItemRun& item) {
          // Later slices have calls of their own.
          if (comes_in_slices(bucket, coding, item, round)) call.flags = PENSTOCK_DECODE_FIRST;
          for (PayloadStorage& payload : item.received[round]) call.received.push_back(payload.c());
        });
  }
}

// Lets decode form the mean if the compressor can and the decoded values are the result. Sums that
// go on to a further coding are not the result, and a vote is not a sum.
void let_decode_divide(BucketRun& bucket) {
  if (bucket.codings.size() != 1 || bucket.context.result_is_sum) return;
  Coding& coding = *bucket.codings.front();
  for (CompressorCall& call : coding.decode_calls) {
    const bool scales =
        !call.of_means &&
        (call.compressor->traits().flags & PENSTOCK_COMPRESSOR_SCALES_RESULT) != 0 &&
        std::all_of(call.positions.begin(), call.positions.end(),
                    [&](size_t position) { return coding.items[position].wants_mean(); });
    if (!scales) continue;
    call.scales_result = true;
    for (const size_t position : call.positions) {
      ItemRun& item = coding.items[position];
      item.decoded_as_mean = item.decoded_as_mean || item.rounds.size() == call.round + 1;
    }
  }
}

// Leaves the inspection of gradients to an encode that inspects what it compensates. That is later
// than Load, so all that the step has written to states by then must have another generation.
void let_encode_inspect(BucketRun& bucket) {
  Coding& coding = *bucket.codings.front();
  if (coding.leg != 0 || coding.prologue != nullptr || bucket.context.nonfinite_is_strict) return;
  const bool can_undo =
      std::all_of(coding.items.begin(), coding.items.end(), [](const ItemRun& item) {
        return item.place().works_at_once() &&
               std::all_of(item.states.begin(), item.states.end(),
                           [](const StateView* state) { return state->before() != nullptr; });
      });
  if (!can_undo) return;
  for (PieceRun& piece : bucket.pieces) piece.inspected_by_encode = true;
  for (const ItemRun& item : coding.items)
    if (!item.encodes || !item.folds_generations || !fold_encoder(*item.compressor).inspects)
      item.of->inspected_by_encode = false;
}

void list_memory_calls(Coding& coding) {
  for (size_t i = 0; i < coding.items.size(); ++i) {
    ItemRun& item = coding.items[i];
    if (!item.encodes) continue;
    auto call = std::find_if(coding.memory_calls.begin(), coding.memory_calls.end(),
                             [&](const MemoryCall& c) {
                               return c.memory == item.memory && c.n_scalars == item.n_scalars &&
                                      c.place == &item.place();
                             });
    if (call == coding.memory_calls.end()) {
      coding.memory_calls.emplace_back();
      call = coding.memory_calls.end() - 1;
      call->memory = item.memory;
      call->place = &item.place();
      call->n_scalars = item.n_scalars;
    }
    call->positions.push_back(i);
    call->items.push_back(&item.for_memory);
    if (!item.folded) call->unfolded.push_back(&item.for_memory);
    const PayloadStorage* taken = item.rounds.empty() ? nullptr
                                  : item.on_composite ? &item.taken
                                                      : &item.own.back();
    if (taken == nullptr) {
      item.taken.shape(RoundNeed{}, int32_t(coding.links->group.rank()));
      taken = &item.taken;
    }
    call->taken.push_back(taken->c());
    call->give_back.push_back(nullptr);
  }
}

// Makes the legs that carry the codings, and the dense legs around these legs.
void make_legs(BucketRun& bucket) {
  const auto kinds = legs_of(bucket.plan.route);
  size_t coding = 0;
  for (uint32_t number = 0; number < kinds.size(); ++number) {
    if (bucket.legs.size() > 0 && bucket.legs.back().ends_coding && bucket.ends_early()) break;
    Leg& leg = bucket.legs.emplace_back();
    leg.kind = kinds[number];
    if (leg.kind.encodes && number > 0 && kinds[number - 1].decodes) ++coding;
    leg.coding = bucket.codings[coding].get();
    const bool codes_later = std::any_of(kinds.begin() + number + 1, kinds.end(),
                                         [](const LegKind& kind) { return !kind.is_dense(); });
    leg.ends_coding = !leg.kind.is_dense() && (!codes_later || bucket.ends_early());
    leg.tells = leg.kind.is_dense() && !codes_later;
    leg.waits_for_forward = number >= bucket.plan.waits_from;
    leg.messages.resize(leg.kind.is_dense() ? 1 : leg.coding->n_rounds);
    leg.announcements.resize(leg.messages.size());
  }
}

}  // namespace

Status make_returned(const Coding& coding, ItemRun& item) {
  const uint64_t bytes = item.range.numel * sizeof(float);
  RoundNeed dense;
  dense.sections.push_back({item.range.numel, PENSTOCK_ROLE_VALUES, PENSTOCK_FLOAT32, true});
  PENSTOCK_ASSIGN(item.returned_data, item.place().make(bytes));
  item.returned.shape(dense, int32_t(coding.links->group.rank()));
  item.returned.section(0).data = item.returned_data.data();
  return {};
}

FoldEncoder fold_encoder(const CompressorInstance& compressor) {
  if (!PENSTOCK_HAS_MEMBER(compressor.table(), penstock_compressor, extension)) return {};
  const auto ask = [&](std::string_view id) {
    const auto* encoder = static_cast<const penstock_fold_encoder*>(
        compressor->extension(compressor.self(), {id.data(), id.size()}));
    return encoder != nullptr && PENSTOCK_HAS_MEMBER(encoder, penstock_fold_encoder, encode)
               ? encoder
               : nullptr;
  };
  if (const auto* encoder = ask(PENSTOCK_FOLD_EXTENSION_3)) return {encoder, true, true};
  if (const auto* encoder = ask(PENSTOCK_FOLD_EXTENSION_2)) return {encoder, true, false};
  return {ask(PENSTOCK_FOLD_EXTENSION), false, false};
}

Status lay_out(BucketRun& bucket, StateStore& states) {
  name_bucket(bucket);
  for (auto& coding : bucket.codings) {
    coding->n_rounds = round_count(*coding);
    PENSTOCK_TRY(shape_payloads(bucket, *coding));
    list_memory_calls(*coding);
    lay_out_prologue(bucket, *coding);
    list_compressor_calls(bucket, *coding);
  }
  make_legs(bucket);
  for (size_t i = 0; i < bucket.legs.size(); ++i) {
    Leg& leg = bucket.legs[i];
    if (leg.kind.is_dense()) {
      if (!leg.tells)
        PENSTOCK_TRY(lay_out_scattered(bucket, leg,
                                       bucket.only_compensates ? nullptr : &bucket.legs.back()));
      continue;
    }
    if (!leg.kind.encodes) continue;
    Leg& ends = leg.kind.decodes ? leg : bucket.legs[i + 1];
    for (uint32_t round = 0; round < leg.coding->n_rounds; ++round)
      PENSTOCK_TRY(lay_out_round(bucket, leg, ends, states, round));
  }
  let_decode_divide(bucket);
  let_encode_inspect(bucket);
  return {};
}

}  // namespace penstock
