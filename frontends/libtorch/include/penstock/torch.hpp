// Penstock for C++ programs that train with libtorch: gradients are averaged over the ranks while
// backward runs, compressed, in the order and at the moments that a scheme chooses.
//
//   penstock::torch::init();
//   torch::optim::SGD sgd(model->parameters(), 0.1);
//   penstock::torch::DistributedOptimizer optimizer(sgd, model->named_parameters());
//   penstock::torch::broadcast_parameters(*model);
//   optimizer.zero_grad(); loss.backward(); optimizer.step();
//
// Threads: one thread drives all of this; gradients may be completed on the threads of autograd.
// Errors: every function throws Error, unless it says otherwise. Collective: every rank makes the
// call, in the same order as its other collective ones. Devices: gradients are taken where they
// lie, on the CPU or on CUDA; all else is copied through host memory. Only names of torch are
// needed here: this header includes none of its own.
#ifndef PENSTOCK_TORCH_HPP
#define PENSTOCK_TORCH_HPP

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace at {
class Tensor;
}
namespace torch {
template <typename Key, typename Value>
class OrderedDict;
namespace nn {
class Module;
}
namespace optim {
class Optimizer;
}
namespace serialize {
class InputArchive;
class OutputArchive;
}  // namespace serialize
}  // namespace torch

namespace penstock::torch {

// What torch's named_parameters() and named_buffers() give.
using NamedTensors = ::torch::OrderedDict<std::string, at::Tensor>;

// What could not be done, in one sentence that says what to do. After one that ended a step the run
// is over: start it again, and load a saved state.
class Error : public std::runtime_error {
 public:
  Error(std::uint32_t code, const std::string& message)
      : std::runtime_error(message), code_(code) {}

  // The kind, PENSTOCK_INVALID_ARGUMENT (1) and so on, as <penstock/base.h> numbers them.
  std::uint32_t code() const noexcept { return code_; }

 private:
  std::uint32_t code_;
};

// ---- The runtime of this process ----

struct Configuration {
  std::string config = {};       // path of a TOML file; empty: PENSTOCK_CONFIG, or no compression
  std::string config_text = {};  // TOML text instead of a file
};

// Opens the runtime and meets the other ranks; collective. Does nothing when it is open, unless a
// configuration is given, which is refused then.
void init(const Configuration& configuration = {});

// Closes the runtime; also done at exit. Does nothing when it is not open. Optimizers made before
// are of no use after.
void shutdown();

// Tells the other ranks that this one gives up: all their waits end in an error that carries
// `reason`. For the place where a program catches what ended its training. Never throws; does
// nothing when the runtime is not open.
void give_up(const std::string& reason) noexcept;

bool is_initialized() noexcept;
std::uint32_t rank();        // of this process in the world, from 0
std::uint32_t size();        // processes in the world
std::uint32_t local_rank();  // among the processes of this host
std::uint32_t local_size();  // processes on this host

// JSON: configuration in force, plugins, plans and counters of the runtime.
std::string report();

// ---- Training ----

// World ranks that take part, ascending; none: all.
using Ranks = std::vector<std::uint32_t>;

struct Options {
  // TOML text, or the path of a .toml file, instead of the configuration's; empty: that one.
  std::string scheme = {};
  bool sum = false;  // the result is the sum over ranks, not the mean
  // Gradients leave in the last of so many backward passes, which add up; before it they may be
  // changed. What comes is not divided by their number: divide the loss by it.
  std::uint32_t backward_passes_per_step = 1;
  // Compare the ranks' parameters before the first gradient leaves: what it then is that they
  // differ is said by check_parameters of [runtime].
  bool check_parameters = true;
  // Whether the optimizer applies momentum. Empty: asked of its options, as torch's SGD, RMSprop,
  // Adam and AdamW have them; an optimizer of your own with momentum says true here.
  std::optional<bool> momentum = std::nullopt;
  // World ranks that exchange gradients, ascending; empty: all. Only these make the optimizer.
  Ranks ranks = {};
  // A scheduler such as dear may leave results for the next forward: before_forward() is called
  // before each use of a module. For optimizers that leave parameters without gradients out, as
  // torch's do.
  bool deferred = false;
};

// Totals since the optimizer was made; bytes are those of this rank.
struct Counters {
  std::uint64_t steps;           // in which some gradient was applied
  std::uint64_t gradient_bytes;  // uncompressed, of the gradients that took part
  std::uint64_t payload_bytes;   // handed to the transport
  std::uint64_t messages;
  std::uint64_t void_buckets;       // given up for a gradient that was not finite on some rank
  std::uint64_t wait_us;            // microseconds that step() and synchronize() waited
  std::uint64_t moved_bytes;        // sent to other ranks, as often as they left
  std::uint64_t dense_moved_bytes;  // the same without compression
  std::uint64_t forgotten_steps;    // not among `steps`: their results were thrown away
};

// Lays the exchange of gradients around an optimizer of torch.
//
// Between backward and step() gradients are on their way: they are not to be read then, and
// changing them is an error. What goes wrong while backward runs is thrown by synchronize() or
// step(); a second backward before the step throws out of backward itself. Use this object's
// zero_grad() and step() instead of the optimizer's own; its options, and torch's schedulers of
// learning rates, are used as ever. Made and destroyed on every rank alike.
//
// Results that step() uses, with a closure or without, are applied. Those that are gone when the
// next backward comes (zero_grad(), another tensor, zeroed by hand) are forgotten: what compression
// keeps is then, to the bit, what it was before that backward, gradient by gradient. Those that the
// next backward adds to are applied.
class DistributedOptimizer {
 public:
  // Collective. `optimizer`: borrowed, outlives this object; its parameter groups stay as they are.
  // `named_parameters`: module->named_parameters(), same names and order on every rank; those that
  // the optimizer does not have are left out. Parameters that require gradients now take part. Each
  // of them has one place for a hook that runs after its gradient was accumulated, and this object
  // takes it: a taken one is refused.
  DistributedOptimizer(::torch::optim::Optimizer& optimizer, const NamedTensors& named_parameters,
                       const Options& options = {});
  DistributedOptimizer(DistributedOptimizer&&) noexcept;
  DistributedOptimizer& operator=(DistributedOptimizer&&) noexcept;
  // Takes the hooks off; a step in the middle is given up.
  ~DistributedOptimizer();

