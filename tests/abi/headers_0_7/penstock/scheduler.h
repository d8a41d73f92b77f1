/* Scheduler: decides buckets, routes, order and moments. It never communicates, never waits and never sees data.
 * plan and observe run on rank 0; the core sends the bytes of the plan to the others. */
#ifndef PENSTOCK_SCHEDULER_H
#define PENSTOCK_SCHEDULER_H

#include <penstock/collective.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- The model: what is known about the training job ---- */

/* One compressor that a gradient may be given to, and what that costs. */
typedef struct penstock_candidate {
  uint64_t struct_size;
  penstock_str compressor;    /* instance name from the TOML */
  const uint64_t* phase_bytes; /* [period]: bytes one rank hands over per phase, all rounds; a bound where it varies */
  /* Measured lines. A call encodes all gradients of a bucket that have the same compressor: compensate and encode take
   * fixed, once per call, + per_element * their elements. All four are negative while the compressor has not run. */
  double encode_fixed_us;
  double encode_per_element_us;
  double decode_fixed_us;
  double decode_per_element_us;
  uint64_t part_alignment; /* elements; 0: indivisible */
  uint32_t combine;        /* of the last round */
  uint32_t n_rounds;
  uint64_t routes; /* bit per PENSTOCK_ROUTE_* that the gradient can take with it; hosts before ABI 0.5 do not say */
} penstock_candidate;

typedef struct penstock_gradient_model {
  uint64_t struct_size;
  penstock_str name;
  const int64_t* shape;
  uint64_t n_dims;
  uint64_t numel;
  uint64_t bytes;     /* uncompressed */
  double ready_us;    /* after the first gradient of the step, on the rank that is slowest to it, mean over steps;
                         negative while unmeasured */
  double forward_us;  /* when the next forward first needs it, after its start; negative while unknown */
  const penstock_candidate* const* candidates; /* [n_candidates], at least one; the first is the configured choice */
  uint64_t n_candidates;
  uint32_t dtype;
  uint32_t given_bucket; /* the frontend's own bucket (DDP), or PENSTOCK_NO_BUCKET */
} penstock_gradient_model;

#define PENSTOCK_NO_BUCKET 0xffffffffu

/* Measured line of one level of the network: time of a message = alpha + beta * bytes, which are those that a rank hands
 * over. It is what a message adds while others are under way, not the time that a lone one is on its way. */
typedef struct penstock_link {
  uint64_t struct_size;
  double alpha_us;
  double beta_us_per_byte;
  uint32_t level;
  uint32_t flags;
  uint64_t bytes_from; /* of a model's lines: it holds from here on, up to the next of its level and pattern; else 0 */
  uint32_t pattern;    /* likewise: PENSTOCK_ALL_REDUCE, PENSTOCK_REDUCE_SCATTER, PENSTOCK_ALL_GATHER; else 0 */
  uint32_t reserved;
} penstock_link;

enum {
  PENSTOCK_MODEL_FORWARD_WAITS = 1u << 0, /* the frontend can wait for single gradients in the next forward */
  PENSTOCK_MODEL_GIVEN_BUCKETS = 1u << 1, /* buckets are given: only their order and route may be decided */
  PENSTOCK_MODEL_MEASURED = 1u << 2       /* ready times and cost lines are measured */
};

/* Gradients come in the order in which backward produces them: measured once MODEL_MEASURED is set, before that the
 * reverse of their registration. */
typedef struct penstock_model {
  uint64_t struct_size;
  const penstock_gradient_model* const* gradients; /* [n_gradients] */
  uint64_t n_gradients;
  const uint64_t* order; /* [n_gradients]: gradient indices in the order in which they become ready */
  const penstock_link* const* links; /* [n_links]: those levels that were measured, each once, with the line of its
                                        all-reduces whatever their size; none before that */
  uint64_t n_links;
  double backward_us; /* length of backward on the slowest rank; 0 while unmeasured */
  double forward_us;
  uint32_t world;
  uint32_t hosts;
  uint32_t ranks_per_host;
  uint32_t period; /* phases, from the compressors */
  uint32_t route;  /* PENSTOCK_ROUTE_* asked for in the TOML; 0: the scheduler's choice */
  uint32_t flags;
  /* [n_lines]: the same levels line by line, per pattern and class of size, ascending by bytes_from within a pattern.
   * Measured anew before every plan from measured times, between ranks of the set that include its first. */
  const penstock_link* const* lines;
  uint64_t n_lines;
  /* [plan] Pure, null where it is not known: what the set's transport says of `bytes` that each rank hands over, as
   * penstock_collective's volume: volumes[0] within a host, volumes[1] between hosts. Valid during the call of plan. */
  penstock_status* (*volume)(void* volume_context, uint32_t pattern, uint32_t hosts, uint32_t ranks_per_host,
                             uint64_t bytes, penstock_volume* const* volumes);
  void* volume_context;
} penstock_model;

/* ---- The plan ---- */

enum {
  PENSTOCK_ROUTE_FLAT = 1,         /* one coded leg over the world */
  PENSTOCK_ROUTE_SPLIT = 2,        /* reduce-scatter in backward, all-gather in the next forward */
  PENSTOCK_ROUTE_HIERARCHICAL = 3, /* dense in the host, coded between hosts, dense in the host */
  PENSTOCK_ROUTE_SHARD = 4         /* coded all-to-all, owner adds and re-encodes, coded all-gather */
};

enum { PENSTOCK_LAUNCH_READY = 1, PENSTOCK_LAUNCH_SET_COMPLETE = 2, PENSTOCK_LAUNCH_NEXT_FORWARD = 3 };

