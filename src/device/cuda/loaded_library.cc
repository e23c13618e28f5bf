#include "device/cuda/loaded_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.h"

namespace longstride::cuda {

namespace {

// Folders to search: the loader's own, those that the user or the Python package names, CUDA's.
std::vector<std::string> folders() {
  std::vector<std::string> all = {""};
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing changes the environment meanwhile
  if (const char* named = std::getenv("LONGSTRIDE_CUDA_LIBRARIES"); named != nullptr) {
    std::istringstream list(named);
    for (std::string folder; std::getline(list, folder, ':');)
      if (!folder.empty()) all.push_back(folder + "/");
  }
  all.insert(all.end(),
             {"/usr/local/cuda/lib64/", "/usr/local/cuda/lib/",
              "/usr/local/cuda/targets/x86_64-linux/lib/", "/usr/local/cuda/extras/CUPTI/lib64/"});
  return all;
}

}  // namespace

LoadedLibrary::LoadedLibrary(const char* file) : file_(file) {
  for (const std::string& folder : folders()) {
    handle_ = dlopen((folder + file_).c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (handle_ != nullptr) return;
    // NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread loads libraries meanwhile
    if (const char* why = dlerror(); why_not_.empty() && why != nullptr) why_not_ = why;
  }
}

void* LoadedLibrary::find_symbol(const char* function) const {
  if (handle_ == nullptr)
    throw Error(
        fmt::format("{} could not be loaded: {}", file_, why_not_),
        "install the libraries of CUDA 13 (or name their folder in LONGSTRIDE_CUDA_LIBRARIES; for "
        "the Python package: pip install 'longstride[cuda]'), or run with --device cpu");
  void* const found = dlsym(handle_, function);
  if (found == nullptr)
    throw Error(fmt::format("{} has no {}: it is too old", file_, function),
                "update the libraries of CUDA, or run with --device cpu");
  return found;
}

const LoadedLibrary& cublas_library() {
  static const LoadedLibrary library("libcublasLt.so.13");
  return library;
}

const LoadedLibrary& cudnn_library() {
  // cuDNN loads it by its name alone, which finds one that is there already.
  static const LoadedLibrary compiler("libnvrtc.so.13");
  static const LoadedLibrary library("libcudnn.so.9");
  return library;
}

const LoadedLibrary& cupti_library() {
  static const LoadedLibrary library("libcupti.so.13");
  return library;
}

}  // namespace longstride::cuda
