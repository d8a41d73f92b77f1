/* The interface through which a frontend carries Penstock's messages over a transport that it has,
 * such as torch's process groups.
 *
 * The plugin hands out frames, each for one other rank, and takes the frames that came from the
 * other ranks. The frontend must move every frame whole, once, and in order for each pair of ranks;
 * it has no other duty. It uses its own threads, one to send and one to receive for each other
 * rank, so that neither the run nor the frontend ever waits for a lock of the other. The frontend
 * gets the door as the plugin's extension PENSTOCK_BORROWED_DOOR, of any instance; `load` of this
 * plugin accepts a null host. */
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
  uint64_t frame_bytes; /* length of the longest frame; every receive must have this much room */
  uint64_t n_receives;  /* receives to keep posted per other rank; as many farewells end them */

  /* [any] Makes the relay that the next join of this process uses, as `rank` of `size`.
   * `make_error` is penstock_error_make. Null: no memory. */
  penstock_borrowed_relay* (*open)(uint32_t rank, uint32_t size,
                                   penstock_status* (*make_error)(uint32_t, penstock_str));

  /* [any] Waits for the next frame for rank `to` and returns it; the frame that the call before
   * returned counts as sent. The frame stays in the relay until the next call for this rank. Null:
   * there will be no more frames. Only one thread may call it for each rank. */
  const void* (*next)(penstock_borrowed_relay* relay, uint32_t to, uint64_t* bytes);

  /* [any] Takes a frame that has come from rank `from`; the relay copies it. 1: post another
   * receive; 0: post none, because no more frames will come than receives are posted. */
  uint32_t (*came)(penstock_borrowed_relay* relay, uint32_t from, const void* frame);

  /* [any] Reports that rank `peer` cannot be reached any more. `why` is copied; the first reason
   * counts. */
  void (*lost)(penstock_borrowed_relay* relay, uint32_t peer, penstock_str why);

  /* [any] Reports that the run is over. Every other rank gets the frames that are still queued and
   * then its farewells; after these `next` returns null. */
  void (*end)(penstock_borrowed_relay* relay);

  /* [any] Frees the relay. No thread may use it any more. */
  void (*close)(penstock_borrowed_relay* relay);
} penstock_borrowed_door;

#ifdef __cplusplus
}
#endif
#endif /* PENSTOCK_BORROWED_H */
