// The base of methods that send the largest elements of every block of 64 x 64 (blocks.hpp). It
// implements everything; a method may transform the blocks:
//
//   class Method : public sdk::BlockCompressor<Method> {
//    public:
//     static inline const sdk::OptionList options{k_option(64), value_type_option("fp16"), ...};
//     explicit Method(const sdk::Options& values) : BlockCompressor(values, kOverRanks) {}
//     // optional, both or none, in place: the numbers among which the largest are chosen, and
//     back.
//     // Equal numbers must give equal bits on every rank. backward is linear.
//     void forward(const sdk::Block& block, float* numbers) const;
//     void backward(const sdk::Block& block, float* numbers) const;
//     // optional, with kOverSenders: makes the result of the mean. `unit` is the unit of work.
//     void finish(float unit, std::span<float> mean) const;
//   };
//
// Payloads are gathered, because ranks choose different elements. Positions count in the order of
// the blocks and stand behind the values, so that no composite takes them for those of elements;
// the core codes them like all indices. kOverRanks: the mean is over all
// ranks, and elements that a rank did not send count as 0. kOverSenders: the mean of an element, or
// of a transformed number, is over the ranks that sent it. Functions are [step] unless they plan.
#pragma once

#include <kernels/fold.hpp>
#include <kernels/prefetch.hpp>
#include <methods/agreed.hpp>
#include <methods/block_choice.hpp>
#include <methods/block_strips.hpp>
#include <methods/block_values.hpp>
#include <methods/density.hpp>
#include <methods/folded.hpp>

namespace penstock::sdk {

template <typename Method>
class BlockCompressor : public FoldingEncoder<Method> {
 public:
  static constexpr bool kScalesResult = true;
  static constexpr bool kInspects = true;  // folded.hpp

  static Option k_option(int64_t value) {
    return integer_option("k", value)
        .at_least(1)
        .at_most(kBlockSize)
        .unit("elements")
        .summary(
            "numbers that are sent of a block of 4096, and of 64 of a vector; other blocks send "
            "their share");
  }
  static Option value_type_option(const char* value) { return BlockValues::option(value); }

  void describe(penstock_compressor_traits& traits) const {
    traits.flags = PENSTOCK_COMPRESSOR_NEEDS_MEMORY;
    traits.folds = kAllFolds;
  }

  void plan(const PlanCall& call, const Item& item, CompressorNeed& need) {
    check_indexable(item, "a choice from blocks");
    const Blocks blocks(item);
    const uint64_t entries = blocks.kept(k_);
    Round& round = need.round(PENSTOCK_COMBINE_GATHER);
    values_.plan(round, entries, blocks.count());
    round.section(PENSTOCK_ROLE_INDICES, PENSTOCK_UINT32, entries);
    if (over_ == kOverSenders) round.result_is_final().all_payloads();
    need.part_alignment = blocks.alignment();
    need.scratch_bytes =
        whole_lines(sizeof(Room)) + std::max(Chosen::bytes(entries) + BlockChoice::scratch_bytes() +
                                                 BlockStrips::scratch_bytes(),
                                             whole_lines(call.world * sizeof(Sender)));
  }

  void encode_item(const Call& call, const Item& item, PayloadWriter& payload,
                   const kernels::Fold* fold) const {
    const Blocks blocks(item);
    const Chosen chosen(call, blocks.kept(k_), whole_lines(sizeof(Room)));
    choose(call, item, blocks, chosen, fold);
    payload.kind(PENSTOCK_PAYLOAD_CODED);
    write_positions(blocks, chosen, payload.room<uint32_t>(values_.positions_at()));
    payload.count(values_.positions_at(), chosen.positions.size());
    values_.write(payload, blocks, k_, chosen.values);
    if (item.keeps()) take_out(call, item, blocks, chosen);
  }