/* A gradient or an aligned range of it, with one of its candidates. */
typedef struct penstock_piece {
  uint64_t struct_size;
  uint64_t gradient;
  uint64_t first;
  uint64_t numel;
  uint32_t choice; /* index into the gradient's candidates */
  int32_t device_type;
} penstock_piece;

/* One step of a route: group level x pattern, dense or coded, and when it starts. */
typedef struct penstock_leg {
  uint64_t struct_size;
  uint32_t level;   /* PENSTOCK_LEVEL_* */
  uint32_t pattern; /* PENSTOCK_ALL_REDUCE, ... */
  uint32_t coded;   /* 1: memory and compressor run here */
  uint32_t launch;
} penstock_leg;

/* Pieces that travel together. */
typedef struct penstock_bucket {
  uint64_t struct_size;
  const penstock_piece* const* pieces; /* [n_pieces] */
  uint64_t n_pieces;
  const penstock_leg* const* legs; /* [n_legs]; none: the legs of `route` */
  uint64_t n_legs;
  uint32_t route;
  uint32_t phase;
  uint32_t launch; /* of the first leg; 0: READY */
  uint32_t flags;
} penstock_bucket;

/* What a scheduler writes its plan into. Each call copies. Within a phase buckets are numbered in order of addition;
 * that is also their order of priority. A gradient absent from a phase is only compensated in it. */
typedef struct penstock_plan_sink {
  uint64_t struct_size;
  void* context;
  penstock_status* (*add_bucket)(void* context, const penstock_bucket* bucket);
  /* Optional: the order in which messages go out on an ORDERED channel, one call per message. `bucket` counts within the
   * phase; `leg` is 0, or on route SPLIT 0 for the reduce-scatter and 1 for the all-gather. What is not listed follows
   * behind, bucket after bucket, within a bucket leg after leg, round after round. A message listed twice or one that
   * no bucket has is an error of the plan. */
  penstock_status* (*add_message)(void* context, uint32_t phase, uint32_t bucket, uint32_t leg, uint32_t round);
  /* Optional: one line for people about why the plan is as it is. */
  void (*explain)(void* context, penstock_str text);
} penstock_plan_sink;

/* ---- Observation ---- */

/* Means over the steps since the last observation and over ranks; arrays have one entry per gradient, bucket or rank.
 * What a gradient or a bucket has is the mean over the steps in which it took part: 0 without one. */
typedef struct penstock_measurement {
  uint64_t struct_size;
  uint64_t step;        /* steps done in the set */
  uint64_t n_steps;     /* steps averaged here */
  double step_us;
  double backward_us;   /* first gradient ready to last */
  double exposed_us;    /* time the application waited for results; its own work after backward is no part of it */
  const double* ready_us;    /* [n_gradients] after the first gradient of the step, mean over ranks */
  uint64_t n_gradients;
  const double* exchange_us; /* [n_buckets] of the current plan, submit to arrival: all rounds and legs together */
  uint64_t n_buckets;        /* of all phases, one phase after the other */
  const double* rank_backward_us; /* [world]: stragglers stand out here */
  uint64_t world;
  /* exchange_us in two parts, of the last 16 of these steps at most. On the wire: what a bucket takes on the rank that
   * takes least, which came last and waited for nobody; messages of this rank that go out before are part of it. */
  const double* wire_us; /* [n_buckets] */
  const double* wait_us; /* [n_buckets] for ranks that came later, mean over ranks */
  const uint64_t* phase_first; /* [period + 1]: the buckets of phase p are those from phase_first[p] up to phase_first[p + 1] */
  uint64_t period;
} penstock_measurement;

enum { PENSTOCK_KEEP_PLAN = 0, PENSTOCK_MAKE_NEW_PLAN = 1 };

enum {
  PENSTOCK_SCHEDULER_LAUNCHES_IN_FORWARD = 1u << 0, /* needs a frontend that can wait in the next forward */
  PENSTOCK_SCHEDULER_MEASURES = 1u << 1, /* plans again from measured times: refused under deterministic = true */
  /* 1u << 2 is a draft: draft/scheduler.h */
  PENSTOCK_SCHEDULER_CHOOSES = 1u << 3     /* picks among candidates */
};

typedef struct penstock_scheduler_traits {
  uint64_t struct_size;
  uint64_t routes; /* bit per PENSTOCK_ROUTE_* it can produce */
  uint32_t flags;
  uint32_t observe_every; /* steps between two calls of observe; 0: never */
} penstock_scheduler_traits;

typedef struct penstock_scheduler {
  uint64_t struct_size;

  /* [control] As in penstock_compressor. */
  penstock_status* (*create)(const penstock_option_value* const* options, uint64_t n_options, void** instance);
  void (*destroy)(void* instance);
  /* [any] Pure. */
  penstock_status* (*describe)(void* instance, penstock_scheduler_traits* traits);

  /* [plan] Pure in (options, model, what observe was told before): after the same calls the same plan, whatever the
   * pointers. Only one that MEASURES may depend on what it was told. Each gradient is in at most one bucket per phase, and
   * in at least one phase. */
  penstock_status* (*plan)(void* instance, const penstock_model* model, const penstock_plan_sink* sink);

  /* [control] A draft, never called; see draft/scheduler.h. Every rank, with the same list of gradients that are ready
   * everywhere. */
  penstock_status* (*arrange)(void* instance, const penstock_model* model, const uint64_t* ready, uint64_t n_ready,
                              const penstock_plan_sink* sink);

  /* [plan] Optional: KEEP_PLAN or MAKE_NEW_PLAN. */
  penstock_status* (*observe)(void* instance, const penstock_measurement* measurement, uint32_t* decision);

  /* [any] As in penstock_compressor. */
  const void* (*extension)(void* instance, penstock_str id);
} penstock_scheduler;

#ifdef __cplusplus
}
#endif
#endif /* PENSTOCK_SCHEDULER_H */
