/* A small host in plain C that loads a compressor and runs one step of two ranks.
 *
 * Compiled three times: with the present headers, with shorter structs in the headers, and with
 * -DLONGER and headers in which every struct has one more field. Each build must work with plugins
 * of each kind: unknown fields of tables are ignored, unknown fields of arguments are zero. If the
 * plugin writes beyond a struct of this host, the guard behind the struct shows it.
 *
 *   growth_driver PLUGIN.so [refuses]    refuses: a non-zero field that the plugin does not know,
 *                                        in any argument, must give UNIMPLEMENTED */
#include <dlfcn.h>
#include <penstock/plugin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kRanks = 2, kNumel = 37, kGuardBytes = 64, kMostBlocks = 256 };

#define REQUIRE(condition, ...)               \
  do {                                        \
    if (!(condition)) {                       \
      fprintf(stderr, "growth_driver: ");     \
      fprintf(stderr, __VA_ARGS__);           \
      fprintf(stderr, " (%s)\n", #condition); \
      exit(1);                                \
    }                                         \
  } while (0)

/* ---- Memory with guards; it lives until the program ends ---- */

static struct {
  unsigned char* data;
  size_t bytes;
} blocks[kMostBlocks];
static int n_blocks;

static void* guarded(size_t bytes) {
  REQUIRE(n_blocks < kMostBlocks, "too many blocks");
  unsigned char* data = malloc(bytes + kGuardBytes);
  REQUIRE(data != NULL, "out of memory");
  memset(data, 0, bytes);
  memset(data + bytes, 0xa5, kGuardBytes);
  blocks[n_blocks].data = data;
  blocks[n_blocks++].bytes = bytes;
  return data;
}

static void check_guards(const char* after) {
  for (int i = 0; i < n_blocks; ++i)
    for (int j = 0; j < kGuardBytes; ++j)
      REQUIRE(blocks[i].data[blocks[i].bytes + j] == 0xa5,
              "%s wrote beyond a struct or buffer of %zu bytes", after, blocks[i].bytes);
}

/* A zeroed struct with its size set. */
#define MAKE(type, name)              \
  type* name = guarded(sizeof *name); \
  name->struct_size = sizeof *name

/* ---- The host ---- */

struct penstock_status {
  uint32_t code;
  char message[256];
};

static int n_statuses;

static penstock_status* status_new(void* context, uint32_t code, penstock_str message) {
  (void)context;
  penstock_status* status = calloc(1, sizeof *status);
  REQUIRE(status != NULL, "out of memory");
  status->code = code;
  memcpy(status->message, message.data, message.size < 255 ? message.size : 255);
  ++n_statuses;
  return status;
}
static uint32_t status_code(void* context, const penstock_status* status) {
  (void)context;
  return status == NULL ? PENSTOCK_OK : status->code;
}
static penstock_str status_message(void* context, const penstock_status* status) {
  (void)context;
  const penstock_str none = {NULL, 0};
  if (status == NULL) return none;
  const penstock_str view = {status->message, strlen(status->message)};
  return view;
}
static void status_free(void* context, penstock_status* status) {
  (void)context;
  if (status != NULL) --n_statuses;
  free(status);
}
static void log_line(void* context, uint32_t level, penstock_str component, penstock_str message) {
  (void)context, (void)level, (void)component, (void)message;
}
static penstock_str code_path(void* context, penstock_str kernel_family) {
  (void)context, (void)kernel_family;
  const penstock_str none = {NULL, 0};
  return none;
}
static const void* extension(void* context, penstock_str id) {
  (void)context, (void)id;
  return NULL;
}

static const penstock_host* make_host(void) {
  MAKE(penstock_host, host);
  host->abi_major = PENSTOCK_ABI_MAJOR;
  host->abi_minor = PENSTOCK_ABI_MINOR;
  host->status_new = status_new;
  host->status_code = status_code;
  host->status_message = status_message;
  host->status_free = status_free;
  host->log = log_line;
  host->code_path = code_path;
  host->extension = extension;
#ifdef LONGER
  host->future = UINT64_MAX; /* the unknown tail of a table may hold anything */
#endif
  return host;
}

static void expect(penstock_status* status, uint32_t code, const char* call) {
  REQUIRE(status_code(NULL, status) == code, "%s gave %u '%s', expected %u", call,
          status_code(NULL, status), status == NULL ? "" : status->message, code);
  status_free(NULL, status);
  check_guards(call);
}

static const penstock_module* load(const char* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  REQUIRE(library != NULL, "%s", dlerror());
  const penstock_plugin_record* record = dlsym(library, "penstock_plugin");
  REQUIRE(record != NULL, "%s has no record", path);
  REQUIRE(memcmp(record->magic, PENSTOCK_PLUGIN_MAGIC, sizeof record->magic) == 0, "no magic");
  REQUIRE(record->abi_major == PENSTOCK_ABI_MAJOR, "another major");
  REQUIRE(PENSTOCK_HAS_FIELD(record, penstock_plugin_record, load), "the record is cut off");
  REQUIRE(record->kind == PENSTOCK_KIND_COMPRESSOR, "%s is no compressor", record->id);
  const penstock_module* module = NULL;
  expect(record->load(make_host(), &module), PENSTOCK_OK, "load");
  REQUIRE(module != NULL && PENSTOCK_HAS_FIELD(module, penstock_module, n_options), "no module");
  printf("%s %s: ", record->id, record->version);
  return module;
}

/* The default value of every option. */
static const penstock_option_value** values;
static void* create(const penstock_compressor* table, const penstock_module* module) {
  values = guarded(sizeof *values * (module->n_options + 1));
  for (uint64_t i = 0; i < module->n_options; ++i) {
    const penstock_option* option = module->options[i];
    MAKE(penstock_option_value, value);
    value->name = option->name;
    value->text = option->default_text;
    value->real = option->default_real;
    value->integer = option->default_integer;
    value->type = option->type;
    value->is_default = 1;
    values[i] = value;
  }
  void* instance = NULL;
  expect(table->create(values, module->n_options, &instance), PENSTOCK_OK, "create");
  return instance;
}

/* ---- One gradient ---- */

static penstock_tensor tensor(float* data) {
  penstock_tensor view = {0};
  view.struct_size = sizeof view;
  view.data = data;
  view.numel = kNumel;
  view.dtype = PENSTOCK_FLOAT32;
  view.device_type = PENSTOCK_DEVICE_CPU;
  return view;
}

static penstock_item* make_item(void) {
  static const int64_t shape[] = {kNumel};
  MAKE(penstock_item, item);
  item->name.data = "weight";
  item->name.size = 6;
  item->numel = item->rows = kNumel;
  item->cols = item->n_dims = 1;
  item->shape = shape;
  item->flags = PENSTOCK_ITEM_KEEP;
  item->work = tensor(NULL);
  item->grad = tensor(NULL);
  item->out = tensor(NULL);
  return item;
}

static uint64_t element_bytes(uint32_t dtype) {
  switch (dtype) {
    case PENSTOCK_FLOAT32:
    case PENSTOCK_UINT32:
      return 4;
    case PENSTOCK_BFLOAT16:
    case PENSTOCK_FLOAT16:
      return 2;
    default:
      REQUIRE(0, "a section of dtype %u, expected float32, uint32 or 16 bits", dtype);
      return 0;
  }
}

static penstock_payload* make_payload(const penstock_round* round, int32_t rank) {
  MAKE(penstock_payload, payload);
  penstock_section** sections = guarded(sizeof *sections * round->n_sections);
  for (uint64_t i = 0; i < round->n_sections; ++i) {
    const penstock_section_bound* bound = round->sections[i];
    MAKE(penstock_section, section);
    section->data = guarded(bound->capacity * element_bytes(bound->dtype));
    section->capacity = bound->capacity;
    section->role = bound->role;
    section->dtype = bound->dtype;
    sections[i] = section;
  }
  payload->sections = sections;
  payload->n_sections = round->n_sections;
  payload->rank = rank;
  return payload;
}

/* payloads[0] += payloads[1], as an all-reduce does. */
static void add(penstock_payload* const* payloads) {
  for (uint64_t i = 0; i < payloads[0]->n_sections; ++i) {
    const penstock_section* sum = payloads[0]->sections[i];
    REQUIRE(sum->dtype == PENSTOCK_FLOAT32, "a summed section of dtype %u", sum->dtype);
    REQUIRE(sum->count == sum->capacity, "a summed section is not full");
    for (uint64_t j = 0; j < sum->count; ++j)
      ((float*)sum->data)[j] += ((const float*)payloads[1]->sections[i]->data)[j];
  }
  payloads[0]->rank = -1;
}

static void fill(float* work, int rank) {
  for (int i = 0; i < kNumel; ++i) work[i] = (float)((i * 7919 + rank * 104729) % 2003 - 1001) / 64;
}

#ifdef LONGER
/* One call for each struct that the plugin reads. A field that the plugin cannot know is set. */
static void expect_refusals(const penstock_compressor* table, void* instance, penstock_exec* exec,
                            penstock_step* step, penstock_item* item, penstock_payload* payload,
                            penstock_compressor_need* need) {
  const struct {
    const char* name;
    uint64_t* field;
    int planned; /* plan reads it too */
  } unknown[] = {{"penstock_exec", &exec->future, 0},
                 {"penstock_step", &step->future, 0},
                 {"penstock_item", &item->future, 1},
                 {"penstock_payload", &payload->future, 0},
                 {"penstock_section", &payload->sections[0]->future, 0}};
  const penstock_item* const items[] = {item};
  penstock_payload* const payloads[] = {payload};
  penstock_compressor_need* const needs[] = {need};
  const penstock_payload* const received[] = {payload};
  float before[kNumel];
  memcpy(before, item->work.data, sizeof before);
  for (size_t i = 0; i < sizeof unknown / sizeof *unknown; ++i) {
    *unknown[i].field = 1;
    expect(table->encode(instance, exec, step, 0, items, 1, payloads), PENSTOCK_UNIMPLEMENTED,
           unknown[i].name);
    expect(table->decode(instance, exec, step, 0, items, 1, received, 1, PENSTOCK_DECODE_LAST),
           PENSTOCK_UNIMPLEMENTED, unknown[i].name);
    if (unknown[i].planned)
      expect(table->plan(instance, 0, kRanks, items, 1, needs), PENSTOCK_UNIMPLEMENTED,
             unknown[i].name);
    *unknown[i].field = 0;
  }
  REQUIRE(memcmp(before, item->work.data, sizeof before) == 0, "a refused encode changed work");
  expect(table->encode(instance, exec, step, 0, items, 1, payloads), PENSTOCK_OK,
         "encode after the refusals");
}

static void expect_refused_option(const penstock_compressor* table, const penstock_module* module) {
  if (module->n_options == 0) return;
  penstock_option_value* last = (penstock_option_value*)values[module->n_options - 1];
  last->future = 1;
  void* instance = &last;
  expect(table->create(values, module->n_options, &instance), PENSTOCK_UNIMPLEMENTED, "create");
  REQUIRE(instance == &last, "a refused create touched *instance");
  last->future = 0;
}
#endif

int main(int argc, char** argv) {
  REQUIRE(argc == 2 || argc == 3, "usage: growth_driver PLUGIN.so [refuses]");
  const penstock_module* module = load(argv[1]);
  const penstock_compressor* table = module->table;
  REQUIRE(PENSTOCK_HAS_FIELD(table, penstock_compressor, decode), "the table is cut off");
  void* instance = create(table, module);

  MAKE(penstock_compressor_traits, traits);
  expect(table->describe(instance, traits), PENSTOCK_OK, "describe");
  REQUIRE((traits->dtypes & PENSTOCK_DTYPE_BIT(PENSTOCK_FLOAT32)) != 0, "float32 is not served");
  REQUIRE(traits->struct_size == sizeof *traits, "describe changed struct_size");

  penstock_item* item = make_item();
  const penstock_item* items[] = {item};
  MAKE(penstock_compressor_need, need);
  penstock_compressor_need* needs[] = {need};
  expect(table->plan(instance, 0, kRanks, items, 1, needs), PENSTOCK_OK, "plan");
  REQUIRE(need->struct_size == sizeof *need, "plan changed struct_size");
  REQUIRE(need->n_rounds == 1 && need->n_states == 0, "this driver carries one round, no states");

  MAKE(penstock_exec, exec);
  exec->device_type = PENSTOCK_DEVICE_CPU;
  exec->scratch_bytes = need->scratch_bytes;
  exec->scratch = guarded(need->scratch_bytes);
  MAKE(penstock_step, step);
  step->index = 5;
  step->grad_scale = 1;
  step->world = kRanks;

  const penstock_round* round = need->rounds[0];
  penstock_payload* payloads[kRanks];
  float before[kRanks][kNumel];
  float* work[kRanks];
  for (int rank = 0; rank < kRanks; ++rank) {
    work[rank] = guarded(kNumel * sizeof(float));
    fill(work[rank], rank);
    memcpy(before[rank], work[rank], sizeof before[rank]);
    payloads[rank] = make_payload(round, rank);
    item->work = tensor(work[rank]);
    step->rank = (uint32_t)rank;
    expect(table->encode(instance, exec, step, 0, items, 1, &payloads[rank]), PENSTOCK_OK,
           "encode");
  }
  const int summed = round->combine == PENSTOCK_COMBINE_SUM;
  if (summed) add(payloads);
  float* out = guarded(kNumel * sizeof(float));
  item->out = tensor(out);
  expect(table->decode(instance, exec, step, 0, items, 1, (const penstock_payload* const*)payloads,
                       summed ? 1 : kRanks, PENSTOCK_DECODE_FIRST | PENSTOCK_DECODE_LAST),
         PENSTOCK_OK, "decode");

  /* Conservation, to the bit: both differences and their sum are multiples of 1/64 below 2^12. */
  int n_sent = 0;
  for (int i = 0; i < kNumel; ++i) {
    const float taken = (before[0][i] - work[0][i]) + (before[1][i] - work[1][i]);
    REQUIRE(out[i] == taken, "entry %d: %g arrived, %g was taken out", i, (double)out[i],
            (double)taken);
    n_sent += taken != 0;
  }
  REQUIRE(n_sent > 0, "nothing was sent");

#ifdef LONGER
  if (argc == 3) {
    expect_refused_option(table, module);
    expect_refusals(table, instance, exec, step, item, payloads[1], need);
  }
#endif
  table->destroy(instance);
  check_guards("destroy");
  REQUIRE(n_statuses == 0, "%d statuses were made and not handed over", n_statuses);
  printf("%d of %d entries carried\n", n_sent, (int)kNumel);
  return 0;
}
