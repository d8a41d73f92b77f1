/* The C API of the runtime, for frontends. It grows under the rules of the plugin ABI (penstock/base.h).
 *
 * Threads: operations, penstock_gradient_ready, penstock_abort and functions marked [any] may be called from any thread. Other
 * functions must not run concurrently on one set. [application]: the thread that trains. A wait blocks only its caller.
 * Errors: a function returns null for success, or a status to read with penstock_error_* and free with penstock_error_free. */
#ifndef PENSTOCK_RUNTIME_H
#define PENSTOCK_RUNTIME_H

#include <penstock/collective.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PENSTOCK_API __attribute__((visibility("default")))
typedef struct penstock_runtime penstock_runtime;
typedef struct penstock_set penstock_set;
typedef struct penstock_operation penstock_operation;

/* ---- Errors ---- */
PENSTOCK_API uint32_t penstock_error_code(const penstock_status* error);
PENSTOCK_API penstock_str penstock_error_message(const penstock_status* error); /* valid as long as the error */
PENSTOCK_API void penstock_error_free(penstock_status* error);
/* Makes an error of the frontend: `code` from base.h (an unknown code becomes INTERNAL), `message` copied. Functions of tables
 * that the frontend lends return such errors; the caller of these functions then owns the error. Null if `code` is OK. [any] */
PENSTOCK_API penstock_status* penstock_error_make(uint32_t code, penstock_str message);
PENSTOCK_API penstock_str penstock_version(void); /* of the product, "major.minor.patch" */
PENSTOCK_API uint32_t penstock_abi_version(void); /* major << 16 | minor */

/* ---- Runtime ---- */
typedef void (*penstock_text_sink)(void* context, penstock_str text); /* receives a text in one piece */

/* Sends `text` to all ranks and receives their texts: it calls `sink` once per rank, in the order of ranks, and then returns 0
 * (PENSTOCK_OK). On failure it returns a code from base.h, and `sink` receives only the reason. It waits `timeout_us`
 * microseconds for missing ranks, then fails with PENSTOCK_DEADLINE_EXCEEDED and their names. Until then it names the missing
 * ranks to the user every `warning_us` microseconds (0: never). Collective. */
typedef uint32_t (*penstock_text_gather)(void* context, penstock_str text, uint64_t timeout_us, uint64_t warning_us,
                                         void* sink_context, penstock_text_sink sink);

/* Rank and size of this process, if the frontend knows them from an earlier rendezvous, such as torch's default group. */
typedef struct penstock_introduction {
  uint64_t struct_size;
  penstock_str by; /* the source of rank and size, for messages */
  uint32_t rank;
  uint32_t size;
  void* context;
  penstock_text_gather gather; /* [application] called only within penstock_runtime_open */
} penstock_introduction;

typedef struct penstock_runtime_options {
  uint64_t struct_size;
  penstock_str config_path; /* TOML file; empty: PENSTOCK_CONFIG, or else the defaults (no compression, auto, fusion) */
  penstock_str config_text; /* TOML text instead of a file; relative paths in it start at the working directory */
  penstock_str frontend;    /* for messages, for example "penstock.torch 0.1.0" */
  const penstock_collective* borrowed_collective; /* a transport of the frontend, for collective = "borrowed" or "auto" */
  void* borrowed_instance;
  const penstock_introduction* introduction; /* null: rank and size come from the launcher's variables or from the transport */
} penstock_runtime_options;
/* Loads configuration and plugins, finds the other ranks (rendezvous) and compares both with theirs. Collective. */
PENSTOCK_API penstock_status* penstock_runtime_open(const penstock_runtime_options* options, penstock_runtime** runtime);
/* Ends this rank's part in the run; only penstock_abort and penstock_runtime_close may follow. Rank 0 stays until the others
 * have left, at most runtime.busy_limit_s (0: 1800 s), and warns by name. The call waits at most `wait_us` microseconds of it;
 * repeat it until *all_left is 1. penstock_runtime_close waits too; this is for frontends that look at signals. [control] */
