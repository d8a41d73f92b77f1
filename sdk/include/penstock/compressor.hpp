// Writing a compressor in C++: a plain class. Its members decide which functions the table offers.
//
//   namespace sdk = penstock::sdk;
//   class Method {
//    public:
//     static inline const sdk::OptionList options{};
//     explicit Method(const sdk::Options& values);
//     void plan(const sdk::PlanCall& call, const sdk::Item& item, sdk::CompressorNeed& need);
//     // one item at a time ...
//     void encode(const sdk::Call& call, const sdk::Item& item, sdk::PayloadWriter& payload);
//     void decode_add(const sdk::Call& call, const sdk::Item& item,
//                     const sdk::PayloadReader& payload);
//     // ... or all items of a bucket in one call
//     void encode(const sdk::Call& call, const sdk::Items& items, sdk::PayloadWriters& payloads);
//     void decode(const sdk::Call& call, const sdk::Items& items,
//                 const sdk::PayloadReaders& payloads);
//     // optional
//     void describe(penstock_compressor_traits& traits) const;
//     // with traits.folds: compensate and encode in one sweep, see fold.h
//     void encode_folded(const sdk::Call& call, const sdk::Items& items,
//                        sdk::PayloadWriters& payloads, const penstock_fold* const* folds);
//     // dtypes of sections for which decode turns a mean of payloads into the mean (mean.h)
//     static constexpr uint64_t kMeanDtypes = PENSTOCK_DTYPE_BIT(PENSTOCK_FLOAT16);
//   };
//   PENSTOCK_COMPRESSOR(Method, "compressor/method", "0.1.0", "one sentence", "paper");
//
// decode_add() is for methods of one round. The layer clears `out` at the first slice of ranks,
// skips absent payloads, and calls decode_add() for one rank after another.
#pragma once

#include <penstock/fold.h>
#include <penstock/arguments.hpp>
#include <penstock/kernels.hpp>
#include <penstock/mean.hpp>
#include <penstock/need.hpp>
#include <penstock/record.hpp>

#include <cstring>

namespace penstock::sdk {

struct PlanCall {
  uint32_t phase;
  uint32_t world;  // number of ranks that will exchange payloads
};

// The payloads that encode writes for all items of a call.
class PayloadWriters {
 public:
  PayloadWriters(penstock_payload* const* payloads, uint64_t n) : payloads_(payloads), n_(n) {}
  uint64_t size() const { return n_; }
  PayloadWriter operator[](uint64_t item) const { return PayloadWriter(payloads_[item]); }

 private:
  penstock_payload* const* payloads_;
  uint64_t n_;
};

// The payloads of a slice of ranks for all items of a call.
class PayloadReaders {
 public:
  PayloadReaders(const penstock_payload* const* payloads, const Items& items, uint64_t n_ranks)
      : payloads_(payloads), items_(items), n_ranks_(n_ranks) {}
  uint64_t n_ranks() const { return n_ranks_; }
  PayloadReader at(uint64_t item, uint64_t rank) const {
    return PayloadReader(payloads_[item * n_ranks_ + rank], items_[item]);
  }

 private:
  const penstock_payload* const* payloads_;
  Items items_;
  uint64_t n_ranks_;
};

template <typename T>
concept EncodesItems = requires(T method, const Call& call, const Items& items,
                                PayloadWriters& payloads) {
  method.encode(call, items, payloads);
};
template <typename T>
concept EncodesOneItem = requires(T method, const Call& call, const Item& item,
                                  PayloadWriter& payload) {
  method.encode(call, item, payload);
};
template <typename T>
concept DecodesItems = requires(T method, const Call& call, const Items& items,
                                const PayloadReaders& payloads) {
  method.decode(call, items, payloads);
};
template <typename T>
concept DecodesOneItem = requires(T method, const Call& call, const Item& item,
                                  const PayloadReader& payload) {
  method.decode_add(call, item, payload);
};
template <typename T>
concept EncodesFolded = requires(T method, const Call& call, const Items& items,
                                 PayloadWriters& payloads, const penstock_fold* const* folds) {
  method.encode_folded(call, items, payloads, folds);
};
template <typename T>
concept CompressorClass = requires(T method, const PlanCall& call, const Item& item,
                                   CompressorNeed& need) {
  T::options;
  method.plan(call, item, need);
}
&&std::constructible_from<T, const Options&> &&
    (EncodesItems<T> || EncodesOneItem<T>)&&(DecodesItems<T> || DecodesOneItem<T>);

// Trampolines and the table of a compressor class.
template <typename T>
class CompressorTable {
  static_assert(CompressorClass<T>,
                "a compressor needs: static options, a constructor from Options, plan(), encode() "
                "and decode() or decode_add()");

  struct Instance {
    explicit Instance(const Options& options) : method(options) {}
    T method;
    std::deque<CompressorNeed> needs;  // published by the last plan call
    OneAtATime one_at_a_time;
  };

  static penstock_status* create(const penstock_option_value* const* options, uint64_t n_options,
                                 void** instance) noexcept {
    return guarded([&] {
      check_options(options, n_options);
      *instance = new Instance(Options(options, n_options));
    });
  }
  static void destroy(void* instance) noexcept { delete static_cast<Instance*>(instance); }

