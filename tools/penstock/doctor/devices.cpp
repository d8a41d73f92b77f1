// penstock doctor on devices. What loads drivers and plugins runs in a process of its own, for on a
// machine that is looked at because something is wrong they may end it.
#include "tools/penstock/doctor/devices.hpp"

#include "core/device/devices.hpp"
#include "core/device/table.hpp"
#include "core/fit/resolve.hpp"
#include "tools/penstock/check/tests.hpp"
#include "tools/penstock/commands.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace penstock::command {

namespace {

constexpr double kSeconds = 60;  // drivers take long to start where nothing else holds a device

// Errors tell what was found, and behind the last semicolon what to do.
std::pair<std::string, std::string> found_and_mend(const std::string& message) {
  const size_t end = message.rfind("; ");
  if (end == std::string::npos) return {message, ""};
  return {message.substr(0, end), message.substr(end + 2)};
}

// ---- Devices ----

Result<Json> describe(const penstock_device_table& table, int32_t id) {
  penstock_device_properties properties{};
  properties.struct_size = sizeof properties;
  if (const int32_t error = table.properties(id, &properties); error != 0)
    return Device(table, id).check(error, "say what it is");
  return Json{{"name", fmt::format("cuda:{}", id)},
              {"model", properties.name},
              {"compute_capability", fmt::format("{}.{}", properties.major, properties.minor)},
              {"memory_bytes", properties.memory_bytes},
              {"multiprocessors", properties.n_multiprocessors},
              {"copy_engines", properties.n_copy_engines}};
}

// skipped: there is no table; warning: it finds no device. The reason is JSON where all is well.
TestOutcome find_devices(const std::filesystem::path& file) {
  const Result<const penstock_device_table*> table = load_device_table(file);
  if (table.status().code() == Code::not_found)
    return {Verdict::skipped, std::string(table.status().message())};
  if (!table.ok()) return table.status();
  const Result<int32_t> count = Devices(table.value()).count();
  if (count.status().code() == Code::not_found)
    return {Verdict::warning, std::string(count.status().message())};
  if (!count.ok()) return count.status();
  Json devices = Json::array();
  for (int32_t id = 0; id < count.value(); ++id) {
    const Result<Json> device = describe(*table.value(), id);
    if (!device.ok()) return device.status();
    devices.push_back(device.value());
  }
  return {Verdict::ok, devices.dump()};
}

// Of the NVIDIA driver, whatever Penstock was built with; 0 also where there is none. -1: it does
// not start.
int devices_of_driver() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) return 0;
  const auto initialise = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
  const auto count = reinterpret_cast<int (*)(int*)>(dlsym(driver, "cuDeviceGetCount"));
  constexpr int kNoDevice = 100;
  int devices = 0;
  const int started = initialise != nullptr ? initialise(0) : -1;
  if (started == kNoDevice) return 0;
  if (started != 0 || count == nullptr || count(&devices) != 0) return -1;
  return devices;
}

Line without_table(const std::string& message) {
  const auto [found, mend] = found_and_mend(message);
  int devices = -1;
  const TestOutcome asked = isolated(
      []() -> TestOutcome {
        return {Verdict::ok, std::to_string(devices_of_driver())};
      },
      kSeconds);
  if (asked.verdict == Verdict::ok) devices = std::stoi(asked.reason);
  if (devices == 0) return {"cuda", Health::ok, found, ""};
  if (devices < 0)
    return {"cuda", Health::warning,
            "the NVIDIA driver's library is there but does not start; " + found,
            "run nvidia-smi; the kernel module may be missing or older than the library"};
  return {"cuda", Health::warning,
          fmt::format("the driver has {} device(s), but {}", devices, found),
          mend +
              "; until then frontends copy what lies on a device to the host, and each copy "
              "waits for the device"};
}

Line line_of(const Json& device) {
  constexpr double kGib = 1 << 30;
  const std::string found = fmt::format(
      "{}: {}, compute capability {}, {:.1f} GiB; gradients are taken from and to it",
      device["name"].get<std::string>(), device["model"].get<std::string>(),
      device["compute_capability"].get<std::string>(), device["memory_bytes"].get<double>() / kGib);
  return {"cuda", Health::ok, found, "", Json{{"device", device}}};
}

// ---- Schemes ----

