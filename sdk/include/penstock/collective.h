/* Collective: a plugin that moves messages. A transport carries bytes (mpi, loopback, a process
 * group borrowed by a frontend). A composite builds an operation out of the messages of another
 * collective (ok-topk over mpi).
 *
 * Legal order: create, describe, [join], open, plan, (submit, progress ..., [returned], release)
 * ..., close, [leave], destroy. The calls from join to leave come on the communication thread,
 * except describe, volume and abort. */
#ifndef PENSTOCK_COLLECTIVE_H
#define PENSTOCK_COLLECTIVE_H

#include <penstock/host.h>
#include <penstock/item.h>
#include <penstock/option.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
  PENSTOCK_ALL_REDUCE = 1,     /* receive[count] = reduction over ranks of send[count]; send may
                                  equal receive */
  PENSTOCK_REDUCE_SCATTER = 2, /* rank r receives receive_counts[r] reduced elements; send holds the
                                  parts of all ranks, rank after rank */
  PENSTOCK_ALL_GATHER = 3,     /* receive holds the elements of rank r at receive_offsets[r]; counts
                                  may differ */
  PENSTOCK_ALL_TO_ALL = 4,     /* send holds send_counts[r] elements for rank r, rank after rank */
  PENSTOCK_BROADCAST = 5,      /* receive[count] = send[count] of rank `peer` */
  PENSTOCK_SEND = 6,           /* sends to rank `peer` */
  PENSTOCK_RECEIVE = 7,        /* receives from rank `peer`; receive_counts[0] reports the number of
                                  elements */
  PENSTOCK_BARRIER = 8,
  PENSTOCK_SPARSE_ALL_REDUCE = 9 /* composites: sums SPARSE payloads of items over ranks; may refuse
                                    entries */
};

#define PENSTOCK_PATTERN_BIT(pattern) (((uint64_t)1) << (pattern))

enum { PENSTOCK_REDUCE_SUM = 1, PENSTOCK_REDUCE_MIN = 2, PENSTOCK_REDUCE_MAX = 3, PENSTOCK_REDUCE_PRODUCT = 4 /* 5: mean.h */ };

/* The level of a group: the ranks that it joins. */
enum {
  PENSTOCK_LEVEL_WORLD = 1,
  PENSTOCK_LEVEL_LOCAL = 2, /* the ranks of one host */
  PENSTOCK_LEVEL_CROSS = 3, /* one rank of each host */
  PENSTOCK_LEVEL_SUBSET = 4
};

/* A group: ranks that communicate with each other. `rank` and all ranks in messages are numbers
 * within the group. */
typedef struct penstock_group {
  uint64_t struct_size;
  uint64_t id;                /* unique among the groups of a run, equal on all members */
  const uint32_t* world_ranks; /* [size], ascending: the group's members as ranks of the world */
  const uint32_t* hosts;      /* [size]: the number of each member's host */
  uint32_t rank;
  uint32_t size;
  uint32_t level;
  uint32_t flags; /* 0 */
} penstock_group;

/* The world, as this rank sees it. In join, a transport fills hosts, rank and size; the transport
 * owns the array hosts, which must stay valid until leave. A transport with IS_NOTIFIED finds the
 * three fields filled: the host read a launcher's variables and the ranks exchanged their hosts.
 * The transport may leave the fields unchanged; the host then owns the array, which stays valid
 * until leave. */
typedef struct penstock_world {
  uint64_t struct_size;
  const uint32_t* hosts; /* [size]: the number of each rank's host, from 0 in order of appearance */
  uint32_t rank;
  uint32_t size;
  const penstock_key_value_store* store; /* in: with IS_NOTIFIED, a store that all ranks reach,
                                            valid until leave; else null */
} penstock_world;

