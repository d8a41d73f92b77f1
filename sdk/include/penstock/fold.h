/* Folding: a compressor compensates and encodes in one sweep, for a memory that publishes its form.
 *
 * This is an extension of compressors. In round 0 the core calls `encode` of this table in place of
 * the memory's compensate and the compressor's encode, for items whose memory has a form that
 * traits.folds names, a state as work, and no scalars to measure. Later rounds use the compressor's
 * encode. */
#ifndef PENSTOCK_FOLD_H
#define PENSTOCK_FOLD_H

#include <penstock/memory.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The ids for penstock_compressor.extension, which returns a penstock_fold_encoder. An encoder
 * under the second id reads work_before and momentum_before of penstock_fold. An encoder under the
 * third id does so too, and in calls on the CPU it inspects the items that it compensates: if a
 * value of the new work of an item is not finite, the payload of this item is absent, and payloads
 * of other items may be absent too. If all values are finite, no payload is absent. So the core
 * saves a sweep of its own over the gradients. After an absent payload it discards the states that
 * the call has written. */
#define PENSTOCK_FOLD_EXTENSION "penstock.fold/1"
#define PENSTOCK_FOLD_EXTENSION_2 "penstock.fold/2"
#define PENSTOCK_FOLD_EXTENSION_3 "penstock.fold/3"

/* The compensation of one item: a form of memory.h over the item's grad and work. */
typedef struct penstock_fold {
  uint64_t struct_size;
  const penstock_tensor* momentum; /* HEAVY_BALL, NESTEROV: u, in float32, of the length of work;
                                      else null */
  double beta;                     /* as in penstock_memory_need */
  double gamma;
  uint32_t form; /* PENSTOCK_FORM_*, never NONE */
  uint32_t reserved;
  /* Since 0.9, for encoders of revision 2. If work_before is not null, the form reads work from
   * work_before and u from momentum_before, both of the length of work. It writes its results to
   * work and `momentum`, whose earlier contents are undefined. encode must not change the two
   * tensors. So a step that may be forgotten needs no copy. */
  const penstock_tensor* work_before;
  const penstock_tensor* momentum_before;
} penstock_fold;

typedef struct penstock_fold_encoder {
  uint64_t struct_size;
  /* [step] Compensates work by folds[i], with g = grad / grad_scale in float32, and then encodes
   * like encode of penstock_compressor. Work, momentum and payload must have the bits that
   * compensate followed by encode gives. If folds[i] is null, work is compensated already. After an
   * error work and momentum must be unchanged, unless their contents were undefined before the
   * call. */
  penstock_status* (*encode)(void* instance, const penstock_exec* exec, const penstock_step* step, uint32_t round,
                             const penstock_item* const* items, uint64_t n_items, penstock_payload* const* payloads,
                             const penstock_fold* const* folds);
} penstock_fold_encoder;

#ifdef __cplusplus
}
#endif
#endif /* PENSTOCK_FOLD_H */
