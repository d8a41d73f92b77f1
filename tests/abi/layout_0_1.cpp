/* Layout lock of ABI 0.1: offsets, sizes, exact types and values, checked by the compiler.
 *
 * Written by tools/ci/make_layout_lock.py when this minor version was opened. Never edited: a line that no longer
 * compiles means that plugins already built would break. Append a field, take a new name, or open a new major. */
/* clang-format off */
#include <penstock/plugin.h>
#include <penstock/runtime.h>

#include <type_traits>

#define LOCK_THAT(condition, text) static_assert(condition, text)
#define LOCK_TYPE(expression, type) static_assert(std::is_same<decltype(expression), type>::value, #expression)
#define LOCK_FIELD(owner, field) owner::field

/* A struct of this size that grows at its end only. */
#define LOCK_GROWING(type, size) \
  LOCK_THAT(PENSTOCK_ABI_MINOR == 1 ? sizeof(type) == (size) : sizeof(type) >= (size), #type)
/* A struct that others hold by value, or without struct_size: it never grows. */
#define LOCK_FIXED(type, size) LOCK_THAT(sizeof(type) == (size), #type)
#define LOCK_AT(owner, field, offset) \
  LOCK_THAT(offsetof(owner, field) == (offset), #owner "." #field); \
  LOCK_TYPE(LOCK_FIELD(owner, field), lock_##owner##_##field)
#define LOCK_VALUE(constant, value) LOCK_THAT((constant) == (value), #constant)

LOCK_THAT(PENSTOCK_ABI_MINOR >= 1, "the minor version never goes back");

/* ---- base.h ---- */
LOCK_VALUE(PENSTOCK_ABI_MAJOR, 0);
LOCK_VALUE(PENSTOCK_OK, 0);
LOCK_VALUE(PENSTOCK_INVALID_ARGUMENT, 1);
LOCK_VALUE(PENSTOCK_FAILED_PRECONDITION, 2);
LOCK_VALUE(PENSTOCK_NOT_FOUND, 3);
LOCK_VALUE(PENSTOCK_UNIMPLEMENTED, 4);
LOCK_VALUE(PENSTOCK_INVALID_PAYLOAD, 5);
LOCK_VALUE(PENSTOCK_OUT_OF_MEMORY, 6);
LOCK_VALUE(PENSTOCK_DEADLINE_EXCEEDED, 7);
LOCK_VALUE(PENSTOCK_PEER_FAILED, 8);
LOCK_VALUE(PENSTOCK_MISMATCH, 9);
LOCK_VALUE(PENSTOCK_ABORTED, 10);
LOCK_VALUE(PENSTOCK_DEVICE_ERROR, 11);
LOCK_VALUE(PENSTOCK_INTERNAL, 12);
LOCK_VALUE(PENSTOCK_FLOAT32, 1);
LOCK_VALUE(PENSTOCK_FLOAT16, 2);
LOCK_VALUE(PENSTOCK_BFLOAT16, 3);
LOCK_VALUE(PENSTOCK_FLOAT64, 4);
LOCK_VALUE(PENSTOCK_INT8, 5);
LOCK_VALUE(PENSTOCK_UINT8, 6);
LOCK_VALUE(PENSTOCK_INT16, 7);
LOCK_VALUE(PENSTOCK_UINT16, 8);
LOCK_VALUE(PENSTOCK_INT32, 9);
LOCK_VALUE(PENSTOCK_UINT32, 10);
LOCK_VALUE(PENSTOCK_INT64, 11);
LOCK_VALUE(PENSTOCK_UINT64, 12);
LOCK_VALUE(PENSTOCK_BOOL, 13);
LOCK_VALUE(PENSTOCK_DEVICE_CPU, 1);
LOCK_VALUE(PENSTOCK_DEVICE_CUDA, 2);

LOCK_FIXED(penstock_str, 16);
typedef const char* lock_penstock_str_data;
LOCK_AT(penstock_str, data, 0);
typedef uint64_t lock_penstock_str_size;
LOCK_AT(penstock_str, size, 8);

LOCK_FIXED(penstock_tensor, 64);
typedef uint64_t lock_penstock_tensor_struct_size;
LOCK_AT(penstock_tensor, struct_size, 0);
typedef void* lock_penstock_tensor_data;
LOCK_AT(penstock_tensor, data, 8);
typedef const int64_t* lock_penstock_tensor_shape;
LOCK_AT(penstock_tensor, shape, 16);
typedef const int64_t* lock_penstock_tensor_strides;
LOCK_AT(penstock_tensor, strides, 24);
typedef uint64_t lock_penstock_tensor_n_dims;
LOCK_AT(penstock_tensor, n_dims, 32);
typedef uint64_t lock_penstock_tensor_numel;
LOCK_AT(penstock_tensor, numel, 40);
typedef uint32_t lock_penstock_tensor_dtype;
LOCK_AT(penstock_tensor, dtype, 48);
typedef int32_t lock_penstock_tensor_device_type;
LOCK_AT(penstock_tensor, device_type, 52);
typedef int32_t lock_penstock_tensor_device_id;
LOCK_AT(penstock_tensor, device_id, 56);
typedef uint32_t lock_penstock_tensor_flags;
LOCK_AT(penstock_tensor, flags, 60);

LOCK_GROWING(penstock_exec, 40);
typedef uint64_t lock_penstock_exec_struct_size;
LOCK_AT(penstock_exec, struct_size, 0);
typedef void* lock_penstock_exec_stream;
LOCK_AT(penstock_exec, stream, 8);
typedef void* lock_penstock_exec_scratch;
LOCK_AT(penstock_exec, scratch, 16);
typedef uint64_t lock_penstock_exec_scratch_bytes;
LOCK_AT(penstock_exec, scratch_bytes, 24);
typedef int32_t lock_penstock_exec_device_type;
LOCK_AT(penstock_exec, device_type, 32);
typedef int32_t lock_penstock_exec_device_id;
LOCK_AT(penstock_exec, device_id, 36);

LOCK_GROWING(penstock_step, 48);
typedef uint64_t lock_penstock_step_struct_size;
LOCK_AT(penstock_step, struct_size, 0);
typedef uint64_t lock_penstock_step_index;
LOCK_AT(penstock_step, index, 8);
typedef uint64_t lock_penstock_step_seed;
LOCK_AT(penstock_step, seed, 16);
typedef double lock_penstock_step_grad_scale;
LOCK_AT(penstock_step, grad_scale, 24);
typedef uint32_t lock_penstock_step_phase;
LOCK_AT(penstock_step, phase, 32);
typedef uint32_t lock_penstock_step_rank;
LOCK_AT(penstock_step, rank, 36);
typedef uint32_t lock_penstock_step_world;
LOCK_AT(penstock_step, world, 40);
typedef uint32_t lock_penstock_step_flags;
LOCK_AT(penstock_step, flags, 44);

/* ---- collective.h ---- */
LOCK_VALUE(PENSTOCK_ALL_REDUCE, 1);
LOCK_VALUE(PENSTOCK_REDUCE_SCATTER, 2);
LOCK_VALUE(PENSTOCK_ALL_GATHER, 3);
LOCK_VALUE(PENSTOCK_ALL_TO_ALL, 4);
LOCK_VALUE(PENSTOCK_BROADCAST, 5);
LOCK_VALUE(PENSTOCK_SEND, 6);
LOCK_VALUE(PENSTOCK_RECEIVE, 7);
LOCK_VALUE(PENSTOCK_BARRIER, 8);
LOCK_VALUE(PENSTOCK_SPARSE_ALL_REDUCE, 9);
LOCK_VALUE(PENSTOCK_REDUCE_SUM, 1);
LOCK_VALUE(PENSTOCK_REDUCE_MIN, 2);
LOCK_VALUE(PENSTOCK_REDUCE_MAX, 3);
LOCK_VALUE(PENSTOCK_REDUCE_PRODUCT, 4);
LOCK_VALUE(PENSTOCK_LEVEL_WORLD, 1);
LOCK_VALUE(PENSTOCK_LEVEL_LOCAL, 2);
LOCK_VALUE(PENSTOCK_LEVEL_CROSS, 3);
LOCK_VALUE(PENSTOCK_LEVEL_SUBSET, 4);
LOCK_VALUE(PENSTOCK_COLLECTIVE_TRANSPORT, 1);
LOCK_VALUE(PENSTOCK_COLLECTIVE_COMPOSITE, 2);
LOCK_VALUE(PENSTOCK_COLLECTIVE_ORDERED, 4);
LOCK_VALUE(PENSTOCK_COLLECTIVE_SAME_BITS, 8);
LOCK_VALUE(PENSTOCK_COLLECTIVE_RANK_ORDER, 16);
LOCK_VALUE(PENSTOCK_COLLECTIVE_MAY_REFUSE, 32);
LOCK_VALUE(PENSTOCK_COLLECTIVE_DEVICE_COUNTS, 64);
LOCK_VALUE(PENSTOCK_COLLECTIVE_PROCESS_GLOBAL, 128);
LOCK_VALUE(PENSTOCK_MESSAGE_EXACT_COUNTS, 1);
LOCK_VALUE(PENSTOCK_PENDING, 0);
LOCK_VALUE(PENSTOCK_DONE, 1);

LOCK_GROWING(penstock_group, 48);
typedef uint64_t lock_penstock_group_struct_size;
LOCK_AT(penstock_group, struct_size, 0);
typedef uint64_t lock_penstock_group_id;
LOCK_AT(penstock_group, id, 8);
typedef const uint32_t* lock_penstock_group_world_ranks;
LOCK_AT(penstock_group, world_ranks, 16);
typedef const uint32_t* lock_penstock_group_hosts;
LOCK_AT(penstock_group, hosts, 24);
typedef uint32_t lock_penstock_group_rank;
LOCK_AT(penstock_group, rank, 32);
typedef uint32_t lock_penstock_group_size;
LOCK_AT(penstock_group, size, 36);
typedef uint32_t lock_penstock_group_level;
LOCK_AT(penstock_group, level, 40);
typedef uint32_t lock_penstock_group_flags;
LOCK_AT(penstock_group, flags, 44);

LOCK_GROWING(penstock_world, 24);
typedef uint64_t lock_penstock_world_struct_size;
LOCK_AT(penstock_world, struct_size, 0);
typedef const uint32_t* lock_penstock_world_hosts;
LOCK_AT(penstock_world, hosts, 8);
typedef uint32_t lock_penstock_world_rank;
LOCK_AT(penstock_world, rank, 16);
typedef uint32_t lock_penstock_world_size;
LOCK_AT(penstock_world, size, 20);

LOCK_GROWING(penstock_collective_traits, 48);
typedef uint64_t lock_penstock_collective_traits_struct_size;
LOCK_AT(penstock_collective_traits, struct_size, 0);
typedef uint64_t lock_penstock_collective_traits_patterns;
LOCK_AT(penstock_collective_traits, patterns, 8);
typedef uint64_t lock_penstock_collective_traits_dtypes;
LOCK_AT(penstock_collective_traits, dtypes, 16);
typedef uint64_t lock_penstock_collective_traits_device_types;
LOCK_AT(penstock_collective_traits, device_types, 24);
typedef uint64_t lock_penstock_collective_traits_abort_bound_us;
LOCK_AT(penstock_collective_traits, abort_bound_us, 32);
typedef uint32_t lock_penstock_collective_traits_flags;
LOCK_AT(penstock_collective_traits, flags, 40);
typedef uint32_t lock_penstock_collective_traits_max_in_flight;
LOCK_AT(penstock_collective_traits, max_in_flight, 44);

LOCK_GROWING(penstock_volume, 32);
typedef uint64_t lock_penstock_volume_struct_size;
LOCK_AT(penstock_volume, struct_size, 0);
typedef double lock_penstock_volume_startups;
LOCK_AT(penstock_volume, startups, 8);
typedef double lock_penstock_volume_bytes;
LOCK_AT(penstock_volume, bytes, 16);
typedef double lock_penstock_volume_reduced_bytes;
LOCK_AT(penstock_volume, reduced_bytes, 24);

LOCK_GROWING(penstock_base_channel, 48);
typedef uint64_t lock_penstock_base_channel_struct_size;
LOCK_AT(penstock_base_channel, struct_size, 0);
typedef const struct penstock_collective* lock_penstock_base_channel_collective;
LOCK_AT(penstock_base_channel, collective, 8);
typedef void* lock_penstock_base_channel_instance;
LOCK_AT(penstock_base_channel, instance, 16);
typedef penstock_channel* lock_penstock_base_channel_channel;
LOCK_AT(penstock_base_channel, channel, 24);
typedef uint64_t lock_penstock_base_channel_tag_first;
LOCK_AT(penstock_base_channel, tag_first, 32);
typedef uint64_t lock_penstock_base_channel_n_tags;
LOCK_AT(penstock_base_channel, n_tags, 40);

LOCK_GROWING(penstock_message, 168);
typedef uint64_t lock_penstock_message_struct_size;
LOCK_AT(penstock_message, struct_size, 0);
typedef uint64_t lock_penstock_message_id;
LOCK_AT(penstock_message, id, 8);
typedef uint64_t lock_penstock_message_tag;
LOCK_AT(penstock_message, tag, 16);
typedef const void* lock_penstock_message_send;
LOCK_AT(penstock_message, send, 24);
typedef void* lock_penstock_message_receive;
LOCK_AT(penstock_message, receive, 32);
typedef uint64_t lock_penstock_message_count;
LOCK_AT(penstock_message, count, 40);
typedef const uint64_t* lock_penstock_message_send_counts;
LOCK_AT(penstock_message, send_counts, 48);
typedef uint64_t* lock_penstock_message_receive_counts;
LOCK_AT(penstock_message, receive_counts, 56);
typedef const uint64_t* lock_penstock_message_receive_offsets;
LOCK_AT(penstock_message, receive_offsets, 64);
typedef const penstock_item* const* lock_penstock_message_items;
LOCK_AT(penstock_message, items, 72);
typedef const penstock_payload* const* lock_penstock_message_payloads;
LOCK_AT(penstock_message, payloads, 80);
typedef penstock_payload* const* lock_penstock_message_results;
LOCK_AT(penstock_message, results, 88);
typedef uint64_t lock_penstock_message_n_items;
LOCK_AT(penstock_message, n_items, 96);
typedef const penstock_tensor* const* lock_penstock_message_states;
LOCK_AT(penstock_message, states, 104);
typedef uint64_t lock_penstock_message_n_states;
LOCK_AT(penstock_message, n_states, 112);
typedef const penstock_exec* lock_penstock_message_exec;
LOCK_AT(penstock_message, exec, 120);
typedef const penstock_step* lock_penstock_message_step;
LOCK_AT(penstock_message, step, 128);
typedef uint64_t lock_penstock_message_deadline_us;
LOCK_AT(penstock_message, deadline_us, 136);
typedef uint32_t lock_penstock_message_pattern;
LOCK_AT(penstock_message, pattern, 144);
typedef uint32_t lock_penstock_message_reduction;
LOCK_AT(penstock_message, reduction, 148);
typedef uint32_t lock_penstock_message_dtype;
LOCK_AT(penstock_message, dtype, 152);
typedef uint32_t lock_penstock_message_peer;
LOCK_AT(penstock_message, peer, 156);
typedef uint32_t lock_penstock_message_leg;
LOCK_AT(penstock_message, leg, 160);
typedef uint32_t lock_penstock_message_flags;
LOCK_AT(penstock_message, flags, 164);

LOCK_GROWING(penstock_collective_need, 40);
typedef uint64_t lock_penstock_collective_need_struct_size;
LOCK_AT(penstock_collective_need, struct_size, 0);
typedef uint64_t lock_penstock_collective_need_scratch_bytes;
LOCK_AT(penstock_collective_need, scratch_bytes, 8);
typedef const penstock_state_declaration* const* lock_penstock_collective_need_states;
LOCK_AT(penstock_collective_need, states, 16);
typedef uint64_t lock_penstock_collective_need_n_states;
LOCK_AT(penstock_collective_need, n_states, 24);
typedef uint64_t lock_penstock_collective_need_result_capacity;
LOCK_AT(penstock_collective_need, result_capacity, 32);

LOCK_GROWING(penstock_collective, 128);
typedef uint64_t lock_penstock_collective_struct_size;
LOCK_AT(penstock_collective, struct_size, 0);
typedef penstock_status* (*lock_penstock_collective_create)(const penstock_option_value* const* options, uint64_t n_options, void** instance);
LOCK_AT(penstock_collective, create, 8);
typedef void (*lock_penstock_collective_destroy)(void* instance);
LOCK_AT(penstock_collective, destroy, 16);
typedef penstock_status* (*lock_penstock_collective_describe)(void* instance, penstock_collective_traits* traits);
LOCK_AT(penstock_collective, describe, 24);
typedef penstock_status* (*lock_penstock_collective_volume)(void* instance, uint32_t pattern, uint32_t hosts, uint32_t ranks_per_host, uint64_t bytes, penstock_volume* const* volumes);
LOCK_AT(penstock_collective, volume, 32);
typedef penstock_status* (*lock_penstock_collective_join)(void* instance, uint64_t timeout_us, penstock_world* world);
LOCK_AT(penstock_collective, join, 40);
typedef penstock_status* (*lock_penstock_collective_open)(void* instance, const penstock_group* group, const penstock_base_channel* base, const penstock_key_value_store* store, uint64_t timeout_us, penstock_channel** channel);
LOCK_AT(penstock_collective, open, 48);
typedef penstock_status* (*lock_penstock_collective_plan)(void* instance, penstock_channel* channel, const penstock_message* const* messages, uint64_t n_messages, penstock_collective_need* const* needs);
LOCK_AT(penstock_collective, plan, 56);
typedef penstock_status* (*lock_penstock_collective_submit)(void* instance, penstock_channel* channel, const penstock_message* message, penstock_ticket** ticket);
LOCK_AT(penstock_collective, submit, 64);
typedef penstock_status* (*lock_penstock_collective_progress)(void* instance, penstock_ticket* ticket, uint32_t* state);
LOCK_AT(penstock_collective, progress, 72);
typedef penstock_status* (*lock_penstock_collective_returned)(void* instance, penstock_ticket* ticket, penstock_payload* const* payloads, uint64_t n_items);
LOCK_AT(penstock_collective, returned, 80);
typedef void (*lock_penstock_collective_release)(void* instance, penstock_ticket* ticket);
LOCK_AT(penstock_collective, release, 88);
typedef void (*lock_penstock_collective_abort)(void* instance, penstock_channel* channel);
LOCK_AT(penstock_collective, abort, 96);
typedef void (*lock_penstock_collective_close)(void* instance, penstock_channel* channel);
LOCK_AT(penstock_collective, close, 104);
typedef void (*lock_penstock_collective_leave)(void* instance, uint32_t aborted);
LOCK_AT(penstock_collective, leave, 112);
typedef const void* (*lock_penstock_collective_extension)(void* instance, penstock_str id);
LOCK_AT(penstock_collective, extension, 120);

/* ---- compressor.h ---- */
LOCK_VALUE(PENSTOCK_COMBINE_SUM, 1);
LOCK_VALUE(PENSTOCK_COMBINE_GATHER, 2);
LOCK_VALUE(PENSTOCK_RESULT_MEAN, 1);
LOCK_VALUE(PENSTOCK_RESULT_FINAL, 2);
LOCK_VALUE(PENSTOCK_ROUND_SAME_BITS, 1);
LOCK_VALUE(PENSTOCK_ROUND_ALL_PAYLOADS, 2);
LOCK_VALUE(PENSTOCK_SECTION_EXACT, 1);
LOCK_VALUE(PENSTOCK_FOLD_AFFINE, 1);
LOCK_VALUE(PENSTOCK_FOLD_HEAVY_BALL, 2);
LOCK_VALUE(PENSTOCK_FOLD_NESTEROV, 4);
LOCK_VALUE(PENSTOCK_SCOPE_ITEM, 0);
LOCK_VALUE(PENSTOCK_SCOPE_BUCKET, 1);
LOCK_VALUE(PENSTOCK_NEED_LOSSLESS, 1);
LOCK_VALUE(PENSTOCK_NEED_LINEAR, 2);
LOCK_VALUE(PENSTOCK_DECODE_FIRST, 1);
LOCK_VALUE(PENSTOCK_DECODE_LAST, 2);
LOCK_VALUE(PENSTOCK_DECODE_OWN, 4);
LOCK_VALUE(PENSTOCK_COMPRESSOR_UNBIASED, 1);
LOCK_VALUE(PENSTOCK_COMPRESSOR_RANDOM, 2);
LOCK_VALUE(PENSTOCK_COMPRESSOR_NEEDS_MEMORY, 4);
LOCK_VALUE(PENSTOCK_COMPRESSOR_NEEDS_KEPT_MASS, 8);

LOCK_GROWING(penstock_section_bound, 32);
typedef uint64_t lock_penstock_section_bound_struct_size;
LOCK_AT(penstock_section_bound, struct_size, 0);
typedef uint64_t lock_penstock_section_bound_capacity;
LOCK_AT(penstock_section_bound, capacity, 8);
typedef uint32_t lock_penstock_section_bound_role;
LOCK_AT(penstock_section_bound, role, 16);
typedef uint32_t lock_penstock_section_bound_dtype;
LOCK_AT(penstock_section_bound, dtype, 20);
typedef uint32_t lock_penstock_section_bound_split;
LOCK_AT(penstock_section_bound, split, 24);
typedef uint32_t lock_penstock_section_bound_flags;
LOCK_AT(penstock_section_bound, flags, 28);

LOCK_GROWING(penstock_round, 40);
typedef uint64_t lock_penstock_round_struct_size;
LOCK_AT(penstock_round, struct_size, 0);
typedef const penstock_section_bound* const* lock_penstock_round_sections;
LOCK_AT(penstock_round, sections, 8);
typedef uint64_t lock_penstock_round_n_sections;
LOCK_AT(penstock_round, n_sections, 16);
typedef uint32_t lock_penstock_round_combine;
LOCK_AT(penstock_round, combine, 24);
typedef uint32_t lock_penstock_round_result;
LOCK_AT(penstock_round, result, 28);
typedef uint32_t lock_penstock_round_reduction;
LOCK_AT(penstock_round, reduction, 32);
typedef uint32_t lock_penstock_round_flags;
LOCK_AT(penstock_round, flags, 36);

LOCK_GROWING(penstock_compressor_need, 72);
typedef uint64_t lock_penstock_compressor_need_struct_size;
LOCK_AT(penstock_compressor_need, struct_size, 0);
typedef const penstock_round* const* lock_penstock_compressor_need_rounds;
LOCK_AT(penstock_compressor_need, rounds, 8);
typedef uint64_t lock_penstock_compressor_need_n_rounds;
LOCK_AT(penstock_compressor_need, n_rounds, 16);
typedef const penstock_state_declaration* const* lock_penstock_compressor_need_states;
LOCK_AT(penstock_compressor_need, states, 24);
typedef uint64_t lock_penstock_compressor_need_n_states;
LOCK_AT(penstock_compressor_need, n_states, 32);
typedef uint64_t lock_penstock_compressor_need_scratch_bytes;
LOCK_AT(penstock_compressor_need, scratch_bytes, 40);
typedef uint64_t lock_penstock_compressor_need_part_alignment;
LOCK_AT(penstock_compressor_need, part_alignment, 48);
typedef uint32_t lock_penstock_compressor_need_period;
LOCK_AT(penstock_compressor_need, period, 56);
typedef uint32_t lock_penstock_compressor_need_scope;
LOCK_AT(penstock_compressor_need, scope, 60);
typedef uint32_t lock_penstock_compressor_need_flags;
LOCK_AT(penstock_compressor_need, flags, 64);
typedef uint32_t lock_penstock_compressor_need_reserved;
LOCK_AT(penstock_compressor_need, reserved, 68);

LOCK_GROWING(penstock_compressor_traits, 32);
typedef uint64_t lock_penstock_compressor_traits_struct_size;
LOCK_AT(penstock_compressor_traits, struct_size, 0);
typedef uint64_t lock_penstock_compressor_traits_dtypes;
LOCK_AT(penstock_compressor_traits, dtypes, 8);
typedef uint64_t lock_penstock_compressor_traits_device_types;
LOCK_AT(penstock_compressor_traits, device_types, 16);
typedef uint32_t lock_penstock_compressor_traits_folds;
LOCK_AT(penstock_compressor_traits, folds, 24);
typedef uint32_t lock_penstock_compressor_traits_flags;
LOCK_AT(penstock_compressor_traits, flags, 28);

LOCK_GROWING(penstock_compressor, 64);
typedef uint64_t lock_penstock_compressor_struct_size;
LOCK_AT(penstock_compressor, struct_size, 0);
typedef penstock_status* (*lock_penstock_compressor_create)(const penstock_option_value* const* options, uint64_t n_options, void** instance);
LOCK_AT(penstock_compressor, create, 8);
typedef void (*lock_penstock_compressor_destroy)(void* instance);
LOCK_AT(penstock_compressor, destroy, 16);
typedef penstock_status* (*lock_penstock_compressor_describe)(void* instance, penstock_compressor_traits* traits);
LOCK_AT(penstock_compressor, describe, 24);
typedef penstock_status* (*lock_penstock_compressor_plan)(void* instance, uint32_t phase, uint32_t world, const penstock_item* const* items, uint64_t n_items, penstock_compressor_need* const* needs);
LOCK_AT(penstock_compressor, plan, 32);
typedef penstock_status* (*lock_penstock_compressor_encode)(void* instance, const penstock_exec* exec, const penstock_step* step, uint32_t round, const penstock_item* const* items, uint64_t n_items, penstock_payload* const* payloads);
LOCK_AT(penstock_compressor, encode, 40);
typedef penstock_status* (*lock_penstock_compressor_decode)(void* instance, const penstock_exec* exec, const penstock_step* step, uint32_t round, const penstock_item* const* items, uint64_t n_items, const penstock_payload* const* payloads, uint64_t n_ranks, uint32_t flags);
LOCK_AT(penstock_compressor, decode, 48);
typedef const void* (*lock_penstock_compressor_extension)(void* instance, penstock_str id);
LOCK_AT(penstock_compressor, extension, 56);

/* ---- host.h ---- */
LOCK_VALUE(PENSTOCK_LOG_DEBUG, 0);
LOCK_VALUE(PENSTOCK_LOG_INFO, 1);
LOCK_VALUE(PENSTOCK_LOG_WARNING, 2);
LOCK_VALUE(PENSTOCK_LOG_ERROR, 3);

LOCK_GROWING(penstock_key_value_store, 32);
typedef uint64_t lock_penstock_key_value_store_struct_size;
LOCK_AT(penstock_key_value_store, struct_size, 0);
typedef void* lock_penstock_key_value_store_context;
LOCK_AT(penstock_key_value_store, context, 8);
typedef penstock_status* (*lock_penstock_key_value_store_put)(void* context, penstock_str key, penstock_str value);
LOCK_AT(penstock_key_value_store, put, 16);
typedef penstock_status* (*lock_penstock_key_value_store_get)(void* context, penstock_str key, uint64_t timeout_us, void* sink_context, void (*sink)(void* sink_context, penstock_str value));
LOCK_AT(penstock_key_value_store, get, 24);

LOCK_GROWING(penstock_host, 96);
typedef uint64_t lock_penstock_host_struct_size;
LOCK_AT(penstock_host, struct_size, 0);
typedef void* lock_penstock_host_context;
LOCK_AT(penstock_host, context, 8);
typedef uint32_t lock_penstock_host_abi_major;
LOCK_AT(penstock_host, abi_major, 16);
typedef uint32_t lock_penstock_host_abi_minor;
LOCK_AT(penstock_host, abi_minor, 20);
typedef penstock_str lock_penstock_host_version;
LOCK_AT(penstock_host, version, 24);
typedef penstock_status* (*lock_penstock_host_status_new)(void* context, uint32_t code, penstock_str message);
LOCK_AT(penstock_host, status_new, 40);
typedef uint32_t (*lock_penstock_host_status_code)(void* context, const penstock_status* status);
LOCK_AT(penstock_host, status_code, 48);
typedef penstock_str (*lock_penstock_host_status_message)(void* context, const penstock_status* status);
LOCK_AT(penstock_host, status_message, 56);
typedef void (*lock_penstock_host_status_free)(void* context, penstock_status* status);
LOCK_AT(penstock_host, status_free, 64);
typedef void (*lock_penstock_host_log)(void* context, uint32_t level, penstock_str component, penstock_str message);
LOCK_AT(penstock_host, log, 72);
typedef penstock_str (*lock_penstock_host_code_path)(void* context, penstock_str kernel_family);
LOCK_AT(penstock_host, code_path, 80);
typedef const void* (*lock_penstock_host_extension)(void* context, penstock_str id);
LOCK_AT(penstock_host, extension, 88);

/* ---- item.h ---- */
LOCK_VALUE(PENSTOCK_STATE_MASS, 1);
LOCK_VALUE(PENSTOCK_STATE_REPLICATED, 2);
LOCK_VALUE(PENSTOCK_STATE_SOFT, 3);
LOCK_VALUE(PENSTOCK_RESIZE_SUM, 1);
LOCK_VALUE(PENSTOCK_RESIZE_DROP, 2);
LOCK_VALUE(PENSTOCK_RESIZE_REFUSE, 3);
LOCK_VALUE(PENSTOCK_ITEM_KEEP, 1);
LOCK_VALUE(PENSTOCK_ITEM_LOSSLESS, 2);
LOCK_VALUE(PENSTOCK_ROLE_VALUES, 1);
LOCK_VALUE(PENSTOCK_ROLE_INDICES, 2);
LOCK_VALUE(PENSTOCK_ROLE_SCALES, 3);
LOCK_VALUE(PENSTOCK_ROLE_BITS, 4);
LOCK_VALUE(PENSTOCK_ROLE_FACTOR, 5);
LOCK_VALUE(PENSTOCK_ROLE_OTHER, 6);
LOCK_VALUE(PENSTOCK_SPLIT_NEVER, 0);
LOCK_VALUE(PENSTOCK_SPLIT_BY_ELEMENT, 1);
LOCK_VALUE(PENSTOCK_SPLIT_BY_INDEX, 2);
LOCK_VALUE(PENSTOCK_SPLIT_COPY, 3);
LOCK_VALUE(PENSTOCK_PAYLOAD_ABSENT, 1);
LOCK_VALUE(PENSTOCK_PAYLOAD_DENSE, 2);
LOCK_VALUE(PENSTOCK_PAYLOAD_SPARSE, 3);
LOCK_VALUE(PENSTOCK_PAYLOAD_CODED, 4);

LOCK_GROWING(penstock_state_declaration, 56);
typedef uint64_t lock_penstock_state_declaration_struct_size;
LOCK_AT(penstock_state_declaration, struct_size, 0);
typedef penstock_str lock_penstock_state_declaration_name;
LOCK_AT(penstock_state_declaration, name, 8);
typedef uint64_t lock_penstock_state_declaration_rows;
LOCK_AT(penstock_state_declaration, rows, 24);
typedef uint64_t lock_penstock_state_declaration_cols;
LOCK_AT(penstock_state_declaration, cols, 32);
typedef uint32_t lock_penstock_state_declaration_dtype;
LOCK_AT(penstock_state_declaration, dtype, 40);
typedef uint32_t lock_penstock_state_declaration_state_class;
LOCK_AT(penstock_state_declaration, state_class, 44);
typedef uint32_t lock_penstock_state_declaration_on_resize;
LOCK_AT(penstock_state_declaration, on_resize, 48);
typedef uint32_t lock_penstock_state_declaration_flags;
LOCK_AT(penstock_state_declaration, flags, 52);

LOCK_GROWING(penstock_item, 304);
typedef uint64_t lock_penstock_item_struct_size;
LOCK_AT(penstock_item, struct_size, 0);
typedef penstock_str lock_penstock_item_name;
LOCK_AT(penstock_item, name, 8);
typedef uint64_t lock_penstock_item_gradient;
LOCK_AT(penstock_item, gradient, 24);
typedef uint64_t lock_penstock_item_first;
LOCK_AT(penstock_item, first, 32);
typedef uint64_t lock_penstock_item_numel;
LOCK_AT(penstock_item, numel, 40);
typedef uint64_t lock_penstock_item_rows;
LOCK_AT(penstock_item, rows, 48);
typedef uint64_t lock_penstock_item_cols;
LOCK_AT(penstock_item, cols, 56);
typedef uint64_t lock_penstock_item_n_dims;
LOCK_AT(penstock_item, n_dims, 64);
typedef const int64_t* lock_penstock_item_shape;
LOCK_AT(penstock_item, shape, 72);
typedef penstock_tensor lock_penstock_item_grad;
LOCK_AT(penstock_item, grad, 80);
typedef penstock_tensor lock_penstock_item_work;
LOCK_AT(penstock_item, work, 144);
typedef penstock_tensor lock_penstock_item_out;
LOCK_AT(penstock_item, out, 208);
typedef const penstock_tensor* const* lock_penstock_item_states;
LOCK_AT(penstock_item, states, 272);
typedef uint64_t lock_penstock_item_n_states;
LOCK_AT(penstock_item, n_states, 280);
typedef double lock_penstock_item_learning_rate;
LOCK_AT(penstock_item, learning_rate, 288);
typedef uint32_t lock_penstock_item_leg;
LOCK_AT(penstock_item, leg, 296);
typedef uint32_t lock_penstock_item_flags;
LOCK_AT(penstock_item, flags, 300);

LOCK_GROWING(penstock_section, 48);
typedef uint64_t lock_penstock_section_struct_size;
LOCK_AT(penstock_section, struct_size, 0);
typedef void* lock_penstock_section_data;
LOCK_AT(penstock_section, data, 8);
typedef uint64_t* lock_penstock_section_device_count;
LOCK_AT(penstock_section, device_count, 16);
typedef uint64_t lock_penstock_section_count;
LOCK_AT(penstock_section, count, 24);
typedef uint64_t lock_penstock_section_capacity;
LOCK_AT(penstock_section, capacity, 32);
typedef uint32_t lock_penstock_section_role;
LOCK_AT(penstock_section, role, 40);
typedef uint32_t lock_penstock_section_dtype;
LOCK_AT(penstock_section, dtype, 44);

LOCK_GROWING(penstock_payload, 32);
typedef uint64_t lock_penstock_payload_struct_size;
LOCK_AT(penstock_payload, struct_size, 0);
typedef penstock_section* const* lock_penstock_payload_sections;
LOCK_AT(penstock_payload, sections, 8);
typedef uint64_t lock_penstock_payload_n_sections;
LOCK_AT(penstock_payload, n_sections, 16);
typedef uint32_t lock_penstock_payload_kind;
LOCK_AT(penstock_payload, kind, 24);
typedef int32_t lock_penstock_payload_rank;
LOCK_AT(penstock_payload, rank, 28);

/* ---- memory.h ---- */
LOCK_VALUE(PENSTOCK_WORK_IS_GRAD, 0);
LOCK_VALUE(PENSTOCK_WORK_IS_STATE, 1);
LOCK_VALUE(PENSTOCK_WORK_IS_SCRATCH, 2);
LOCK_VALUE(PENSTOCK_FORM_NONE, 0);
LOCK_VALUE(PENSTOCK_FORM_AFFINE, 1);
LOCK_VALUE(PENSTOCK_FORM_HEAVY_BALL, 2);
LOCK_VALUE(PENSTOCK_FORM_NESTEROV, 3);
LOCK_VALUE(PENSTOCK_MEMORY_OWNS_MOMENTUM, 1);

LOCK_GROWING(penstock_memory_need, 64);
typedef uint64_t lock_penstock_memory_need_struct_size;
LOCK_AT(penstock_memory_need, struct_size, 0);
typedef const penstock_state_declaration* const* lock_penstock_memory_need_states;
LOCK_AT(penstock_memory_need, states, 8);
typedef uint64_t lock_penstock_memory_need_n_states;
LOCK_AT(penstock_memory_need, n_states, 16);
typedef double lock_penstock_memory_need_beta;
LOCK_AT(penstock_memory_need, beta, 24);
typedef double lock_penstock_memory_need_gamma;
LOCK_AT(penstock_memory_need, gamma, 32);
typedef uint32_t lock_penstock_memory_need_work_is;
LOCK_AT(penstock_memory_need, work_is, 40);
typedef uint32_t lock_penstock_memory_need_work_state;
LOCK_AT(penstock_memory_need, work_state, 44);
typedef uint32_t lock_penstock_memory_need_momentum_state;
LOCK_AT(penstock_memory_need, momentum_state, 48);
typedef uint32_t lock_penstock_memory_need_form;
LOCK_AT(penstock_memory_need, form, 52);
typedef uint32_t lock_penstock_memory_need_n_scalars;
LOCK_AT(penstock_memory_need, n_scalars, 56);
typedef uint32_t lock_penstock_memory_need_flags;
LOCK_AT(penstock_memory_need, flags, 60);

LOCK_GROWING(penstock_memory, 88);
typedef uint64_t lock_penstock_memory_struct_size;
LOCK_AT(penstock_memory, struct_size, 0);
typedef penstock_status* (*lock_penstock_memory_create)(const penstock_option_value* const* options, uint64_t n_options, void** instance);
LOCK_AT(penstock_memory, create, 8);
typedef void (*lock_penstock_memory_destroy)(void* instance);
LOCK_AT(penstock_memory, destroy, 16);
typedef penstock_status* (*lock_penstock_memory_plan)(void* instance, const penstock_item* const* items, uint64_t n_items, const penstock_compressor_need* const* compressor_needs, penstock_memory_need* const* needs);
LOCK_AT(penstock_memory, plan, 24);
typedef penstock_status* (*lock_penstock_memory_measure)(void* instance, const penstock_exec* exec, const penstock_step* step, const penstock_item* const* items, uint64_t n_items, float* scalars);
LOCK_AT(penstock_memory, measure, 32);
typedef penstock_status* (*lock_penstock_memory_compensate)(void* instance, const penstock_exec* exec, const penstock_step* step, const penstock_item* const* items, uint64_t n_items, const float* summed);
LOCK_AT(penstock_memory, compensate, 40);
typedef penstock_status* (*lock_penstock_memory_record)(void* instance, const penstock_exec* exec, const penstock_step* step, const penstock_item* const* items, uint64_t n_items, const penstock_payload* const* taken);
LOCK_AT(penstock_memory, record, 48);
typedef penstock_status* (*lock_penstock_memory_give_back)(void* instance, const penstock_exec* exec, const penstock_step* step, const penstock_item* const* items, uint64_t n_items, const penstock_payload* const* payloads);
LOCK_AT(penstock_memory, give_back, 56);
typedef penstock_status* (*lock_penstock_memory_finish)(void* instance, const penstock_exec* exec, const penstock_step* step, const penstock_item* const* items, uint64_t n_items);
LOCK_AT(penstock_memory, finish, 64);
typedef penstock_status* (*lock_penstock_memory_drain)(void* instance, const penstock_exec* exec, const penstock_item* const* items, uint64_t n_items);
LOCK_AT(penstock_memory, drain, 72);
typedef const void* (*lock_penstock_memory_extension)(void* instance, penstock_str id);
LOCK_AT(penstock_memory, extension, 80);

/* ---- option.h ---- */
LOCK_VALUE(PENSTOCK_OPTION_BOOL, 1);
LOCK_VALUE(PENSTOCK_OPTION_INTEGER, 2);
LOCK_VALUE(PENSTOCK_OPTION_REAL, 3);
LOCK_VALUE(PENSTOCK_OPTION_STRING, 4);
LOCK_VALUE(PENSTOCK_OPTION_CHOICE, 5);
LOCK_VALUE(PENSTOCK_OPTION_REQUIRED, 1);
LOCK_VALUE(PENSTOCK_OPTION_RANK_LOCAL, 2);
LOCK_VALUE(PENSTOCK_OPTION_OPEN_MINIMUM, 4);

LOCK_GROWING(penstock_option, 128);
typedef uint64_t lock_penstock_option_struct_size;
LOCK_AT(penstock_option, struct_size, 0);
typedef penstock_str lock_penstock_option_name;
LOCK_AT(penstock_option, name, 8);
typedef penstock_str lock_penstock_option_summary;
LOCK_AT(penstock_option, summary, 24);
typedef penstock_str lock_penstock_option_unit;
LOCK_AT(penstock_option, unit, 40);
typedef const penstock_str* lock_penstock_option_choices;
LOCK_AT(penstock_option, choices, 56);
typedef uint64_t lock_penstock_option_n_choices;
LOCK_AT(penstock_option, n_choices, 64);
typedef double lock_penstock_option_minimum;
LOCK_AT(penstock_option, minimum, 72);
typedef double lock_penstock_option_maximum;
LOCK_AT(penstock_option, maximum, 80);
typedef double lock_penstock_option_default_real;
LOCK_AT(penstock_option, default_real, 88);
typedef int64_t lock_penstock_option_default_integer;
LOCK_AT(penstock_option, default_integer, 96);
typedef penstock_str lock_penstock_option_default_text;
LOCK_AT(penstock_option, default_text, 104);
typedef uint32_t lock_penstock_option_type;
LOCK_AT(penstock_option, type, 120);
typedef uint32_t lock_penstock_option_flags;
LOCK_AT(penstock_option, flags, 124);

LOCK_GROWING(penstock_option_value, 64);
typedef uint64_t lock_penstock_option_value_struct_size;
LOCK_AT(penstock_option_value, struct_size, 0);
typedef penstock_str lock_penstock_option_value_name;
LOCK_AT(penstock_option_value, name, 8);
typedef penstock_str lock_penstock_option_value_text;
LOCK_AT(penstock_option_value, text, 24);
typedef double lock_penstock_option_value_real;
LOCK_AT(penstock_option_value, real, 40);
typedef int64_t lock_penstock_option_value_integer;
LOCK_AT(penstock_option_value, integer, 48);
typedef uint32_t lock_penstock_option_value_type;
LOCK_AT(penstock_option_value, type, 56);
typedef uint32_t lock_penstock_option_value_is_default;
LOCK_AT(penstock_option_value, is_default, 60);

/* ---- plugin.h ---- */
LOCK_VALUE(PENSTOCK_KIND_COMPRESSOR, 1);
LOCK_VALUE(PENSTOCK_KIND_MEMORY, 2);
LOCK_VALUE(PENSTOCK_KIND_COLLECTIVE, 3);
LOCK_VALUE(PENSTOCK_KIND_SCHEDULER, 4);

LOCK_GROWING(penstock_module, 32);
typedef uint64_t lock_penstock_module_struct_size;
LOCK_AT(penstock_module, struct_size, 0);
typedef const void* lock_penstock_module_table;
LOCK_AT(penstock_module, table, 8);
typedef const penstock_option* const* lock_penstock_module_options;
LOCK_AT(penstock_module, options, 16);
typedef uint64_t lock_penstock_module_n_options;
LOCK_AT(penstock_module, n_options, 24);

LOCK_GROWING(penstock_plugin_record, 496);
typedef char lock_penstock_plugin_record_magic[16];
LOCK_AT(penstock_plugin_record, magic, 0);
typedef uint64_t lock_penstock_plugin_record_struct_size;
LOCK_AT(penstock_plugin_record, struct_size, 16);
typedef uint32_t lock_penstock_plugin_record_abi_major;
LOCK_AT(penstock_plugin_record, abi_major, 24);
typedef uint32_t lock_penstock_plugin_record_abi_minor;
LOCK_AT(penstock_plugin_record, abi_minor, 28);
typedef uint32_t lock_penstock_plugin_record_min_host_minor;
LOCK_AT(penstock_plugin_record, min_host_minor, 32);
typedef uint32_t lock_penstock_plugin_record_kind;
LOCK_AT(penstock_plugin_record, kind, 36);
typedef char lock_penstock_plugin_record_id[64];
LOCK_AT(penstock_plugin_record, id, 40);
typedef char lock_penstock_plugin_record_version[32];
LOCK_AT(penstock_plugin_record, version, 104);
typedef char lock_penstock_plugin_record_summary[160];
LOCK_AT(penstock_plugin_record, summary, 136);
typedef char lock_penstock_plugin_record_license[32];
LOCK_AT(penstock_plugin_record, license, 296);
typedef char lock_penstock_plugin_record_source[160];
LOCK_AT(penstock_plugin_record, source, 328);
typedef penstock_status* (*lock_penstock_plugin_record_load)(const penstock_host* host, const penstock_module** module);
LOCK_AT(penstock_plugin_record, load, 488);

/* ---- scheduler.h ---- */
LOCK_VALUE(PENSTOCK_NO_BUCKET, 4294967295);
LOCK_VALUE(PENSTOCK_MODEL_FORWARD_WAITS, 1);
LOCK_VALUE(PENSTOCK_MODEL_GIVEN_BUCKETS, 2);
LOCK_VALUE(PENSTOCK_MODEL_MEASURED, 4);
LOCK_VALUE(PENSTOCK_ROUTE_FLAT, 1);
LOCK_VALUE(PENSTOCK_ROUTE_SPLIT, 2);
LOCK_VALUE(PENSTOCK_ROUTE_HIERARCHICAL, 3);
LOCK_VALUE(PENSTOCK_ROUTE_SHARD, 4);
LOCK_VALUE(PENSTOCK_LAUNCH_READY, 1);
LOCK_VALUE(PENSTOCK_LAUNCH_SET_COMPLETE, 2);
LOCK_VALUE(PENSTOCK_LAUNCH_NEXT_FORWARD, 3);
LOCK_VALUE(PENSTOCK_KEEP_PLAN, 0);
LOCK_VALUE(PENSTOCK_MAKE_NEW_PLAN, 1);
LOCK_VALUE(PENSTOCK_SCHEDULER_LAUNCHES_IN_FORWARD, 1);
LOCK_VALUE(PENSTOCK_SCHEDULER_MEASURES, 2);
LOCK_VALUE(PENSTOCK_SCHEDULER_NEGOTIATES, 4);
LOCK_VALUE(PENSTOCK_SCHEDULER_CHOOSES, 8);

LOCK_GROWING(penstock_candidate, 80);
typedef uint64_t lock_penstock_candidate_struct_size;
LOCK_AT(penstock_candidate, struct_size, 0);
typedef penstock_str lock_penstock_candidate_compressor;
LOCK_AT(penstock_candidate, compressor, 8);
typedef const uint64_t* lock_penstock_candidate_phase_bytes;
LOCK_AT(penstock_candidate, phase_bytes, 24);
typedef double lock_penstock_candidate_encode_fixed_us;
LOCK_AT(penstock_candidate, encode_fixed_us, 32);
typedef double lock_penstock_candidate_encode_per_element_us;
LOCK_AT(penstock_candidate, encode_per_element_us, 40);
typedef double lock_penstock_candidate_decode_fixed_us;
LOCK_AT(penstock_candidate, decode_fixed_us, 48);
typedef double lock_penstock_candidate_decode_per_element_us;
LOCK_AT(penstock_candidate, decode_per_element_us, 56);
typedef uint64_t lock_penstock_candidate_part_alignment;
LOCK_AT(penstock_candidate, part_alignment, 64);
typedef uint32_t lock_penstock_candidate_combine;
LOCK_AT(penstock_candidate, combine, 72);
typedef uint32_t lock_penstock_candidate_n_rounds;
LOCK_AT(penstock_candidate, n_rounds, 76);

LOCK_GROWING(penstock_gradient_model, 96);
typedef uint64_t lock_penstock_gradient_model_struct_size;
LOCK_AT(penstock_gradient_model, struct_size, 0);
typedef penstock_str lock_penstock_gradient_model_name;
LOCK_AT(penstock_gradient_model, name, 8);
typedef const int64_t* lock_penstock_gradient_model_shape;
LOCK_AT(penstock_gradient_model, shape, 24);
typedef uint64_t lock_penstock_gradient_model_n_dims;
LOCK_AT(penstock_gradient_model, n_dims, 32);
typedef uint64_t lock_penstock_gradient_model_numel;
LOCK_AT(penstock_gradient_model, numel, 40);
typedef uint64_t lock_penstock_gradient_model_bytes;
LOCK_AT(penstock_gradient_model, bytes, 48);
typedef double lock_penstock_gradient_model_ready_us;
LOCK_AT(penstock_gradient_model, ready_us, 56);
typedef double lock_penstock_gradient_model_forward_us;
LOCK_AT(penstock_gradient_model, forward_us, 64);
typedef const penstock_candidate* const* lock_penstock_gradient_model_candidates;
LOCK_AT(penstock_gradient_model, candidates, 72);
typedef uint64_t lock_penstock_gradient_model_n_candidates;
LOCK_AT(penstock_gradient_model, n_candidates, 80);
typedef uint32_t lock_penstock_gradient_model_dtype;
LOCK_AT(penstock_gradient_model, dtype, 88);
typedef uint32_t lock_penstock_gradient_model_given_bucket;
LOCK_AT(penstock_gradient_model, given_bucket, 92);

LOCK_GROWING(penstock_link, 32);
typedef uint64_t lock_penstock_link_struct_size;
LOCK_AT(penstock_link, struct_size, 0);
typedef double lock_penstock_link_alpha_us;
LOCK_AT(penstock_link, alpha_us, 8);
typedef double lock_penstock_link_beta_us_per_byte;
LOCK_AT(penstock_link, beta_us_per_byte, 16);
typedef uint32_t lock_penstock_link_level;
LOCK_AT(penstock_link, level, 24);
typedef uint32_t lock_penstock_link_flags;
LOCK_AT(penstock_link, flags, 28);

LOCK_GROWING(penstock_model, 88);
typedef uint64_t lock_penstock_model_struct_size;
LOCK_AT(penstock_model, struct_size, 0);
typedef const penstock_gradient_model* const* lock_penstock_model_gradients;
LOCK_AT(penstock_model, gradients, 8);
typedef uint64_t lock_penstock_model_n_gradients;
LOCK_AT(penstock_model, n_gradients, 16);
typedef const uint64_t* lock_penstock_model_order;
LOCK_AT(penstock_model, order, 24);
typedef const penstock_link* const* lock_penstock_model_links;
LOCK_AT(penstock_model, links, 32);
typedef uint64_t lock_penstock_model_n_links;
LOCK_AT(penstock_model, n_links, 40);
typedef double lock_penstock_model_backward_us;
LOCK_AT(penstock_model, backward_us, 48);
typedef double lock_penstock_model_forward_us;
LOCK_AT(penstock_model, forward_us, 56);
typedef uint32_t lock_penstock_model_world;
LOCK_AT(penstock_model, world, 64);
typedef uint32_t lock_penstock_model_hosts;
LOCK_AT(penstock_model, hosts, 68);
typedef uint32_t lock_penstock_model_ranks_per_host;
LOCK_AT(penstock_model, ranks_per_host, 72);
typedef uint32_t lock_penstock_model_period;
LOCK_AT(penstock_model, period, 76);
typedef uint32_t lock_penstock_model_route;
LOCK_AT(penstock_model, route, 80);
typedef uint32_t lock_penstock_model_flags;
LOCK_AT(penstock_model, flags, 84);

LOCK_GROWING(penstock_piece, 40);
typedef uint64_t lock_penstock_piece_struct_size;
LOCK_AT(penstock_piece, struct_size, 0);
typedef uint64_t lock_penstock_piece_gradient;
LOCK_AT(penstock_piece, gradient, 8);
typedef uint64_t lock_penstock_piece_first;
LOCK_AT(penstock_piece, first, 16);
typedef uint64_t lock_penstock_piece_numel;
LOCK_AT(penstock_piece, numel, 24);
typedef uint32_t lock_penstock_piece_choice;
LOCK_AT(penstock_piece, choice, 32);
typedef int32_t lock_penstock_piece_device_type;
LOCK_AT(penstock_piece, device_type, 36);

LOCK_GROWING(penstock_leg, 24);
typedef uint64_t lock_penstock_leg_struct_size;
LOCK_AT(penstock_leg, struct_size, 0);
typedef uint32_t lock_penstock_leg_level;
LOCK_AT(penstock_leg, level, 8);
typedef uint32_t lock_penstock_leg_pattern;
LOCK_AT(penstock_leg, pattern, 12);
typedef uint32_t lock_penstock_leg_coded;
LOCK_AT(penstock_leg, coded, 16);
typedef uint32_t lock_penstock_leg_launch;
LOCK_AT(penstock_leg, launch, 20);

LOCK_GROWING(penstock_bucket, 56);
typedef uint64_t lock_penstock_bucket_struct_size;
LOCK_AT(penstock_bucket, struct_size, 0);
typedef const penstock_piece* const* lock_penstock_bucket_pieces;
LOCK_AT(penstock_bucket, pieces, 8);
typedef uint64_t lock_penstock_bucket_n_pieces;
LOCK_AT(penstock_bucket, n_pieces, 16);
typedef const penstock_leg* const* lock_penstock_bucket_legs;
LOCK_AT(penstock_bucket, legs, 24);
typedef uint64_t lock_penstock_bucket_n_legs;
LOCK_AT(penstock_bucket, n_legs, 32);
typedef uint32_t lock_penstock_bucket_route;
LOCK_AT(penstock_bucket, route, 40);
typedef uint32_t lock_penstock_bucket_phase;
LOCK_AT(penstock_bucket, phase, 44);
typedef uint32_t lock_penstock_bucket_launch;
LOCK_AT(penstock_bucket, launch, 48);
typedef uint32_t lock_penstock_bucket_flags;
LOCK_AT(penstock_bucket, flags, 52);

LOCK_GROWING(penstock_plan_sink, 40);
typedef uint64_t lock_penstock_plan_sink_struct_size;
LOCK_AT(penstock_plan_sink, struct_size, 0);
typedef void* lock_penstock_plan_sink_context;
LOCK_AT(penstock_plan_sink, context, 8);
typedef penstock_status* (*lock_penstock_plan_sink_add_bucket)(void* context, const penstock_bucket* bucket);
LOCK_AT(penstock_plan_sink, add_bucket, 16);
typedef penstock_status* (*lock_penstock_plan_sink_add_message)(void* context, uint32_t phase, uint32_t bucket, uint32_t leg, uint32_t round);
LOCK_AT(penstock_plan_sink, add_message, 24);
typedef void (*lock_penstock_plan_sink_explain)(void* context, penstock_str text);
LOCK_AT(penstock_plan_sink, explain, 32);

LOCK_GROWING(penstock_measurement, 96);
typedef uint64_t lock_penstock_measurement_struct_size;
LOCK_AT(penstock_measurement, struct_size, 0);
typedef uint64_t lock_penstock_measurement_step;
LOCK_AT(penstock_measurement, step, 8);
typedef uint64_t lock_penstock_measurement_n_steps;
LOCK_AT(penstock_measurement, n_steps, 16);
typedef double lock_penstock_measurement_step_us;
LOCK_AT(penstock_measurement, step_us, 24);
typedef double lock_penstock_measurement_backward_us;
LOCK_AT(penstock_measurement, backward_us, 32);
typedef double lock_penstock_measurement_exposed_us;
LOCK_AT(penstock_measurement, exposed_us, 40);
typedef const double* lock_penstock_measurement_ready_us;
LOCK_AT(penstock_measurement, ready_us, 48);
typedef uint64_t lock_penstock_measurement_n_gradients;
LOCK_AT(penstock_measurement, n_gradients, 56);
typedef const double* lock_penstock_measurement_exchange_us;
LOCK_AT(penstock_measurement, exchange_us, 64);
typedef uint64_t lock_penstock_measurement_n_buckets;
LOCK_AT(penstock_measurement, n_buckets, 72);
typedef const double* lock_penstock_measurement_rank_backward_us;
LOCK_AT(penstock_measurement, rank_backward_us, 80);
typedef uint64_t lock_penstock_measurement_world;
LOCK_AT(penstock_measurement, world, 88);

LOCK_GROWING(penstock_scheduler_traits, 24);
typedef uint64_t lock_penstock_scheduler_traits_struct_size;
LOCK_AT(penstock_scheduler_traits, struct_size, 0);
typedef uint64_t lock_penstock_scheduler_traits_routes;
LOCK_AT(penstock_scheduler_traits, routes, 8);
typedef uint32_t lock_penstock_scheduler_traits_flags;
LOCK_AT(penstock_scheduler_traits, flags, 16);
typedef uint32_t lock_penstock_scheduler_traits_observe_every;
LOCK_AT(penstock_scheduler_traits, observe_every, 20);

LOCK_GROWING(penstock_scheduler, 64);
typedef uint64_t lock_penstock_scheduler_struct_size;
LOCK_AT(penstock_scheduler, struct_size, 0);
typedef penstock_status* (*lock_penstock_scheduler_create)(const penstock_option_value* const* options, uint64_t n_options, void** instance);
LOCK_AT(penstock_scheduler, create, 8);
typedef void (*lock_penstock_scheduler_destroy)(void* instance);
LOCK_AT(penstock_scheduler, destroy, 16);
typedef penstock_status* (*lock_penstock_scheduler_describe)(void* instance, penstock_scheduler_traits* traits);
LOCK_AT(penstock_scheduler, describe, 24);
typedef penstock_status* (*lock_penstock_scheduler_plan)(void* instance, const penstock_model* model, const penstock_plan_sink* sink);
LOCK_AT(penstock_scheduler, plan, 32);
typedef penstock_status* (*lock_penstock_scheduler_arrange)(void* instance, const penstock_model* model, const uint64_t* ready, uint64_t n_ready, const penstock_plan_sink* sink);
LOCK_AT(penstock_scheduler, arrange, 40);
typedef penstock_status* (*lock_penstock_scheduler_observe)(void* instance, const penstock_measurement* measurement, uint32_t* decision);
LOCK_AT(penstock_scheduler, observe, 48);
typedef const void* (*lock_penstock_scheduler_extension)(void* instance, penstock_str id);
LOCK_AT(penstock_scheduler, extension, 56);

/* ---- runtime.h ---- */
LOCK_VALUE(PENSTOCK_SET_OPTIMIZER_MOMENTUM, 1);
LOCK_VALUE(PENSTOCK_SET_DEFERRED_UPDATE, 2);
LOCK_VALUE(PENSTOCK_SET_GIVEN_BUCKETS, 4);
LOCK_VALUE(PENSTOCK_SET_TELLS_OUTCOME, 8);
LOCK_VALUE(PENSTOCK_SET_SUM, 16);

typedef void (*lock_penstock_text_sink)(void* context, penstock_str text);
extern penstock_text_sink lock_penstock_text_sink_holder;
LOCK_TYPE(lock_penstock_text_sink_holder, lock_penstock_text_sink);

LOCK_GROWING(penstock_runtime_options, 72);
typedef uint64_t lock_penstock_runtime_options_struct_size;
LOCK_AT(penstock_runtime_options, struct_size, 0);
typedef penstock_str lock_penstock_runtime_options_config_path;
LOCK_AT(penstock_runtime_options, config_path, 8);
typedef penstock_str lock_penstock_runtime_options_config_text;
LOCK_AT(penstock_runtime_options, config_text, 24);
typedef penstock_str lock_penstock_runtime_options_frontend;
LOCK_AT(penstock_runtime_options, frontend, 40);
typedef const penstock_collective* lock_penstock_runtime_options_lent_collective;
LOCK_AT(penstock_runtime_options, lent_collective, 56);
typedef void* lock_penstock_runtime_options_lent_instance;
LOCK_AT(penstock_runtime_options, lent_instance, 64);

LOCK_GROWING(penstock_topology, 32);
typedef uint64_t lock_penstock_topology_struct_size;
LOCK_AT(penstock_topology, struct_size, 0);
typedef uint32_t lock_penstock_topology_rank;
LOCK_AT(penstock_topology, rank, 8);
typedef uint32_t lock_penstock_topology_size;
LOCK_AT(penstock_topology, size, 12);
typedef uint32_t lock_penstock_topology_local_rank;
LOCK_AT(penstock_topology, local_rank, 16);
typedef uint32_t lock_penstock_topology_local_size;
LOCK_AT(penstock_topology, local_size, 20);
typedef uint32_t lock_penstock_topology_cross_rank;
LOCK_AT(penstock_topology, cross_rank, 24);
typedef uint32_t lock_penstock_topology_cross_size;
LOCK_AT(penstock_topology, cross_size, 28);

LOCK_GROWING(penstock_gradient_declaration, 56);
typedef uint64_t lock_penstock_gradient_declaration_struct_size;
LOCK_AT(penstock_gradient_declaration, struct_size, 0);
typedef penstock_str lock_penstock_gradient_declaration_name;
LOCK_AT(penstock_gradient_declaration, name, 8);
typedef const int64_t* lock_penstock_gradient_declaration_shape;
LOCK_AT(penstock_gradient_declaration, shape, 24);
typedef uint64_t lock_penstock_gradient_declaration_n_dims;
LOCK_AT(penstock_gradient_declaration, n_dims, 32);
typedef uint32_t lock_penstock_gradient_declaration_dtype;
LOCK_AT(penstock_gradient_declaration, dtype, 40);
typedef int32_t lock_penstock_gradient_declaration_device_type;
LOCK_AT(penstock_gradient_declaration, device_type, 44);
typedef int32_t lock_penstock_gradient_declaration_device_id;
LOCK_AT(penstock_gradient_declaration, device_id, 48);
typedef uint32_t lock_penstock_gradient_declaration_given_bucket;
LOCK_AT(penstock_gradient_declaration, given_bucket, 52);

LOCK_GROWING(penstock_set_declaration, 80);
typedef uint64_t lock_penstock_set_declaration_struct_size;
LOCK_AT(penstock_set_declaration, struct_size, 0);
typedef penstock_str lock_penstock_set_declaration_name;
LOCK_AT(penstock_set_declaration, name, 8);
typedef const penstock_gradient_declaration* const* lock_penstock_set_declaration_gradients;
LOCK_AT(penstock_set_declaration, gradients, 24);
typedef uint64_t lock_penstock_set_declaration_n_gradients;
LOCK_AT(penstock_set_declaration, n_gradients, 32);
typedef const uint32_t* lock_penstock_set_declaration_ranks;
LOCK_AT(penstock_set_declaration, ranks, 40);
typedef uint64_t lock_penstock_set_declaration_n_ranks;
LOCK_AT(penstock_set_declaration, n_ranks, 48);
typedef penstock_str lock_penstock_set_declaration_scheme;
LOCK_AT(penstock_set_declaration, scheme, 56);
typedef uint32_t lock_penstock_set_declaration_flags;
LOCK_AT(penstock_set_declaration, flags, 72);
typedef uint32_t lock_penstock_set_declaration_reserved;
LOCK_AT(penstock_set_declaration, reserved, 76);

LOCK_GROWING(penstock_counters, 64);
typedef uint64_t lock_penstock_counters_struct_size;
LOCK_AT(penstock_counters, struct_size, 0);
typedef uint64_t lock_penstock_counters_steps;
LOCK_AT(penstock_counters, steps, 8);
typedef uint64_t lock_penstock_counters_gradient_bytes;
LOCK_AT(penstock_counters, gradient_bytes, 16);
typedef uint64_t lock_penstock_counters_payload_bytes;
LOCK_AT(penstock_counters, payload_bytes, 24);
typedef uint64_t lock_penstock_counters_messages;
LOCK_AT(penstock_counters, messages, 32);
typedef uint64_t lock_penstock_counters_void_buckets;
LOCK_AT(penstock_counters, void_buckets, 40);
typedef uint64_t lock_penstock_counters_wait_us;
LOCK_AT(penstock_counters, wait_us, 48);
typedef uint64_t lock_penstock_counters_allocations;
LOCK_AT(penstock_counters, allocations, 56);

LOCK_GROWING(penstock_operation_declaration, 104);
typedef uint64_t lock_penstock_operation_declaration_struct_size;
LOCK_AT(penstock_operation_declaration, struct_size, 0);
typedef penstock_str lock_penstock_operation_declaration_name;
LOCK_AT(penstock_operation_declaration, name, 8);
typedef const penstock_tensor* lock_penstock_operation_declaration_input;
LOCK_AT(penstock_operation_declaration, input, 24);
typedef const penstock_tensor* lock_penstock_operation_declaration_output;
LOCK_AT(penstock_operation_declaration, output, 32);
typedef const uint64_t* lock_penstock_operation_declaration_splits;
LOCK_AT(penstock_operation_declaration, splits, 40);
typedef uint64_t lock_penstock_operation_declaration_n_splits;
LOCK_AT(penstock_operation_declaration, n_splits, 48);
typedef const uint32_t* lock_penstock_operation_declaration_ranks;
LOCK_AT(penstock_operation_declaration, ranks, 56);
typedef uint64_t lock_penstock_operation_declaration_n_ranks;
LOCK_AT(penstock_operation_declaration, n_ranks, 64);
typedef double lock_penstock_operation_declaration_prescale;
LOCK_AT(penstock_operation_declaration, prescale, 72);
typedef double lock_penstock_operation_declaration_postscale;
LOCK_AT(penstock_operation_declaration, postscale, 80);
typedef uint32_t lock_penstock_operation_declaration_pattern;
LOCK_AT(penstock_operation_declaration, pattern, 88);
typedef uint32_t lock_penstock_operation_declaration_reduction;
LOCK_AT(penstock_operation_declaration, reduction, 92);
typedef uint32_t lock_penstock_operation_declaration_root;
LOCK_AT(penstock_operation_declaration, root, 96);
typedef uint32_t lock_penstock_operation_declaration_average;
LOCK_AT(penstock_operation_declaration, average, 100);

typedef uint32_t lock_penstock_error_code(const penstock_status* error);
LOCK_TYPE(penstock_error_code, lock_penstock_error_code);

typedef penstock_str lock_penstock_error_message(const penstock_status* error);
LOCK_TYPE(penstock_error_message, lock_penstock_error_message);

typedef void lock_penstock_error_free(penstock_status* error);
LOCK_TYPE(penstock_error_free, lock_penstock_error_free);

typedef penstock_str lock_penstock_version(void);
LOCK_TYPE(penstock_version, lock_penstock_version);

typedef uint32_t lock_penstock_abi_version(void);
LOCK_TYPE(penstock_abi_version, lock_penstock_abi_version);

typedef penstock_status* lock_penstock_runtime_open(const penstock_runtime_options* options, penstock_runtime** runtime);
LOCK_TYPE(penstock_runtime_open, lock_penstock_runtime_open);

typedef void lock_penstock_runtime_close(penstock_runtime* runtime);
LOCK_TYPE(penstock_runtime_close, lock_penstock_runtime_close);

typedef void lock_penstock_abort(penstock_runtime* runtime, penstock_str reason);
LOCK_TYPE(penstock_abort, lock_penstock_abort);

typedef penstock_status* lock_penstock_runtime_topology(penstock_runtime* runtime, penstock_topology* topology);
LOCK_TYPE(penstock_runtime_topology, lock_penstock_runtime_topology);

typedef penstock_status* lock_penstock_runtime_report(penstock_runtime* runtime, void* context, penstock_text_sink sink);
LOCK_TYPE(penstock_runtime_report, lock_penstock_runtime_report);

typedef penstock_status* lock_penstock_timeline(penstock_runtime* runtime, penstock_str path);
LOCK_TYPE(penstock_timeline, lock_penstock_timeline);

typedef penstock_status* lock_penstock_set_create(penstock_runtime* runtime, const penstock_set_declaration* declaration, penstock_set** set);
LOCK_TYPE(penstock_set_create, lock_penstock_set_create);

typedef void lock_penstock_set_destroy(penstock_set* set);
LOCK_TYPE(penstock_set_destroy, lock_penstock_set_destroy);

typedef penstock_status* lock_penstock_set_learning_rate(penstock_set* set, uint64_t gradient, double learning_rate);
LOCK_TYPE(penstock_set_learning_rate, lock_penstock_set_learning_rate);

typedef penstock_status* lock_penstock_set_grad_scale(penstock_set* set, double grad_scale);
LOCK_TYPE(penstock_set_grad_scale, lock_penstock_set_grad_scale);

typedef penstock_status* lock_penstock_gradient_ready(penstock_set* set, uint64_t index, const penstock_tensor* tensor, void* stream);
LOCK_TYPE(penstock_gradient_ready, lock_penstock_gradient_ready);

typedef penstock_status* lock_penstock_wait(penstock_set* set, uint64_t index);
LOCK_TYPE(penstock_wait, lock_penstock_wait);

typedef penstock_status* lock_penstock_wait_all(penstock_set* set);
LOCK_TYPE(penstock_wait_all, lock_penstock_wait_all);

typedef penstock_status* lock_penstock_gradient_absent(penstock_set* set, uint64_t index, const penstock_tensor* tensor);
LOCK_TYPE(penstock_gradient_absent, lock_penstock_gradient_absent);

typedef penstock_status* lock_penstock_poll(penstock_set* set, uint64_t index, uint32_t* done);
LOCK_TYPE(penstock_poll, lock_penstock_poll);

typedef penstock_status* lock_penstock_set_defers(penstock_set* set, uint32_t* defers);
LOCK_TYPE(penstock_set_defers, lock_penstock_set_defers);

typedef penstock_status* lock_penstock_backward_end(penstock_set* set);
LOCK_TYPE(penstock_backward_end, lock_penstock_backward_end);

typedef penstock_status* lock_penstock_flush(penstock_set* set);
LOCK_TYPE(penstock_flush, lock_penstock_flush);

typedef penstock_status* lock_penstock_step_end(penstock_set* set, uint32_t applied);
LOCK_TYPE(penstock_step_end, lock_penstock_step_end);

typedef penstock_status* lock_penstock_set_save(penstock_set* set, void* context, void (*sink)(void* context, const void* data, uint64_t size));
LOCK_TYPE(penstock_set_save, lock_penstock_set_save);

typedef penstock_status* lock_penstock_set_load(penstock_set* set, const void* data, uint64_t size);
LOCK_TYPE(penstock_set_load, lock_penstock_set_load);

typedef penstock_status* lock_penstock_set_reset(penstock_set* set);
LOCK_TYPE(penstock_set_reset, lock_penstock_set_reset);

typedef penstock_status* lock_penstock_set_report(penstock_set* set, void* context, penstock_text_sink sink);
LOCK_TYPE(penstock_set_report, lock_penstock_set_report);

typedef penstock_status* lock_penstock_set_counters(penstock_set* set, penstock_counters* counters);
LOCK_TYPE(penstock_set_counters, lock_penstock_set_counters);

typedef penstock_status* lock_penstock_operation_submit(penstock_runtime* runtime, const penstock_operation_declaration* declaration, penstock_operation** operation);
LOCK_TYPE(penstock_operation_submit, lock_penstock_operation_submit);

typedef penstock_status* lock_penstock_operation_poll(penstock_operation* operation, uint32_t* done);
LOCK_TYPE(penstock_operation_poll, lock_penstock_operation_poll);

typedef penstock_status* lock_penstock_operation_wait(penstock_operation* operation);
LOCK_TYPE(penstock_operation_wait, lock_penstock_operation_wait);

typedef penstock_status* lock_penstock_operation_result(penstock_operation* operation, const void** data, uint64_t* bytes, const uint64_t** rows, uint64_t* n_rows);
LOCK_TYPE(penstock_operation_result, lock_penstock_operation_result);

typedef void lock_penstock_operation_release(penstock_operation* operation);
LOCK_TYPE(penstock_operation_release, lock_penstock_operation_release);

/* ---- macros, and the one symbol of a plugin ---- */
LOCK_VALUE(PENSTOCK_DTYPE_BIT(PENSTOCK_BOOL), 8192);
LOCK_VALUE(PENSTOCK_PATTERN_BIT(PENSTOCK_SPARSE_ALL_REDUCE), 512);
LOCK_VALUE(sizeof(PENSTOCK_PLUGIN_MAGIC), 16);
typedef const penstock_plugin_record lock_penstock_plugin;
LOCK_TYPE(penstock_plugin, lock_penstock_plugin);
