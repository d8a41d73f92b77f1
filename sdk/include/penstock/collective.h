/* Collective: moves messages. A transport carries bytes (mpi, loopback, one lent by a frontend); a composite builds an
 * operation out of the messages of another collective (ok-topk over mpi).
 *
 * Legal order: create, describe, [join], open, plan, (submit, progress ..., [returned], release) ..., close, [leave],
 * destroy. All of it except describe, volume and abort happens on the communication thread. */
#ifndef PENSTOCK_COLLECTIVE_H
#define PENSTOCK_COLLECTIVE_H

#include <penstock/host.h>
#include <penstock/item.h>
#include <penstock/option.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
  PENSTOCK_ALL_REDUCE = 1,     /* receive[count] = reduction over ranks of send[count]; send may equal receive */
  PENSTOCK_REDUCE_SCATTER = 2, /* rank r receives counts[r] reduced elements; send holds them rank after rank */
  PENSTOCK_ALL_GATHER = 3,     /* receive holds what each rank sent, at offsets[r]; counts may differ */
  PENSTOCK_ALL_TO_ALL = 4,     /* send holds send_counts[r] elements for rank r, rank after rank */
  PENSTOCK_BROADCAST = 5,      /* receive[count] = send[count] of rank `peer` */
  PENSTOCK_SEND = 6,           /* to rank `peer` */
  PENSTOCK_RECEIVE = 7,        /* from rank `peer`; receive_counts[0] tells how many came */
  PENSTOCK_BARRIER = 8,
  PENSTOCK_SPARSE_ALL_REDUCE = 9 /* composites: sums SPARSE payloads of items over ranks, may refuse entries */
};

#define PENSTOCK_PATTERN_BIT(pattern) (((uint64_t)1) << (pattern))

enum { PENSTOCK_REDUCE_SUM = 1, PENSTOCK_REDUCE_MIN = 2, PENSTOCK_REDUCE_MAX = 3, PENSTOCK_REDUCE_PRODUCT = 4 /* 5: mean.h */ };

/* Whom a group joins. */
enum {
  PENSTOCK_LEVEL_WORLD = 1,
  PENSTOCK_LEVEL_LOCAL = 2, /* the ranks of one host */
  PENSTOCK_LEVEL_CROSS = 3, /* one rank of each host */
  PENSTOCK_LEVEL_SUBSET = 4
};

/* Ranks that communicate with each other. `rank` and all ranks in messages count within the group. */
typedef struct penstock_group {
  uint64_t struct_size;
  uint64_t id;                /* unique among the groups of a run, equal on all members */
  const uint32_t* world_ranks; /* [size], ascending: the group's members as ranks of the world */
  const uint32_t* hosts;      /* [size]: the number of the host each member is on */
  uint32_t rank;
  uint32_t size;
  uint32_t level;
  uint32_t flags; /* 0 */
} penstock_group;

/* Who this rank is among all. A transport fills hosts, rank and size when it joins; hosts is owned by it and valid until
 * leave. One that says IS_TOLD finds them filled, by what a launcher's variables say and the ranks have told each other,
 * and may leave them as they are: those hosts are the host's, valid until leave. */
typedef struct penstock_world {
  uint64_t struct_size;
  const uint32_t* hosts; /* [size]: the number of each rank's host, from 0 in order of appearance */
  uint32_t rank;
  uint32_t size;
  const penstock_key_value_store* store; /* in: with IS_TOLD, a store that all ranks reach, valid until leave; else null */
} penstock_world;

