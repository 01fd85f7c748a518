# Run by cmake --install (SlacklineInstall.cmake), with `programs`, `parts` (what they load at run
# time, under the install prefix) and `kind` set: copies the libraries of that kind, bundle or
# cuda_libraries, to lib/. They find each other through the programs' RPATH, for which their own
# has to go.
set(system "^ld-linux|^lib(c|m|dl|pthread|rt)\\.so|^libcuda\\.so|^libnvidia")
set(toolkit "^lib(cudart|cublas|cudnn|nccl|nvrtc|nvJitLink)")

file(GET_RUNTIME_DEPENDENCIES EXECUTABLES ${programs} MODULES ${parts}
  RESOLVED_DEPENDENCIES_VAR found UNRESOLVED_DEPENDENCIES_VAR missing)
foreach(library IN LISTS found)
  get_filename_component(name ${library} NAME)
  set(its_kind bundle)
  if(name MATCHES "${system}")
    set(its_kind system)
  elseif(name MATCHES "${toolkit}")
    set(its_kind cuda_libraries)
  endif()
  if(its_kind STREQUAL kind)
    file(INSTALL DESTINATION "${CMAKE_INSTALL_PREFIX}/lib" TYPE SHARED_LIBRARY FOLLOW_SYMLINK_CHAIN
      FILES "${library}")
    file(REAL_PATH "${library}" real)
    get_filename_component(name "${real}" NAME)
    file(RPATH_REMOVE FILE "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/lib/${name}")
  endif()
endforeach()
if(kind STREQUAL bundle)
  foreach(part IN LISTS installed_parts)
    file(RPATH_REMOVE FILE "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/${part}")
  endforeach()
endif()
