// Penstock for C++ programs that train with libtorch. It averages the gradients over the ranks
// while backward runs. A scheme chooses how they are compressed, in which order and when they are
// sent.
//
//   penstock::torch::init();
//   torch::optim::SGD sgd(model->parameters(), 0.1);
//   penstock::torch::DistributedOptimizer optimizer(sgd, model->named_parameters());
//   penstock::torch::broadcast_parameters(*model);
//   optimizer.zero_grad(); loss.backward(); optimizer.step();
//
// Threads: one thread makes all calls; autograd's threads may complete gradients. Errors: every
// function throws Error, unless its comment says otherwise. Collective: every rank must make the
// call, and all ranks must make their collective calls in one order. Devices: gradients are read
// in place, on the CPU or on CUDA; all other tensors are copied through host memory. This header
// declares the names of torch that it needs, and includes no header of torch.
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

// The type that torch's named_parameters() and named_buffers() return.
using NamedTensors = ::torch::OrderedDict<std::string, at::Tensor>;

// A failure, described in one sentence that also says how to fix it. If an error ended a step, the
// run is over: start it again, and load a saved state.
class Error : public std::runtime_error {
 public:
  Error(std::uint32_t code, const std::string& message)
      : std::runtime_error(message), code_(code) {}

  // The kind of the failure: PENSTOCK_INVALID_ARGUMENT (1) and so on, from <penstock/base.h>.
  std::uint32_t code() const noexcept { return code_; }

 private:
  std::uint32_t code_;
};

// ---- The runtime of this process ----

struct Configuration {
  std::string config = {};       // path of a TOML file; empty: PENSTOCK_CONFIG, or no compression
  std::string config_text = {};  // TOML text instead of a file
};

// Opens the runtime and performs the rendezvous with the other ranks; collective. If the runtime is
// open already, init() does nothing without a configuration, and throws with a configuration.
void init(const Configuration& configuration = {});

// Closes the runtime; the exit of the process does it too. Does nothing if the runtime is not open.
// A DistributedOptimizer or LocalSteps that was made before must not be used afterwards.
void shutdown();

// Notifies the other ranks that this rank gives up: all their waits end in an error that carries
// `reason`. Call it where the program catches the exception that ended its training. Never throws;
// does nothing if the runtime is not open.
void give_up(const std::string& reason) noexcept;

bool is_initialized() noexcept;
std::uint32_t rank();        // rank of this process in the world, from 0
std::uint32_t size();        // processes in the world
std::uint32_t local_rank();  // rank among the processes of this host, from 0
std::uint32_t local_size();  // processes on this host

// JSON: the configuration in force, and the plugins, plans and counters of the runtime.
std::string report();

// ---- Training ----

// World ranks that take part, in ascending order; empty: all ranks.
using Ranks = std::vector<std::uint32_t>;

struct Options {
  // TOML text, or the path of a .toml file. Empty: the scheme of the configuration.
  std::string scheme = {};
  bool sum = false;  // true: the result is the sum over ranks, not the mean
  // The number of backward passes whose gradients add up in one step. Gradients are sent in the
  // last pass, and may be changed before it. The result is not divided by this number: divide the
  // loss by it.
  std::uint32_t backward_passes_per_step = 1;
  // Compares the ranks' parameters before the first gradient is sent. The key check_parameters of
  // [runtime] says whether a difference is a warning or an error, or whether nothing is compared.
  bool check_parameters = true;
  // Whether the optimizer applies momentum. Empty: the options of torch's SGD, RMSprop, Adam or
  // AdamW decide. If your own optimizer applies momentum, set true.
  std::optional<bool> momentum = std::nullopt;
  // World ranks that exchange gradients, in ascending order; empty: all ranks. Only these ranks
  // make the DistributedOptimizer.
  Ranks ranks = {};
  // True: a scheduler such as dear may delay results until the next forward, and the program must
  // call before_forward() before each use of a module. The optimizer must skip parameters without
  // gradients, as torch's optimizers do.
  bool deferred = false;
};