  // A block of the result is formed at a time, from the payloads of the ranks in ascending order.
  void decode(const Call& call, const Items& items, const PayloadReaders& payloads) {
    Room& room = call.scratch<Room>(1)[0];
    const std::span<Sender> room_of_senders =
        call.scratch<Sender>(payloads.n_ranks(), whole_lines(sizeof(Room)));
    for (uint64_t i = 0; i < items.size(); ++i) {
      const Blocks blocks(items[i]);
      const uint64_t entries = blocks.kept(k_);
      uint64_t n = 0;
      for (uint64_t r = 0; r < payloads.n_ranks(); ++r)
        if (!payloads.at(i, r).absent())
          room_of_senders[n++] = {values_.checked(payloads.at(i, r), entries, blocks.count()), r};
      const std::span<const Sender> senders = room_of_senders.first(n);
      float* const out = items[i].out().data();
      const bool is_streamed = streams(blocks, items[i]);
      uint64_t first = 0;   // the number of the block's first entry
      uint64_t begins = 0;  // the position of the block's first element
      for (uint64_t b = 0; b < blocks.count(); begins += blocks[b++].size()) {
        const Block block = blocks[b];
        if ((call.flags & PENSTOCK_DECODE_FIRST) != 0)
          std::fill_n(room.numbers, block.size(), 0.0f);
        else
          block.load(out, room.numbers);
        if (over_ == kOverSenders) std::fill_n(room.n_senders, block.size(), 0u);
        const uint64_t count = blocks.kept(block.size(), k_);
        for (const Sender& sender : senders) {
          read_positions(payloads.at(i, sender.at), {sender.parts.positions + first, count}, begins,
                         block.size(), room.positions);
          values_.read(sender.parts, b, first, count, room.values);
          add(room, count);
        }
        first += count;
        finish_block(call, items[i], block, room);
        block.store(room.numbers, out, is_streamed);
      }
      if (is_streamed) kernels::end_stream();
    }
  }

 protected:
  enum Over { kOverRanks, kOverSenders };

  BlockCompressor(const Options& values, Over over)
      : k_(static_cast<uint64_t>(values.integer("k"))),
        over_(over),
        values_(values),
        path_(agreed_code_path("select")) {}

 private:
  // Scratch for one block.
  struct Room {
    float numbers[kBlockSize];
    float values[kBlockSize];
    uint32_t n_senders[kBlockSize];
    uint16_t positions[kBlockSize];
  };
  struct Sender {
    BlockSender parts;
    uint64_t at;  // of the payload in its call
  };

  // The choice of all blocks of an item: values and their positions within the blocks.
  struct Chosen {
    static uint64_t bytes(uint64_t entries) {
      return whole_lines(entries * sizeof(float)) + whole_lines(entries * sizeof(uint16_t));
    }
    Chosen(const Call& call, uint64_t entries, uint64_t offset)
        : values(call.scratch<float>(entries, offset)),
          positions(call.scratch<uint16_t>(entries, offset + whole_lines(entries * sizeof(float)))),
          end(offset + bytes(entries)) {}
    std::span<float> values;
    std::span<uint16_t> positions;
    uint64_t end;  // the next free byte of the scratch
  };

  static constexpr bool transforms() {
    return requires(const Method& some, const Block& block, float* numbers) {
      some.forward(block, numbers);
    };
  }
  const Method& method() const { return static_cast<const Method&>(*this); }

  void choose(const Call& call, const Item& item, const Blocks& blocks, const Chosen& chosen,
              const kernels::Fold* fold) const {
    Room& room = call.scratch<Room>(1)[0];
    BlockChoice choice(call, chosen.end, path_);
    BlockStrips strips(call, chosen.end + BlockChoice::scratch_bytes(), item, blocks, fold, path_);
    uint64_t first = 0;
    for (uint64_t b = 0; b < blocks.count(); ++b) {
      const Block block = blocks[b];
      BlockElements elements = strips.elements(b, room.numbers);
      if constexpr (transforms()) {
        if (elements.first != room.numbers) elements.copy(block.size(), room.numbers);
        method().forward(block, room.numbers);
        elements = {room.numbers, kBlockSide};
      }
      const uint64_t count = blocks.kept(block.size(), k_);
      choice.largest(elements, block.size(), count, chosen.positions.data() + first,
                     chosen.values.data() + first);
      first += count;
    }
  }

  // Whether decode writes the result past the caches: it is large, and whole lines are written.
  static bool streams(const Blocks& blocks, const Item& item) {
    constexpr uint64_t kLine = 64;
    return item.numel() * sizeof(float) >= kernels::kStreamedBytes &&
           reinterpret_cast<uintptr_t>(item.out().data()) % kLine == 0 &&
           blocks[0].stride * sizeof(float) % kLine == 0;
  }

