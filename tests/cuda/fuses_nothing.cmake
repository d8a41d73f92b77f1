# The machine code of a plugin multiplies and adds, but never in one instruction.
# cmake -DCUOBJDUMP=... -DPLUGIN=... -P fuses_nothing.cmake
if(NOT CUOBJDUMP)
  message(STATUS "skipped: CUDA's cuobjdump is not installed")
  return()
endif()
execute_process(COMMAND ${CUOBJDUMP} --dump-sass ${PLUGIN} OUTPUT_VARIABLE code RESULT_VARIABLE failed)
if(failed OR NOT code MATCHES "FMUL" OR NOT code MATCHES "FADD")
  message(FATAL_ERROR "${PLUGIN} has no code of ours that multiplies and adds:\n${code}")
endif()
if(code MATCHES "FFMA")
  message(FATAL_ERROR "${PLUGIN} fuses multiplications and additions: --fmad=false did not reach its compiler")
endif()
