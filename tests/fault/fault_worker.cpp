// One rank of a run with a fault, for tests/fault/run_faults.py. Uses only the C functions of
// runtime.h.
//
//   fault_worker MODE DEADLINE_S COLLECTIVE
//
// In modes "cut" and "idle" only the link fails, see run_cut.py. In other modes every rank makes a
// set of three gradients and runs steps, and in step 3 rank 1 misbehaves as MODE says. A rank that
// gets an error prints one line "rank R error CODE: MESSAGE" and exits with 3. A rank that finishes
// prints "rank R done".
#include <penstock/runtime.h>
#include <penstock/scheduler.h>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

namespace {

uint32_t my_rank = 0;
uint32_t deadline_s = 0;
penstock_set* my_set = nullptr;  // in mode "aborts" both are closed before the end, because
penstock_runtime* closing_runtime =
    nullptr;  // an interpreter does this too if it ends in a traceback

penstock_str text(const std::string& value) {
  return {value.data(), value.size()};
}

// Prints an error and ends the process without a wait, like the traceback of a training script.
void check(penstock_status* error) {
  if (error == nullptr) return;
  const penstock_str message = penstock_error_message(error);
  std::printf("rank %u error %u: %.*s\n", my_rank, penstock_error_code(error), int(message.size),
              message.data);
  std::fflush(stdout);
  if (closing_runtime != nullptr) {
    penstock_set_destroy(my_set);
    penstock_runtime_close(closing_runtime);
  }
  std::_Exit(3);
}

struct Gradients {
  std::vector<std::vector<float>> values{std::vector<float>(4096), std::vector<float>(64),
                                         std::vector<float>(100000)};
  std::vector<std::string> names{"first", "second", "third"};
  std::vector<int64_t> extents{4096, 64, 100000};
};

penstock_set* make_set(penstock_runtime* runtime, Gradients& gradients) {
  std::vector<penstock_gradient_declaration> declarations(gradients.values.size());
  std::vector<const penstock_gradient_declaration*> pointers;
  for (size_t i = 0; i < declarations.size(); ++i) {
    penstock_gradient_declaration& c = declarations[i];
    c = {};
    c.struct_size = sizeof c;
    c.name = text(gradients.names[i]);
    c.shape = &gradients.extents[i];
    c.n_dims = 1;
    c.dtype = PENSTOCK_FLOAT32;
    c.device_type = PENSTOCK_DEVICE_CPU;
    c.given_bucket = PENSTOCK_NO_BUCKET;
    pointers.push_back(&c);
  }
  const std::string name = "model";
  penstock_set_declaration declaration{};
  declaration.struct_size = sizeof declaration;
  declaration.name = text(name);
  declaration.gradients = pointers.data();
  declaration.n_gradients = pointers.size();
  penstock_set* set = nullptr;
  check(penstock_set_create(runtime, &declaration, &set));
  return set;
}

void ready(penstock_set* set, Gradients& gradients, size_t i) {
  penstock_tensor tensor{};
  tensor.struct_size = sizeof tensor;
  tensor.data = gradients.values[i].data();
  tensor.shape = &gradients.extents[i];
  tensor.n_dims = 1;
  tensor.numel = gradients.values[i].size();
  tensor.dtype = PENSTOCK_FLOAT32;
  tensor.device_type = PENSTOCK_DEVICE_CPU;
  check(penstock_gradient_ready(set, i, &tensor, nullptr));
}

void misbehave(const std::string& mode, penstock_runtime* runtime) {
  if (mode == "killed") kill(getpid(), SIGKILL);
  if (mode == "stopped") kill(getpid(), SIGSTOP);
  if (mode == "exits") std::_Exit(0);
  if (mode == "aborts") {
    const std::string reason = "the disk is full";
    closing_runtime = runtime;
    penstock_abort(runtime, text(reason));
  }
  if (mode == "silent") sleep(1000);  // alive, but does not continue
  if (mode == "busy") sleep(2 * deadline_s);
  if (mode == "leaves") {
    penstock_set_destroy(my_set);
    penstock_runtime_close(runtime);
    std::printf("rank %u left\n", my_rank);
    std::exit(0);
  }
}

// A named operation that this rank asks for and waits for.
void meet(penstock_runtime* runtime, const std::string& name) {
  penstock_operation_declaration declaration{};
  declaration.struct_size = sizeof declaration;
  declaration.name = text(name);
  declaration.pattern = PENSTOCK_BARRIER;
  declaration.prescale = declaration.postscale = 1;
  penstock_operation* operation = nullptr;
  check(penstock_operation_submit(runtime, &declaration, &operation));
  check(penstock_operation_wait(operation));
  penstock_operation_release(operation);
}

// No rank misbehaves, but the link between the ranks does.
bool is_cut(const std::string& mode) {
  return mode == "cut" || mode == "idle";
}

// Keys that find a plugin of tests/plugins.
std::string test_plugin(const std::string& name) {
  const auto programs = std::filesystem::canonical("/proc/self/exe").parent_path();
  return "allow_insecure_paths = true\nplugin_path = [\"" + programs.string() + "/plugins/" + name +
         "\"]\n";
}

// Keys of [runtime] in addition to the deadline.
std::string runtime_of(const std::string& mode) {
  if (mode == "silent") return "busy_limit_s = " + std::to_string(deadline_s) + "\n";
  if (mode == "hangs")
    return "busy_limit_s = " + std::to_string(deadline_s) + "\n" + test_plugin("hangs");
  if (mode == "constructor" && my_rank == 1)
    return "busy_limit_s = 3\n" + test_plugin("stuck_transport");
  if (mode == "busy") return "stall_warning_s = 1\n";
  if (is_cut(mode)) return "busy_limit_s = " + std::to_string(20 * deadline_s) + "\n";
  return "";
}

// Runs steps with known results, one line each, until the test of the network is over: see
// run_cut.py. In the middle all ranks compute for `idle_s` and send nothing.
void train(penstock_set* set, Gradients& gradients, uint32_t world, uint32_t idle_s) {
  constexpr int kSteps = 120;
  constexpr int kIdle = 20;
  for (int step = 0; step < kSteps; ++step) {
    if (step == kIdle) sleep(idle_s);
    const float unit = float(step % 7 + 1);
    for (std::vector<float>& values : gradients.values)
      std::fill(values.begin(), values.end(), unit * float(my_rank + 1));
    for (size_t i = gradients.values.size(); i-- > 0;) ready(set, gradients, i);
    check(penstock_wait_all(set));
    // Small integers, so the sum is exact in any order.
    const float mean = unit * float(world + 1) / 2;
    for (const std::vector<float>& values : gradients.values)
      for (const float value : values)
        if (value != mean) {
          std::printf("rank %u wrong: %g in step %d, expected %g\n", my_rank, double(value), step,
                      double(mean));
          std::_Exit(4);
        }
    check(penstock_step_end(set, PENSTOCK_STEP_APPLIED));
    std::printf("rank %u step %d\n", my_rank, step);
    std::fflush(stdout);
    usleep(20'000);
  }
}

// A data loader's worker: a child of this process that calls the runtime and then ends.
void call_from_a_child(penstock_runtime* runtime, penstock_set* set) {
  const pid_t child = fork();
  if (child != 0) {
    int status = 0;
    waitpid(child, &status, 0);
    std::printf("rank %u child %d\n", my_rank, status);
    return;
  }
  const std::string name = "from a worker";
  penstock_operation_declaration declaration{};
  declaration.struct_size = sizeof declaration;
  declaration.name = text(name);
  declaration.pattern = PENSTOCK_BARRIER;
  declaration.prescale = declaration.postscale = 1;
  penstock_operation* operation = nullptr;
  for (penstock_status* error :
       {penstock_operation_submit(runtime, &declaration, &operation), penstock_wait_all(set)}) {
    if (error == nullptr) std::_Exit(5);
    const penstock_str message = penstock_error_message(error);
    std::printf("rank %u refused %u: %.*s\n", my_rank, penstock_error_code(error),
                int(message.size), message.data);
    penstock_error_free(error);
  }
  penstock_set_destroy(set);
  penstock_runtime_close(runtime);
  std::exit(0);
}

// Like sys.exit in a child: exit handlers run.
void exit_in_a_child() {
  const pid_t child = fork();
  if (child == 0) std::exit(0);
  int status = 0;
  waitpid(child, &status, 0);
  std::printf("rank %u child after the end %d\n", my_rank, status);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const std::string mode = argv[1];
  for (const char* variable : {"OMPI_COMM_WORLD_RANK", "RANK"})
    if (const char* rank = std::getenv(variable)) my_rank = uint32_t(std::atoi(rank));
  deadline_s = uint32_t(std::atoi(argv[2]));
  std::string scheme = "scheduler = \"wfbp\"\n";
  if (mode == "loads" && my_rank == 1) scheme = "compressor = \"topkk\"\n";
  if (mode == "differs" && my_rank == 1) scheme = "scheduler = \"fusion\"\n";
  // identity-c compresses nothing, and is not called for a gradient alone in a bucket. So this mode
  // uses fusion.
  if (mode == "hangs")
    scheme = "scheduler = \"fusion\"\ncompressor = \"identity-c\"\nmemory = \"none\"\n";
  const bool is_stuck = mode == "constructor" && my_rank == 1;
  scheme += "collective = \"" + std::string(is_stuck ? "stuck" : argv[3]) + "\"\n";
  const std::string config = "[scheme]\n" + scheme + "[runtime]\nlog_level = \"" +
                             (mode == "busy" || is_cut(mode) ? "warning" : "error") +
                             "\"\ndeadline_s = " + argv[2] + "\n" + runtime_of(mode);
  penstock_runtime_options options{};
  options.struct_size = sizeof options;
  // /proc/self/mem is a plain file whose first bytes cannot be read.
  const std::string file = mode == "unreadable" ? "/proc/self/mem" : "/nowhere/run.toml";
  if ((mode == "file" || mode == "unreadable") && my_rank == 1)
    options.config_path = text(file);
  else
    options.config_text = text(config);
  penstock_runtime* runtime = nullptr;
  check(penstock_runtime_open(&options, &runtime));
  penstock_topology topology{};
  topology.struct_size = sizeof topology;
  check(penstock_runtime_topology(runtime, &topology));
  my_rank = topology.rank;
  Gradients gradients;
  penstock_set* set = my_set = make_set(runtime, gradients);
  if (is_cut(mode)) train(set, gradients, topology.size, mode == "idle" ? deadline_s * 5 / 8 : 0);
  for (int step = 0; step < 6 && !is_cut(mode); ++step) {
    ready(set, gradients, 2);
    if (step == 3 && mode == "circle") meet(runtime, my_rank == 1 ? "accuracy" : "loss");
    if (step == 3 && mode == "forks") call_from_a_child(runtime, set);
    if (step == 3 && my_rank == 1) misbehave(mode, runtime);
    ready(set, gradients, 1);
    ready(set, gradients, 0);
    check(penstock_wait_all(set));
    check(penstock_step_end(set, PENSTOCK_STEP_APPLIED));
  }
  penstock_set_destroy(set);
  penstock_runtime_close(runtime);
  if (mode == "forks") exit_in_a_child();
  std::printf("rank %u done\n", my_rank);
  return 0;
}
