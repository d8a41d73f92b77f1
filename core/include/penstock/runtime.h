/* The C door for frontends. The same growth rules as the plugin ABI (penstock/base.h) hold here.
 *
 * Threads: penstock_gradient_ready and penstock_abort may be called from any thread; the other calls that take a set
 * from one thread per set at a time; operations from any thread. Waiting calls block the caller only.
 * Errors: a function returns null or a status; read it with penstock_error_* and free it with penstock_error_free. */
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
PENSTOCK_API penstock_str penstock_error_message(const penstock_status* error); /* lives as long as the error */
PENSTOCK_API void penstock_error_free(penstock_status* error);
/* An error of the frontend's own (`code` from base.h, any other counts as INTERNAL; `message` copied), for tables that it
 * lends, whose functions return one: whoever called takes it over. Null for OK. [any] */
PENSTOCK_API penstock_status* penstock_error_make(uint32_t code, penstock_str message);

/* Version of the product, "major.minor.patch", and of the ABI. */
PENSTOCK_API penstock_str penstock_version(void);
PENSTOCK_API uint32_t penstock_abi_version(void); /* major << 16 | minor */

/* ---- Runtime ---- */

/* Gets a text, in one piece. */
typedef void (*penstock_text_sink)(void* context, penstock_str text);

/* Hands `text` to all ranks and gets theirs: `sink` gets them one by one in the order of ranks, within the call, and then
 * 0 (PENSTOCK_OK) is returned. Otherwise a code from base.h, and `sink` has got the reason alone. It waits `timeout_us`
 * microseconds for ranks that have not come, and then returns PENSTOCK_DEADLINE_EXCEEDED with their names; every
 * `warning_us` until then (0: never) it tells the user who they are. Collective. */
typedef uint32_t (*penstock_text_gather)(void* context, penstock_str text, uint64_t timeout_us, uint64_t warning_us,
                                         void* sink_context, penstock_text_sink sink);

/* Who this process is, where the frontend knows it from ranks that have met already, such as torch's default group. */
typedef struct penstock_introduction {
  uint64_t struct_size;
  penstock_str by; /* who says so, for messages */
  uint32_t rank;
  uint32_t size;
  void* context;
  penstock_text_gather gather; /* [application] called within penstock_runtime_open only */
} penstock_introduction;

typedef struct penstock_runtime_options {
  uint64_t struct_size;
  penstock_str config_path; /* TOML file; empty: PENSTOCK_CONFIG, or else the defaults (no compression, auto, fusion) */
  penstock_str config_text; /* TOML text instead of a file; relative paths in it count from the working directory */
  penstock_str frontend;    /* for messages, for example "penstock.torch 0.1.0" */
  const penstock_collective* lent_collective; /* a transport of the frontend's own, used for collective = "lent" */
  void* lent_instance;
  const penstock_introduction* introduction; /* null: who this process is, its launcher's variables say, or the transport */
} penstock_runtime_options;

/* Loads the configuration and its plugins, meets the other ranks, compares configuration and plugins with theirs. */
PENSTOCK_API penstock_status* penstock_runtime_open(const penstock_runtime_options* options, penstock_runtime** runtime);
/* Ends all threads. Sets and operations must be gone. Null is fine. */
PENSTOCK_API void penstock_runtime_close(penstock_runtime* runtime);
/* Gives up: every wait of this rank and of the others ends in an error that carries `reason`. */
PENSTOCK_API void penstock_abort(penstock_runtime* runtime, penstock_str reason);

typedef struct penstock_topology {
  uint64_t struct_size;
  uint32_t rank;
  uint32_t size;
  uint32_t local_rank; /* among the ranks of this host */
  uint32_t local_size;
  uint32_t cross_rank; /* this host's number */
  uint32_t cross_size; /* hosts */
} penstock_topology;
PENSTOCK_API penstock_status* penstock_runtime_topology(penstock_runtime* runtime, penstock_topology* topology);

