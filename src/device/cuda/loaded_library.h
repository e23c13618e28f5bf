// A shared library that is opened when it is first needed: the program starts on machines that have
// none of CUDA's libraries, and says by name which one is missing where it needs it.
#pragma once

#include <string>

namespace longstride::cuda {

class LoadedLibrary {
 public:
  // `file` is looked for where the loader looks, then in the usual places of the CUDA toolkit.
  // Never throws: see available().
  explicit LoadedLibrary(const char* file);
  LoadedLibrary(const LoadedLibrary&) = delete;
  LoadedLibrary& operator=(const LoadedLibrary&) = delete;

  bool available() const { return handle_ != nullptr; }
  // Throws Error where the library or the function is missing.
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

// Defines the C function `name`, which a header of the library declares, as a call into it.
// NOLINTBEGIN(bugprone-macro-parentheses): parameters and arguments bring their own
#define LS_FORWARD(library, Result, name, parameters, arguments)            \
  Result name parameters {                                                  \
    static auto* const function = (library).find<Result parameters>(#name); \
    return function arguments;                                              \
  }
// NOLINTEND(bugprone-macro-parentheses)
