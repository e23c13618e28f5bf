# LONGSTRIDE_UNITY: C++ files of a folder are compiled several at once, where their names do not clash. For builds that are
# made as a whole: it takes less than half the time, but a change to one file compiles its neighbours too.
option(LONGSTRIDE_UNITY "compile several files as one" OFF)
function(ls_unity target)
  if(NOT LONGSTRIDE_UNITY)
    return()
  endif()
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  get_target_property(sources ${target} SOURCES)
  # Files with flags of their own stay alone: those of nvcc, and in release builds those of src/CMakeLists.txt. So do those
  # that the Python module replaces (src/python/no_solver.cc), or the tests' twin of CUDA.
  set(kept "\\.cu$|/plan/[a-z]+_program\\.cc$|/load_[a-z]+\\.cc$")
  if(CMAKE_BUILD_TYPE STREQUAL Release)
    string(APPEND kept "|/ops/cpu/|/cudnn/")
  endif()
  set(alone ${sources})
  list(FILTER alone INCLUDE REGEX "${kept}")
  list(FILTER sources EXCLUDE REGEX "${kept}")
  execute_process(
    COMMAND ${Python3_EXECUTABLE} -B ${PROJECT_SOURCE_DIR}/scripts/unity_groups.py ${PROJECT_BINARY_DIR}/unity/${target} ${sources}
    OUTPUT_VARIABLE groups COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[^\n]+" groups "${groups}")
  set_target_properties(${target} PROPERTIES SOURCES "${groups};${alone}")
  # g++ takes what a joined file includes for a header, where types of unnamed namespaces would be a mistake.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
endfunction()
