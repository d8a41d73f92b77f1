/* What a frontend needs to carry Penstock's messages over what it has, such as torch's process
 * groups.
 *
 * The plugin hands out frames, each for one other rank, and takes frames that came from them. The
 * frontend moves them: whole, once, and for each pair of ranks in order; that is all that is asked
 * of it. It does so on threads of its own, one to send and one to receive for each other rank, so
 * that neither the run nor the frontend ever waits for a lock of the other. The door is the
 * plugin's extension PENSTOCK_BORROWED_DOOR, for any instance; `load` takes a null host here. */
#ifndef PENSTOCK_BORROWED_H
#define PENSTOCK_BORROWED_H

#include <penstock/base.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PENSTOCK_BORROWED_DOOR "penstock.borrowed/1"

/* The frames of one run on one rank. */
typedef struct penstock_borrowed_relay penstock_borrowed_relay;

typedef struct penstock_borrowed_door {
  uint64_t struct_size;
  uint64_t frame_bytes; /* the longest frame: room that every receive must have */
  uint64_t n_receives; /* receives to keep posted for each other rank: as many farewells end them */

  /* [any] For the next join of this process, as `rank` of `size`. `make_error` is
   * penstock_error_make. Null: no memory. */
  penstock_borrowed_relay* (*open)(uint32_t rank, uint32_t size,
                                   penstock_status* (*make_error)(uint32_t, penstock_str));

  /* [any] Waits for the next frame that goes to rank `to`, and takes the one before it for sent. It
   * lies in the relay until the next call for this rank. Null: there will be no more. One thread
   * for each rank. */
  const void* (*next)(penstock_borrowed_relay* relay, uint32_t to, uint64_t* bytes);

  /* [any] A frame has come from rank `from`; copied. 1: post another receive; 0: no more will come
   * than are posted. */
  uint32_t (*came)(penstock_borrowed_relay* relay, uint32_t from, const void* frame);

  /* [any] Rank `peer` cannot be reached any more; `why` is copied, the first one counts. */
  void (*lost)(penstock_borrowed_relay* relay, uint32_t peer, penstock_str why);

  /* [any] The run is over: behind what is left, every other rank gets its farewells, and `next`
   * ends. */
  void (*end)(penstock_borrowed_relay* relay);

  /* [any] Once all threads have done with it. */
  void (*close)(penstock_borrowed_relay* relay);
} penstock_borrowed_door;

#ifdef __cplusplus
}
#endif
#endif /* PENSTOCK_BORROWED_H */
