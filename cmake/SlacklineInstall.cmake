# cmake --install build/PRESET --prefix DIR makes a bundle that runs on a machine where nothing of it
# is installed: the binary, the programs of the gpu tests, and beside them the shared libraries that
# such a machine lacks, Open MPI and its parts included. The C library is the machine's, and so are
# the CUDA toolkit's libraries, which are large, unless component cuda_libraries is installed too.
#
#   bin/slackline, bin/mpirun    tests/    lib/    lib/openmpi and share/openmpi as Open MPI's prefix

set(SL_BUNDLE_SYSTEM "^ld-linux" "^libc\\.so" "^libm\\.so" "^libdl\\.so" "^libpthread\\.so" "^librt\\.so"
  "^libcuda\\.so" "^libnvidia")
set(SL_BUNDLE_TOOLKIT "^libcudart" "^libcublas" "^libcudnn" "^libnccl" "^libnvrtc" "^libnvJitLink")

install(TARGETS slackline RUNTIME DESTINATION bin)
if(SL_TESTS AND SL_CUDA)
  install(TARGETS kernel_cuda_tests compress_cuda_tests cuda_run_tests RUNTIME DESTINATION tests)
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
    # Networks whose libraries a bare machine lacks, and schedulers, are left out.
    file(GLOB SL_MPI_PART_FILES "${SL_MPI_PARTS}/mca_*.so")
    list(FILTER SL_MPI_PART_FILES EXCLUDE REGEX
      "_(ofi|ucx|openib|psm|psm2|monitoring|flux|jsm|spml|scoll|memheap|sshmem)\\.so|mca_(spml|scoll|memheap|sshmem|atomic)_")
    string(REGEX REPLACE "^/usr/" "" SL_MPI_PARTS_BELOW "${SL_MPI_PARTS}")
    install(FILES ${SL_MPI_PART_FILES} DESTINATION ${SL_MPI_PARTS_BELOW})
    install(PROGRAMS ${SL_ORTERUN} ${SL_ORTED} DESTINATION libexec)
    install(DIRECTORY /usr/share/openmpi DESTINATION share OPTIONAL)
    install(PROGRAMS ${CMAKE_SOURCE_DIR}/cmake/bundle_mpirun DESTINATION bin RENAME mpirun)
    set(SL_MPI_PROGRAMS ${SL_ORTERUN} ${SL_ORTED})
  endif()
endif()

# sl_install_libraries(COMPONENT kept-out): what the installed programs and parts load.
function(sl_install_libraries component)
  set(system "${SL_BUNDLE_SYSTEM}")
  set(toolkit "${SL_BUNDLE_TOOLKIT}")
  set(parts "${SL_MPI_PART_FILES}")
  set(programs "$<TARGET_FILE:slackline>;${SL_MPI_PROGRAMS}")
  install(CODE "
    file(GET_RUNTIME_DEPENDENCIES EXECUTABLES ${programs} MODULES ${parts}
      RESOLVED_DEPENDENCIES_VAR found UNRESOLVED_DEPENDENCIES_VAR missing)
    foreach(library IN LISTS found)
      get_filename_component(name \${library} NAME)
      set(kind bundle)
      foreach(pattern ${system})
        if(name MATCHES \"\${pattern}\")
          set(kind system)
        endif()
      endforeach()
      foreach(pattern ${toolkit})
        if(name MATCHES \"\${pattern}\")
          set(kind cuda_libraries)
        endif()
      endforeach()
      if(kind STREQUAL ${component})
        file(INSTALL DESTINATION \"\${CMAKE_INSTALL_PREFIX}/lib\" TYPE SHARED_LIBRARY
          FOLLOW_SYMLINK_CHAIN FILES \"\${library}\")
      endif()
    endforeach()" COMPONENT ${ARGN})
endfunction()
sl_install_libraries(bundle Unspecified)
sl_install_libraries(cuda_libraries cuda_libraries EXCLUDE_FROM_ALL)
