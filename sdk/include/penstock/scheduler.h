/* Scheduler: a plugin that decides buckets, routes, order and moments. It never communicates, never
 * waits and never sees data. plan and observe run on rank 0; the core sends the bytes of the plan
 * to the other ranks. */
#ifndef PENSTOCK_SCHEDULER_H
#define PENSTOCK_SCHEDULER_H

#include <penstock/collective.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- The model: the known facts about the training job ---- */

/* One compressor that the plan may choose for a gradient, and its costs. */
typedef struct penstock_candidate {
  uint64_t struct_size;
  penstock_str compressor;    /* instance name from the TOML */
  const uint64_t* phase_bytes; /* [period]: bytes that one rank passes to the collective per phase,
                                  in all rounds; an upper bound if the size varies */
  /* Measured cost lines. One call encodes all gradients of a bucket that use this compressor.
   * Compensate and encode together take encode_fixed_us per call + encode_per_element_us per
   * element; decode has its own line. All four numbers are negative while the compressor has not
   * run. */
  double encode_fixed_us;
  double encode_per_element_us;
  double decode_fixed_us;
  double decode_per_element_us;
  uint64_t part_alignment; /* in elements; 0: the gradient must not be cut */
  uint32_t combine;        /* PENSTOCK_COMBINE_* of the last round */
  uint32_t n_rounds;
  uint64_t routes; /* bit per PENSTOCK_ROUTE_* that the gradient can take with this compressor;
                      hosts before ABI 0.5 do not set it */
} penstock_candidate;

/* The model of one gradient: its size, times and candidates. */
typedef struct penstock_gradient_model {
  uint64_t struct_size;
  penstock_str name;
  const int64_t* shape;
  uint64_t n_dims;
  uint64_t numel;
  uint64_t bytes;     /* uncompressed */
  double ready_us;    /* time after the first gradient of the step, mean over steps, on the rank
                         that is latest with this gradient; negative while unmeasured */
  double forward_us;  /* time after the start of the next forward at which forward first needs the
                         gradient; negative while unknown */
  const penstock_candidate* const* candidates; /* [n_candidates], at least one candidate; the first
                                                  is the configured choice */
  uint64_t n_candidates;
  uint32_t dtype;
  uint32_t given_bucket; /* the frontend's own bucket (DDP), or PENSTOCK_NO_BUCKET */
} penstock_gradient_model;

#define PENSTOCK_NO_BUCKET 0xffffffffu

/* The measured line of one level of the network: time of a message = alpha + beta * bytes. The
 * bytes are the bytes that one rank passes to the collective. The time is the time that a message
 * adds while other messages are in flight, not the time of a message that travels alone. */
typedef struct penstock_link {
  uint64_t struct_size;
  double alpha_us;
  double beta_us_per_byte;
  uint32_t level;
  uint32_t flags;
  uint64_t bytes_from; /* in penstock_model.lines: the line holds from this size up to bytes_from of
                          the next line of its level and pattern; else 0 */
  uint32_t pattern;    /* in penstock_model.lines: PENSTOCK_ALL_REDUCE, PENSTOCK_REDUCE_SCATTER or
                          PENSTOCK_ALL_GATHER; else 0 */
  uint32_t reserved;
} penstock_link;

enum {
  PENSTOCK_MODEL_FORWARD_WAITS = 1u << 0, /* the frontend can wait for single gradients in the next
                                             forward */
  PENSTOCK_MODEL_GIVEN_BUCKETS = 1u << 1, /* buckets are given: the scheduler may decide only their
                                             order and route */
  PENSTOCK_MODEL_MEASURED = 1u << 2       /* ready times and cost lines are measured */
};

