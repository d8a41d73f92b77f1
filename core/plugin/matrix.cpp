// `penstock plugins matrix`: every compressor with every memory, asked the way the engine asks.
#include "core/plugin/fit.hpp"
#include "core/plugin/instances.hpp"
#include "core/plugin/needs.hpp"

#include <penstock/runtime.h>

#include <algorithm>
#include <array>

namespace penstock {

namespace {

// A made instance, or why it could not be made.
template <typename Table>
struct Made {
  std::string name;
  std::unique_ptr<Instance<Table>> instance;
  std::string problem;
};

template <typename Table>
std::vector<Made<Table>> make_all(Registry& registry) {
  std::vector<Made<Table>> all;
  const Kind kind = TableTraits<Table>::kKind;
  for (const PluginFile& file : registry.files()) {
    if (file.record.kind != kind) continue;
    Made<Table> made{file.record.name, nullptr, {}};
    const Result<std::shared_ptr<const Plugin>> plugin = registry.load(kind, file.record.name);
    if (plugin.ok()) {
      const InstanceConfig config{kind, file.record.name, file.record.name, {}, {"defaults", 0, 0}};
      Result<std::unique_ptr<Instance<Table>>> instance =
          Instance<Table>::make(config, plugin.value());
      if (instance.ok()) made.instance = std::move(instance.value());
      made.problem = instance.status().message();
    } else {
      made.problem = plugin.status().message();
    }
    all.push_back(std::move(made));
  }
  return all;
}

// A gradient without data, as plan sees it.
class SampleItem {
 public:
  SampleItem(std::string_view name, std::vector<int64_t> shape, uint64_t gradient)
      : shape_(std::move(shape)) {
    item_.struct_size = sizeof item_;
    item_.name = str(name);
    item_.gradient = gradient;
    item_.n_dims = shape_.size();
    item_.shape = shape_.data();
    item_.rows = static_cast<uint64_t>(shape_.front());
    item_.cols = shape_.size() > 1 ? static_cast<uint64_t>(shape_[1]) : 1;
    item_.numel = item_.rows * item_.cols;
    item_.flags = PENSTOCK_ITEM_KEEP;
    for (penstock_tensor* tensor : {&item_.grad, &item_.work, &item_.out}) {
      tensor->struct_size = sizeof *tensor;
      tensor->shape = shape_.data();
      tensor->n_dims = shape_.size();
      tensor->numel = item_.numel;
      tensor->dtype = PENSTOCK_FLOAT32;
      tensor->device_type = PENSTOCK_DEVICE_CPU;
    }
  }
  SampleItem(const SampleItem&) = delete;
  SampleItem& operator=(const SampleItem&) = delete;
  const penstock_item* get() const { return &item_; }

 private:
  std::vector<int64_t> shape_;
  penstock_item item_{};
};

constexpr size_t kSamples = 2;
using Samples = std::array<const penstock_item*, kSamples>;

// Plans both samples with the pair; the facts of each become a group of `input`.
Status add_groups(const CompressorInstance& compressor, const MemoryInstance& memory,
                  const Samples& items, FitInput& input) {
  std::deque<CompressorNeed> needs;
  std::array<penstock_compressor_need*, kSamples> need_pointers{};
  std::array<CompressorFacts, kSamples> facts;
  uint32_t period = 1;
  // The plan of phase 0 says how many phases there are. Last comes phase 0 again, whose needs the
  // memory sees.
  for (uint32_t i = 0; i <= period; ++i) {
    const uint32_t phase = i % period;
    needs.clear();
    for (penstock_compressor_need*& pointer : need_pointers) pointer = &needs.emplace_back().c;
    PENSTOCK_TRY(from_c(compressor->plan(compressor.self(), phase, input.world, items.data(),
                                         kSamples, need_pointers.data()))
                     .with_context(fmt::format("compressor {}: plan", compressor.name())));
    for (CompressorNeed& need : needs) PENSTOCK_TRY(need.adopt(compressor.name()));
    if (i == 0) period = std::clamp<uint32_t>(needs[0].c.period, 1, 16);
    for (size_t item = 0; item < kSamples; ++item) {
      const penstock_compressor_need* need = &needs[item].c;
      const CompressorFacts next =
          compressor_facts(compressor.name(), compressor.traits(), &need, 1);
      if (i == 0) {
        facts[item] = next;
      } else {
        merge_phase(facts[item], next);
      }
    }
  }
  std::array<MemoryNeed, kSamples> memory_needs;
  std::array<penstock_memory_need*, kSamples> memory_pointers = {&memory_needs[0].c,
                                                                 &memory_needs[1].c};
  PENSTOCK_TRY(from_c(memory->plan(memory.self(), items.data(), kSamples, need_pointers.data(),
                                   memory_pointers.data()))
                   .with_context(fmt::format("memory {}: plan", memory.name())));
  for (MemoryNeed& need : memory_needs) PENSTOCK_TRY(need.adopt(memory.name()));
  for (size_t item = 0; item < kSamples; ++item) {
    FitGroup group;
    group.compressor = facts[item];
    group.memory = memory_facts(memory.name(), *memory.table(), memory_needs[item].c);
    input.groups.push_back(std::move(group));
  }
  return {};
}

// Everything but compressor and memory is as able as can be, so that what is refused is the pair's
// own doing.
FitInput neutral_input() {
  FitInput input;
  input.collective = {"mpi", PENSTOCK_COLLECTIVE_TRANSPORT | PENSTOCK_COLLECTIVE_SAME_BITS,
                      ~uint64_t{0}, ~uint64_t{0}};
  input.scheduler = {"fusion", ~uint64_t{0}, 0};
  input.frontend = PENSTOCK_SET_TELLS_OUTCOME;
  input.world = 4;
  return input;
}

}  // namespace

std::vector<MatrixCell> fit_matrix(Registry& registry) {
  const SampleItem matrix("matrix", {64, 32}, 0), vector("vector", {64}, 1);
  const Samples items = {matrix.get(), vector.get()};
  const std::vector<Made<penstock_compressor>> compressors =
      make_all<penstock_compressor>(registry);
  const std::vector<Made<penstock_memory>> memories = make_all<penstock_memory>(registry);
  std::vector<MatrixCell> cells;
  for (const auto& compressor : compressors) {
    for (const auto& memory : memories) {
      MatrixCell cell{compressor.name, memory.name, false, {}};
      if (!compressor.instance || !memory.instance) {
        cell.note = compressor.instance ? memory.problem : compressor.problem;
        cells.push_back(std::move(cell));
        continue;
      }
      FitInput input = neutral_input();
      Status status = add_groups(*compressor.instance, *memory.instance, items, input);
      if (status.ok()) {
        const Result<FitAdvice> advice = check_fit(input);
        cell.fits = advice.ok();
        status = advice.status();
        if (cell.fits)
          cell.note = advice.value().warnings.empty() ? "ok" : advice.value().warnings.front();
      }
      if (!status.ok()) cell.note = status.message();
      cells.push_back(std::move(cell));
    }
  }
  return cells;
}

}  // namespace penstock