enum {
  PENSTOCK_COLLECTIVE_TRANSPORT = 1u << 0, /* stands on its own: has join and leave */
  PENSTOCK_COLLECTIVE_COMPOSITE = 1u << 1, /* needs a base channel */
  PENSTOCK_COLLECTIVE_ORDERED = 1u << 2,   /* messages of a channel match by order of submission; else by tag */
  PENSTOCK_COLLECTIVE_SAME_BITS = 1u << 3, /* reductions have equal bits on all ranks */
  PENSTOCK_COLLECTIVE_RANK_ORDER = 1u << 4, /* reductions add in ascending rank order, whatever size or timing */
  PENSTOCK_COLLECTIVE_MAY_REFUSE = 1u << 5, /* returned may give entries back */
  /* 1u << 6 is a draft: draft/collective.h */
  PENSTOCK_COLLECTIVE_PROCESS_GLOBAL = 1u << 7, /* at most one instance per process (MPI) */
  PENSTOCK_COLLECTIVE_IS_TOLD = 1u << 8, /* transports: join is told rank, size, hosts and store; the host has met the other
                                            ranks before, or, where no launcher speaks of any, says that there is one */
  PENSTOCK_COLLECTIVE_TAKES_FINISHED = 1u << 9 /* knows no streams. Of a message in memory of a device (exec) what is sent lies
                                                  there when submit is called, and nothing queued uses what is received into;
                                                  what came lies there when the message is DONE. The device is the calling
                                                  thread's current one. This rank's own part of a gather, an all-to-all or a
                                                  broadcast is not copied: its place at `receive` stays as it is */
};

typedef struct penstock_collective_traits {
  uint64_t struct_size;
  uint64_t patterns;     /* PENSTOCK_PATTERN_BIT */
  uint64_t dtypes;       /* PENSTOCK_DTYPE_BIT for reductions; every type can be moved */
  uint64_t device_types; /* bit per device type */
  uint64_t abort_bound_us; /* abort makes every ticket finish within this time */
  uint32_t flags;
  uint32_t max_in_flight; /* 0: no limit on the messages of a channel; no other value is taken yet */
  uint64_t device_patterns; /* of `patterns`, those for memory of devices other than the CPU; 0: all of them */
} penstock_collective_traits;

/* What moving a message costs on one level, as a pure formula. */
typedef struct penstock_volume {
  uint64_t struct_size;
  double startups;       /* messages in sequence */
  double bytes;          /* sent per rank */
  double reduced_bytes;  /* added up per rank */
} penstock_volume;

typedef struct penstock_channel penstock_channel; /* opaque: one opened group */
typedef struct penstock_ticket penstock_ticket;   /* opaque: one message in flight */
struct penstock_collective;

/* The channel a composite builds on. Valid until the composite's channel is closed. */
typedef struct penstock_base_channel {
  uint64_t struct_size;
  const struct penstock_collective* collective;
  void* instance;
  penstock_channel* channel;
  uint64_t tag_first; /* the composite may use tags [tag_first, tag_first + n_tags) of the base channel per message tag */
  uint64_t n_tags;
} penstock_base_channel;

enum {
  PENSTOCK_MESSAGE_EXACT_COUNTS = 1u << 0 /* all counts are known on all ranks: none need to travel */
};

/* One message. Pointers stay valid until the ticket is released. Counts and offsets are elements of dtype. */
typedef struct penstock_message {
  uint64_t struct_size;
  uint64_t id;  /* equal on all ranks of the channel; for error messages and traces */
  uint64_t tag; /* below 2^20; unique among the messages of the channel that may be in flight together */
  const void* send;
  void* receive;
  uint64_t count; /* elements at send; RECEIVE: room at receive */
  const uint64_t* send_counts;    /* ALL_TO_ALL: [size] */
  uint64_t* receive_counts;       /* REDUCE_SCATTER (in, all ranks'), ALL_GATHER, ALL_TO_ALL: [size]; in: the room for each rank, or
                                     with EXACT_COUNTS the count; out: what came. RECEIVE: [1], out */
  const uint64_t* receive_offsets; /* ALL_GATHER, ALL_TO_ALL: [size], where rank r's elements go */
  /* SPARSE_ALL_REDUCE: what this rank sends (in) and the joined result (out, room as the composite's need said). */
  const penstock_item* const* items;
  const penstock_payload* const* payloads; /* [n_items] */
  penstock_payload* const* results;        /* [n_items] */
  uint64_t n_items;
  const penstock_tensor* const* states; /* the composite's own, as its need declared */
  uint64_t n_states;
  const penstock_exec* exec;
  const penstock_step* step;
  uint64_t deadline_us; /* from submit; 0: none */
  uint32_t pattern;
  uint32_t reduction;
  uint32_t dtype;
  uint32_t peer; /* root of a broadcast, other end of send and receive */
  uint32_t leg;
  uint32_t flags;
} penstock_message;

