// The part of penstock doctor about devices. Code that loads drivers and plugins runs in a separate
// process, because on a faulty machine a driver or plugin may end its process.
#include "tools/penstock/doctor/devices.hpp"

#include "core/device/devices.hpp"
#include "core/device/table.hpp"
#include "core/fit/resolve.hpp"
#include "core/plan/route.hpp"
#include "tools/penstock/check/tests.hpp"
#include "tools/penstock/commands.hpp"
#include "tools/penstock/fit/sample_residence.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <map>
#include <string_view>
#include <utility>

namespace penstock::command {

namespace {

constexpr double kSeconds = 60;  // drivers start slowly if no other process holds a device

// Splits an error message into the finding and the remedy, which follows the last semicolon.
std::pair<std::string, std::string> found_and_fix(const std::string& message) {
  const size_t end = message.rfind("; ");
  if (end == std::string::npos) return {message, ""};
  return {message.substr(0, end), message.substr(end + 2)};
}

// ---- Devices ----

Result<Json> describe(const penstock_device_table& table, int32_t id) {
  penstock_device_properties properties{};
  properties.struct_size = sizeof properties;
  if (const int32_t error = table.properties(id, &properties); error != 0)
    return Device(table, id).check(error, "report its properties");
  return Json{{"name", fmt::format("cuda:{}", id)},
              {"model", properties.name},
              {"compute_capability", fmt::format("{}.{}", properties.major, properties.minor)},
              {"memory_bytes", properties.memory_bytes},
              {"multiprocessors", properties.n_multiprocessors},
              {"copy_engines", properties.n_copy_engines}};
}

// Finds the devices. ok: the reason is JSON about them; skipped: there is no table; warning: the
// table finds no device.
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

// The number of devices of the NVIDIA driver, independent of Penstock's build; 0 also if there is
// no driver; -1 if the driver does not start.
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
  const auto [found, fix] = found_and_fix(message);
  int devices = -1;
  const TestOutcome asked = isolated(
      []() -> TestOutcome {
        return {Verdict::ok, std::to_string(devices_of_driver())};
      },
      kSeconds);
  if (asked.verdict == Verdict::ok) devices = std::stoi(asked.reason);
  if (devices == 0) return {"cuda", Health::fact, found, ""};
  if (devices < 0)
    return {"cuda", Health::warning,
            "the NVIDIA driver's library is there but does not start; " + found,
            "run nvidia-smi; the kernel module may be missing or older than the library"};
  return {"cuda", Health::warning,
          fmt::format("the driver has {} device(s), but {}", devices, found),
          fix +
              "; until then frontends copy tensors of a device to the host, and each copy waits "
              "for the device"};
}

Line line_of(const Json& device) {
  constexpr double kGib = 1 << 30;
  const std::string found = fmt::format(
      "{}: {}, compute capability {}, {:.1f} GiB; runs accept gradients on it",
      device["name"].get<std::string>(), device["model"].get<std::string>(),
      device["compute_capability"].get<std::string>(), device["memory_bytes"].get<double>() / kGib);
  return {"cuda", Health::ok, found, "", Json{{"device", device}}};
}

bool is_one(const char* variable) {
  const char* const value = std::getenv(variable);
  return value != nullptr && std::string_view(value) == "1";
}

// True if all streams of a device share one queue. A message that waits for a peer then blocks
// messages that the peer waits for.
bool has_one_queue() {
  return is_one("CUDA_DEVICE_MAX_CONNECTIONS") && !is_one("NCCL_LAUNCH_ORDER_IMPLICIT");
}

// ---- Schemes ----

std::string joined(const std::vector<std::string>& parts, std::string_view by) {
  return fmt::format("{}", fmt::join(parts, by));
}

// The reservation for transports whose library answers only in a run; empty for others.
Result<std::string> proviso(const Scheme& scheme, Registry& registry) {
  PENSTOCK_ASSIGN(const auto transport,
                  make_instance<penstock_collective>(scheme, scheme.device_transport, registry));
  if ((transport->traits().flags & PENSTOCK_COLLECTIVE_TAKES_FINISHED) == 0) return std::string();
  return std::string(
      " (if its library accepts device memory: a run asks the library, and does not start "
      "otherwise)");
}

// Reports the residence of a scheme's gradients: "gradients on a device are compressed there:
// matrices, convolutions; ... through host memory: vectors, because: ...".
TestOutcome ask_scheme(const std::string& file, const std::vector<std::string>& plugin_path) {
  PENSTOCK_ASSIGN(const OpenedConfig opened, open_config(file, plugin_path));
  Registry& registry = opened.plugins->registry();
  PENSTOCK_TRY(check_config(opened.config, registry));
  PENSTOCK_ASSIGN(const auto found, sample_residence(opened.config, registry));
  std::vector<std::string> on_device, directly;
  std::map<std::string, std::vector<std::string>> staged;  // by the reason
  for (const SampleResidence& one : found) {
    (one.why_staged.empty() ? on_device : staged[one.why_staged]).push_back(one.what);
    if (one.why_staged.empty() && one.goes_directly) directly.push_back(one.what);
  }
  std::vector<std::string> parts;
  if (!on_device.empty())
    parts.push_back(
        fmt::format("gradients on a device are compressed there: {}; their payloads go through "
                    "pinned host memory",
                    joined(on_device, ", ")));
  if (!directly.empty()) {
    const Scheme scheme = opened.config.at_step(0);
    PENSTOCK_ASSIGN(const std::string where, proviso(scheme, registry));
    const std::string over =
        fmt::format("from device to device over {}{}", scheme.device_transport, where);
    parts.back() += adds_in_hosts(scheme.route)
                        ? fmt::format(", and the sums of the ranks of a host go {}", over)
                        : fmt::format(", but {}: {}", over, joined(directly, ", "));
  }
  for (const auto& [why, what] : staged)
    parts.push_back(
        fmt::format("gradients that go through host memory, there and back: {}, because: {}",
                    joined(what, ", "), why));
  return {Verdict::ok, Json{{"found", joined(parts, ". ")},
                            {"on_device", on_device},
                            {"from_device_to_device", directly},
                            {"through_host_memory", staged}}
                           .dump()};
}

}  // namespace