// Totals since the optimizer was made. Bytes are counted on this rank.
struct Counters {
  std::uint64_t steps;           // steps in which at least one gradient was applied
  std::uint64_t gradient_bytes;  // uncompressed, of the gradients that took part
  std::uint64_t payload_bytes;   // bytes handed to the transport
  std::uint64_t messages;
  std::uint64_t void_buckets;       // skipped because a gradient was not finite on some rank
  std::uint64_t wait_us;            // microseconds that step() and synchronize() waited
  std::uint64_t moved_bytes;        // bytes sent to other ranks, repeated sends included
  std::uint64_t dense_moved_bytes;  // bytes that uncompressed all-reduces would have sent
  std::uint64_t forgotten_steps;    // steps whose results were all discarded; not in `steps`
};

// What became of the results of a step.
enum class Outcome { applied, forget };

// Adds the exchange of gradients to an optimizer of torch.
//
// Between backward and step() the gradients are in transit: they must not be read, and changing
// them is an error. Failures while backward runs are thrown by synchronize() or step(). Only
// mistakes of the program are thrown out of backward itself: a backward pass too many before the
// step, a sparse gradient. Use this object's zero_grad() and step() instead of the optimizer's own
// functions. The optimizer's options and torch's learning rate schedulers work as usual. Every rank
// that takes part must make and destroy this object.
//
// Results are applied if step() uses them (with a closure or without), or if the next backward adds
// to them. Results are forgotten if they are gone when the next backward starts (by zero_grad(),
// because `grad` is another tensor, or zeroed by hand). A forgotten gradient changes no state of
// compression: its state is, bit for bit, the state before the backward that computed it.
class DistributedOptimizer {
 public:
  // Collective. `optimizer`: borrowed, must outlive this object; no parameter group may be added to
  // it later. `named_parameters`: module->named_parameters(), with equal names and order on every
  // rank; parameters that the optimizer does not have are ignored. Parameters that require
  // gradients now take part. Each parameter has one place for a hook that runs after its gradient
  // was accumulated. This object takes this place, and throws if it is taken already.
  DistributedOptimizer(::torch::optim::Optimizer& optimizer, const NamedTensors& named_parameters,
                       const Options& options = {});
  DistributedOptimizer(DistributedOptimizer&&) noexcept;
  DistributedOptimizer& operator=(DistributedOptimizer&&) noexcept;
  // Removes the hooks, and gives up an unfinished step.
  ~DistributedOptimizer();

  // Waits until every gradient holds the mean over ranks, then lets the optimizer update the
  // parameters. With Options::deferred, and a plan that delays results until the next forward, the
  // parameters are updated in that forward, with the options that the optimizer has now.
  void step();
  // A step for optimizers that evaluate the loss themselves: `closure` runs backward and returns
  // the loss, and step() waits for the gradients after each evaluation. Returns the return value of
  // the optimizer's step.
  at::Tensor step(const std::function<at::Tensor()>& closure);

  // For Options::deferred: updates the parameters of `module` and of its submodules that still wait
  // for their update. Call it before each forward of a module. Parameters wait only after the first
  // call for their module; until then step() updates them. Does nothing if no parameter waits.
  void before_forward(const ::torch::nn::Module& module);
  // Updates all parameters that wait. Call it before code reads parameters without a call of
  // before_forward(), for example to evaluate or to save. save_state(), broadcasts and shutdown()
  // call it themselves.
  void flush();

  // Does the work of torch's zero_grad(). Throws between backward and step() or synchronize().
  // After synchronize() it discards the results, which are forgotten.
  void zero_grad(bool set_to_none = true);

  // Waits until every gradient holds the mean over ranks, so that the program can clip or change
  // it; step() then uses the changed gradient. A parameter that backward did not reach on this
  // rank takes part with zeros; its gradient also receives the mean over ranks.
  void synchronize();

  // Replaces step(): parameters do not change, and the results are forgotten even if they stay in
  // the gradients. Call it on every rank or on none.
  void skip_step();
  // Replaces step() if this object cannot see what becomes of the results: they are used elsewhere
  // (applied), for example copied out of the gradients, or thrown away (forget), as by skip_step().
  // Waits for them first. Call it on every rank, with an equal outcome.
  void step_end(Outcome outcome = Outcome::applied);

  // Sets the factor by which the loss of the next backward is scaled; 1: none. Residuals then keep
  // their true size when the factor changes. Call it before backward, with an equal factor on every
  // rank. Throws for a factor that is not a finite number above 0.
  void set_grad_scale(double scale);

