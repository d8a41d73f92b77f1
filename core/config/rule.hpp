// Reads [[rule]], and options that differ from the options in an instance's own table.
#pragma once

#include "core/config/config.hpp"
#include "core/config/tree.hpp"

namespace penstock {

using Overrides = std::map<std::pair<Kind, std::string>, Settings>;  // by instance

// `title` names the rule in messages.
Result<Rule> read_rule(const Node& node, const std::string& title);
// The `KIND.INSTANCE.OPTION` part, checked except for the instance's existence.
Status read_options(Kind kind, const Node& node, const std::string& prefix, Overrides& options);

}  // namespace penstock