PENSTOCK_API penstock_status* penstock_runtime_leave(penstock_runtime* runtime, uint64_t wait_us, uint32_t* all_left);
/* Leaves (penstock_runtime_leave), and ends all threads. Sets and operations must be destroyed before. `runtime` may be null. */
PENSTOCK_API void penstock_runtime_close(penstock_runtime* runtime);
/* Gives the run up: every wait, on this rank and on other ranks, ends with an error that contains `reason`. */
PENSTOCK_API void penstock_abort(penstock_runtime* runtime, penstock_str reason);
/* Success until the run is given up, on any rank; then the reason. For frontends that make no other call for long. [any] */
PENSTOCK_API penstock_status* penstock_runtime_check(penstock_runtime* runtime);

typedef struct penstock_topology {
  uint64_t struct_size;
  uint32_t rank;
  uint32_t size;
  uint32_t local_rank; /* the number of this rank on its host */
  uint32_t local_size;
  uint32_t cross_rank; /* the number of this host */
  uint32_t cross_size; /* the number of hosts */
} penstock_topology;
PENSTOCK_API penstock_status* penstock_runtime_topology(penstock_runtime* runtime, penstock_topology* topology);
/* Reports configuration in force, plugins, plans and counters as JSON. `sink` receives the report in one piece. */
PENSTOCK_API penstock_status* penstock_runtime_report(penstock_runtime* runtime, void* context, penstock_text_sink sink);
/* Starts a Chrome trace of the named stages of each bucket, written to `path`. An empty `path` stops the trace. */
PENSTOCK_API penstock_status* penstock_timeline(penstock_runtime* runtime, penstock_str path);

/* ---- Sets: the gradients of one optimizer or DDP object ---- */
typedef struct penstock_gradient_declaration {
  uint64_t struct_size;
  penstock_str name; /* unique in the set, equal on every rank */
  const int64_t* shape;
  uint64_t n_dims;
  uint32_t dtype;
  int32_t device_type; /* PENSTOCK_DEVICE_CPU or CUDA; devices may differ within a set and between ranks */
  int32_t device_id;
  uint32_t given_bucket; /* with GIVEN_BUCKETS: the bucket of DDP; else PENSTOCK_NO_BUCKET */
  uint32_t owner;        /* with RESULT_AT_OWNER: the world rank, a member of the set, that receives the result */
  uint32_t reserved;
} penstock_gradient_declaration;

/* Abilities of the frontend and properties of the set. The core checks that the scheme fits them. */
enum {
  PENSTOCK_SET_OPTIMIZER_MOMENTUM = 1u << 0, /* the optimizer applies momentum itself */
  PENSTOCK_SET_DEFERRED_UPDATE = 1u << 1,    /* the optimizer can update parameter by parameter in the next forward */
  PENSTOCK_SET_GIVEN_BUCKETS = 1u << 2,      /* the frontend gives the buckets; a plan may only order and route them */
  PENSTOCK_SET_REPORTS_OUTCOME = 1u << 3,      /* step_end reports correctly whether the step was applied */
  PENSTOCK_SET_SUM = 1u << 4,                /* the result is the sum over ranks, not the mean */
  /* Only the `owner` of a gradient needs its result; on other ranks the gradient's storage has no meaning after the step.
   * Gathered payloads and sums of one round travel only to the owner; sums of several rounds reach every rank. */
  PENSTOCK_SET_RESULT_AT_OWNER = 1u << 5,
  PENSTOCK_SET_PREVIOUS_UPDATE = 1u << 6 /* the optimizer can apply the results of the step before */
};

typedef struct penstock_set_declaration {
  uint64_t struct_size;
  penstock_str name; /* unique among the sets of the runtime, equal on every rank */
  const penstock_gradient_declaration* const* gradients; /* [n_gradients], in order of registration (forward) */
  uint64_t n_gradients;
  const uint32_t* ranks; /* [n_ranks] the member ranks (world ranks), ascending; none: all ranks */
  uint64_t n_ranks;
  penstock_str scheme; /* TOML text of a scheme for this set only; empty: the scheme of the runtime */
  uint32_t flags;
  uint32_t reserved;
  penstock_str agreement; /* lines of the frontend's own that must be equal on all ranks, "every = 30\n"; empty: none */
} penstock_set_declaration;