/* JSON for people and programs: configuration in force, plugins, plans, counters. `sink` gets it in one piece. */
PENSTOCK_API penstock_status* penstock_runtime_report(penstock_runtime* runtime, void* context, penstock_text_sink sink);

/* Starts (or with an empty path stops) writing a Chrome trace of named stages per bucket to `path`. */
PENSTOCK_API penstock_status* penstock_timeline(penstock_runtime* runtime, penstock_str path);

/* ---- Sets: the gradients of one optimizer or DDP object ---- */

typedef struct penstock_gradient_declaration {
  uint64_t struct_size;
  penstock_str name; /* unique in the set, the same on every rank */
  const int64_t* shape;
  uint64_t n_dims;
  uint32_t dtype;
  int32_t device_type; /* PENSTOCK_DEVICE_CPU, or CUDA; a set may have several, each rank its own */
  int32_t device_id;
  uint32_t given_bucket; /* with GIVEN_BUCKETS: DDP's bucket; else PENSTOCK_NO_BUCKET */
  uint32_t owner;        /* with RESULT_AT_OWNER: the world rank, one of the set's, that the result is for */
  uint32_t reserved;
} penstock_gradient_declaration;

/* What the frontend can do and what it gives: it takes part in the fit check. */
enum {
  PENSTOCK_SET_OPTIMIZER_MOMENTUM = 1u << 0, /* the optimizer applies momentum itself */
  PENSTOCK_SET_DEFERRED_UPDATE = 1u << 1,    /* it can apply the update parameter by parameter in the next forward */
  PENSTOCK_SET_GIVEN_BUCKETS = 1u << 2,      /* gradients come in buckets that may only be ordered and routed */
  PENSTOCK_SET_TELLS_OUTCOME = 1u << 3,      /* step_end says truly whether the step was applied */
  PENSTOCK_SET_SUM = 1u << 4,                /* the result is the sum over ranks, not the mean */
  /* Each result is wanted by its `owner` alone; elsewhere the gradient's storage holds nothing of meaning after the step.
   * What is gathered goes to the owner and no further, which is the first half of route `shard`; sums reach every rank. */
  PENSTOCK_SET_RESULT_AT_OWNER = 1u << 5
};

typedef struct penstock_set_declaration {
  uint64_t struct_size;
  penstock_str name; /* unique among the sets of the runtime, the same on every rank */
  const penstock_gradient_declaration* const* gradients; /* [n_gradients], in order of registration (forward) */
  uint64_t n_gradients;
  const uint32_t* ranks; /* [n_ranks] world ranks that take part, ascending; none: all */
  uint64_t n_ranks;
  penstock_str scheme; /* TOML text of a scheme for this set alone, instead of the runtime's; empty: the runtime's */
  uint32_t flags;
  uint32_t reserved;
} penstock_set_declaration;

/* Collective over the set's ranks: resolves rules, makes instances, checks fit and agreement, plans. */
PENSTOCK_API penstock_status* penstock_set_create(penstock_runtime* runtime, const penstock_set_declaration* declaration,
                                                  penstock_set** set);
PENSTOCK_API void penstock_set_destroy(penstock_set* set); /* null is fine */

/* The learning rate of a gradient from the next step on, and the loss scale its values carry (1 for none). */
PENSTOCK_API penstock_status* penstock_set_learning_rate(penstock_set* set, uint64_t gradient, double learning_rate);
/* The same of all gradients: `learning_rates` [n_gradients], copied; what is no number leaves that of its gradient. */
PENSTOCK_API penstock_status* penstock_set_learning_rates(penstock_set* set, const double* learning_rates,
                                                          uint64_t n_gradients);
PENSTOCK_API penstock_status* penstock_set_grad_scale(penstock_set* set, double grad_scale);
/* From now on the optimizer applies momentum itself, which it did not when the set was made (OPTIMIZER_MOMENTUM).
 * FAILED_PRECONDITION where a memory of the set applies it too. */