template <typename Table>
Result<uint64_t> device_types(const Scheme& scheme, const std::string& name, Registry& registry) {
  PENSTOCK_ASSIGN(const auto instance, make_instance<Table>(scheme, name, registry));
  return instance->traits().device_types;
}

// Where an instance works, a bit per device type. Schedulers plan on the host, for whatever device.
Result<uint64_t> device_types(const Scheme& scheme, Kind kind, const std::string& name,
                              Registry& registry) {
  switch (kind) {
    case Kind::compressor:
      return device_types<penstock_compressor>(scheme, name, registry);
    case Kind::memory:
      return device_types<penstock_memory>(scheme, name, registry);
    case Kind::collective:
      // A frontend's own transport takes what lies in host memory.
      if (scheme.find(kind, name)->plugin == kLentCollective)
        return uint64_t{1} << PENSTOCK_DEVICE_CPU;
      return device_types<penstock_collective>(scheme, name, registry);
    default:
      return ~uint64_t{0};
  }
}

// Of all stages: "compressor topk", by where it works.
struct Sides {
  std::vector<std::string> on_device, through_host;
};

void add_once(std::vector<std::string>& names, const std::string& name) {
  if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
}

Result<Sides> sides_of(const std::string& file, const std::vector<std::string>& plugin_path) {
  PENSTOCK_ASSIGN(const OpenedConfig opened, open_config(file, plugin_path));
  Registry& registry = opened.plugins->registry();
  PENSTOCK_TRY(check_config(opened.config, registry));
  Sides sides;
  for (const uint64_t stage : opened.config.stages()) {
    const Scheme scheme = opened.config.at_step(stage);
    for (const auto& [key, instance] : scheme.instances) {
      if (instance.kind == Kind::scheduler) continue;
      PENSTOCK_ASSIGN(const uint64_t types,
                      device_types(scheme, instance.kind, instance.name, registry));
      const bool is_able = (types >> PENSTOCK_DEVICE_CUDA & 1) != 0;
      add_once(is_able ? sides.on_device : sides.through_host,
               fmt::format("{} {}", kind_name(instance.kind), instance.name));
    }
  }
  return sides;
}

std::string text_of(const Sides& sides) {
  const std::string able = fmt::format("{}", fmt::join(sides.on_device, ", "));
  const std::string others = fmt::format("{}", fmt::join(sides.through_host, ", "));
  if (others.empty()) return "all of it can work on a device: " + able;
  const std::string staged =
      "through host memory, there and back, for these work on the CPU only: " + others;
  if (able.empty()) return "gradients on a device go " + staged;
  return fmt::format("can work on a device: {}. All else goes {}", able, staged);
}

TestOutcome ask_scheme(const std::string& file, const std::vector<std::string>& plugin_path) {
  const Result<Sides> sides = sides_of(file, plugin_path);
  if (!sides.ok()) return sides.status();
  return {Verdict::ok, Json{{"found", text_of(sides.value())},
                            {"on_device", sides.value().on_device},
                            {"through_host_memory", sides.value().through_host}}
                           .dump()};
}

}  // namespace

std::vector<Line> device_lines(const std::filesystem::path& table) {
  const TestOutcome outcome = isolated([&] { return find_devices(table); }, kSeconds);
  if (outcome.verdict == Verdict::skipped) return {without_table(outcome.reason)};
  if (outcome.verdict != Verdict::ok) {
    auto [found, mend] = found_and_mend(outcome.reason);
    if (mend.empty()) mend = "run nvidia-smi, which says whether the driver works";
    return {Line{"cuda", Health::warning, found, mend}};
  }
  std::vector<Line> lines;
  for (const Json& device : Json::parse(outcome.reason)) lines.push_back(line_of(device));
  return lines;
}

Line scheme_on_device(const std::string& file, const std::vector<std::string>& plugin_path) {
  const std::string subject = file.empty() ? "scheme" : "scheme " + file;
  const TestOutcome outcome = isolated([&] { return ask_scheme(file, plugin_path); }, kSeconds);
  if (outcome.verdict != Verdict::ok)
    return {subject, Health::problem, outcome.reason,
            fmt::format("see what `penstock config check {}` says", file)};
  Json more = Json::parse(outcome.reason);
  const std::string found = more["found"];
  more.erase("found");
  return {subject, Health::ok, found, "", more};
}

}  // namespace penstock::command
