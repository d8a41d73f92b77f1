// Calls into plugins during a step.
#pragma once

#include "core/config/defaults.hpp"
#include "core/plugin/instances.hpp"

#include <penstock/exception.hpp>

#include <new>
#include <span>
#include <string_view>

namespace penstock {

// [step] Runs `call`, which calls the plugin and returns its status. If the status shows a bug of
// the plugin (INTERNAL, or out of memory), or if the plugin throws, which it must not do, the error
// names plugin, stage and gradient. Other errors are the plugin's own sentences and are returned
// unchanged. Nothing is allocated if there is no error.
template <typename Table, typename Call>
Status call_plugin(const Instance<Table>& plugin, std::string_view stage,
                   std::span<const penstock_item* const> items, Call&& call) {
  const auto thrown = [&]() -> Status {
    try {
      return from_c(call());
    } catch (const std::bad_alloc&) {
      return Status(Code::out_of_memory, "out of memory");
    } catch (...) {
      return internal("it threw {}, where a plugin returns a status",
                      sdk::current_exception_text());
    }
  };
  Status status = thrown();
  if (status.ok() || (status.code() != Code::internal && status.code() != Code::out_of_memory))
    return status;
  const std::string_view id =
      plugin.plugin() != nullptr ? plugin.plugin()->record.id : defaults::kBorrowedCollective;
  const std::string first = items.empty() ? std::string("no gradient")
                                          : fmt::format("gradient '{}'", view(items[0]->name));
  const std::string others =
      items.size() > 1 ? fmt::format(" and {} more of its bucket", items.size() - 1) : "";
  return status.with_context(fmt::format("{} '{}' ({}): {} of {}{}",
                                         kind_name(TableTraits<Table>::kKind), plugin.name(), id,
                                         stage, first, others));
}

}  // namespace penstock