  // Subtracts from work what decode makes of this rank's own payload.
  void take_out(const Call& call, const Item& item, const Blocks& blocks,
                const Chosen& chosen) const {
    float* const work = item.work().data();
    uint64_t first = 0;
    for (uint64_t b = 0; b < blocks.count(); ++b) {
      const Block block = blocks[b];
      const uint64_t end = first + blocks.kept(block.size(), k_);
      if (!transforms() && b + 1 < blocks.count()) {
        // Work has left the caches, and no processor foresees these places.
        const Block next = blocks[b + 1];
        for (uint64_t j = 0; j < blocks.kept(next.size(), k_); ++j)
          kernels::prefetch_line<true>(work + next.element(chosen.positions[end + j]));
      }
      if constexpr (transforms()) {
        float* const numbers = call.scratch<Room>(1)[0].numbers;
        std::fill_n(numbers, block.size(), 0.0f);
        for (; first < end; ++first) numbers[chosen.positions[first]] = chosen.values[first];
        method().backward(block, numbers);
        for (uint64_t row = 0; row < block.rows; ++row)
          for (uint64_t col = 0; col < block.cols; ++col)
            work[block.first + row * block.stride + col] -= numbers[row * block.cols + col];
      } else {
        for (; first < end; ++first)
          work[block.element(chosen.positions[first])] -= chosen.values[first];
      }
    }
  }

  // Positions travel in the order of the blocks, in which they ascend: the position of a block's
  // first element is the size of all blocks before it.
  void write_positions(const Blocks& blocks, const Chosen& chosen,
                       std::span<uint32_t> target) const {
    uint64_t first = 0, begins = 0;
    for (uint64_t b = 0; b < blocks.count(); ++b) {
      const uint64_t size = blocks[b].size(), end = first + blocks.kept(size, k_);
      for (; first < end; ++first)
        target[first] = static_cast<uint32_t>(begins + chosen.positions[first]);
      begins += size;
    }
  }
  // Positions of a block of `size` elements, the first of which is at position `begins`; `within`
  // becomes the positions in the block.
  static void read_positions(const PayloadReader& payload, std::span<const uint32_t> positions,
                             uint64_t begins, uint64_t size, uint16_t* within) {
    uint64_t least = begins;
    for (uint64_t j = 0; j < positions.size(); ++j) {
      if (positions[j] < least || positions[j] - begins >= size)
        throw payload.error("has position ", positions[j], ", expected one from ", least, " to ",
                            begins + size - 1, ": positions ascend from block to block");
      within[j] = static_cast<uint16_t>(positions[j] - begins);
      least = uint64_t{positions[j]} + 1;
    }
  }

  void add(Room& room, uint64_t count) const {
    for (uint64_t j = 0; j < count; ++j) room.numbers[room.positions[j]] += room.values[j];
    if (over_ == kOverRanks) return;
    for (uint64_t j = 0; j < count; ++j) ++room.n_senders[room.positions[j]];
  }

  // Makes the elements of the result of the sums in room.numbers. Under DECODE_OWN they are the
  // values that encode took out of work.
  void finish_block(const Call& call, const Item& item, const Block& block, Room& room) const {
    const std::span<float> numbers(room.numbers, block.size());
    if (over_ == kOverRanks) {
      const float scale = call.result_scale();
      if (scale == 1) return;
      for (float& number : numbers) number *= scale;
      return;
    }
    for (uint64_t p = 0; p < numbers.size(); ++p)
      if (room.n_senders[p] > 1) numbers[p] /= static_cast<float>(room.n_senders[p]);
    if constexpr (transforms()) method().backward(block, numbers.data());
    if constexpr (requires(const Method& some) { some.finish(1.0f, numbers); })
      if ((call.flags & PENSTOCK_DECODE_OWN) == 0)
        method().finish(static_cast<float>(work_unit(call, item)), numbers);
  }

  uint64_t k_;
  Over over_;
  BlockValues values_;
  kernels::CodePath path_;
};

}  // namespace penstock::sdk
