// The handlers for accesses to closed memory.
#include <fmt/format.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>

#include "memory.hpp"

namespace penstock::simulated {
namespace {

Memory* watched = nullptr;
struct sigaction before {};

// The thread that works now, written under the machine's lock. It is not thread_local, because a
// handler must not create a thread_local object.
std::atomic<pid_t> worker{0};
int worker_device = kHost;
const char* worker_does = "";

pid_t this_thread() {
  return static_cast<pid_t>(syscall(SYS_gettid));
}

// After the handler the program ends by the default action, at the instruction of the fault.
void end_with(const std::string& sentence, int signal_number = SIGSEGV) {
  const std::string line = "simulated device: " + sentence + "\n";
  if (write(STDERR_FILENO, line.data(), line.size()) < 0) std::abort();
  signal(signal_number, SIG_DFL);
}

// Handles the traps with which kernels are compiled (CMakeLists.txt).
void on_trap(int signal_number) {
  if (worker.load() != this_thread()) {
    signal(signal_number, SIG_DFL);
    return;
  }
  end_with(fmt::format("{} on device {} did what a GPU and this processor do differently: a wide "
                       "access of what does not lie so, a shift by too many bits, or a float that "
                       "its integer cannot hold",
                       worker_does, worker_device),
           signal_number);
}

void on_fault(int signal_number, siginfo_t* info, void* context) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  if (!watched->reserved(address)) {
    if ((before.sa_flags & SA_SIGINFO) != 0 && before.sa_sigaction != nullptr)
      before.sa_sigaction(signal_number, info, context);
    else
      signal(SIGSEGV, SIG_DFL);
    return;
  }
  if (worker.load() != this_thread()) {
    end_with(fmt::format("the host touched {}; only kernels and copies may",
                         watched->describe(address)));
    return;
  }
  Allocation* touched = watched->find(address);
  if (touched == nullptr || touched->open) {
    end_with(fmt::format("{} on device {} touched {}", worker_does, worker_device,
                         watched->describe(address)));
  } else if (worker_device != kAnyDevice && touched->device != worker_device) {
    end_with(fmt::format("{} on device {} touched {}: memory of another device", worker_does,
                         worker_device, watched->describe(address)));
  } else {
    watched->open(*touched);
  }
}

}  // namespace

Working::Working(Memory& memory, int device, const char* what) : memory_(memory) {
  worker_device = device;
  worker_does = what;
  worker = this_thread();
}

Working::~Working() {
  worker = 0;
  memory_.close_all();
}

void watch_faults(Memory& memory) {
  watched = &memory;
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGSEGV, &action, &before);
  signal(SIGILL, on_trap);
}

}  // namespace penstock::simulated