/* Makes a set: resolves rules, makes instances, checks fit and agreement, makes a plan. Collective over the set's ranks. */
PENSTOCK_API penstock_status* penstock_set_create(penstock_runtime* runtime, const penstock_set_declaration* declaration,
                                                  penstock_set** set);
PENSTOCK_API void penstock_set_destroy(penstock_set* set); /* `set` may be null */
/* Sets the learning rate of a gradient, for buckets that start after the call. */
PENSTOCK_API penstock_status* penstock_set_learning_rate(penstock_set* set, uint64_t gradient, double learning_rate);
/* Sets the learning rates of all gradients ([n_gradients], copied). NaN leaves that gradient's learning rate unchanged. */
PENSTOCK_API penstock_status* penstock_set_learning_rates(penstock_set* set, const double* learning_rates,
                                                          uint64_t n_gradients);
/* Sets the loss scale of the gradients' values (above 0; 1: none), between two steps. */
PENSTOCK_API penstock_status* penstock_set_grad_scale(penstock_set* set, double grad_scale);
/* Sets OPTIMIZER_MOMENTUM after the declaration. FAILED_PRECONDITION if a memory of the set applies momentum too. */
PENSTOCK_API penstock_status* penstock_set_momentum(penstock_set* set);
/* Compares `text`, lines of the frontend, with the texts of the set's other ranks, beside the step that is under way or comes
 * next. It does not wait. Every rank of the set makes this call in the same steps. [control] */
PENSTOCK_API penstock_status* penstock_set_agree(penstock_set* set, penstock_str text);
/* Waits for the answer, after the waits for results. MISMATCH on every rank where texts differ, with the first line that does
 * and each rank's version: then every rank ends the step with PENSTOCK_STEP_FORGOTTEN, and the set may go on. [control] */
PENSTOCK_API penstock_status* penstock_set_agreed(penstock_set* set);
/* Returns a checksum, equal on all machines; other bytes have it only by chance. `data` may be null if `size` is 0. [any] */
PENSTOCK_API uint64_t penstock_checksum(const void* data, uint64_t size);
/* Checks that all ranks hold equal parameters, between two steps. `names` and `checksums` [n_parameters] are read during the
 * call, must have one order on all ranks, and may include frozen parameters. If n_parameters is 0 on one rank, it must be 0 on
 * all. Collective over the set's ranks; it waits for ranks like an operation. It sends one small message, and a second one if
 * ranks differ. The report names the first differing parameter and the ranks that differ from the set's first rank, and ends
 * with `advice`, the frontend's words on how to fix it. runtime.check_parameters selects the report: a warning on the set's
 * first rank (default), MISMATCH on every rank, or no check. To be called before the first step, and where *due is 1, between
 * steps: as many as runtime.check_parameters_every says have ended, and nothing was compared since. [application] */
PENSTOCK_API penstock_status* penstock_set_compare_parameters(penstock_set* set, const penstock_str* names,
                                                              const uint64_t* checksums, uint64_t n_parameters,
                                                              penstock_str advice);
PENSTOCK_API penstock_status* penstock_set_comparison_due(penstock_set* set, uint32_t* due);
/* GIVEN_BUCKETS: moves gradient i to bucket `buckets[i]` from the next step on (copied; PENSTOCK_NO_BUCKET: a bucket of its
 * own). Collective, between two steps, with equal buckets on every rank. State stays with its gradients. In a bucket,
 * gradients travel in the order in which the last step handed them in; uncompressed gradients that lie in memory in that order
 * without gaps are summed in place. If the call fails, the set keeps its present buckets on every rank, and goes on. */
PENSTOCK_API penstock_status* penstock_set_given_buckets(penstock_set* set, const uint32_t* buckets,
                                                         uint64_t n_gradients);
