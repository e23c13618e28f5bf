# Everything here is a Debian 12 package; scripts/setup installs them. All but libc are linked statically.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)

# Debian has fmt and toml++ as shared libraries only. fmt is compiled as a part of ours (src/base/fmt_library.cc), which
# knows version 9; any other, and toml++, end up in the binary as headers.
add_library(ls_fmt INTERFACE)
if(fmt_VERSION VERSION_GREATER_EQUAL 9 AND fmt_VERSION VERSION_LESS 10)
  target_include_directories(ls_fmt SYSTEM INTERFACE $<TARGET_PROPERTY:fmt::fmt,INTERFACE_INCLUDE_DIRECTORIES>)
else()
  target_link_libraries(ls_fmt INTERFACE fmt::fmt-header-only)
endif()
find_path(TOMLPLUSPLUS_INCLUDE toml++/toml.h REQUIRED)
add_library(ls_toml INTERFACE)
target_include_directories(ls_toml SYSTEM INTERFACE ${TOMLPLUSPLUS_INCLUDE})
target_compile_definitions(ls_toml INTERFACE TOML_HEADER_ONLY=1)

# OpenBLAS: the pthread flavour, run with one thread per call. The flavour is named, so that whatever the
# system's BLAS alternative points to does not change what we link.
find_path(OPENBLAS_INCLUDE cblas.h
  HINTS /usr/include/${CMAKE_LIBRARY_ARCHITECTURE}/openblas-pthread PATH_SUFFIXES openblas-pthread REQUIRED)
find_library(OPENBLAS_LIBRARY NAMES libopenblas.a openblas
  HINTS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/openblas-pthread PATH_SUFFIXES openblas-pthread REQUIRED)
# The archive holds LAPACK too, which wants Fortran's runtime; nothing of it is linked in unless it is used.
add_library(ls_openblas INTERFACE)
target_include_directories(ls_openblas SYSTEM INTERFACE ${OPENBLAS_INCLUDE})
target_link_libraries(ls_openblas INTERFACE ${OPENBLAS_LIBRARY} Threads::Threads)

# CBC solves the mixed-integer programs of placement (src/plan/storage_program.cc), its CLP the linear ones of retention
# (src/plan/retention_program.cc). Of LAPACK it uses what OpenBLAS has in C, so Fortran's runtime stays out; zlib and
# bzip2 are for its files, which nobody writes.
find_path(CBC_INCLUDE coin/CbcModel.hpp REQUIRED)
add_library(ls_cbc INTERFACE)
target_include_directories(ls_cbc SYSTEM INTERFACE ${CBC_INCLUDE})
foreach(name Cbc Cgl OsiClp Clp Osi CoinUtils)
  find_library(${name}_LIBRARY NAMES lib${name}.a ${name} REQUIRED)
  target_link_libraries(ls_cbc INTERFACE ${${name}_LIBRARY})
endforeach()
find_library(BZIP2_LIBRARY NAMES libbz2.a bz2 REQUIRED)
find_library(ZLIB_LIBRARY NAMES libz.a z REQUIRED)
target_link_libraries(ls_cbc INTERFACE ls_openblas ${BZIP2_LIBRARY} ${ZLIB_LIBRARY})

find_path(XXHASH_INCLUDE xxhash.h REQUIRED)
add_library(ls_xxhash INTERFACE)
target_include_directories(ls_xxhash SYSTEM INTERFACE ${XXHASH_INCLUDE})
target_compile_definitions(ls_xxhash INTERFACE XXH_INLINE_ALL)

# Pages on disk; the kernel may refuse it at run time, and threads serve then.
find_path(LIBURING_INCLUDE liburing.h REQUIRED)
find_library(LIBURING_LIBRARY NAMES liburing.a uring REQUIRED)
add_library(ls_uring INTERFACE)
target_include_directories(ls_uring SYSTEM INTERFACE ${LIBURING_INCLUDE})
target_link_libraries(ls_uring INTERFACE ${LIBURING_LIBRARY})

# MPI, for the plugin alone (src/comm/mpi). Optional: without it the program runs as a single process. Debian keeps it in
# folders of its own, other installations say where by their compiler.
find_program(MPI_COMPILER mpicc)
if(MPI_COMPILER)
  execute_process(COMMAND ${MPI_COMPILER} --showme:incdirs OUTPUT_VARIABLE mpi_includes ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  execute_process(COMMAND ${MPI_COMPILER} --showme:libdirs OUTPUT_VARIABLE mpi_libraries ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  separate_arguments(mpi_includes)
  separate_arguments(mpi_libraries)
endif()
find_path(MPI_INCLUDE mpi.h HINTS ${mpi_includes} /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/openmpi/include)
find_library(MPI_LIBRARY mpi HINTS ${mpi_libraries} /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/openmpi/lib)

# What nearly every file includes in the end: precompiled for the modules, and with gtest for the tests.
set(ls_large_headers <fmt/format.h> <nlohmann/json.hpp> <filesystem> <functional> <map> <memory> <string> <vector>)
