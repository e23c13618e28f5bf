// A shared library loaded on first use: the program starts on machines without CUDA's libraries,
// and an error names the missing one when it is needed.
#pragma once

#include <string>

namespace longstride::cuda {

// Immutable after construction: any thread may use it.
class LoadedLibrary {
 public:
  // Takes the one that the process has loaded already, by torch for instance; else searches the
  // loader's path, the folders in LONGSTRIDE_CUDA_LIBRARIES (separated by colons), and the usual
  // ones of the CUDA toolkit. Never throws: see available().
  explicit LoadedLibrary(const char* file);
  LoadedLibrary(const LoadedLibrary&) = delete;
  LoadedLibrary& operator=(const LoadedLibrary&) = delete;

  bool available() const { return handle_ != nullptr; }
  // Throws Error if the library or the function is missing.
  template <class F>
  F* find(const char* function) const {
    return reinterpret_cast<F*>(find_symbol(function));
  }

 private:
  void* find_symbol(const char* function) const;

  std::string file_, why_not_;
  void* handle_ = nullptr;  // stays open until the process ends
};

const LoadedLibrary& cublas_library();
const LoadedLibrary& cudnn_library();
const LoadedLibrary& cupti_library();

}  // namespace longstride::cuda

// Defines the C function `name`, declared in a header of the library, as a call into the library.
// NOLINTBEGIN(bugprone-macro-parentheses): parameters and arguments bring their own
#define LS_FORWARD(library, Result, name, parameters, arguments)            \
  Result name parameters {                                                  \
    static auto* const function = (library).find<Result parameters>(#name); \
    return function arguments;                                              \
  }
// NOLINTEND(bugprone-macro-parentheses)