/* The model of a training job: its gradients, network and times. */
typedef struct penstock_model {
  uint64_t struct_size;
  const penstock_gradient_model* const* gradients; /* [n_gradients], in order of registration */
  uint64_t n_gradients;
  const uint64_t* order; /* [n_gradients]: gradient indices in the order in which backward produces
                            the gradients. It is measured once MODEL_MEASURED is set; before, it is
                            the reverse of the order of registration. If the frontend gives buckets
                            after the first step, it is the order of the last step before that
                            call */
  const penstock_link* const* links; /* [n_links]: one line per measured level, for all-reduces of
                                        any size; empty until levels are measured */
  uint64_t n_links;
  double backward_us; /* length of backward on the slowest rank; 0 while unmeasured */
  double forward_us;
  uint32_t world;
  uint32_t hosts;
  uint32_t ranks_per_host;
  uint32_t period; /* number of phases, from the compressors */
  uint32_t route;  /* PENSTOCK_ROUTE_* that the TOML names; 0: the scheduler chooses */
  uint32_t flags;
  /* [n_lines]: the lines of the measured levels, one per level, pattern and class of size,
   * ascending by bytes_from within a pattern. They are measured anew whenever observe asks for a
   * new plan, in the groups of ranks that include the first rank of the set. */
  const penstock_link* const* lines;
  uint64_t n_lines;
  /* [plan] Pure; null if unknown. Returns the cost that the set's transport computes for `bytes`
   * passed by each rank, like volume of penstock_collective: volumes[0] within a host, volumes[1]
   * between hosts. Valid during the call of plan. */
  penstock_status* (*volume)(void* volume_context, uint32_t pattern, uint32_t hosts, uint32_t ranks_per_host,
                             uint64_t bytes, penstock_volume* const* volumes);
  void* volume_context;
} penstock_model;

/* ---- The plan ---- */

enum {
  PENSTOCK_ROUTE_FLAT = 1,         /* one coded leg over the world */
  PENSTOCK_ROUTE_SPLIT = 2,        /* reduce-scatter in backward, all-gather in the next forward */
  PENSTOCK_ROUTE_HIERARCHICAL = 3, /* dense within the host, coded between hosts, dense within the
                                      host */
  PENSTOCK_ROUTE_SHARD = 4         /* coded all-to-all; the owner adds and re-encodes; coded
                                      all-gather */
};

enum { PENSTOCK_LAUNCH_READY = 1, PENSTOCK_LAUNCH_SET_COMPLETE = 2, PENSTOCK_LAUNCH_NEXT_FORWARD = 3 };

/* A gradient or an aligned range of a gradient, with the chosen candidate. */
typedef struct penstock_piece {
  uint64_t struct_size;
  uint64_t gradient;
  uint64_t first;
  uint64_t numel;
  uint32_t choice; /* index into the gradient's candidates */
  int32_t device_type;
} penstock_piece;

/* One leg of a route: the level of its group, its pattern, dense or coded, and its start. */
typedef struct penstock_leg {
  uint64_t struct_size;
  uint32_t level;   /* PENSTOCK_LEVEL_* */
  uint32_t pattern; /* PENSTOCK_ALL_REDUCE, ... */
  uint32_t coded;   /* 1: memory and compressor run in this leg */
  uint32_t launch;  /* PENSTOCK_LAUNCH_* */
} penstock_leg;

/* A bucket: pieces that travel together. */
typedef struct penstock_bucket {
  uint64_t struct_size;
  const penstock_piece* const* pieces; /* [n_pieces] */
  uint64_t n_pieces;
  const penstock_leg* const* legs; /* [n_legs]; n_legs 0: the legs of `route` */
  uint64_t n_legs;
  uint32_t route;
  uint32_t phase;
  uint32_t launch; /* PENSTOCK_LAUNCH_* of the first leg; 0: READY */
  uint32_t flags;
} penstock_bucket;

/* The sink that a scheduler writes its plan into. Each call copies its arguments. Within a phase
 * buckets are numbered in order of addition, which is also their order of priority. If a gradient
 * lies in no bucket of a phase, the memory only compensates this gradient in that phase. */
typedef struct penstock_plan_sink {
  uint64_t struct_size;
  void* context;
  penstock_status* (*add_bucket)(void* context, const penstock_bucket* bucket);
  /* Optional: lists the order in which messages go out on an ORDERED channel, one call per message.
   * `bucket` counts within the phase; `leg` is 0, except on route SPLIT: 0 for the reduce-scatter
   * and 1 for the all-gather. Unlisted messages follow after the listed messages, ordered by
   * bucket, then leg, then round. A message listed twice, or a message of no bucket, is an error of
   * the plan. */
  penstock_status* (*add_message)(void* context, uint32_t phase, uint32_t bucket, uint32_t leg, uint32_t round);
  /* Optional: one line for people that explains the plan. */
  void (*explain)(void* context, penstock_str text);
} penstock_plan_sink;

