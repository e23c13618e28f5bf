# The CUDA backend, where nvcc is: LS_WITH_CUDA says whether it is built, ls_cuda carries what it links.
add_library(ls_cuda INTERFACE)
set(LS_WITH_CUDA OFF)
if(NOT LONGSTRIDE_CUDA STREQUAL "OFF")
  if(NOT CMAKE_CUDA_COMPILER)
    # nvcc is often installed without being on the PATH.
    find_program(LS_NVCC nvcc HINTS /usr/local/cuda/bin)
    if(LS_NVCC)
      set(CMAKE_CUDA_COMPILER ${LS_NVCC})
    endif()
  endif()
  # Machine code for Hopper, and for everything from sm_80 on code that the driver finishes; scripts/build says the same.
  set(CMAKE_CUDA_ARCHITECTURES 80 90a-real CACHE STRING "GPUs to compile for")
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    # CMake 3.25 knows no flag for C++20 in nvcc.
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA_FLAGS_RELEASE "-O3 -DNDEBUG")
    find_package(CUDAToolkit 12.8 REQUIRED)
    set(LS_WITH_CUDA ON)
  elseif(LONGSTRIDE_CUDA STREQUAL "ON")
    message(FATAL_ERROR "LONGSTRIDE_CUDA is ON and there is no nvcc: install the CUDA toolkit (12.8 or newer), or set CUDACXX")
  endif()
endif()
if(LS_WITH_CUDA)
  if(CCACHE)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
  endif()
  # 554: a conversion of a view to itself is never called. 20208: <cmath> has long double versions of everything.
  # nvcc does not follow fmt's compile-time format checks; the host compiler makes them in every other file.
  target_compile_options(ls_flags INTERFACE "$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;-diag-suppress=554,20208;-Xcompiler=-Wall,-Wextra,-fPIC>")
  target_compile_definitions(ls_flags INTERFACE "$<$<COMPILE_LANGUAGE:CUDA>:FMT_CONSTEVAL=;FMT_USE_CONSTEXPR=1>")
  if("${CMAKE_CUDA_ARCHITECTURES}" MATCHES "90a")  # with Hopper's own instructions
    target_compile_definitions(ls_flags INTERFACE "$<$<COMPILE_LANGUAGE:CUDA>:LS_SM90A>")
  endif()
  # cuBLASLt and cuDNN are opened when they are needed (device/cuda/loaded_library.h): the program runs without them too.
  target_link_libraries(ls_cuda INTERFACE CUDA::cudart_static ${CMAKE_DL_LIBS})
  target_include_directories(ls_cuda SYSTEM INTERFACE ${CUDAToolkit_INCLUDE_DIRS})
  # cuDNN computes dense attention; its C++ front end is headers alone. scripts/setup brings them; pip installs them
  # beside nanobind (pyproject.toml).
  set(front_ends ${PROJECT_SOURCE_DIR}/third_party/cudnn_frontend/include)
  if(LONGSTRIDE_PYTHON AND Python_EXECUTABLE)
    execute_process(COMMAND ${Python_EXECUTABLE} -c "import nanobind, os; print(os.path.dirname(os.path.dirname(nanobind.__file__)))"
      OUTPUT_STRIP_TRAILING_WHITESPACE OUTPUT_VARIABLE packages ERROR_QUIET)
    list(APPEND front_ends ${packages}/include)
  endif()
  find_path(CUDNN_INCLUDE cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_path(CUDNN_FRONTEND_INCLUDE cudnn_frontend.h HINTS ${front_ends})
  set(LS_WITH_CUDNN OFF)
  if(CUDNN_INCLUDE AND CUDNN_FRONTEND_INCLUDE)
    set(LS_WITH_CUDNN ON)
    target_include_directories(ls_cuda SYSTEM INTERFACE ${CUDNN_INCLUDE} ${CUDNN_FRONTEND_INCLUDE})
    target_compile_definitions(ls_cuda INTERFACE CUDNN_FRONTEND_SKIP_JSON_LIB)
  endif()
  message(STATUS "CUDA ${CUDAToolkit_VERSION}: the CUDA backend is built, with cuDNN: ${LS_WITH_CUDNN}")
else()
  message(STATUS "no CUDA: the CUDA backend is left out")
endif()
