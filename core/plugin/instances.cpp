#include "core/plugin/instances.hpp"

#include <penstock/draft/collective.h>
#include <penstock/draft/scheduler.h>

namespace penstock {

namespace {

// A declared feature that the core does not use is refused, and never silently ignored.
Status check_draft(uint32_t flags, uint32_t draft, std::string_view name, std::string_view header) {
  if ((flags & draft) == 0) return {};
  return unimplemented(
      "its traits say {}, a draft that this version does not act on (penstock/draft/{}); leave out "
      "the flag, or use a Penstock that knows it",
      name, header);
}

Status check_flags(uint32_t flags, uint32_t known) {
  if ((flags & ~known) == 0) return {};
  return unimplemented(
      "its traits have flags {:#x}, expected bits of {:#x} only: no other is known here", flags,
      known);
}

// No device type at all: older plugins leave the field zero.
Status check_works_on_cpu(uint64_t device_types) {
  if (device_types == 0 || (device_types >> PENSTOCK_DEVICE_CPU & 1) != 0) return {};
  return unimplemented(
      "its traits name device types {:#x} without the CPU ({:#x}), where this version keeps states "
      "and messages",
      device_types, uint64_t{1} << PENSTOCK_DEVICE_CPU);
}

// A table must have the functions that its traits promise. The core checks it here and not at step
// 1000.
Status check_traits(const penstock_compressor*, const penstock_compressor_traits& traits) {
  if (traits.dtypes == 0 || traits.device_types == 0) {
    return invalid_argument("its traits name no dtypes or no device types");
  }
  return check_flags(traits.flags, PENSTOCK_COMPRESSOR_UNBIASED | PENSTOCK_COMPRESSOR_RANDOM |
                                       PENSTOCK_COMPRESSOR_NEEDS_MEMORY |
                                       PENSTOCK_COMPRESSOR_NEEDS_KEPT_MASS |
                                       PENSTOCK_COMPRESSOR_SCALES_RESULT);
}

Status check_traits(const penstock_memory*, const penstock_memory_traits& traits) {
  if (traits.device_types == 0) return invalid_argument("its traits name no device types");
  if (traits.flags != 0)
    return unimplemented("its traits have flags {:#x}, expected 0: none is known", traits.flags);
  return check_works_on_cpu(traits.device_types);
}

Status check_traits(const penstock_collective* table, const penstock_collective_traits& traits) {
  const bool transport = (traits.flags & PENSTOCK_COLLECTIVE_TRANSPORT) != 0;
  const bool composite = (traits.flags & PENSTOCK_COLLECTIVE_COMPOSITE) != 0;
  if (transport == composite) {
    return invalid_argument(
        "its traits say {}, expected either TRANSPORT or COMPOSITE",
        transport ? "TRANSPORT and COMPOSITE" : "neither TRANSPORT nor COMPOSITE");
  }
  if (transport && (!PENSTOCK_HAS_MEMBER(table, penstock_collective, join) ||
                    !PENSTOCK_HAS_MEMBER(table, penstock_collective, leave))) {
    return invalid_argument("it is a transport without join or leave");
  }
  if ((traits.flags & PENSTOCK_COLLECTIVE_MAY_REFUSE) != 0 &&
      !PENSTOCK_HAS_MEMBER(table, penstock_collective, returned)) {
    return invalid_argument("its traits say MAY_REFUSE, but its table has no returned");
  }
  if (traits.max_in_flight != 0)
    return unimplemented(
        "its traits limit a channel to {} messages in flight, expected 0: this version sends "
        "without a limit; let submit queue the messages above the limit",
        traits.max_in_flight);
  if ((traits.device_patterns & ~traits.patterns) != 0)
    return invalid_argument(
        "its traits name patterns {:#x} for memory of devices, expected some of its patterns {:#x}",
        traits.device_patterns, traits.patterns);
  PENSTOCK_TRY(check_draft(traits.flags, PENSTOCK_COLLECTIVE_DEVICE_COUNTS, "DEVICE_COUNTS",
                           "collective.h"));
  PENSTOCK_TRY(check_flags(
      traits.flags, PENSTOCK_COLLECTIVE_TRANSPORT | PENSTOCK_COLLECTIVE_COMPOSITE |
                        PENSTOCK_COLLECTIVE_ORDERED | PENSTOCK_COLLECTIVE_SAME_BITS |
                        PENSTOCK_COLLECTIVE_RANK_ORDER | PENSTOCK_COLLECTIVE_MAY_REFUSE |
                        PENSTOCK_COLLECTIVE_PROCESS_GLOBAL | PENSTOCK_COLLECTIVE_IS_NOTIFIED |
                        PENSTOCK_COLLECTIVE_TAKES_FINISHED));
  // A transport may be only for devices. Then its key is [transport] device.
  return transport ? Status() : check_works_on_cpu(traits.device_types);
}

Status check_traits(const penstock_scheduler* table, const penstock_scheduler_traits& traits) {
  if (traits.routes == 0) return invalid_argument("its traits name no route");
  PENSTOCK_TRY(
      check_draft(traits.flags, PENSTOCK_SCHEDULER_NEGOTIATES, "NEGOTIATES", "scheduler.h"));
  PENSTOCK_TRY(check_flags(traits.flags, PENSTOCK_SCHEDULER_LAUNCHES_IN_FORWARD |
                                             PENSTOCK_SCHEDULER_MEASURES |
                                             PENSTOCK_SCHEDULER_CHOOSES));
  const bool measures =
      (traits.flags & PENSTOCK_SCHEDULER_MEASURES) != 0 || traits.observe_every > 0;
  if (measures && !PENSTOCK_HAS_MEMBER(table, penstock_scheduler, observe)) {
    return invalid_argument(
        "its traits say MEASURES or observe_every, but its table has no observe");
  }
  return {};
}

template <typename Table, typename Traits>
Status describe(const Table* table, void* self, Traits& traits) {
  traits.struct_size = sizeof traits;
  if constexpr (std::is_same_v<Table, penstock_memory>) {
    // Only the table of memories may lack describe.
    traits.device_types = uint64_t{1} << PENSTOCK_DEVICE_CPU;
    if (!PENSTOCK_HAS_MEMBER(table, penstock_memory, describe)) return {};
  }
  PENSTOCK_TRY(from_c(table->describe(self, &traits)).with_context("describe"));
  if (traits.struct_size != sizeof traits)
    return invalid_argument("describe changed the struct_size of its traits from {} to {}",
                            sizeof traits, traits.struct_size);
  return check_traits(table, traits);
}

}  // namespace

template <typename Table>
Result<std::unique_ptr<Instance<Table>>> Instance<Table>::make(
    const InstanceConfig& config, std::shared_ptr<const Plugin> plugin) {
  const std::string title = fmt::format("{}.{}", kind_name(config.kind), config.name);
  const Table* table = plugin ? plugin->as<Table>() : nullptr;
  if (table == nullptr) {
    return internal("{}: {} is not a {}", title, plugin ? plugin->record.id : "no plugin",
                    kind_name(TableTraits<Table>::kKind));
  }
  PENSTOCK_ASSIGN(OptionValues options, resolve_options(plugin->options, plugin->n_options,
                                                        config.options, title, config.where));
  // First make the object, so that every later error destroys the instance.
  std::unique_ptr<Instance> instance(new Instance);
  instance->name_ = config.name;
  instance->options_ = std::move(options);
  const std::string place = fmt::format("{}: {} ({})", config.where.text(), title, plugin->path);
  void* self = nullptr;
  PENSTOCK_TRY(from_c(table->create(instance->options_.data(), instance->options_.size(), &self))
                   .with_context(fmt::format("{}: create", place)));
  instance->plugin_ = std::move(plugin);
  instance->table_ = table;
  instance->self_ = self;
  PENSTOCK_TRY(describe(table, self, instance->traits_).with_context(place));
  return instance;
}

template <typename Table>
Result<std::unique_ptr<Instance<Table>>> Instance<Table>::borrow(std::string name,
                                                                 const Table* table, void* self) {
  if (table == nullptr)
    return invalid_argument("{} \"{}\": its table is null", kind_name(TableTraits<Table>::kKind),
                            name);
  std::unique_ptr<Instance> instance(new Instance);
  instance->table_ = table;
  instance->self_ = self;
  PENSTOCK_TRY(describe(table, self, instance->traits_).with_context(name));
  instance->name_ = std::move(name);
  return instance;
}

template <typename Table>
Instance<Table>::~Instance() {
  if (plugin_) table_->destroy(self_);
}

template class Instance<penstock_compressor>;
template class Instance<penstock_memory>;
template class Instance<penstock_collective>;
template class Instance<penstock_scheduler>;

}  // namespace penstock