/* Reports the times of a forward, in microseconds after its start and without its waits for results: the first use of each
 * gradient's parameter (`first_use_us` [n_gradients], copied; negative: not used), and the duration of the forward. Schedulers
 * use them. A frontend that defers updates calls this once per step. */
PENSTOCK_API penstock_status* penstock_set_forward_times(penstock_set* set, const double* first_use_us,
                                                         uint64_t n_gradients, double forward_us);
/* Hands in gradient `index`, complete in `tensor`, which receives the result. Its storage must stay valid and untouched until
 * the wait for it returns; if that wait fails, it must stay so until the set is destroyed, because other buckets may still be
 * in exchange. On CUDA it is complete when the work queued on `stream` so far has run (null: the legacy default stream); the
 * call does not wait. On the CPU `stream` is ignored. Errors: the gradient is handed in twice in a step, after a wait closed
 * the set, or with another size, dtype or device than declared. DEVICE_ERROR: the device failed, the set is torn and the run
 * is given up. */
PENSTOCK_API penstock_status* penstock_gradient_ready(penstock_set* set, uint64_t index, const penstock_tensor* tensor,
                                                      void* stream);
/* Waits for one gradient or for all gradients. The first wait of a step closes the set: a gradient that is not ready counts as
 * zero, and its result (the other ranks' share) is dropped unless penstock_gradient_absent gave a tensor. */
PENSTOCK_API penstock_status* penstock_wait(penstock_set* set, uint64_t index);
PENSTOCK_API penstock_status* penstock_wait_all(penstock_set* set);
/* Replaces penstock_wait on CUDA: work queued later on `stream` of the gradient's device sees the result and may change the
 * storage. The host waits until the exchange has ended and the device work that writes the result is queued; it waits for the
 * device only if penstock_set_on_result has set a sink. On the CPU it is penstock_wait. It closes the set like any wait. */
PENSTOCK_API penstock_status* penstock_wait_stream(penstock_set* set, uint64_t index, void* stream);
/* Reports that gradient `index` was not computed here: it counts as zero, and `tensor` receives the result; on CUDA after the
 * work queued on the legacy default stream so far. */
PENSTOCK_API penstock_status* penstock_gradient_absent(penstock_set* set, uint64_t index, const penstock_tensor* tensor);
/* Is notified of results, for frontends that do not wait. It is called once for every gradient in each step, after the
 * gradient was handed in or counted as zero: when its result is in its tensor (`error` null), or when the set was torn before
 * that (`error` has the reason and is freed after the call). `gradients` [n_gradients] are indices of the set, valid during
 * the call. Threads: any, also the thread that hands a gradient in, and several at a time; usually the engine's, which waits
 * for `sink` to return. It must not call functions of this header except penstock_error_*. */
typedef void (*penstock_result_sink)(void* context, const uint64_t* gradients, uint64_t n_gradients,
                                     const penstock_status* error);
/* Sets the sink (null: none), between two steps. penstock_step_end and penstock_set_destroy return after its last call. */
PENSTOCK_API penstock_status* penstock_set_on_result(penstock_set* set, void* context, penstock_result_sink sink);
/* Sets *done to 1 if a wait for `index` would return at once, else to 0. */
PENSTOCK_API penstock_status* penstock_poll(penstock_set* set, uint64_t index, uint32_t* done);
enum { PENSTOCK_DEFERS_NOTHING = 0, PENSTOCK_DEFERS_LEGS = 1, PENSTOCK_DEFERS_STEP = 2 };
/* LEGS: the plan in force leaves legs for the next forward. STEP: scheme.apply is "previous". For both penstock_backward_end
 * replaces penstock_wait_all. LEGS: penstock_wait(i) before the first use of parameter i, penstock_flush before other code reads
 * gradients or parameters. STEP: the optimizer uses the results of the step before; all waits before the next step begins. */
