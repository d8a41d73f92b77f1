/* Means of 16-bit floats: where ranks are added up, their sum is divided before it is rounded, for a mean that fits the
 * type may have a sum that does not (four times 40000 in float16).
 *
 * An extension of transports and of compressors. The core asks a transport for such a mean, instead of the sum and a
 * division of its own, where the result is to be a mean, nothing is kept of what was not sent, and the payloads of a
 * compressor's only round meet in a sum of these types: if the need is LINEAR, or the compressor has the extension.
 * result_scale is then 0, as `out` has the mean once decode has written what arrived. */
#ifndef PENSTOCK_MEAN_H
#define PENSTOCK_MEAN_H

#include <penstock/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The id to ask penstock_collective.extension or penstock_compressor.extension for; what comes back is a penstock_mean. */
#define PENSTOCK_MEAN_EXTENSION "penstock.mean/1"

/* Beside the PENSTOCK_REDUCE_* of collective.h, for transports that take it: ALL_REDUCE and REDUCE_SCATTER of the sum
 * divided by the ranks of the channel. Wherever the mean fits the type it arrives, also where the sum only fits
 * float32; where sums are formed in float32 it is rounded once, after the division. */
enum { PENSTOCK_REDUCE_MEAN = 5 };

typedef struct penstock_mean {
  uint64_t struct_size;
  /* PENSTOCK_DTYPE_BIT of FLOAT16 and BFLOAT16. Of a transport: those of which it takes REDUCE_MEAN. Of a compressor:
   * those of sections of which decode leaves half in `out` where every number is half as large. */
  uint64_t dtypes;
} penstock_mean;

#ifdef __cplusplus
}
#endif
#endif /* PENSTOCK_MEAN_H */