PENSTOCK_API penstock_status* penstock_set_momentum(penstock_set* set);

/* A number that other bytes would give by chance only, the same on every machine. `data` may be null where `size` is 0. [any] */
PENSTOCK_API uint64_t penstock_checksum(const void* data, uint64_t size);
/* Between two steps, best before the first: do all ranks hold the same parameters? `names` and `checksums` [n_parameters], read
 * during the call, in one order on all ranks; also parameters that are not trained. Without any this rank has nothing to
 * compare, and so must the others. Collective over the set's ranks; waits for them as an operation does. One small message;
 * where that differs a second one tells which parameter does: the first that differs, the ranks that differ from the set's
 * first, and `advice`, a sentence that says what to do in the words of the frontend. runtime.check_parameters says what that is:
 * by default a warning of the set's first rank, MISMATCH on every rank, or not looked for. */
PENSTOCK_API penstock_status* penstock_set_compare_parameters(penstock_set* set, const penstock_str* names,
                                                              const uint64_t* checksums, uint64_t n_parameters,
                                                              penstock_str advice);

/* GIVEN_BUCKETS: from the next step on gradient i belongs to bucket `buckets[i]` (copied; PENSTOCK_NO_BUCKET for one of its
 * own). Between two steps, with the same buckets on every rank; collective. State stays with its gradients. Within a bucket
 * gradients travel in the order in which the last step handed them in: those that nothing compresses are summed in place
 * where they lie in memory in that order, without gaps. Where it fails the set keeps the buckets that it has, on every
 * rank, and goes on. */
PENSTOCK_API penstock_status* penstock_set_given_buckets(penstock_set* set, const uint32_t* buckets,
                                                         uint64_t n_gradients);

/* Of a forward, in microseconds after its start and without what it waited for results: when it first needed the
 * parameter of each gradient (`first_use_us` [n_gradients], copied; negative where it did not), and how long it took.
 * For schedulers; a frontend that defers updates tells this once a step. */
PENSTOCK_API penstock_status* penstock_set_forward_times(penstock_set* set, const double* first_use_us,
                                                         uint64_t n_gradients, double forward_us);

/* Gradient `index` is complete in `tensor`, whose storage stays valid and untouched until the wait for it returns: the
 * result goes there. Where that wait fails, other buckets may still be on their way: then until the set is destroyed.
 * On CUDA it is complete when what is queued on `stream` so far has run (null: the legacy default stream); the call waits
 * for nothing. On the CPU `stream` means nothing. Errors: twice in one step, after the set was closed by a wait, another
 * shape, dtype or device than declared. DEVICE_ERROR: the device has failed, the set is torn and the run is given up. */
PENSTOCK_API penstock_status* penstock_gradient_ready(penstock_set* set, uint64_t index, const penstock_tensor* tensor,
                                                      void* stream);
/* Waits for one gradient or for all. The first wait of a step closes the set: what is not ready counts as zero, and its
 * result (the other ranks' share) is dropped unless a tensor was given by penstock_gradient_absent. */
PENSTOCK_API penstock_status* penstock_wait(penstock_set* set, uint64_t index);
PENSTOCK_API penstock_status* penstock_wait_all(penstock_set* set);
/* On CUDA, instead of penstock_wait: work queued on `stream` of the gradient's device from now on sees the result, and may
 * change the storage. The host waits until the exchange has ended and what leaves the result there is queued
 * (where results are told by penstock_set_on_result, until it has ended), not for the device. On the CPU it is
 * penstock_wait. Closes the set like any wait. */
PENSTOCK_API penstock_status* penstock_wait_stream(penstock_set* set, uint64_t index, void* stream);
/* Gradient `index` was not computed here: it counts as zero, and the result goes to `tensor`; on CUDA after what is queued
 * on the legacy default stream so far. */
