// A CUDA runtime without a device, for a program of all kernels. It compares the kernels that
// nvcc's code registers at the start with the kernels that load_kernels asks for, and reports
// differences.
#include <kernels/cuda/loading.hpp>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>

namespace {

// Names of the compiled kernels, by their function on the host. The map is made at the first use,
// because static objects of other files use it.
std::map<const void*, std::string>& compiled() {
  static std::map<const void*, std::string> kernels;
  return kernels;
}
size_t n_loaded = 0;

int succeed(void**) {
  return 0;
}
int retain(void** context, int) {
  *context = &n_loaded;
  return 0;
}

}  // namespace

extern "C" {

void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) {
  return 1;
}
void __cudaRegisterFunction(void**, const char* of_host, char*, const char* name, int, void*, void*,
                            void*, void*, int*) {
  compiled()[of_host] = name;
}
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}

int cudaFuncGetAttributes(void*, const void* kernel) {
  n_loaded += compiled().erase(kernel);
  return 0;
}
int cudaGetLastError() {
  return 0;
}
const char* cudaGetErrorString(int) {
  return "no error";
}
int cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned,
                                     unsigned long long, void*) {
  *function = std::strcmp(name, "cuDevicePrimaryCtxRetain") == 0 ? reinterpret_cast<void*>(retain)
                                                                 : reinterpret_cast<void*>(succeed);
  return 0;
}

}  // extern "C"

int main() {
  const char* why = nullptr;
  const int error = penstock::kernels::cuda::load_kernels(0, &why);
  std::printf("%zu kernels are loaded, error %d\n", n_loaded, error);
  for (const auto& [kernel, name] : compiled()) std::printf("not loaded: %s\n", name.c_str());
  return 0;
}
