/* The plugin record: the one symbol a plugin exports, `penstock_plugin`.
 *
 * Constant data with inline strings, so that the loader can read it from the file before any code of the plugin runs.
 * Files are named KIND-NAME.so; a plugin is known by the id in its record, not by its file name. */
#ifndef PENSTOCK_PLUGIN_H
#define PENSTOCK_PLUGIN_H

#include <penstock/collective.h>
#include <penstock/compressor.h>
#include <penstock/host.h>
#include <penstock/memory.h>
#include <penstock/scheduler.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
  PENSTOCK_KIND_COMPRESSOR = 1,
  PENSTOCK_KIND_MEMORY = 2,
  PENSTOCK_KIND_COLLECTIVE = 3,
  PENSTOCK_KIND_SCHEDULER = 4
};

#define PENSTOCK_PLUGIN_MAGIC "PENSTOCK-PLUGIN" /* 15 characters and a zero */

/* What load hands over: static data, valid for ever. */
typedef struct penstock_module {
  uint64_t struct_size;
  const void* table; /* penstock_compressor, penstock_memory, penstock_collective or penstock_scheduler */
  const penstock_option* const* options; /* [n_options] */
  uint64_t n_options;
} penstock_module;

typedef struct penstock_plugin_record {
  char magic[16];
  uint64_t struct_size;
  uint32_t abi_major;      /* must equal the host's */
  uint32_t abi_minor;      /* built with; for messages only */
  uint32_t min_host_minor; /* the host must have at least this; 0 unless the plugin needs more */
  uint32_t kind;
  char id[64];       /* KIND/NAME, for example "compressor/topk" */
  char version[32];  /* of the plugin, major.minor.patch */
  char summary[160]; /* one sentence */
  char license[32];  /* SPDX */
  char source[160];  /* the paper, or empty */
  /* [load] Idempotent; called once per runtime. Must not start threads, touch a device or read the environment. */
  penstock_status* (*load)(const penstock_host* host, const penstock_module** module);
} penstock_plugin_record;

#if defined(_WIN32)
#define PENSTOCK_EXPORT __declspec(dllexport)
#else
#define PENSTOCK_EXPORT __attribute__((visibility("default")))
#endif

/* The exported symbol, defined once by each plugin. */
extern PENSTOCK_EXPORT const penstock_plugin_record penstock_plugin;

#ifdef __cplusplus
}
#endif
#endif /* PENSTOCK_PLUGIN_H */