PENSTOCK_API penstock_status* penstock_set_defers(penstock_set* set, uint32_t* defers);
/* Ends backward: closes the set, waits for the legs of backward (STEP: for none), launches the other legs. */
PENSTOCK_API penstock_status* penstock_backward_end(penstock_set* set);
PENSTOCK_API penstock_status* penstock_flush(penstock_set* set); /* waits until no leg of any step is under way */

/* ---- The step of an optimizer ----
 *
 * These functions count gradients and waits from the hooks of backward to the optimizer's step, for all frontends:
 *   IDLE, HELD --step_begin--> OPEN --all results waited for--> SYNCHRONIZED --step_end--> IDLE
 *                              OPEN --backward_end--> DEFERRED --all results waited for, which ends it as APPLIED--> IDLE
 * The frontend calls penstock_gradient_came for each gradient that a backward has completed, hands in the gradients that
 * penstock_step_rest lists after backward, and waits for one gradient or all. penstock_set_let_go, _load, _load_shards and
 * _reset lead to IDLE. A frontend that knows when a step ends may omit penstock_step_begin: the phase stays IDLE. */
enum {
  PENSTOCK_PHASE_IDLE = 0,         /* no step has begun */
  PENSTOCK_PHASE_HELD = 1,         /* no step has begun, and gradients of the first step are held */
  PENSTOCK_PHASE_OPEN = 2,         /* gradients may be handed in */
  PENSTOCK_PHASE_SYNCHRONIZED = 3, /* all results were waited for; the outcome is open */
  PENSTOCK_PHASE_DEFERRED = 4,     /* the update is promised; results may still be in exchange */
  PENSTOCK_GRADIENT_ADDS_UP = 0, /* nothing to do: further passes add to the gradient */
  PENSTOCK_GRADIENT_HELD = 1,    /* it must not be sent yet: penstock_step_rest will list it */
  PENSTOCK_GRADIENT_BEGIN = 2,   /* no step is open: begin a step, then hand it in. Several threads may receive this at a time */
  PENSTOCK_GRADIENT_HAND_IN = 3,
  PENSTOCK_GRADIENT_IS_IN = 4,  /* it was handed in */
  PENSTOCK_GRADIENT_REFUSED = 5 /* FAILED_PRECONDITION: it came in this step already */
};
/* Sets the number of backwards in a step (initially 1); counting restarts for gradients that are not complete. `n_beside`
 * gradients are exchanged by the frontend itself: their indices follow the set's indices. [application] */
PENSTOCK_API penstock_status* penstock_set_passes(penstock_set* set, uint32_t passes, uint64_t n_beside);
/* Reports that a backward completed gradient `index`; *todo receives the next action (PENSTOCK_GRADIENT_*). If that is HAND_IN
 * and `tensor` is not null, the call hands it in itself (penstock_gradient_ready) and returns IS_IN. In the first step
 * gradients are held until penstock_step_rest, because ranks may have to agree before a gradient is sent. [any] */
PENSTOCK_API penstock_status* penstock_gradient_came(penstock_set* set, uint64_t index, const penstock_tensor* tensor,
                                                     void* stream, uint32_t* todo);
/* Begins a step. FAILED_PRECONDITION if the step before has not ended. [any] one call at a time */
PENSTOCK_API penstock_status* penstock_step_begin(penstock_set* set);
/* Ends backward: `gradients` (room for all, the n_beside too) receives the gradients that must still be handed in: first the
 * held gradients in the order in which they came, then the missing gradients. All count as handed in now. [application] */
PENSTOCK_API penstock_status* penstock_step_rest(penstock_set* set, uint64_t* gradients, uint64_t* n_gradients);
/* Returns the phase. *came is 1 if a gradient came since the last wait for all results, or penstock_backward_end. [any] */
PENSTOCK_API penstock_status* penstock_set_phase(penstock_set* set, uint32_t* phase, uint32_t* came);
/* Forgets the gradients that came, and gives up a step whose results were not all waited for, which leads to IDLE. It is for a
 * failure after which the set is loaded or reset. [application] */
PENSTOCK_API penstock_status* penstock_step_restart(penstock_set* set);