std::vector<Line> device_lines(const std::filesystem::path& table) {
  const TestOutcome outcome = isolated([&] { return find_devices(table); }, kSeconds);
  if (outcome.verdict == Verdict::skipped) return {without_table(outcome.reason)};
  if (outcome.verdict != Verdict::ok) {
    auto [found, fix] = found_and_fix(outcome.reason);
    if (fix.empty()) fix = "run nvidia-smi, which says whether the driver works";
    return {Line{"cuda", Health::warning, found, fix}};
  }
  std::vector<Line> lines;
  for (const Json& device : Json::parse(outcome.reason)) lines.push_back(line_of(device));
  if (has_one_queue())
    lines.push_back({"cuda queues", Health::warning,
                     "CUDA_DEVICE_MAX_CONNECTIONS=1 puts all streams of a device into one queue, "
                     "where messages over NCCL ([transport] device) and torch's own communicators "
                     "may wait for each other",
                     "unset it, or set NCCL_LAUNCH_ORDER_IMPLICIT=1, which NCCL 2.26 or newer "
                     "takes"});
  return lines;
}

Line scheme_on_device(const std::string& file, const std::vector<std::string>& plugin_path) {
  const std::string subject = file.empty() ? "scheme" : "scheme " + file;
  const TestOutcome outcome = isolated([&] { return ask_scheme(file, plugin_path); }, kSeconds);
  if (outcome.verdict != Verdict::ok)
    return {subject, Health::problem, outcome.reason,
            fmt::format("run `penstock config check {}`", file)};
  Json more = Json::parse(outcome.reason);
  const std::string found = more["found"];
  more.erase("found");
  return {subject, Health::fact, found, "", more};  // only plugins were asked
}

}  // namespace penstock::command