enum {
  PENSTOCK_COLLECTIVE_TRANSPORT = 1u << 0, /* needs no base channel; must have join and leave */
  PENSTOCK_COLLECTIVE_COMPOSITE = 1u << 1, /* needs a base channel */
  PENSTOCK_COLLECTIVE_ORDERED = 1u << 2,   /* messages of a channel match by order of submission;
                                              else by tag */
  PENSTOCK_COLLECTIVE_SAME_BITS = 1u << 3, /* reductions have equal bits on all ranks */
  PENSTOCK_COLLECTIVE_RANK_ORDER = 1u << 4, /* reductions add in ascending rank order, at every size
                                               and timing */
  PENSTOCK_COLLECTIVE_MAY_REFUSE = 1u << 5, /* returned may give entries back */
  /* 1u << 6 is a draft: draft/collective.h */
  PENSTOCK_COLLECTIVE_PROCESS_GLOBAL = 1u << 7, /* at most one instance per process (MPI) */
  PENSTOCK_COLLECTIVE_IS_NOTIFIED = 1u << 8, /* transports: join receives rank, size, hosts and
                                                store in `world`. The host's rendezvous comes before
                                                join. Without a launcher, the host reports a world
                                                of one rank */
  PENSTOCK_COLLECTIVE_TAKES_FINISHED = 1u << 9 /* the transport knows no streams. If a message is in
                                                  memory of a device (exec): when submit is called,
                                                  the data at `send` are complete and no queued work
                                                  uses `receive`; when the message is DONE, the
                                                  received data are complete. The device is current
                                                  on the calling thread. The transport does not copy
                                                  this rank's own part of a gather, an all-to-all or
                                                  a broadcast: its place at `receive` stays
                                                  unchanged */
};

/* Facts about the collective. */
typedef struct penstock_collective_traits {
  uint64_t struct_size;
  uint64_t patterns;     /* bits PENSTOCK_PATTERN_BIT */
  uint64_t dtypes;       /* bits PENSTOCK_DTYPE_BIT, for reductions; every type can be moved */
  uint64_t device_types; /* bit per device type */
  uint64_t abort_bound_us; /* after abort every ticket ends within this time */
  uint32_t flags;
  uint32_t max_in_flight; /* messages in flight per channel; 0: no limit. The core refuses other
                             values */
  uint64_t device_patterns; /* the subset of `patterns` for memory of devices other than the CPU; 0:
                               all patterns */
} penstock_collective_traits;

/* The cost of moving a message on one level, by a pure formula. */
typedef struct penstock_volume {
  uint64_t struct_size;
  double startups;       /* number of messages in sequence */
  double bytes;          /* bytes that each rank sends */
  double reduced_bytes;  /* bytes that each rank adds up */
} penstock_volume;

typedef struct penstock_channel penstock_channel; /* opaque: one opened group */
typedef struct penstock_ticket penstock_ticket;   /* opaque: one message in flight */
struct penstock_collective;

/* The channel that a composite builds on. It is valid until the composite's channel is closed. */
typedef struct penstock_base_channel {
  uint64_t struct_size;
  const struct penstock_collective* collective;
  void* instance;
  penstock_channel* channel;
  uint64_t tag_first; /* per message tag the composite may use the tags
                         [tag_first, tag_first + n_tags) of the base channel */
  uint64_t n_tags;
} penstock_base_channel;

enum {
  PENSTOCK_MESSAGE_EXACT_COUNTS = 1u << 0 /* all counts are known on all ranks: counts need not
                                             travel */
};

/* One message. Its pointers stay valid until the ticket is released. Counts and offsets are in
 * elements of dtype. */
typedef struct penstock_message {
  uint64_t struct_size;
  uint64_t id;  /* equal on all ranks of the channel; for error messages and traces */
  uint64_t tag; /* below 2^20; unique among the messages of the channel that may be in flight
                   together */
  const void* send;
  void* receive;
  uint64_t count; /* elements at send; for RECEIVE: elements of room at receive */
  const uint64_t* send_counts;    /* ALL_TO_ALL: [size] */
  uint64_t* receive_counts;       /* REDUCE_SCATTER: [size], in, the counts of all ranks.
                                     ALL_GATHER, ALL_TO_ALL: [size]; in: the room for each rank, or
                                     with EXACT_COUNTS the count; out: the received counts. RECEIVE:
                                     [1], out */
  const uint64_t* receive_offsets; /* ALL_GATHER, ALL_TO_ALL: [size], the place of each rank's
                                      elements at receive */
  /* SPARSE_ALL_REDUCE: this rank's payloads (in) and the results over all ranks (out, with the room
   * that the composite's need declared). */
  const penstock_item* const* items;
  const penstock_payload* const* payloads; /* [n_items] */
  penstock_payload* const* results;        /* [n_items] */
  uint64_t n_items;
  const penstock_tensor* const* states; /* the states of the composite, as its need declared */
  uint64_t n_states;
  const penstock_exec* exec;
  const penstock_step* step;
  uint64_t deadline_us; /* time limit, counted from submit; 0: no limit */
  uint32_t pattern;
  uint32_t reduction;
  uint32_t dtype;
  uint32_t peer; /* root of a broadcast, other end of SEND and RECEIVE */
  uint32_t leg;
  uint32_t flags;
} penstock_message;

