# How every target of the project is compiled, and the two functions that make them.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo)
endif()
# Optimise fully, keep asserts of the standard library out, and light debug information only: line
# numbers for stack traces and profilers at a fraction of the build time.
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O3 -g1")

add_library(sl_flags INTERFACE)
target_include_directories(sl_flags INTERFACE ${CMAKE_SOURCE_DIR})
set(SL_CXX_FLAGS
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor
  -march=${SL_CPU_ARCH}
  # Sums keep the order they are written in; contraction to FMA is the compiler's choice, the same
  # in every build of one machine.
  -fno-math-errno -fno-trapping-math)
# In .cu files constexpr functions may be called in kernels, and lines are kept for profilers.
set(SL_CUDA_FLAGS --expt-relaxed-constexpr -lineinfo -Xcompiler=-Wall,-Wextra,-Wno-unknown-pragmas)
if(SL_WERROR)
  list(APPEND SL_CXX_FLAGS -Werror)
  list(APPEND SL_CUDA_FLAGS -Werror=all-warnings)
endif()
target_compile_options(sl_flags INTERFACE
  "$<$<COMPILE_LANGUAGE:C,CXX>:${SL_CXX_FLAGS}>" "$<$<COMPILE_LANGUAGE:CUDA>:${SL_CUDA_FLAGS}>")
if(SL_SANITIZE)
  target_compile_options(sl_flags INTERFACE -fsanitize=${SL_SANITIZE} -fno-omit-frame-pointer
    # gcc 12 takes the instrumented <regex> of the standard library for uninitialized reads.
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  target_link_options(sl_flags INTERFACE -fsanitize=${SL_SANITIZE})
endif()
if(SL_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL Clang)
    message(FATAL_ERROR "SL_FUZZ needs clang, whose libFuzzer it uses (preset fuzz)")
  endif()
  target_compile_options(sl_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

# sl_library(NAME SOURCES file... [LINK library...]): one static library per folder.
function(sl_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK;PRIVATE_LINK" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC sl_flags ${ARG_LINK} PRIVATE ${ARG_PRIVATE_LINK})
endfunction()

# sl_compiles_fast(TARGET FLAG): optimised less than the rest, since it computes next to nothing and
# optimising it takes a third of its compile time or more.
function(sl_compiles_fast name flag)
  if(CMAKE_BUILD_TYPE STREQUAL RelWithDebInfo OR SL_SANITIZE)
    target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${flag}>)
  endif()
endfunction()

# sl_tests(NAME [CUDA] SOURCES file... LINK library...): a Catch2 program. With CUDA its
# test_device() is that one: a GPU in preset cuda, elsewhere the processor (tests/emulated_cuda).
# Labels: gpu for those that need one; else cpu for all that are not tagged [slow], and slow.
function(sl_tests name)
  cmake_parse_arguments(ARG "CUDA" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE sl_test_support ${ARG_LINK})
  if(ARG_CUDA)
    target_sources(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests/support/test_device_cuda.cpp)
    target_link_libraries(${name} PRIVATE sl_cuda)
  else()
    target_sources(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests/support/test_device_cpu.cpp)
  endif()
  target_compile_definitions(${name} PRIVATE SL_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  sl_compiles_fast(${name} -Og)
  add_test(NAME ${name} COMMAND ${name} "~[slow]" "~[gpu]" "~[devices]" "~[memory]" "~[avx512]")
  # Whole runs take minutes on a loaded machine; a test that hangs ends all the same. Kernels that a
  # sanitizer instruments are some 30 times slower.
  set(limit 900)
  if(SL_SANITIZE)
    set(limit 1200)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS cpu TIMEOUT ${limit})
  if(ARG_CUDA AND SL_CUDA)
    set_tests_properties(${name} PROPERTIES LABELS gpu)
  endif()
  add_test(NAME ${name}_slow COMMAND ${name} "[slow]" "~[gpu]")
  set_tests_properties(${name}_slow PROPERTIES LABELS slow TIMEOUT 1800)
endfunction()
