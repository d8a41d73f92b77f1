# penstock_enable_cuda(): enables the CUDA compiler for a folder with .cu files, with C++20 and CUDA 12 or later.
# penstock_cuda_target(TARGET): decision 0006 for its .cu files. No fused multiply-add, as on the CPU. Constant
# expressions also run on a device, because the arithmetic of one element is written once, in kernels/element.
include_guard(GLOBAL)

macro(penstock_enable_cuda)
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES "80;90") # A100, and H100 or H200; newer devices compile the PTX of 90
  endif()
  enable_language(CUDA)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION) # nvcc has C++20 since 12.0, cmake 3.25 does not know it yet
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
  find_package(CUDAToolkit 12 REQUIRED)
endmacro()

function(penstock_cuda_target target)
  target_compile_options(${target} PRIVATE
    "$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;--fmad=false;-Xcompiler=-ffp-contract=off>")
  set_target_properties(${target} PROPERTIES
    CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON CUDA_RUNTIME_LIBRARY Static CUDA_VISIBILITY_PRESET hidden)
endfunction()
