/* Plugins with one fault each, chosen by a macro. Code runs only in plugins whose fault appears
 * after loading. */
#include <penstock/plugin.h>
#include <stdlib.h>

#define TEXT(literal) \
  { literal, sizeof(literal) - 1 }

static const penstock_host* host;

static penstock_status* fail(void) {
  const penstock_str text = TEXT("the villain does not want to");
  return host->status_new(host->context, PENSTOCK_FAILED_PRECONDITION, text);
}

static int alive;

static penstock_status* create(const penstock_option_value* const* options, uint64_t n_options,
                               void** instance) {
  (void)options;
  (void)n_options;
  (void)instance;
#ifdef CREATE_FAILS
  return fail();
#else
  ++alive;
  *instance = &alive;
  return NULL;
#endif
}

static void destroy(void* instance) {
  (void)instance;
  --alive;
  /* Destroyed but never created. */
  if (alive < 0) abort();
}

static penstock_status* describe(void* instance, penstock_compressor_traits* traits) {
  (void)instance;
  (void)traits;
#ifdef DESCRIBE_FAILS
  return fail();
#else
  traits->dtypes = PENSTOCK_DTYPE_BIT(PENSTOCK_FLOAT32);
#ifndef NO_DEVICES
  traits->device_types = (uint64_t)1 << PENSTOCK_DEVICE_CPU;
#endif
  return NULL;
#endif
}

static penstock_status* plan(void* instance, uint32_t phase, uint32_t world,
                             const penstock_item* const* items, uint64_t n_items,
                             penstock_compressor_need* const* needs) {
  (void)instance, (void)phase, (void)world, (void)items, (void)n_items, (void)needs;
  return fail();
}

static penstock_status* encode(void* instance, const penstock_exec* exec, const penstock_step* step,
                               uint32_t round, const penstock_item* const* items, uint64_t n_items,
                               penstock_payload* const* payloads) {
  (void)instance, (void)exec, (void)step, (void)round, (void)items, (void)n_items, (void)payloads;
  return fail();
}

static penstock_status* decode(void* instance, const penstock_exec* exec, const penstock_step* step,
                               uint32_t round, const penstock_item* const* items, uint64_t n_items,
                               const penstock_payload* const* payloads, uint64_t n_ranks,
                               uint32_t flags) {
  (void)instance, (void)exec, (void)step, (void)round, (void)items, (void)n_items, (void)payloads,
      (void)n_ranks, (void)flags;
  return fail();
}

static const penstock_compressor table = {
#ifdef SHORT_TABLE
    .struct_size = offsetof(penstock_compressor, decode),
#else
    .struct_size = sizeof table,
#endif
    .create = create,
    .destroy = destroy,
    .describe = describe,
    .plan = plan,
#ifndef MISSING_ENCODE
    .encode = encode,
#endif
    .decode = decode};

static const penstock_option option = {.struct_size = sizeof option,
                                       .name = TEXT("level"),
                                       .summary = TEXT("A number."),
                                       .minimum = 5,
                                       .maximum = 1,
                                       .type = PENSTOCK_OPTION_INTEGER};
static const penstock_option* const options[] = {&option};

static const penstock_module module = {.struct_size = sizeof module,
#ifndef NULL_TABLE
                                       .table = &table,
#endif
#ifdef BAD_OPTION
                                       .options = options,
                                       .n_options = 1
#endif
};

static penstock_status* load(const penstock_host* given, const penstock_module** result) {
  host = given;
  (void)options;
  (void)encode;
  (void)fail;
  (void)module;
  (void)result;
#ifdef LOAD_FAILS
  return fail();
#else
#ifdef NULL_MODULE
  *result = NULL;
#else
  *result = &module;
#endif
  return NULL;
#endif
}

#ifndef RECORD_MAGIC
#define RECORD_MAGIC PENSTOCK_PLUGIN_MAGIC
#endif
#ifndef RECORD_SIZE
#define RECORD_SIZE sizeof penstock_plugin
#endif
#ifndef RECORD_MAJOR
#define RECORD_MAJOR PENSTOCK_ABI_MAJOR
#endif
#ifndef RECORD_MIN_MINOR
#define RECORD_MIN_MINOR 0
#endif
#ifndef RECORD_KIND
#define RECORD_KIND PENSTOCK_KIND_COMPRESSOR
#endif
#ifndef RECORD_ID
#define RECORD_ID "compressor/villain"
#endif
#ifndef RECORD_SUMMARY
#define RECORD_SUMMARY "Has one fault."
#endif
#ifdef NULL_LOAD
#define RECORD_LOAD NULL
#else
#define RECORD_LOAD load
#endif

penstock_status* (*const unused_load)(const penstock_host*, const penstock_module**) = load;

const penstock_plugin_record penstock_plugin = {.magic = RECORD_MAGIC,
                                                .struct_size = RECORD_SIZE,
                                                .abi_major = RECORD_MAJOR,
                                                .abi_minor = PENSTOCK_ABI_MINOR,
                                                .min_host_minor = RECORD_MIN_MINOR,
                                                .kind = RECORD_KIND,
                                                .id = RECORD_ID,
                                                .version = "1.0.0",
                                                .summary = RECORD_SUMMARY,
                                                .license = "Apache-2.0",
                                                .source = "",
                                                .load = RECORD_LOAD};
