/* A sound shared object that is no plugin. */
#include <stdint.h>

__attribute__((visibility("default"))) const uint64_t something_else = 1;