PENSTOCK_API penstock_status* penstock_gradient_absent(penstock_set* set, uint64_t index, const penstock_tensor* tensor);
/* `sink` is called once for every gradient in each step, after it was handed in or counted as zero: when its result lies in
 * its tensor (`error` null), or when the set was torn before it came (`error` says why, and is gone after the call).
 * `gradients` [n_gradients] are indices of the set, valid during the call. For frontends that do not wait.
 * Threads: any, also the one that hands a gradient in, and several at a time; mostly the engine's, which goes on when
 * `sink` returns. It must not call anything of this header but penstock_error_*. */
typedef void (*penstock_result_sink)(void* context, const uint64_t* gradients, uint64_t n_gradients,
                                     const penstock_status* error);
/* Between two steps; null: nobody is told. penstock_step_end, and the set's end, come after the last call of a step. */
PENSTOCK_API penstock_status* penstock_set_on_result(penstock_set* set, void* context, penstock_result_sink sink);
/* *done is 1 when a wait for `index` would return at once. */
PENSTOCK_API penstock_status* penstock_poll(penstock_set* set, uint64_t index, uint32_t* done);

/* 1 when the plan in force leaves legs for the next forward: then the frontend, instead of penstock_wait_all, calls
 * penstock_backward_end, then penstock_wait(i) before the first use of parameter i, and penstock_flush before
 * anything that looks at gradients or parameters from outside. */
PENSTOCK_API penstock_status* penstock_set_defers(penstock_set* set, uint32_t* defers);
/* DEFERRED_UPDATE: backward is over. Closes the set, waits for the legs that belong to backward, launches the others. */
PENSTOCK_API penstock_status* penstock_backward_end(penstock_set* set);
/* Waits until no leg of any step is under way. */
PENSTOCK_API penstock_status* penstock_flush(penstock_set* set);

/* ---- The step of an optimizer ----
 *
 * What every frontend does between the hooks of backward and the optimizer's step, so that none keeps books of its own:
 *   IDLE, HELD --step_begin--> OPEN --all results waited for--> SYNCHRONIZED --step_end--> IDLE
 *                              OPEN --backward_end--> DEFERRED --all results waited for, which ends it as APPLIED--> IDLE
 * It asks penstock_gradient_came about each gradient that a backward has completed, hands in what penstock_step_rest names
 * when backward is over, and waits for each gradient or for all. penstock_set_let_go, _load, _load_shards and _reset lead to
 * IDLE. Without penstock_step_begin waits and ends are what they are above, for frontends that know when a step is over. */
enum {
  PENSTOCK_PHASE_IDLE = 0,         /* no step has begun */
  PENSTOCK_PHASE_HELD = 1,         /* the same, and gradients of the first step are held */
  PENSTOCK_PHASE_OPEN = 2,         /* gradients may be handed in */
  PENSTOCK_PHASE_SYNCHRONIZED = 3, /* all results were waited for; what becomes of them is open */
  PENSTOCK_PHASE_DEFERRED = 4,     /* the update is promised; results may still be on their way */

  PENSTOCK_GRADIENT_ADDS_UP = 0, /* nothing to do: further passes add to it */
  PENSTOCK_GRADIENT_HELD = 1,    /* nothing may leave yet: penstock_step_rest will name it */
  PENSTOCK_GRADIENT_BEGIN = 2,   /* no step is open: begin one, then hand it in. Several threads may be told so at a time */
  PENSTOCK_GRADIENT_HAND_IN = 3,
  PENSTOCK_GRADIENT_IS_IN = 4,  /* it was handed in */
  PENSTOCK_GRADIENT_REFUSED = 5 /* FAILED_PRECONDITION: it has come in this step already */
};

/* `passes` backwards make a step (1 unless this is called); counting starts again for gradients that have not come.
 * `n_beside` gradients are exchanged by the frontend itself: their indices come after those of the set. [application] */
PENSTOCK_API penstock_status* penstock_set_passes(penstock_set* set, uint32_t passes, uint64_t n_beside);
/* A backward has completed gradient `index`: what to do with it (PENSTOCK_GRADIENT_*). Where that is to hand it in and there is
 * a `tensor`, penstock_gradient_ready is called with it (IS_IN). In the first step gradients are held until
 * penstock_step_rest, for the ranks may have something to agree on before anything leaves. [any] */
