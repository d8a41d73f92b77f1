// The cost of the plugin boundary: a call through a plugin's table in a .so, compared with a
// statically linked function.
//
//   bench_plugin_call PLUGIN_DIRECTORY [ROUNDS]
//
// The call is encode of compressor `none` on one element, so only the call itself takes time.

#include "plugins/compressors/none/none.cpp"
#include "tools/benches/training_set.hpp"

#include "core/plugin/host.hpp"
#include "core/plugin/loader.hpp"

#include <chrono>

namespace {

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// One item with one element, and the payload for it.
struct Scene {
  float value = 1, sent = 0;
  penstock_item item{};
  penstock_section section{};
  penstock_section* sections[1] = {&section};
  penstock_payload payload{};
  penstock_exec exec{};
  penstock_step step{};
  const penstock_item* items[1] = {&item};
  penstock_payload* payloads[1] = {&payload};

  Scene() {
    item.struct_size = sizeof item;
    item.numel = item.rows = item.cols = 1;
    item.work = {sizeof(penstock_tensor), &value, nullptr, nullptr, 1, 1, PENSTOCK_FLOAT32,
                 PENSTOCK_DEVICE_CPU,     0,      0};
    section = {sizeof section,   &sent,  nullptr, 0, 1, PENSTOCK_ROLE_VALUES,
               PENSTOCK_FLOAT32, nullptr};
    payload = {sizeof payload, sections, 1, PENSTOCK_PAYLOAD_ABSENT, 0};
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 15;
  constexpr int kCalls = 200000;
  penstock::Log log;
  penstock::Host host(log);
  auto plugin =
      penstock::load_plugin({std::string(argv[1]) + "/compressor-none.so", host.table(), true});
  penstock::bench::check(plugin.status());
  const auto* table = plugin.value()->as<penstock_compressor>();
  void* instance = nullptr;
  penstock::bench::check(penstock::from_c(table->create(nullptr, 0, &instance)));
  ::None direct{sdk::Options(nullptr, 0)};

  Scene scene;
  std::vector<double> through, linked, extra;
  for (int round = 0; round < rounds + 1; ++round) {
    double start = seconds();
    for (int i = 0; i < kCalls; ++i) {
      penstock_status* status =
          table->encode(instance, &scene.exec, &scene.step, 0, scene.items, 1, scene.payloads);
      if (status != nullptr) penstock::bench::check(penstock::from_c(status));
    }
    const double through_ns = (seconds() - start) / kCalls * 1e9;
    if (scene.sent != 1) return 1;
    scene.sent = 0;
    start = seconds();
    for (int i = 0; i < kCalls; ++i) {
      sdk::PayloadWriter writer(&scene.payload);
      direct.encode(sdk::Call{&scene.exec, &scene.step}, sdk::Item(&scene.item), writer);
      asm volatile("" ::: "memory");
    }
    const double linked_ns = (seconds() - start) / kCalls * 1e9;
    if (scene.sent != 1) return 1;
    if (round == 0) continue;
    through.push_back(through_ns);
    linked.push_back(linked_ns);
    extra.push_back(through_ns - linked_ns);
  }
  table->destroy(instance);
  const auto a = penstock::bench::spread(through), b = penstock::bench::spread(linked),
             c = penstock::bench::spread(extra);
  std::printf(
      "{\"rounds\": %d, \"plugin_ns\": [%.2f, %.2f, %.2f], \"linked_ns\": [%.2f, %.2f, %.2f], "
      "\"extra_ns\": [%.2f, %.2f, %.2f]}\n",
      rounds, a.median, a.least, a.most, b.median, b.least, b.most, c.median, c.least, c.most);
  return 0;
}
