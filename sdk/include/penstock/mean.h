/* Means of 16-bit floats: the transport divides the sum over ranks before it rounds, because a mean
 * may fit the type although the sum does not (four times 40000 in float16).
 *
 * This is an extension of transports and of compressors. The core asks a transport for the mean,
 * and does not divide itself, if these conditions hold: the result is a mean; unsent values do not
 * come in a later step; the compressor has one round, with a sum of these types; its need is LINEAR
 * or it has this extension; the transport has this extension. result_scale is then 0, because
 * decode of the received data leaves the mean in `out`. */
#ifndef PENSTOCK_MEAN_H
#define PENSTOCK_MEAN_H

#include <penstock/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The id for penstock_collective.extension and penstock_compressor.extension, which return a
 * penstock_mean. */
#define PENSTOCK_MEAN_EXTENSION "penstock.mean/1"

/* A further reduction beside PENSTOCK_REDUCE_* of collective.h, for transports with this extension:
 * ALL_REDUCE and REDUCE_SCATTER return the sum divided by the number of ranks of the channel. A
 * mean that fits the type must arrive, also if the sum fits only float32. If the transport adds in
 * float32, it rounds once, after the division. */
enum { PENSTOCK_REDUCE_MEAN = 5 };

typedef struct penstock_mean {
  uint64_t struct_size;
  /* PENSTOCK_DTYPE_BIT of FLOAT16 and BFLOAT16. For a transport: the dtypes for which it supports
   * REDUCE_MEAN. For a compressor: the dtypes of sections whose decode is proportional: if every
   * number of the sections is halved, decode leaves half the result in `out`. */
  uint64_t dtypes;
} penstock_mean;

#ifdef __cplusplus
}
#endif
#endif /* PENSTOCK_MEAN_H */