/* The needs of a composite for one message. The plugin owns the arrays; they must stay valid until
 * the next plan call. */
typedef struct penstock_collective_need {
  uint64_t struct_size;
  uint64_t scratch_bytes;
  const penstock_state_declaration* const* states; /* class SOFT only; kept with the first item of
                                                      the message */
  uint64_t n_states;
  uint64_t result_capacity; /* entries per item in results; 0: the capacity of the payloads */
} penstock_collective_need;

enum { PENSTOCK_PENDING = 0, PENSTOCK_DONE = 1 };

typedef struct penstock_collective {
  uint64_t struct_size;

  /* [control] As in penstock_compressor. */
  penstock_status* (*create)(const penstock_option_value* const* options, uint64_t n_options, void** instance);
  void (*destroy)(void* instance);
  /* [any] Fills the traits. Pure, except device_types of a transport: before join it names the
   * devices that the transport may support, after join the devices that it supports, because some
   * libraries report them only then. */
  penstock_status* (*describe)(void* instance, penstock_collective_traits* traits);

  /* [any] Pure. Computes the cost of `bytes` in `pattern` on `hosts` hosts of `ranks_per_host`
   * ranks: volumes[0] within a host, volumes[1] between hosts. */
  penstock_status* (*volume)(void* instance, uint32_t pattern, uint32_t hosts, uint32_t ranks_per_host, uint64_t bytes,
                             penstock_volume* const* volumes);

  /* [comm] Transports: connects to the other ranks. Null for composites. `world` is in and out; see
   * penstock_world. */
  penstock_status* (*join)(void* instance, uint64_t timeout_us, penstock_world* world);

  /* [comm] Opens a channel, which matches its messages independently of other channels. All members
   * of the group call open. `base` is null for a transport. */
  penstock_status* (*open)(void* instance, const penstock_group* group, const penstock_base_channel* base,
                           const penstock_key_value_store* store, uint64_t timeout_us, penstock_channel** channel);

  /* [comm] May be null. Fills needs[i] for messages[i], in which data pointers are null and payload
   * capacities are set. */
  penstock_status* (*plan)(void* instance, penstock_channel* channel, const penstock_message* const* messages,
                           uint64_t n_messages, penstock_collective_need* const* needs);

  /* [comm] Starts a message. It never waits for a peer. After success the ticket must be
   * released. */
  penstock_status* (*submit)(void* instance, penstock_channel* channel, const penstock_message* message,
                             penstock_ticket** ticket);

  /* [comm] Does bounded work on the message and sets *state: PENDING or DONE. An error ends the
   * message. */
  penstock_status* (*progress)(void* instance, penstock_ticket* ticket, uint32_t* state);

  /* [comm] With MAY_REFUSE, after DONE: fills payloads[i] with the (index, value) pairs of items[i]
   * that this rank must keep, also if another rank sent them. Sections have room for this rank's
   * own payload of the item. Null if the collective refuses nothing. */
  penstock_status* (*returned)(void* instance, penstock_ticket* ticket, penstock_payload* const* payloads,
                               uint64_t n_items);

  /* [comm] Ends the use of a ticket, whether its message is done or not. */
  void (*release)(void* instance, penstock_ticket* ticket);

  /* [any] Gives the channel up: every ticket ends in an error within abort_bound_us. */
  void (*abort)(void* instance, penstock_channel* channel);

  /* [comm] Closes a channel; a null channel is allowed. After abort it waits for no rank. */
  void (*close)(void* instance, penstock_channel* channel);

  /* [comm] Transports: ends the use of the transport, together with the other ranks. If `aborted`
   * is not 0, it does not wait for the other ranks. */
  void (*leave)(void* instance, uint32_t aborted);

  /* [any] As in penstock_compressor. */
  const void* (*extension)(void* instance, penstock_str id);
} penstock_collective;

#ifdef __cplusplus
}
#endif
#endif /* PENSTOCK_COLLECTIVE_H */
