// The layout lock as C++ sees it: compiling it is the test.
#include "layout.h"
