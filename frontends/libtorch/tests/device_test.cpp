// Gradients on a device, which the runtime reads and writes in place: the runtime is real, the
// device is simulated. ctest runs this program on one rank, test_libtorch.py on several, with the
// runtime of a folder in which it finds simulated devices.

#include <ATen/Functions.h>
#include <torch/optim/optimizer.h>

#include "simulated_guard.hpp"
#include "testing.hpp"
#include "tests/device/simulated.hpp"

namespace penstock::torch::testing {
namespace {

constexpr std::int64_t kSteps = 4;
const std::vector<std::vector<std::int64_t>> kShapes{{12, 30}, {30}, {7, 5, 3}};

constexpr char kDense[] = "[scheme]\nscheduler = \"wfbp\"\n";
constexpr char kSparse[] =
    "[scheme]\ncompressor = \"topk\"\nmemory = \"residual\"\nscheduler = \"wfbp\"\n"
    "[compressor.topk]\ndensity = 0.1\n";
constexpr char kDeferred[] = "[scheme]\nscheduler = \"dear\"\n";

class Runtime final : public ::testing::Environment {
 public:
  void SetUp() override { init(); }
  void TearDown() override { shutdown(); }
};
[[maybe_unused]] const auto* const kRuntime = ::testing::AddGlobalTestEnvironment(new Runtime);

// Does not change the parameters, because this program has no torch kernel that could.
class NoUpdate final : public optim::Optimizer {
 public:
  explicit NoUpdate(const std::vector<at::Tensor>& parameters)
      : Optimizer({optim::OptimizerParamGroup(parameters)},
                  std::make_unique<optim::SGDOptions>(0.1)) {}
  at::Tensor step(LossClosure) override { return {}; }
};

// This rank's gradients of a step.
std::vector<at::Tensor> gradients_of(std::int64_t step) {
  ::torch::manual_seed(static_cast<std::uint64_t>(100 * step + rank()));
  std::vector<at::Tensor> gradients;
  for (const auto& shape : kShapes) gradients.push_back(::torch::randn(shape));
  return gradients;
}

// Parameters, their gradients, and the optimizer that averages the gradients.
struct Training {
  Training(const char* scheme, const std::function<at::Tensor(std::vector<std::int64_t>)>& make) {
    NamedTensors named;
    for (std::size_t i = 0; i < kShapes.size(); ++i) {
      parameters.push_back(make(kShapes[i]).requires_grad_());
      gradients.push_back(make(kShapes[i]));
      named.insert("parameter" + std::to_string(i), parameters[i]);
    }
    inner = std::make_unique<NoUpdate>(parameters);
    // The comparison of ranks cannot read the parameters' values on the simulated device.
    outer = std::make_unique<DistributedOptimizer>(
        *inner, named,
        Options{.scheme = scheme, .check_parameters = false, .deferred = scheme == kDeferred});
  }
  // Sets gradients as a backward would.
  void have_gradients() {
    for (std::size_t i = 0; i < parameters.size(); ++i) parameters[i].mutable_grad() = gradients[i];
  }