PENSTOCK_API penstock_status* penstock_gradient_came(penstock_set* set, uint64_t index, const penstock_tensor* tensor,
                                                     void* stream, uint32_t* todo);
/* FAILED_PRECONDITION where the step before has not ended. [any] one call at a time */
PENSTOCK_API penstock_status* penstock_step_begin(penstock_set* set);
/* Backward is over: `gradients` (with room for all) gets what is still to be handed in, first what is held, in the order in
 * which it came, then what did not come. All count as handed in from now on. [application] */
PENSTOCK_API penstock_status* penstock_step_rest(penstock_set* set, uint64_t* gradients, uint64_t* n_gradients);
/* *came is 1 when a gradient came since results were last waited for. [any] */
PENSTOCK_API penstock_status* penstock_set_phase(penstock_set* set, uint32_t* phase, uint32_t* came);
/* What came is forgotten, and a step whose results were not all waited for is given up, which leads to IDLE: after a failure,
 * where the set is loaded or reset next. [application] */
PENSTOCK_API penstock_status* penstock_step_restart(penstock_set* set);

/* ---- What became of a step's results ----
 *
 * Results are *applied*, or *forgotten*: the user threw them away, or a loss scaler left the step out. Of what is forgotten
 * every state is, to the bit, what it was before the step, gradient by gradient; a step whose gradients are all forgotten does
 * not count: phase, switches and random numbers stand where they were. (What a bucket could not deliver, for it was void or a
 * collective refused it, is *given back* within the step.) Frontends tell what they see; what follows from it is decided here,
 * the same for all of them. All ranks of a set see the same. [application] */

/* Moments of an optimizer's step. */
enum {
  PENSTOCK_OPTIMIZER_BEGINS = 1,
  PENSTOCK_OPTIMIZER_ENDS = 2,
  PENSTOCK_OPTIMIZER_LEAVES_OUT = 3 /* in place of ENDS: it has changed nothing (a loss scaler found an infinity) */
};

/* An optimizer that changes the parameters of `gradients` [n_gradients] (indices of the set, copied) is at `moment`. What backward
 * has left in these gradients before, or between BEGINS and ENDS (a closure), is applied. `gone` [n_gradients], or null for
 * none: not 0 where the gradient does not hold its result at BEGINS, or at ENDS where backward came between: it never got there,
 * or was thrown away before. */
PENSTOCK_API penstock_status* penstock_optimizer_step(penstock_set* set, const uint64_t* gradients, const uint8_t* gone,
                                                      uint64_t n_gradients, uint32_t moment);
/* What the frontend finds when the next backward comes, or at the end, and no optimizer has stepped since the results came:
 * gone[i] [n_gradients] is not 0 where gradient i holds its result no more (null, another tensor, zeroed). It counts for
 * gradients whose optimizer is known, outside its step. */
PENSTOCK_API penstock_status* penstock_results_gone(penstock_set* set, const uint8_t* gone, uint64_t n_gradients);
/* *open is 1 for a step that has begun, of which some gradient's fate is not known from the above: look, and call
 * penstock_results_gone. 0 where there is nothing to look for. */
PENSTOCK_API penstock_status* penstock_outcome_open(penstock_set* set, uint32_t* open);

/* How a step ends. */
enum {
  PENSTOCK_STEP_FORGOTTEN = 0,
  PENSTOCK_STEP_APPLIED = 1,
  PENSTOCK_STEP_AS_SEEN = 2 /* decided from penstock_optimizer_step and penstock_results_gone: forgotten where an optimizer left its
                               step out, or the result is gone without one; applied where an optimizer has stepped, and where
                               the result is still there. Before any optimizer was seen: applied where no bucket was void. */
};

