// A program that ends without shutdown(). The runtime closes at its end, and a forked child does
// not touch the runtime.
//
//   libtorch_leaving_program [fork]

#include <sys/wait.h>
#include <unistd.h>
#include <penstock/torch.hpp>

#include <cstdio>
#include <cstdlib>
#include <string>

int main(int count, char** words) {
  penstock::torch::init();
  if (count > 1 && std::string(words[1]) == "fork") {
    const pid_t child = fork();
    if (child == 0) std::exit(0);  // runs the functions registered with atexit, as any program does
    int status = -1;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) return 1;
  }
  std::printf("rank %u of %u leaves\n", penstock::torch::rank(), penstock::torch::size());
  return 0;
}
