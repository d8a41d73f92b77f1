// Names that files written for earlier versions use.
#pragma once

#include "core/config/tree.hpp"

namespace penstock {

// Replaces former names in a parsed file by current names. Places do not change, so messages point
// to the line that the user wrote. INVALID_ARGUMENT if a table has both a name and its former name.
Status replace_former_names(Node& root);

}  // namespace penstock
