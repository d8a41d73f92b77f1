/* Options: declared once by a plugin; from that table come TOML checking, `penstock plugins describe` and the docs. */
#ifndef PENSTOCK_OPTION_H
#define PENSTOCK_OPTION_H

#include <penstock/base.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
  PENSTOCK_OPTION_BOOL = 1,
  PENSTOCK_OPTION_INTEGER = 2,
  PENSTOCK_OPTION_REAL = 3,
  PENSTOCK_OPTION_STRING = 4,
  PENSTOCK_OPTION_CHOICE = 5 /* a string out of `choices` */
};

enum {
  PENSTOCK_OPTION_REQUIRED = 1u << 0,   /* no default: the user must set it */
  PENSTOCK_OPTION_RANK_LOCAL = 1u << 1, /* may differ between ranks; every other option must be equal on all */
  PENSTOCK_OPTION_OPEN_MINIMUM = 1u << 2, /* `minimum` itself is not allowed, as in (0, 1] */
  PENSTOCK_OPTION_OPEN_MAXIMUM = 1u << 3  /* `maximum` itself is not allowed, as in [0, 1); hosts before ABI 0.4 allow it */
};

/* One option. Static data of the plugin, valid for ever. */
typedef struct penstock_option {
  uint64_t struct_size;
  penstock_str name;    /* lower_snake_case, unique in the plugin */
  penstock_str summary; /* one sentence */
  penstock_str unit;    /* "bytes", "us", "fraction", ... or empty */
  const penstock_str* choices; /* CHOICE: [n_choices]; penstock_str never grows */
  uint64_t n_choices;
  double minimum; /* INTEGER and REAL: inclusive bounds; -HUGE_VAL or HUGE_VAL where open ended */
  double maximum;
  double default_real;
  int64_t default_integer; /* BOOL: 0 or 1 */
  penstock_str default_text;
  uint32_t type;
  uint32_t flags;
} penstock_option;

/* The value of one option. The host passes one value per declared option, in declaration order, defaults filled in
 * and ranges checked; a plugin only checks what concerns several options at once. */
typedef struct penstock_option_value {
  uint64_t struct_size;
  penstock_str name;
  penstock_str text;
  double real;
  int64_t integer; /* BOOL: 0 or 1 */
  uint32_t type;
  uint32_t is_default; /* 1 when the user did not set it */
} penstock_option_value;

#ifdef __cplusplus
}
#endif
#endif /* PENSTOCK_OPTION_H */