/* Ends the step as `outcome` says, and waits for results that nobody has waited for yet, by any wait. Switches and new plans
 * happen here; one that some rank cannot make is made on none: the error says why, the step has ended, and the set goes on with
 * the plan that it has. Under deferral the order is backward_end, all waits, step_end; what is still under way then is
 * waited for. FAILED_PRECONDITION, and the step has not ended: something is forgotten although `[runtime] forget` is false. */
PENSTOCK_API penstock_status* penstock_step_end(penstock_set* set, uint32_t outcome);

/* Zeroes what the memories of the set keep, on every rank or on none: residuals, momenta, shifts with their estimates. A step
 * under way ends as forgotten. For a loop that leaves out every step because of what an earlier one has left there;
 * `[runtime] forget_limit` does it by itself. */
PENSTOCK_API penstock_status* penstock_set_let_go(penstock_set* set);

/* The state of a set on this rank: residuals, factors, step index, plan. Flushes first. Of a step that has not ended nothing is
 * saved: that is the state before it, and the step goes on. Refused for a torn set, and in the middle of a step with
 * `[runtime] forget = false`. */
PENSTOCK_API penstock_status* penstock_set_save(penstock_set* set, void* context,
                                                void (*sink)(void* context, const void* data, uint64_t size));
PENSTOCK_API penstock_status* penstock_set_load(penstock_set* set, const void* data, uint64_t size);
/* The same from what every rank of a run has saved at one step: shards[i], of sizes[i] bytes, is that of rank i. Collective
 * over the set's ranks, all with the same shards. By as many ranks it loads this rank's own, as penstock_set_load does.
 * By another number: mass and local state becomes what its plugin declared (penstock_state_declaration.on_resize). What is
 * summed goes from old rank i to new rank i modulo their number; mass, and what a switch had left to add, times the new
 * number of ranks over the old one, unless the set sums (PENSTOCK_SET_SUM): what is owed to the parameters stays. Replicated
 * state must be equal in all shards. Soft state comes from one, or is dropped where it has another shape here. The plan is
 * made anew, and what it has no place for is handed over to the next gradients (mass) or dropped. `sink` (null: nobody)
 * hears what became of each, a line per kind.
 * MISMATCH: not one shard of each rank of one step, other shards than on other ranks, or of another model or scheme.
 * FAILED_PRECONDITION: a state that refuses (EF21's and DIANA's shifts), or a saved route with owners. Then the set is as it
 * was, on every rank. */
PENSTOCK_API penstock_status* penstock_set_load_shards(penstock_set* set, const void* const* shards,
                                                       const uint64_t* sizes, uint64_t n_shards, void* context,
                                                       penstock_text_sink sink);
/* Zeroes all state, between two steps. Collective. Refused when the run was given up, as after a step that failed. */
PENSTOCK_API penstock_status* penstock_set_reset(penstock_set* set);

/* JSON: the set's plan, counters per gradient and step. */
PENSTOCK_API penstock_status* penstock_set_report(penstock_set* set, void* context, penstock_text_sink sink);

/* Totals since the set was made. */
typedef struct penstock_counters {
  uint64_t struct_size;
  uint64_t steps; /* that count: some gradient was applied */
  uint64_t gradient_bytes;  /* uncompressed bytes of the gradients that took part */
  uint64_t payload_bytes;   /* bytes handed to the transport by this rank */
  uint64_t messages;
  uint64_t void_buckets;    /* buckets given up for a non-finite gradient on some rank */
  uint64_t wait_us;         /* time the application waited */
  uint64_t moved_bytes;     /* of payload_bytes, what this rank sent to other ranks, as often as it left: a gather sends its
                               bytes to each of P - 1 ranks, an all-reduce 2 (P - 1) / P of them */
  uint64_t dense_moved_bytes; /* what all-reduces of the same gradients without compression would have sent */
  uint64_t forgotten_steps;   /* not among `steps`; their bytes are among the others */
} penstock_counters;
PENSTOCK_API penstock_status* penstock_set_counters(penstock_set* set, penstock_counters* counters);