  static penstock_status* describe(void* instance, penstock_compressor_traits* traits) noexcept {
    return guarded([&] {
      traits->dtypes = PENSTOCK_DTYPE_BIT(PENSTOCK_FLOAT32);
      traits->device_types = 1u << PENSTOCK_DEVICE_CPU;
      if constexpr (requires(const T& method) { method.describe(*traits); })
        static_cast<Instance*>(instance)->method.describe(*traits);
      if constexpr (requires { requires T::kScalesResult; })
        traits->flags |= PENSTOCK_COMPRESSOR_SCALES_RESULT;
    });
  }

  static penstock_status* plan(void* instance, uint32_t phase, uint32_t world,
                               const penstock_item* const* items, uint64_t n_items,
                               penstock_compressor_need* const* needs) noexcept {
    return guarded([&] {
      Instance& self = *static_cast<Instance*>(instance);
      OneAtATime::Guard guard(self.one_at_a_time);
      check_items(items, n_items);
      load_kernels_for(items, n_items);
      self.needs.clear();
      for (uint64_t i = 0; i < n_items; ++i) {
        CompressorNeed& need = self.needs.emplace_back();
        self.method.plan(PlanCall{phase, world}, Item(items[i]), need);
        if (!DecodesItems<T> && need.n_rounds() > 1)
          throw internal("a compressor with ", need.n_rounds(),
                         " rounds needs decode(): decode_add() clears `out` in every round");
        need.publish(needs[i]);
      }
    });
  }

  static penstock_status* encode(void* instance, const penstock_exec* exec,
                                 const penstock_step* step, uint32_t round,
                                 const penstock_item* const* items, uint64_t n_items,
                                 penstock_payload* const* payloads) noexcept {
    return guarded([&] {
      Instance& self = *static_cast<Instance*>(instance);
      OneAtATime::Guard guard(self.one_at_a_time);
      check_call(exec, step, items, n_items);
      check_payloads(payloads, n_items);
      const Call call{exec, step, round, 0};
      if constexpr (EncodesItems<T>) {
        PayloadWriters writers(payloads, n_items);
        self.method.encode(call, Items(items, n_items), writers);
      } else {
        for (uint64_t i = 0; i < n_items; ++i) {
          PayloadWriter writer(payloads[i]);
          self.method.encode(call, Item(items[i]), writer);
        }
      }
    });
  }

  static penstock_status* decode(void* instance, const penstock_exec* exec,
                                 const penstock_step* step, uint32_t round,
                                 const penstock_item* const* items, uint64_t n_items,
                                 const penstock_payload* const* payloads, uint64_t n_ranks,
                                 uint32_t flags) noexcept {
    return guarded([&] {
      Instance& self = *static_cast<Instance*>(instance);
      OneAtATime::Guard guard(self.one_at_a_time);
      check_call(exec, step, items, n_items);
      check_payloads(payloads, n_items * n_ranks);
      const Call call{exec, step, round, flags};
      const Items all(items, n_items);
      if constexpr (DecodesItems<T>) {
        self.method.decode(call, all, PayloadReaders(payloads, all, n_ranks));
      } else {
        for (uint64_t i = 0; i < n_items; ++i) {
          if ((flags & PENSTOCK_DECODE_FIRST) != 0 && items[i]->out.numel != 0)
            std::memset(items[i]->out.data, 0,
                        items[i]->out.numel * dtype_bytes(items[i]->out.dtype));
          for (uint64_t r = 0; r < n_ranks; ++r) {
            const PayloadReader reader(payloads[i * n_ranks + r], all[i]);
            if (!reader.absent()) self.method.decode_add(call, all[i], reader);
          }
        }
      }
    });
  }

  static penstock_status* encode_folded(void* instance, const penstock_exec* exec,
                                        const penstock_step* step, uint32_t round,
                                        const penstock_item* const* items, uint64_t n_items,
                                        penstock_payload* const* payloads,
                                        const penstock_fold* const* folds) noexcept {
    return guarded([&] {
      Instance& self = *static_cast<Instance*>(instance);
      OneAtATime::Guard guard(self.one_at_a_time);
      check_call(exec, step, items, n_items);
      check_payloads(payloads, n_items);
      for (uint64_t i = 0; i < n_items; ++i)
        if (folds[i] != nullptr) refuse_unknown(folds[i], "penstock_fold");
      if constexpr (EncodesFolded<T>) {
        PayloadWriters writers(payloads, n_items);
        self.method.encode_folded(Call{exec, step, round, 0}, Items(items, n_items), writers,
                                  folds);
      }
    });
  }
  static constexpr penstock_fold_encoder fold_encoder{sizeof(penstock_fold_encoder), encode_folded};

  static const void* extension(void*, penstock_str id) noexcept {
    if (EncodesFolded<T> &&
        (view(id) == PENSTOCK_FOLD_EXTENSION || view(id) == PENSTOCK_FOLD_EXTENSION_2))
      return &fold_encoder;
    if constexpr (requires { requires T::kInspects; })
      if (view(id) == PENSTOCK_FOLD_EXTENSION_3) return &fold_encoder;
    if constexpr (requires { T::kMeanDtypes; })
      if (view(id) == PENSTOCK_MEAN_EXTENSION) return &mean_of_dtypes<T::kMeanDtypes>;
    return nullptr;
  }

 public:
  static constexpr penstock_compressor table{
      sizeof(penstock_compressor), create, destroy, describe, plan, encode, decode, extension};
};

}  // namespace penstock::sdk

#define PENSTOCK_COMPRESSOR(Type, ...) \
  PENSTOCK_DEFINE_PLUGIN(PENSTOCK_KIND_COMPRESSOR, CompressorTable, Type, __VA_ARGS__)
