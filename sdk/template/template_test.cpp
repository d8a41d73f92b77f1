// Loads the built plugin as Penstock does and walks steps of several ranks through its table. The
// expected values come from plain loops over the definition, not from the plugin's own code.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <penstock/plugin.h>

#include <algorithm>
#include <string>
#include <vector>

namespace {

// The least a host must offer: errors.
penstock_status* new_status(void*, uint32_t, penstock_str message) {
  return reinterpret_cast<penstock_status*>(new std::string(message.data, message.size));
}
const penstock_host kHost = [] {
  penstock_host host{};
  host.struct_size = sizeof host;
  host.abi_major = PENSTOCK_ABI_MAJOR;
  host.abi_minor = PENSTOCK_ABI_MINOR;
  host.status_new = new_status;
  return host;
}();

// The text of an error, or empty for success.
std::string text(penstock_status* status) {
  if (status == nullptr) return {};
  auto* message = reinterpret_cast<std::string*>(status);
  const std::string copy = *message;
  delete message;
  return copy;
}

const penstock_compressor& table() {
  static const penstock_compressor* const found = [] {
    void* library = dlopen(PENSTOCK_PLUGIN_FILE, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw std::runtime_error(dlerror());
    const auto* record =
        static_cast<const penstock_plugin_record*>(dlsym(library, "penstock_plugin"));
    const penstock_module* module = nullptr;
    if (record == nullptr || record->load(&kHost, &module) != nullptr)
      throw std::runtime_error("the plugin did not load");
    return static_cast<const penstock_compressor*>(module->table);
  }();
  return *found;
}

// One gradient on one rank, and the calls of a step on it.
class Rank {
 public:
  Rank(int64_t stride, uint64_t numel) : work(numel), out(numel), shape_(int64_t(numel)) {
    value_.struct_size = sizeof value_;
    value_.name = {"stride", 6};
    value_.type = PENSTOCK_OPTION_INTEGER;
    value_.integer = stride;
    const penstock_option_value* values[] = {&value_};
    EXPECT_EQ(text(table().create(values, 1, &instance_)), "");
    item_.struct_size = sizeof item_;
    item_.name = {"weight", 6};
    item_.numel = item_.rows = numel;
    item_.cols = item_.n_dims = 1;
    item_.shape = &shape_;
    item_.flags = PENSTOCK_ITEM_KEEP;
    item_.work = tensor(work);
    item_.out = tensor(out);
    penstock_compressor_need need{};
    need.struct_size = sizeof need;
    penstock_compressor_need* needs[] = {&need};
    EXPECT_EQ(text(table().plan(instance_, 0, 1, items_, 1, needs)), "");
    values_.resize(need.rounds[0]->sections[0]->capacity);
    section_.struct_size = sizeof section_;
    section_.data = values_.data();
    section_.capacity = values_.size();
    section_.role = PENSTOCK_ROLE_VALUES;
    section_.dtype = PENSTOCK_FLOAT32;
    payload_.struct_size = sizeof payload_;
    payload_.sections = sections_;
    payload_.n_sections = 1;
    step_.struct_size = sizeof step_;
    step_.grad_scale = 1;
    step_.world = 1;
    exec_.struct_size = sizeof exec_;
    exec_.device_type = PENSTOCK_DEVICE_CPU;
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;
  ~Rank() { table().destroy(instance_); }

  std::string encode(uint64_t step) {
    step_.index = step;
    penstock_payload* payloads[] = {&payload_};
    return text(table().encode(instance_, &exec_, &step_, 0, items_, 1, payloads));
  }
  std::string decode(uint64_t step) {
    step_.index = step;
    const penstock_payload* payloads[] = {&payload_};
    return text(table().decode(instance_, &exec_, &step_, 0, items_, 1, payloads, 1,
                               PENSTOCK_DECODE_FIRST | PENSTOCK_DECODE_LAST));
  }

  std::vector<float> work, out;
  std::vector<float>& values() { return values_; }
  penstock_section& section() { return section_; }
  penstock_payload& payload() { return payload_; }

 private:
  static penstock_tensor tensor(std::vector<float>& data) {
    penstock_tensor view{};
    view.struct_size = sizeof view;
    view.data = data.data();
    view.numel = data.size();
    view.dtype = PENSTOCK_FLOAT32;
    view.device_type = PENSTOCK_DEVICE_CPU;
    return view;
  }
  void* instance_ = nullptr;
  int64_t shape_;
  std::vector<float> values_;
  penstock_option_value value_{};
  penstock_item item_{};
  const penstock_item* items_[1] = {&item_};
  penstock_section section_{};
  penstock_section* sections_[1] = {&section_};
  penstock_payload payload_{};
  penstock_step step_{};
  penstock_exec exec_{};
};

constexpr uint64_t kSizes[] = {0, 1, 7, 64, 1001};

TEST(Template, SendsEveryStrideThEntryAndTakesItOutOfWork) {
  for (const uint64_t numel : kSizes) {
    for (const uint64_t stride : {1, 3, 4, 100}) {
      Rank rank(int64_t(stride), numel);
      for (uint64_t step = 0; step < 2 * stride + 1; ++step) {
        for (uint64_t i = 0; i < numel; ++i) rank.work[i] = float(i + 1);
        ASSERT_EQ(rank.encode(step), "");
        ASSERT_EQ(rank.decode(step), "");
        for (uint64_t i = 0; i < numel; ++i) {
          const bool sent = i % stride == step % stride;
          ASSERT_EQ(rank.out[i], sent ? float(i + 1) : 0.0f) << "entry " << i << " step " << step;
          ASSERT_EQ(rank.work[i], sent ? 0.0f : float(i + 1)) << "entry " << i << " step " << step;
        }
      }
    }
  }
}

TEST(Template, PayloadsOfTwoRanksAddToThePayloadOfTheSum) {
  Rank one(4, 1001), two(4, 1001);
  for (uint64_t i = 0; i < 1001; ++i) {
    one.work[i] = float(i);
    two.work[i] = 1000;  // sums below 2^24: exact
  }
  ASSERT_EQ(one.encode(6), "");
  ASSERT_EQ(two.encode(6), "");
  for (uint64_t i = 0; i < one.values().size(); ++i) one.values()[i] += two.values()[i];
  ASSERT_EQ(one.decode(6), "");
  for (uint64_t i = 0; i < 1001; ++i) ASSERT_EQ(one.out[i], i % 4 == 2 ? float(i) + 1000 : 0.0f);
}

TEST(Template, RefusesAPayloadOfAnotherCount) {
  Rank rank(4, 1001);
  ASSERT_EQ(rank.encode(0), "");
  rank.section().count -= 1;
  EXPECT_NE(rank.decode(0).find("weight"), std::string::npos) << "the error names the gradient";
  rank.section().count = rank.section().capacity + 1;
  EXPECT_NE(rank.decode(0), "");
}

TEST(Template, AnAbsentPayloadCountsAsZeros) {
  Rank rank(4, 7);
  ASSERT_EQ(rank.encode(0), "");
  rank.payload().kind = PENSTOCK_PAYLOAD_ABSENT;
  rank.out.assign(7, 5.0f);
  ASSERT_EQ(rank.decode(0), "");
  EXPECT_EQ(std::count(rank.out.begin(), rank.out.end(), 0.0f), 7);
}

}  // namespace