  std::vector<at::Tensor> parameters, gradients;
  std::unique_ptr<NoUpdate> inner;
  std::unique_ptr<DistributedOptimizer> outer;
};

std::vector<std::vector<at::Tensor>> results_on_the_cpu(const char* scheme) {
  Training training(scheme, [](const auto& shape) { return ::torch::zeros(shape); });
  std::vector<std::vector<at::Tensor>> results;
  for (std::int64_t step = 0; step < kSteps; ++step) {
    const std::vector<at::Tensor> values = gradients_of(step);
    for (std::size_t i = 0; i < values.size(); ++i) training.gradients[i].copy_(values[i]);
    training.have_gradients();
    training.outer->step();
    training.outer->flush();
    results.emplace_back();
    for (const at::Tensor& gradient : training.gradients)
      results.back().push_back(gradient.clone());
  }
  return results;
}

void begin(std::uint64_t seed) {
  simulated::Settings settings;
  settings.seed = seed;
  settings.devices = 1;
  settings.abort_on_misuse = true;
  simulated::reset(settings);
  (void)recorded();
}

// Runs steps on `stream`. The results must equal those on the CPU. Returns the number of steps that
// ended before the device's work. Other threads ask for the device's state, which runs its work, so
// none may be left if the operating system stops this thread for a while at the end of a step.
int expect_bits_of_the_cpu(const char* scheme, const std::vector<std::vector<at::Tensor>>& expected,
                           const c10::Stream& stream) {
  int ended_first = 0;
  Training training(scheme, on_device);
  const OnStream on_stream(stream);
  for (std::int64_t step = 0; step < kSteps; ++step) {
    const std::vector<at::Tensor> values = gradients_of(step);
    for (std::size_t i = 0; i < values.size(); ++i) write(training.gradients[i], values[i]);
    training.have_gradients();
    const std::uint64_t waits = simulated::waits().total();
    training.outer->step();
    training.outer->flush();
    EXPECT_EQ(simulated::waits().total(), waits) << "a thread waited for the device";
    ended_first += simulated::queued() > 0 ? 1 : 0;
    for (std::size_t i = 0; i < values.size(); ++i)
      EXPECT_TRUE(read(training.gradients[i]).equal(expected[step][i])) << scheme << step << i;
    EXPECT_EQ(recorded(), std::vector<c10::Stream>(values.size(), stream));
  }
  return ended_first;
}

TEST(LibtorchDevice, StepsHaveTheBitsOfTheCpuAndNobodyWaitsForTheDevice) {
  for (const char* scheme : {kDense, kSparse, kDeferred}) {
    const auto expected = results_on_the_cpu(scheme);
    const c10::Stream default_stream(c10::Stream::DEFAULT, {c10::kCUDA, 0});
    int on_new = 0, on_default = 0;  // steps that ended before the device's work
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      begin(seed);
      on_new += expect_bits_of_the_cpu(scheme, expected, new_stream());
      on_default += expect_bits_of_the_cpu(scheme, expected, default_stream);
    }
    EXPECT_GT(on_new, 0) << scheme;
    EXPECT_GT(on_default, 0) << scheme;
  }
}

// Parameters that LocalSteps follows, moved by this rank's numbers in each step.
struct Apart {
  explicit Apart(const std::function<at::Tensor(std::vector<std::int64_t>)>& make) {
    NamedTensors named;
    for (std::size_t i = 0; i < kShapes.size(); ++i) {
      parameters.push_back(make(kShapes[i]).requires_grad_());
      named.insert("parameter" + std::to_string(i), parameters[i]);
    }
    inner = std::make_unique<NoUpdate>(parameters);
    const LocalStepsOptions way{.every = 2, .scheme = kSparse, .delay = 1, .anchors_on_host = true};
    outer = std::make_unique<LocalSteps>(*inner, named, way);
    outer->anchors();  // takes them now, while parameters are equal on all ranks
  }

  std::vector<at::Tensor> parameters;
  std::unique_ptr<NoUpdate> inner;
  std::unique_ptr<LocalSteps> outer;
};

// Only copies go between the device and the anchors in host memory.
TEST(LibtorchDevice, ParametersThatTrainApartFromAnchorsOnTheHostHaveTheBitsOfTheCpu) {
  begin(7);
  const OnStream on_stream(new_stream());
  Apart host([](const auto& shape) { return ::torch::zeros(shape); });
  Apart device([](const auto& shape) {
    const at::Tensor made = on_device(shape);
    write(made, ::torch::zeros(shape));
    return made;
  });
  const ::torch::NoGradGuard without_history;
  for (std::int64_t step = 0; step < 8; ++step) {
    const std::vector<at::Tensor> moves = gradients_of(step);
    for (std::size_t i = 0; i < moves.size(); ++i) {
      host.parameters[i].copy_(moves[i]);
      write(device.parameters[i], moves[i]);
    }
    host.outer->step();
    device.outer->step();
    for (std::size_t i = 0; i < moves.size(); ++i) {
      EXPECT_TRUE(read(device.parameters[i]).equal(host.parameters[i])) << step << i;
      EXPECT_EQ(host.parameters[i].equal(moves[i]), step % 2 == 1 || step == 0) << step << i;
    }
  }
  for (const auto& item : device.outer->anchors()) {
    EXPECT_TRUE(item.value().is_cpu());
    EXPECT_TRUE(item.value().equal(host.outer->anchors()[item.key()]));
  }
}

TEST(LibtorchDevice, ADeviceThatIsNotThereIsRefusedInTheRuntimesWords) {
  begin(1);
  NamedTensors named;
  const auto options = at::TensorOptions().dtype(at::kFloat).device(c10::Device(c10::kCUDA, 3));
  float none = 0;
  at::Tensor far =
      at::for_blob(&none, {1}).options(options).target_device(options.device()).make_tensor();
  named.insert("far", far.requires_grad_());
  NoUpdate inner({named["far"]});
  expect_error(PENSTOCK_NOT_FOUND, "there is no cuda:3, this process sees 1 CUDA device",
               [&] { DistributedOptimizer(inner, named); });
}

}  // namespace
}  // namespace penstock::torch::testing
