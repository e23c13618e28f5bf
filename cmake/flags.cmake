# One interface target carries the flags of every module, so that a module's own file lists only what it is made of.
add_library(ls_flags INTERFACE)
target_include_directories(ls_flags INTERFACE ${PROJECT_SOURCE_DIR}/src)
set(ls_cxx_flags
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -fopenmp-simd -fno-math-errno -fno-trapping-math
  -ffp-contract=fast -Wno-missing-field-initializers  # an operation's absent arguments are left out by name
  -fPIC -fvisibility=hidden)  # a shared library can be made of the modules, and exports what it names alone
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND ls_cxx_flags -Wno-restrict)  # g++ 12 sees overlap in every "text" + std::string
endif()
target_compile_options(ls_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${ls_cxx_flags}>")
if(LONGSTRIDE_SANITIZE)
  target_compile_options(ls_flags INTERFACE -fsanitize=${LONGSTRIDE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all -g1)
  target_link_options(ls_flags INTERFACE -fsanitize=${LONGSTRIDE_SANITIZE})
  if(LONGSTRIDE_SANITIZE MATCHES "address.*undefined")  # the first finds these too, in less time to compile
    target_compile_options(ls_flags INTERFACE -fno-sanitize=null,object-size)
  endif()
endif()
if(LONGSTRIDE_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "LONGSTRIDE_FUZZ needs clang: cmake --preset fuzz")
  endif()
  target_compile_options(ls_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