/* ---- Observation ---- */

/* A measurement: means over ranks and over the steps since the last observation. Arrays have one
 * entry per gradient, bucket or rank. The entry of a gradient or bucket is the mean over the steps
 * in which it took part, or 0 if it took part in no step. */
typedef struct penstock_measurement {
  uint64_t struct_size;
  uint64_t step;        /* number of steps that the set has done */
  uint64_t n_steps;     /* number of steps in these means */
  double step_us;
  double backward_us;   /* from the first ready gradient to the last */
  double exposed_us;    /* time that the application waited for results; its own work after
                           backward does not count */
  const double* ready_us;    /* [n_gradients] time after the first gradient of the step, mean over
                                ranks */
  uint64_t n_gradients;
  const double* exchange_us; /* [n_buckets] of the current plan: time from submit to arrival, all
                                rounds and legs together */
  uint64_t n_buckets;        /* buckets of all phases, one phase after the other */
  const double* rank_backward_us; /* [world]: backward_us of each rank; it shows stragglers */
  uint64_t world;
  /* exchange_us in two parts, over at most the last 16 of these steps. wire_us is the time of a
   * bucket on the rank with the shortest time: that rank came last and waited for no rank. It
   * includes the time of earlier messages of that rank. */
  const double* wire_us; /* [n_buckets] */
  const double* wait_us; /* [n_buckets] time spent waiting for later ranks, mean over ranks */
  const uint64_t* phase_first; /* [period + 1]: phase p has the buckets [phase_first[p],
                                  phase_first[p + 1]) */
  uint64_t period;
} penstock_measurement;

enum { PENSTOCK_KEEP_PLAN = 0, PENSTOCK_MAKE_NEW_PLAN = 1 };

enum {
  PENSTOCK_SCHEDULER_LAUNCHES_IN_FORWARD = 1u << 0, /* the scheduler needs a frontend that can wait
                                                       in the next forward */
  PENSTOCK_SCHEDULER_MEASURES = 1u << 1, /* the scheduler plans again from measured times; the core
                                            refuses it under deterministic = true */
  /* 1u << 2 is a draft: draft/scheduler.h */
  PENSTOCK_SCHEDULER_CHOOSES = 1u << 3     /* the scheduler chooses among candidates */
};

typedef struct penstock_scheduler_traits {
  uint64_t struct_size;
  uint64_t routes; /* bit per PENSTOCK_ROUTE_* that the scheduler can produce */
  uint32_t flags;
  uint32_t observe_every; /* steps between two calls of observe; 0: observe is never called */
} penstock_scheduler_traits;

typedef struct penstock_scheduler {
  uint64_t struct_size;

  /* [control] As in penstock_compressor. */
  penstock_status* (*create)(const penstock_option_value* const* options, uint64_t n_options, void** instance);
  void (*destroy)(void* instance);
  /* [any] Pure. */
  penstock_status* (*describe)(void* instance, penstock_scheduler_traits* traits);

  /* [plan] Writes a plan into the sink. Pure in options, model and earlier measurements: equal
   * calls give an equal plan, whichever addresses the pointers have. Only a scheduler with MEASURES
   * may depend on measurements. Each element of a gradient must be in at most one bucket per phase,
   * and each gradient in at least one phase. */
  penstock_status* (*plan)(void* instance, const penstock_model* model, const penstock_plan_sink* sink);

  /* [control] A draft that the core never calls; see draft/scheduler.h. It is meant for every rank,
   * with an equal list of gradients that are ready on all ranks. */
  penstock_status* (*arrange)(void* instance, const penstock_model* model, const uint64_t* ready, uint64_t n_ready,
                              const penstock_plan_sink* sink);

  /* [plan] Optional: receives a measurement and sets *decision to KEEP_PLAN or MAKE_NEW_PLAN. */
  penstock_status* (*observe)(void* instance, const penstock_measurement* measurement, uint32_t* decision);

  /* [any] As in penstock_compressor. */
  const void* (*extension)(void* instance, penstock_str id);
} penstock_scheduler;

#ifdef __cplusplus
}
#endif
#endif /* PENSTOCK_SCHEDULER_H */