/* ---- What became of a step's results ----
 *
 * Results are *applied*, or *forgotten*: the user threw them away, or a loss scaler left the step out. If a gradient is
 * forgotten, its states get back, to the bit, the values that they had before the step. A step whose gradients are all
 * forgotten does not count: phase, switches and random numbers stay as they were. (If a bucket delivers nothing, because it is
 * void or a collective refused it, its values are *given back* within the step.) Frontends report what they see; the core
 * derives the outcome, by one rule for all frontends. All ranks of a set must see equal events. [application] */
enum {
  PENSTOCK_OPTIMIZER_BEGINS = 1, /* moments of an optimizer's step */
  PENSTOCK_OPTIMIZER_ENDS = 2,
  PENSTOCK_OPTIMIZER_LEAVES_OUT = 3 /* instead of ENDS: it changed nothing (a loss scaler found an infinity) */
};
/* Reports that the optimizer of the parameters of `gradients` [n_gradients] (indices of the set, copied) is at `moment`. The
 * optimizer applies the results that these gradients hold at BEGINS, and the results of a backward between BEGINS and ENDS (a
 * closure). `gone` [n_gradients] (null: no result is gone): gone[i] is not 0 if gradients[i] does not hold its result at this
 * moment: it never got there, or was thrown away. At ENDS this counts only after a backward since BEGINS. */
PENSTOCK_API penstock_status* penstock_optimizer_step(penstock_set* set, const uint64_t* gradients, const uint8_t* gone,
                                                      uint64_t n_gradients, uint32_t moment);
/* Reports lost results when the next backward comes, or at the end, if no optimizer has stepped since the results came:
 * gone[i] [n_gradients] is not 0 if gradient i no longer holds its result (null, another tensor, zeroed). The report counts
 * for a gradient only if its optimizer is known, and not between BEGINS and ENDS of this optimizer. */
PENSTOCK_API penstock_status* penstock_results_gone(penstock_set* set, const uint8_t* gone, uint64_t n_gradients);
/* Sets *open to 1 if a step has begun and the calls above do not decide the fate of some gradient: the frontend must then
 * inspect its gradients and call penstock_results_gone. 0: there is nothing to inspect. */
PENSTOCK_API penstock_status* penstock_outcome_open(penstock_set* set, uint32_t* open);
enum {
  PENSTOCK_STEP_FORGOTTEN = 0, /* how a step ends */
  PENSTOCK_STEP_APPLIED = 1,
  PENSTOCK_STEP_AS_SEEN = 2 /* decided from penstock_optimizer_step and penstock_results_gone: forgotten if an optimizer left its
                               step out, or the result is gone without a step; applied if an optimizer has stepped, or if the
                               result is still there. Before an optimizer is seen: applied if no bucket was void. */
};
/* Ends the step as `outcome` says, after it has waited for results that no wait has returned. Switches and new plans happen
 * here; if some rank cannot make a plan, no rank uses it: the error has the reason, the step has ended, and the set goes on
 * with its present plan. Under deferral the order is backward_end, all waits, step_end; step_end also waits for legs still in
 * exchange. FAILED_PRECONDITION, and the step has not ended: a gradient is forgotten although `[runtime] forget` is false. */
PENSTOCK_API penstock_status* penstock_step_end(penstock_set* set, uint32_t outcome);
/* Zeroes the set's memories (residuals, momenta, shifts with estimates), on every rank or on none. A step under way ends as
 * forgotten. For a loop that leaves out every step because of values left there; `[runtime] forget_limit` does it by itself. */
PENSTOCK_API penstock_status* penstock_set_let_go(penstock_set* set);
/* Saves the state of a set on this rank: residuals, factors, step index, plan. It flushes first. If a step has not ended, the
 * state before that step is saved, and the step goes on. Refused for a torn set, and in the middle of a step with `[runtime]
 * forget = false`. penstock_set_load restores it if rank and number of ranks are equal. */
PENSTOCK_API penstock_status* penstock_set_save(penstock_set* set, void* context,
                                                void (*sink)(void* context, const void* data, uint64_t size));
