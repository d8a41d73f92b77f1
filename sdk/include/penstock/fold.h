/* Folding: a compressor that compensates in the same sweep as it encodes, for a memory that publishes its form.
 *
 * An extension of compressors. The core calls `encode` of this table instead of the memory's compensate and the
 * compressor's encode in round 0, for items whose memory has a form that traits.folds names; later rounds are encoded as
 * ever. */
#ifndef PENSTOCK_FOLD_H
#define PENSTOCK_FOLD_H

#include <penstock/memory.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The ids to ask penstock_compressor.extension for; what comes back is a penstock_fold_encoder. One that answers to the second
 * knows work_before and momentum_before of penstock_fold. */
#define PENSTOCK_FOLD_EXTENSION "penstock.fold/1"
#define PENSTOCK_FOLD_EXTENSION_2 "penstock.fold/2"

/* What compensate would do to one item: memory.h's form over the item's grad and work. */
typedef struct penstock_fold {
  uint64_t struct_size;
  const penstock_tensor* momentum; /* HEAVY_BALL, NESTEROV: u, float32, as long as work; else null */
  double beta;                     /* as in penstock_memory_need */
  double gamma;
  uint32_t form; /* PENSTOCK_FORM_*, never NONE */
  uint32_t reserved;
  /* Since 0.9, for encoders of revision 2. Not null: the form reads work and u here, as long as those, and leaves what it makes in
   * work and `momentum`, which hold nothing of meaning before: so a step that is forgotten costs no copy. These stay as they are. */
  const penstock_tensor* work_before;
  const penstock_tensor* momentum_before;
} penstock_fold;

typedef struct penstock_fold_encoder {
  uint64_t struct_size;
  /* [step] As encode of penstock_compressor, after work was compensated as folds[i] says, with g = grad / grad_scale in
   * float32: the same bits in work, momentum and payload as compensate followed by encode. A null folds[i]: work has been
   * compensated already. After an error work and momentum must be as before the call, but where they held nothing of meaning. */
  penstock_status* (*encode)(void* instance, const penstock_exec* exec, const penstock_step* step, uint32_t round,
                             const penstock_item* const* items, uint64_t n_items, penstock_payload* const* payloads,
                             const penstock_fold* const* folds);
} penstock_fold_encoder;

#ifdef __cplusplus
}
#endif
#endif /* PENSTOCK_FOLD_H */
