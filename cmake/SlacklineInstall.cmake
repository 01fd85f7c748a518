# cmake --install build/PRESET --prefix DIR makes a bundle that runs on a machine where nothing of it
# is installed: the binary, the programs of the gpu tests, and beside them the shared libraries that
# such a machine lacks, Open MPI and its parts included. The C library is the machine's, and so are
# the CUDA toolkit's libraries, which are large, unless component cuda_libraries is installed too.
#
#   bin/slackline, bin/mpirun    tests/    lib/    lib/openmpi and share/openmpi as Open MPI's prefix

install(TARGETS slackline RUNTIME DESTINATION bin)
if(TARGET comm_cuda_tests AND SL_CUDA)
  install(TARGETS comm_cuda_tests kernel_cuda_tests compress_cuda_tests model_cuda_tests
    parallel_cuda_tests cuda_run_tests
    RUNTIME DESTINATION tests)
  install(TARGETS cuda_bench RUNTIME DESTINATION bin)
  install(DIRECTORY tests/golden/powersgd DESTINATION share/slackline/tests/golden)
endif()

# Open MPI looks for its parts where it was built to be, or below OPAL_PREFIX.
if(MPI_C_FOUND)
  find_program(SL_ORTERUN orterun)
  find_program(SL_ORTED orted)
  execute_process(COMMAND ompi_info --path pkglibdir --parsable
    OUTPUT_VARIABLE SL_MPI_PARTS OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  string(REGEX REPLACE "^.*:" "" SL_MPI_PARTS "${SL_MPI_PARTS}")
  if(SL_ORTERUN AND SL_ORTED AND IS_DIRECTORY "${SL_MPI_PARTS}")
    # UCX and libfabric are what Open MPI takes for InfiniBand and its like. Older ways to these
    # networks, and schedulers, are left out.
    file(GLOB SL_MPI_PART_FILES "${SL_MPI_PARTS}/mca_*.so")
    list(FILTER SL_MPI_PART_FILES EXCLUDE REGEX
      "_(openib|psm|psm2|monitoring|flux|jsm|spml|scoll|memheap|sshmem)\\.so|mca_(spml|scoll|memheap|sshmem|atomic)_")
    string(REGEX REPLACE "^/usr/" "" SL_MPI_PARTS_BELOW "${SL_MPI_PARTS}")
    install(FILES ${SL_MPI_PART_FILES} DESTINATION ${SL_MPI_PARTS_BELOW})
    # UCX looks for its own parts in the folder ucx beside its libraries, which is lib/ in a bundle.
    find_library(SL_UCT NAMES libuct.so.0)
    if(SL_UCT)
      cmake_path(GET SL_UCT PARENT_PATH SL_UCX_PARTS)
      file(GLOB SL_UCX_PART_FILES "${SL_UCX_PARTS}/ucx/libu*.so.0")
      install(DIRECTORY ${SL_UCX_PARTS}/ucx DESTINATION lib)
    endif()
    install(PROGRAMS ${SL_ORTERUN} ${SL_ORTED} DESTINATION libexec)
    install(DIRECTORY /usr/share/openmpi DESTINATION share OPTIONAL)
    install(PROGRAMS ${CMAKE_SOURCE_DIR}/cmake/bundle_mpirun DESTINATION bin RENAME mpirun)
    set(SL_MPI_PROGRAMS "\"${SL_ORTERUN}\" \"${SL_ORTED}\"")
  endif()
endif()

foreach(part IN LISTS SL_MPI_PART_FILES)
  get_filename_component(name ${part} NAME)
  list(APPEND SL_INSTALLED_PARTS ${SL_MPI_PARTS_BELOW}/${name})
endforeach()

# sl_install_libraries(KIND [EXCLUDE_FROM_ALL]): a component of that name; `bundle` is a part of all.
function(sl_install_libraries kind)
  set(component COMPONENT ${kind} ${ARGN})
  install(CODE "set(kind ${kind})
    set(programs \"$<TARGET_FILE:slackline>\" ${SL_MPI_PROGRAMS})
    set(parts ${SL_MPI_PART_FILES} ${SL_UCX_PART_FILES})
    set(installed_parts ${SL_INSTALLED_PARTS})" ${component})
  install(SCRIPT ${CMAKE_SOURCE_DIR}/cmake/bundle_libraries.cmake ${component})
endfunction()
sl_install_libraries(bundle)
sl_install_libraries(cuda_libraries EXCLUDE_FROM_ALL)