PENSTOCK_API penstock_status* penstock_set_load(penstock_set* set, const void* data, uint64_t size);
/* Loads the states that all ranks of a run saved at one step: shards[i], of sizes[i] bytes, is the state of rank i. Collective
 * over the set's ranks; all ranks must give equal shards. If their number is the number of ranks, each rank loads its own
 * shard like penstock_set_load. Otherwise mass and local state change as their plugin declared
 * (penstock_state_declaration.on_resize). PENSTOCK_RESIZE_SUM adds the state of old rank i on new rank i modulo the new number
 * of ranks. Mass, and values that a switch left to add, are also multiplied by the new number over the old number, so that
 * their mean stays unchanged, unless the set sums (PENSTOCK_SET_SUM). Replicated state must be equal in all shards. Soft state
 * comes from one shard, or is dropped if its shape differs here. The plan is made anew; state without a place in it goes to
 * the next gradients (mass) or is dropped. `sink` (or null) receives a report with a line per kind of state.
 * MISMATCH: the shards are not one per rank at one step, differ between ranks, or are of another model or scheme.
 * FAILED_PRECONDITION: a state refuses (EF21's and DIANA's shifts), or the saved route has owners. No rank changes its set. */
PENSTOCK_API penstock_status* penstock_set_load_shards(penstock_set* set, const void* const* shards,
                                                       const uint64_t* sizes, uint64_t n_shards, void* context,
                                                       penstock_text_sink sink);
/* Zeroes all state, between two steps. Collective. The call is refused if the run was given up, as after a failed step. */
PENSTOCK_API penstock_status* penstock_set_reset(penstock_set* set);
/* Reports the set's plan and its counters per gradient and step as JSON. */
PENSTOCK_API penstock_status* penstock_set_report(penstock_set* set, void* context, penstock_text_sink sink);

typedef struct penstock_counters { /* totals since the set was made */
  uint64_t struct_size;
  uint64_t steps; /* steps with an applied gradient */
  uint64_t gradient_bytes;  /* uncompressed bytes of the gradients that took part */
  uint64_t payload_bytes;   /* bytes that this rank handed to the transport */
  uint64_t messages;
  uint64_t void_buckets;    /* buckets abandoned because a gradient is not finite on some rank */
  uint64_t wait_us;         /* time that the application waited */
  uint64_t moved_bytes;     /* payload bytes that this rank sent to other ranks, counted each time they left: a gather sends
                               its bytes to each of P - 1 ranks, an all-reduce sends 2 (P - 1) / P of its bytes */
  uint64_t dense_moved_bytes; /* bytes that all-reduces of these gradients would have sent without compression */
  uint64_t forgotten_steps;   /* not among `steps`; their bytes are in the byte counters */
} penstock_counters;
PENSTOCK_API penstock_status* penstock_set_counters(penstock_set* set, penstock_counters* counters);

/* ---- Operations: named, negotiated, outside any set ---- */
typedef struct penstock_operation_declaration {
  uint64_t struct_size;
  penstock_str name; /* ranks match operations by name, not by order of calls */
  const penstock_tensor* input;
  const penstock_tensor* output; /* ALL_REDUCE, BROADCAST: may equal input. Null if the size is known only at the end */
  const uint64_t* splits; /* ALL_TO_ALL: [group size] first-dimension rows for each rank; null: equal parts */
  uint64_t n_splits;
  const uint32_t* ranks; /* [n_ranks] world ranks that take part; none: all ranks */
  uint64_t n_ranks;
  double prescale; /* factors before (pre) and after (post) the reduction; 1: none */
  double postscale;
  uint32_t pattern;   /* ALL_REDUCE, ALL_GATHER, BROADCAST, ALL_TO_ALL, REDUCE_SCATTER, BARRIER */
  uint32_t reduction; /* PENSTOCK_REDUCE_* */
  uint32_t root;      /* BROADCAST: world rank */
  uint32_t average;   /* 1: divide the sum by the number of ranks */
} penstock_operation_declaration;
/* Starts an operation, which runs when every rank of its group has asked for it. INVALID_ARGUMENT: an operation with this name
 * is still pending. Tensors must stay valid until the operation is done. */