  // Zeroes the states that memories keep of earlier steps (residuals, momenta, shifts). Call it on
  // every rank or on none, in a loop that discards every step because an earlier step left bad
  // values in these states. An unfinished step is forgotten.
  void let_go();

  // The state of compression on this rank (residuals, factors, step index). Every rank must save
  // and load its own state. A run that loads it, and has the parameters and the optimizer of that
  // moment, continues bit for bit. Between backward and step(), save_state() returns the state
  // before this backward, and the step continues; load_state() drops the step.
  std::vector<std::uint8_t> save_state();
  void load_state(const std::vector<std::uint8_t>& state);
  // Write and read this state as the tensor "penstock" of an archive of torch.
  void save(::torch::serialize::OutputArchive& archive);
  void load(::torch::serialize::InputArchive& archive);

  Counters counters() const;
  std::string report() const;  // JSON: the plan, and counters per gradient and step

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

// ---- Ranks that train apart ----

// The outer step: SGD on the anchors, with the mean drift D of the ranks as the gradient. With a
// momentum M, m <- M m + D. Then, with Nesterov, anchor <- anchor - lr (D + M m), or else
// anchor <- anchor - lr m. The defaults are DiLoCo's.
struct OuterStep {
  double lr = 0.7;        // above 0
  double momentum = 0.9;  // from 0 to below 1
  bool nesterov = true;
};

struct LocalStepsOptions {
  std::int64_t every = 0;  // the number of steps in a round (H); has no default
  // Empty: the outer step averages the parameters (Local SGD), like an lr of 1 without momentum.
  std::optional<OuterStep> outer = OuterStep{};
  // How the drift travels, as in Options. Its memory must have no momentum if `outer` has one.
  std::string scheme = {};
  // The number of parts (F) that travel in turn, one every H / F steps. Layer l belongs to part
  // l mod F; a layer is a module with a number in its name, or else the owner of the parameter.
  std::int64_t fragments = 1;
  // The number of steps during which an exchange may travel, below H / F. With 0, step() waits.
  std::int64_t delay = 0;
  // When a result arrives, a parameter becomes mix * parameter + (1 - mix) * anchor.
  double mix = 0.0;
  bool anchors_on_host = false;  // true: anchors and outer momentum lie in host memory
  // World ranks that exchange with each other, in ascending order; empty: all ranks. Only these
  // ranks make the LocalSteps.
  Ranks ranks = {};
};

// Lets an optimizer of torch train alone on each rank. After every H steps the ranks average the
// drift: the distance from each parameter to its anchor, a copy that is equal on all ranks. The
// outer step moves the anchors, and the parameters follow them (Local SGD, DiLoCo, Streaming
// DiLoCo). Equal training gives equal bits here and in Python.
//
// backward() sends nothing, so clipping, accumulation and learning rate schedulers work as on one
// process. Parameters must be equal on all ranks at the first step. A parameter that requires no
// gradient is left alone while it stays so; buffers take no part. If a drift is not finite on some
// rank, the parameters of its bucket go back to their anchors on all ranks, and the rank with the
// broken parameter says so once on stderr. Every rank must make equally many steps.
class LocalSteps {
 public:
  // Collective. `optimizer` is borrowed and must outlive this object; no parameter group may be
  // added to it later. `named_parameters`: module->named_parameters(), with equal names and order
  // on every rank; parameters that the optimizer does not have are ignored.
  LocalSteps(::torch::optim::Optimizer& optimizer, const NamedTensors& named_parameters,
             const LocalStepsOptions& options);
  LocalSteps(LocalSteps&&) noexcept;
  LocalSteps& operator=(LocalSteps&&) noexcept;
  ~LocalSteps();  // does the work of close()

  // Takes the step of the optimizer on this rank. If a fragment is due, then starts its exchange or
  // applies its result. Collective in the first step, where the ranks compare their parameters.
  void step();
  // The same for optimizers that evaluate the loss themselves.
  at::Tensor step(const std::function<at::Tensor()>& closure);
  // Counts a step of the round without a step of the optimizer. For a program that leaves a step
  // out, also on this rank alone.
  void skip_step();
  void zero_grad(bool set_to_none = true);

  // Ends all rounds now, so that every rank holds equal parameters: at the end of training, or
  // before a model is evaluated or saved. Costs a full exchange. Collective.
  void synchronize();

