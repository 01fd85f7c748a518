# The CUDA compiler and the libraries of the CUDA backend, found wherever the toolkit, a
# distribution or a user (CUDA_HOME, CMAKE_PREFIX_PATH) put them. They are linked as shared
# libraries, and libcuda never is: the binary has to start on hosts without a driver.

if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(SL_NVCC nvcc HINTS ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES bin)
  if(NOT SL_NVCC)
    message(FATAL_ERROR "SL_CUDA is on and there is no nvcc in PATH, in CUDA_HOME or in "
      "/usr/local/cuda. Install the CUDA toolkit, or use preset cpu.")
  endif()
  set(CMAKE_CUDA_COMPILER ${SL_NVCC})
endif()
enable_language(CUDA)

# CMake 3.25 does not know the flags of nvcc 13 and refuses CUDA_STANDARD 20 without these.
foreach(kind STANDARD EXTENSION)
  if(NOT DEFINED CMAKE_CUDA20_${kind}_COMPILE_OPTION)
    set(CMAKE_CUDA20_${kind}_COMPILE_OPTION "-std=c++20")
  endif()
endforeach()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)
set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)

find_package(CUDAToolkit REQUIRED)
list(JOIN CMAKE_CUDA_ARCHITECTURES " " architectures)
sl_report(CUDA "nvcc ${CMAKE_CUDA_COMPILER_VERSION} for ${architectures}")
if(TARGET CUDA::cublasLt)
  sl_report(cuBLASLt ${CUDA_cublasLt_LIBRARY})
else()
  sl_report(cuBLASLt "not found (a part of the CUDA toolkit)")
endif()

# sl_cuda_library(NAME header library): target sl_NAME where both are found, and a line of report.
function(sl_cuda_library name header library)
  set(hints ${CUDAToolkit_INCLUDE_DIRS} ${CUDAToolkit_LIBRARY_DIR} ${CUDAToolkit_LIBRARY_ROOT})
  find_path(SL_${name}_INCLUDE ${header} HINTS ${hints} PATH_SUFFIXES include)
  find_library(SL_${name}_LIBRARY ${library} HINTS ${hints} PATH_SUFFIXES lib lib64)
  if(NOT SL_${name}_INCLUDE OR NOT SL_${name}_LIBRARY)
    sl_report(${name} "not found")
    return()
  endif()
  add_library(sl_${name} INTERFACE)
  target_include_directories(sl_${name} SYSTEM INTERFACE ${SL_${name}_INCLUDE})
  target_link_libraries(sl_${name} INTERFACE ${SL_${name}_LIBRARY})
  sl_report(${name} ${SL_${name}_LIBRARY})
endfunction()

sl_cuda_library(cudnn cudnn.h cudnn)
sl_cuda_library(nccl nccl.h nccl)