PENSTOCK_API penstock_status* penstock_operation_submit(penstock_runtime* runtime,
                                                        const penstock_operation_declaration* declaration,
                                                        penstock_operation** operation);
/* Starts all or none, in less time, and fills `operations`. The stride of `declarations` is the first element's struct_size. */
PENSTOCK_API penstock_status* penstock_operations_submit(penstock_runtime* runtime,
                                                         const penstock_operation_declaration* declarations,
                                                         uint64_t n_operations, penstock_operation** operations);
/* Sets *done to 1 if a wait for the operation would return at once, else to 0. */
PENSTOCK_API penstock_status* penstock_operation_poll(penstock_operation* operation, uint32_t* done);
/* Waits. MISMATCH on every rank if ranks disagree on pattern, dtype, shape, reduction, scale or root. */
PENSTOCK_API penstock_status* penstock_operation_wait(penstock_operation* operation);
/* Returns the result of an operation without `output`, after a successful wait: its bytes, and the first-dimension rows from
 * each rank. The operation owns the memory. */
PENSTOCK_API penstock_status* penstock_operation_result(penstock_operation* operation, const void** data, uint64_t* bytes,
                                                        const uint64_t** rows, uint64_t* n_rows);
PENSTOCK_API void penstock_operation_release(penstock_operation* operation); /* may be null; waits if pending */

/* ---- Uneven data ---- */
#define PENSTOCK_NO_RANK 0xFFFFFFFFu

/* Joins: the data of this rank is at an end. It stays until every rank has joined; then all go on normally. Until then it adds
 * zeros to named sums of other ranks, and takes part in steps of its sets, whose steps, plans and switches follow the others;
 * means are still divided by the number of all ranks. Its memories send, as for absent gradients; results are dropped.
 * It waits up to `patience_us` microseconds (0: no limit). *last_rank is the last rank that joined, equal on all ranks, or
 * PENSTOCK_NO_RANK if the wait was too short: the rank has joined nevertheless, and must call this again to keep taking part.
 * While a rank has joined, all other named operations (of another pattern or reduction) fail with FAILED_PRECONDITION on the
 * ranks that ask for them, once every rank that has not joined has asked. Sets are made, loaded and reset by all ranks.
 * FAILED_PRECONDITION: a set is in the middle of a step, or another thread is joining. PEER_FAILED: a rank failed or left.
 * Threads: no other call on a set of the runtime may run during this call. */
PENSTOCK_API penstock_status* penstock_join(penstock_runtime* runtime, uint64_t patience_us, uint32_t* last_rank);

/* ---- Ranks that train apart: DiLoCo's outer step (algorithm 1); arrays: [count] of `dtype`, in host memory ---- */
typedef struct penstock_outer_step {
  uint64_t struct_size;
  void* anchor;
  const void* drift; /* the mean of the ranks */
  void* momentum;    /* null: none */
  void* values;      /* the parameter itself; null: it stays */
  uint64_t count;
  double lr;
  double factor;     /* of the momentum */
  double mix;        /* the weight of the parameter itself, from 0 to below 1 */
  uint32_t dtype;    /* FLOAT32 or FLOAT64; else INVALID_ARGUMENT */
  uint32_t nesterov; /* 1: with Nesterov's momentum */
} penstock_outer_step;
/* momentum <- factor momentum + drift; g = momentum, with Nesterov drift + factor momentum, without a momentum drift;
 * anchor <- anchor - lr g; values <- mix values + (1 - mix) anchor. Each product and sum is rounded, so bits are equal on every
 * processor. Returns when it is done. [any] */
PENSTOCK_API penstock_status* penstock_take_outer_step(const penstock_outer_step* step);

#ifdef __cplusplus
}
#endif
#endif /* PENSTOCK_RUNTIME_H */