  // Waits until every gradient holds the mean over ranks, then lets the optimizer update the
  // parameters. With Options::deferred, under a plan that leaves results for the next forward,
  // parameters are updated there, with the optimizer's options of now.
  void step();
  // The same for a loss that the optimizer asks for: `closure` runs backward and returns the loss,
  // and gradients are waited for after it. Returns what the optimizer's step returns.
  at::Tensor step(const std::function<at::Tensor()>& closure);

  // Options::deferred: updates the parameters of `module` and all inside it that still wait for
  // that. Before each forward of a module; the first call makes its parameters wait from then on.
  // Does nothing where nothing waits.
  void before_forward(const ::torch::nn::Module& module);
  // Updates all that wait: before parameters are looked at by anything but a forward that was told,
  // for evaluation or saving. Saving the state, broadcasts and shutdown() do it by themselves.
  void flush();

  // As torch's. Refused between backward and step() or synchronize(). After synchronize(), results
  // are thrown away by it.
  void zero_grad(bool set_to_none = true);

  // Waits until every gradient holds the mean, for clipping and the like; step() then takes them as
  // they are. A parameter that backward did not reach here takes part with zeros, and gets the
  // other ranks' share.
  void synchronize();

  // Instead of step(): parameters stay, and the results are forgotten even where they stay in the
  // gradients. On every rank or none.
  void skip_step();

  // Zeroes what memories keep of earlier steps (residuals, momenta, shifts), on every rank or on
  // none: for a loop that throws away every step because of what one of them has left there. A step
  // that was not taken yet is forgotten.
  void let_go();

  // What compression keeps on this rank (residuals, factors, step index). Every rank saves and
  // loads its own; a run that loads it goes on bit for bit, given parameters and optimizer as they
  // were. Saved between backward and step() it is that of before this backward, and the step goes
  // on; a load drops it.
  std::vector<std::uint8_t> save_state();
  void load_state(const std::vector<std::uint8_t>& state);
  // The same as a tensor of torch's archives, called "penstock".
  void save(::torch::serialize::OutputArchive& archive);
  void load(::torch::serialize::InputArchive& archive);

  Counters counters() const;
  std::string report() const;  // JSON: the plan, and counters per gradient and step

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

// ---- Tensors of your own ----
//
// Ranks match by name, not by the order of calls: each rank that takes part asks under the same
// name, which is free again after wait(). Tensors are dense; every type of torch's integers but
// bool, and of its real numbers.

// An operation under way; its destructor waits. Keeps the memory that it works in.
class Pending {
 public:
  struct Parts;
  explicit Pending(std::unique_ptr<Parts> parts);
  Pending(Pending&&) noexcept;
  Pending& operator=(Pending&&) noexcept;
  ~Pending();

  // The result, in a tensor of its own. Throws where the ranks disagree, or one is gone. Once.
  at::Tensor wait();

 private:
  std::unique_ptr<Parts> parts_;
};

// The mean over ranks, or the sum; types and shapes are equal everywhere.
Pending start_allreduce(const at::Tensor& tensor, const std::string& name, bool sum = false,
                        Ranks ranks = {});
// What `root`, a world rank, has; types and shapes are equal everywhere.
Pending start_broadcast(const at::Tensor& tensor, const std::string& name, std::uint32_t root = 0,
                        Ranks ranks = {});
// The rows of all ranks below each other, in the order of ranks; all extents but the first are
// equal everywhere. A tensor without dimensions is a row.
Pending start_allgather(const at::Tensor& tensor, const std::string& name, Ranks ranks = {});

// The same with the wait.
at::Tensor allreduce(const at::Tensor& tensor, const std::string& name, bool sum = false,
                     Ranks ranks = {});
at::Tensor broadcast(const at::Tensor& tensor, const std::string& name, std::uint32_t root = 0,
                     Ranks ranks = {});
at::Tensor allgather(const at::Tensor& tensor, const std::string& name, Ranks ranks = {});
// Returns when all have called it.
void barrier(const std::string& name = "all", Ranks ranks = {});

// ---- The same beginning on every rank ----

// Gives every rank the parameters and buffers of `root`, a world rank, in place; collective over
// `ranks`.
void broadcast_parameters(::torch::nn::Module& module, std::uint32_t root = 0, Ranks ranks = {});
void broadcast_parameters(const NamedTensors& tensors, std::uint32_t root = 0, Ranks ranks = {});

// Gives every rank the options and the state of the optimizer of `root`, which is torch's own
// object, not the distributed one; collective over `ranks`. State that the root does not have is
// dropped elsewhere too.
void broadcast_optimizer_state(::torch::optim::Optimizer& optimizer, std::uint32_t root = 0,
                               Ranks ranks = {});

}  // namespace penstock::torch

#endif  // PENSTOCK_TORCH_HPP