/* ---- Operations: named, negotiated, outside any set ---- */

typedef struct penstock_operation_declaration {
  uint64_t struct_size;
  penstock_str name; /* matched across ranks by name, not by order of calls */
  const penstock_tensor* input;
  const penstock_tensor* output; /* ALL_REDUCE, BROADCAST: may equal input. Null where the size is only known at the end */
  const uint64_t* splits; /* ALL_TO_ALL: [group size] first-dimension rows for each rank; null: equal parts */
  uint64_t n_splits;
  const uint32_t* ranks; /* [n_ranks] world ranks that take part; none: all */
  uint64_t n_ranks;
  double prescale; /* 1 for none; applied before and after the reduction */
  double postscale;
  uint32_t pattern;   /* ALL_REDUCE, ALL_GATHER, BROADCAST, ALL_TO_ALL, REDUCE_SCATTER, BARRIER */
  uint32_t reduction; /* PENSTOCK_REDUCE_* */
  uint32_t root;      /* BROADCAST: world rank */
  uint32_t average;   /* 1: divide the sum by the number of ranks */
} penstock_operation_declaration;

/* Starts an operation; it is carried out when every rank of its group has asked for it. A second one of the same name
 * while the first is pending: INVALID_ARGUMENT. Tensors stay valid until it is done. */
PENSTOCK_API penstock_status* penstock_operation_submit(penstock_runtime* runtime,
                                                        const penstock_operation_declaration* declaration,
                                                        penstock_operation** operation);
/* The same for `n_operations` of them, all or none, and in less time: `declarations` lie behind each other, each as large
 * as the first says; `operations` [n_operations] is filled on success. */
PENSTOCK_API penstock_status* penstock_operations_submit(penstock_runtime* runtime,
                                                         const penstock_operation_declaration* declarations,
                                                         uint64_t n_operations, penstock_operation** operations);
PENSTOCK_API penstock_status* penstock_operation_poll(penstock_operation* operation, uint32_t* done);
/* Waits. MISMATCH on every rank when ranks disagree on pattern, dtype, shape, reduction, scale or root. */
PENSTOCK_API penstock_status* penstock_operation_wait(penstock_operation* operation);
/* After a successful wait, for operations without `output`: bytes, and the first-dimension rows from each rank. The
 * memory belongs to the operation. */
PENSTOCK_API penstock_status* penstock_operation_result(penstock_operation* operation, const void** data, uint64_t* bytes,
                                                        const uint64_t** rows, uint64_t* n_rows);
PENSTOCK_API void penstock_operation_release(penstock_operation* operation); /* null is fine; waits if pending */

/* ---- Uneven data ---- */

#define PENSTOCK_NO_RANK 0xFFFFFFFFu

/* This rank's data is at an end, others may have more: it stays until every rank has joined, and then all go on as before.
 * Until then it takes part with zeros in sums that the others ask for by name, and in the steps of its sets, whose steps,
 * plans and switches stay those of the others; means are still divided by the number of all ranks. What memories keep
 * here goes out in these steps as it does where a gradient is absent; results are dropped.
 * Waits up to `patience_us` (0: without an end). *last_rank: the rank that joined last, the same on all; PENSTOCK_NO_RANK
 * when the wait was too short: the rank has joined all the same, and calls this again to go on taking part.
 * While a rank has joined all other named operations (of another pattern or reduction) fail on the ranks that ask for
 * them, once those that have not joined have asked, with FAILED_PRECONDITION; sets are made, loaded and reset by all.
 * FAILED_PRECONDITION: a set is in the middle of a step. PEER_FAILED: a rank failed, or has left.
 * Threads: no other call on a set of the runtime at the same time. */
PENSTOCK_API penstock_status* penstock_join(penstock_runtime* runtime, uint64_t patience_us, uint32_t* last_rank);

#ifdef __cplusplus
}
#endif
#endif /* PENSTOCK_RUNTIME_H */
