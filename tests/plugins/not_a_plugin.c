/* A valid shared object that is not a plugin. */
#include <stdint.h>

__attribute__((visibility("default"))) const uint64_t something_else = 1;