  // The anchors by the names of their parameters: the model that is equal on all ranks at any time.
  // They are the tensors in use; do not change them.
  NamedTensors anchors();

  OuterStep outer() const;
  // Changes the outer step, between two steps, on every rank. A momentum can neither begin nor end.
  void set_outer(const std::optional<OuterStep>& outer);

  // The state of the rounds on this rank: anchors, outer momentum, place in the round, an exchange
  // under way, and the state of compression. Every rank must save and load its own state. A run
  // that loads it, and has the parameters and the optimizer of that moment, continues bit for bit.
  // The options and the number of ranks must be equal to the options and the number at the save.
  std::vector<std::uint8_t> save_state();
  void load_state(const std::vector<std::uint8_t>& state);
  // Write and read this state as the part "penstock_local_steps" of an archive of torch. The
  // archive gets copies of the tensors.
  void save(::torch::serialize::OutputArchive& archive);
  void load(::torch::serialize::InputArchive& archive);

  Counters counters() const;  // totals over all fragments; `steps` counts exchanges of a fragment
  // JSON: the steps, and the plan and counters of each fragment. From the second round on also, in
  // seconds, "step_s" (a step without exchanges) and "wait_s" (the longest of the last waits for an
  // exchange), and "delay_that_hides", the number of steps that hides such an exchange.
  std::string report() const;

  // Ends the exchange: an exchange under way is thrown away, and step() is refused from now on.
  // Call synchronize() before it to end with equal parameters. Every rank must call it.
  void close();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

// ---- Tensors of your own ----
//
// Operations match by name, not by the order of calls: each rank that takes part must use an equal
// name. The name is free again after wait(). Tensors must be dense; their type must be float16,
// bfloat16, float32, float64, uint8, int8, int16, int32 or int64.

// An operation that is in progress. It keeps the tensors that it uses alive; its destructor waits.
class Pending {
 public:
  struct Parts;
  explicit Pending(std::unique_ptr<Parts> parts);
  Pending(Pending&&) noexcept;
  Pending& operator=(Pending&&) noexcept;
  ~Pending();

  // Waits, and returns the result in a new tensor. Throws if the ranks disagree or a rank is dead.
  // May be called once.
  at::Tensor wait();

 private:
  std::unique_ptr<Parts> parts_;
};

// Starts the mean over ranks, or the sum. Types and shapes must be equal on all ranks.
Pending start_allreduce(const at::Tensor& tensor, const std::string& name, bool sum = false,
                        Ranks ranks = {});
// Starts a copy of the tensor of `root`, a world rank. Types and shapes must be equal on all ranks.
Pending start_broadcast(const at::Tensor& tensor, const std::string& name, std::uint32_t root = 0,
                        Ranks ranks = {});
// Starts the concatenation of all ranks' tensors along the first dimension, in the order of ranks.
// All extents but the first must be equal on all ranks. A tensor without dimensions is one row.
Pending start_allgather(const at::Tensor& tensor, const std::string& name, Ranks ranks = {});

// These functions start the operation and wait for its result.
at::Tensor allreduce(const at::Tensor& tensor, const std::string& name, bool sum = false,
                     Ranks ranks = {});
at::Tensor broadcast(const at::Tensor& tensor, const std::string& name, std::uint32_t root = 0,
                     Ranks ranks = {});
at::Tensor allgather(const at::Tensor& tensor, const std::string& name, Ranks ranks = {});
// Returns when all ranks that take part have called it.
void barrier(const std::string& name = "all", Ranks ranks = {});

// ---- An equal start on every rank ----

// Gives every rank the parameters and buffers of `root`, a world rank, in place; collective over
// `ranks`.
void broadcast_parameters(::torch::nn::Module& module, std::uint32_t root = 0, Ranks ranks = {});
void broadcast_parameters(const NamedTensors& tensors, std::uint32_t root = 0, Ranks ranks = {});

// Gives every rank the options and the state of the optimizer of `root`; collective over `ranks`.
// `optimizer` is torch's own object, not the DistributedOptimizer. The other ranks drop state that
// the root does not have.
void broadcast_optimizer_state(::torch::optim::Optimizer& optimizer, std::uint32_t root = 0,
                               Ranks ranks = {});

}  // namespace penstock::torch

#endif  // PENSTOCK_TORCH_HPP
