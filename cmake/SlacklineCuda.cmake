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

# sl_cuda_library(NAME header library without): target sl_NAME where both are found, and a line of
# report, which says what happens without the library.
function(sl_cuda_library name header library without)
  set(hints ${CUDAToolkit_INCLUDE_DIRS} ${CUDAToolkit_LIBRARY_DIR} ${CUDAToolkit_LIBRARY_ROOT})
  find_path(SL_${name}_INCLUDE ${header} HINTS ${hints} PATH_SUFFIXES include)
  find_library(SL_${name}_LIBRARY ${library} HINTS ${hints} PATH_SUFFIXES lib lib64)
  if(NOT SL_${name}_INCLUDE OR NOT SL_${name}_LIBRARY)
    sl_report(${name} "not found: ${without}")
    return()
  endif()
  add_library(sl_${name} INTERFACE)
  target_include_directories(sl_${name} SYSTEM INTERFACE ${SL_${name}_INCLUDE})
  target_link_libraries(sl_${name} INTERFACE ${SL_${name}_LIBRARY})
  sl_report(${name} ${SL_${name}_LIBRARY})
endfunction()

set(no_cudnn "attention of bf16 uses the own kernels")
sl_cuda_library(cudnn cudnn.h cudnn ${no_cudnn})
sl_cuda_library(nccl nccl.h nccl "tensors pass between devices by copies on the host")

# cudnn-frontend is headers alone. Below the build folder is where `tools/install_packages cuda` is
# told to put them; Python's package nvidia-cudnn-frontend has them too. They name functions of
# NVRTC, which cuDNN opens itself, and, before the version asked for here, of the driver.
function(sl_find_cudnn_frontend oldest)
  if(NOT SL_CUDNN_FRONTEND)
    execute_process(COMMAND python3 -c "import site; print(';'.join(site.getsitepackages()), end='')"
      OUTPUT_VARIABLE site_packages ERROR_QUIET)
  endif()
  find_path(SL_CUDNN_FRONTEND cudnn_frontend.h PATH_SUFFIXES include
    HINTS ${CMAKE_SOURCE_DIR}/build/cudnn-frontend ${CUDAToolkit_INCLUDE_DIRS} ${site_packages}
    DOC "The folder of cudnn_frontend.h")
  set(header ${SL_CUDNN_FRONTEND}/cudnn_frontend_version.h)
  if(NOT EXISTS ${header})
    sl_report(cudnn-frontend "not found: ${no_cudnn}. tools/install_packages cuda build/cudnn-frontend brings it")
    return()
  endif()
  file(STRINGS ${header} lines REGEX "define CUDNN_FRONTEND_(MAJOR|MINOR|PATCH)_VERSION +[0-9]")
  string(REGEX MATCHALL "[0-9]+" numbers "${lines}")
  list(JOIN numbers "." version)
  if(version VERSION_LESS oldest)
    sl_report(cudnn-frontend "${version} in ${SL_CUDNN_FRONTEND} is older than ${oldest}: ${no_cudnn}")
    unset(SL_CUDNN_FRONTEND CACHE)  # the next configuration looks again
  elseif(TARGET sl_cudnn AND TARGET CUDA::nvrtc)
    set(SL_FUSED_ATTENTION ON PARENT_SCOPE)
    sl_report(cudnn-frontend "${SL_CUDNN_FRONTEND}, version ${version}")
  else()
    sl_report(cudnn-frontend "not used without cuDNN and NVRTC: ${no_cudnn}")
  endif()
endfunction()

sl_find_cudnn_frontend(1.32)