/* What a composite needs to carry a message. Arrays are owned by the plugin, valid until the next plan call. */
typedef struct penstock_collective_need {
  uint64_t struct_size;
  uint64_t scratch_bytes;
  const penstock_state_declaration* const* states; /* SOFT only; kept with the message's first item */
  uint64_t n_states;
  uint64_t result_capacity; /* entries per item in results; 0: as the payloads' own */
} penstock_collective_need;

enum { PENSTOCK_PENDING = 0, PENSTOCK_DONE = 1 };

typedef struct penstock_collective {
  uint64_t struct_size;

  /* [control] As in penstock_compressor. */
  penstock_status* (*create)(const penstock_option_value* const* options, uint64_t n_options, void** instance);
  void (*destroy)(void* instance);
  /* [any] Pure, but for device_types of a transport: before join those that it may carry, from then on those that it does,
   * for some libraries can be asked no earlier. */
  penstock_status* (*describe)(void* instance, penstock_collective_traits* traits);

  /* [any] Pure: the cost of `bytes` in `pattern` on `hosts` hosts of `ranks_per_host` ranks: volumes[0] within a host,
   * volumes[1] between hosts. */
  penstock_status* (*volume)(void* instance, uint32_t pattern, uint32_t hosts, uint32_t ranks_per_host, uint64_t bytes,
                             penstock_volume* const* volumes);

  /* [comm] Transports: meets the other ranks. Null for composites. `world` is in and out; see there. */
  penstock_status* (*join)(void* instance, uint64_t timeout_us, penstock_world* world);

  /* [comm] Opens a channel with its own matching. All members of the group call it. `base` is null for a transport. */
  penstock_status* (*open)(void* instance, const penstock_group* group, const penstock_base_channel* base,
                           const penstock_key_value_store* store, uint64_t timeout_us, penstock_channel** channel);

  /* [comm] May be null. needs[i] for messages[i] (data pointers null, payload capacities set). */
  penstock_status* (*plan)(void* instance, penstock_channel* channel, const penstock_message* const* messages,
                           uint64_t n_messages, penstock_collective_need* const* needs);

  /* [comm] Starts a message. Never waits for a peer. On success the ticket must be released. */
  penstock_status* (*submit)(void* instance, penstock_channel* channel, const penstock_message* message,
                             penstock_ticket** ticket);

  /* [comm] Bounded work towards the end of the message. *state: PENDING or DONE. An error ends the message. */
  penstock_status* (*progress)(void* instance, penstock_ticket* ticket, uint32_t* state);

  /* [comm] MAY_REFUSE, after DONE: fills payloads[i] with the (index, value) pairs for items[i] that this rank must
   * keep, whoever they came from. Sections have room for the item's own payload. Null where nothing is refused. */
  penstock_status* (*returned)(void* instance, penstock_ticket* ticket, penstock_payload* const* payloads,
                               uint64_t n_items);

  /* [comm] Ends the use of a ticket, done or not. */
  void (*release)(void* instance, penstock_ticket* ticket);

  /* [any] The channel is lost: every ticket ends in an error within the declared bound. */
  void (*abort)(void* instance, penstock_channel* channel);

  /* [comm] Null is fine. After abort it waits for nobody. */
  void (*close)(void* instance, penstock_channel* channel);

  /* [comm] Transports: the end, in agreement with the others; after an abort without them. */
  void (*leave)(void* instance, uint32_t aborted);

  /* [any] As in penstock_compressor. */
  const void* (*extension)(void* instance, penstock_str id);
} penstock_collective;

#ifdef __cplusplus
}
#endif
#endif /* PENSTOCK_COLLECTIVE_H */
