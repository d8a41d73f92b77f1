// The exported record of a plugin, made at compile time: constant data with inline strings.
#pragma once

#include <penstock/plugin.h>
#include <penstock/options.hpp>

#include <algorithm>
#include <atomic>

namespace penstock::sdk {

// The plugin's description of itself.
struct About {
  const char* id;       // "compressor/topk"
  const char* version;  // "0.1.0"
  const char* summary;  // one sentence
  const char* source = "";
  const char* license = "Apache-2.0";
};

template <std::size_t size>
constexpr void copy_text(char (&target)[size], const char* text) {
  std::size_t i = 0;
  for (; text[i] != '\0'; ++i) {
    if (i + 1 >= size) throw "text is too long for the plugin record";  // fails to compile
    target[i] = text[i];
  }
  for (; i < size; ++i) target[i] = '\0';
}

constexpr penstock_plugin_record make_record(uint32_t kind, const About& about,
                                             penstock_status* (*load)(const penstock_host*,
                                                                      const penstock_module**)) {
  penstock_plugin_record record{};
  copy_text(record.magic, PENSTOCK_PLUGIN_MAGIC);
  record.struct_size = sizeof record;
  record.abi_major = PENSTOCK_ABI_MAJOR;
  record.abi_minor = PENSTOCK_ABI_MINOR;
  record.min_host_minor = 0;
  record.kind = kind;
  copy_text(record.id, about.id);
  copy_text(record.version, about.version);
  copy_text(record.summary, about.summary);
  copy_text(record.license, about.license);
  copy_text(record.source, about.source);
  record.load = load;
  return record;
}

// The load function of a plugin: `table` is its table, and `T::options` are its options.
template <typename T, const auto& table>
penstock_status* load(const penstock_host* from, const penstock_module** module) {
  host_slot() = from;
  return guarded([&] {
    static const penstock_module loaded{sizeof(penstock_module), &table, T::options.data(),
                                        T::options.size()};
    *module = &loaded;
  });
}

// Checks, in debug builds, that calls of one instance never overlap, as the thread marks of the
// headers promise.
class OneAtATime {
 public:
  class Guard {
   public:
    explicit Guard(OneAtATime& owner) : owner_(owner) {
#ifndef NDEBUG
      if (owner_.busy_.exchange(true)) {
        overlapping_ = true;
        throw internal("two calls of one instance overlap; [control] and [step] calls must not");
      }
#endif
    }
    ~Guard() {
#ifndef NDEBUG
      if (!overlapping_) owner_.busy_.store(false);
#endif
    }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    [[maybe_unused]] OneAtATime& owner_;
    [[maybe_unused]] bool overlapping_ = false;
  };

 private:
  [[maybe_unused]] std::atomic<bool> busy_{false};
};

}  // namespace penstock::sdk

// Defines the exported symbol. `KIND` is PENSTOCK_KIND_COMPRESSOR, _MEMORY, _COLLECTIVE or
// _SCHEDULER; `Table` is the class template of its table, and `Type` is the plugin's class.
#define PENSTOCK_DEFINE_PLUGIN(KIND, Table, Type, ...)                      \
  extern "C" PENSTOCK_EXPORT const penstock_plugin_record penstock_plugin = \
      ::penstock::sdk::make_record(                                         \
          KIND, ::penstock::sdk::About{__VA_ARGS__},                        \
          &::penstock::sdk::load<Type, ::penstock::sdk::Table<Type>::table>)
