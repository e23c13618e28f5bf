#include "comm/nccl_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <sstream>
#include <vector>

#include "base/error.h"

namespace longstride::comm {
namespace {

constexpr int kOldestNccl = 21800;  // communicators that do not block have settled by then
constexpr const char* kNcclHint =
    "install NCCL 2.18 or newer (Debian: libnccl2; pip: nvidia-nccl-cu13), name its folder in "
    "LONGSTRIDE_CUDA_LIBRARIES or the file in LONGSTRIDE_NCCL, or use parallel.link = \"mpi\"";

std::vector<std::string> nccl_files(const std::string& file) {
  if (!file.empty()) return {file};
  // NOLINTBEGIN(concurrency-mt-unsafe): nothing changes the environment meanwhile
  if (const char* named = std::getenv("LONGSTRIDE_NCCL"); named != nullptr && *named != '\0')
    return {named};
  const std::string name = "libnccl.so.2";
  std::vector<std::string> all = {name};
  if (const char* folders = std::getenv("LONGSTRIDE_CUDA_LIBRARIES"); folders != nullptr) {
    std::istringstream list(folders);
    for (std::string folder; std::getline(list, folder, ':');)
      if (!folder.empty()) all.push_back(fmt::format("{}/{}", folder, name));
  }
  // NOLINTEND(concurrency-mt-unsafe)
  for (const char* folder : {"lib64", "lib", "targets/x86_64-linux/lib"})
    all.push_back(fmt::format("/usr/local/cuda/{}/{}", folder, name));
  return all;
}

template <class F>
void find_function(void* handle, const std::string& file, const char* name, F*& into) {
  into = reinterpret_cast<F*>(dlsym(handle, name));
  if (into == nullptr)
    throw Error(fmt::format("{} has no {}: it is too old, or not NCCL", file, name), kNcclHint);
}

}  // namespace

NcclLibrary::NcclLibrary(const std::string& file) {
  void* handle = nullptr;
  std::string why;
  for (const std::string& place : nccl_files(file)) {
    handle = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    file_ = place;
    if (handle != nullptr) break;
    // NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread loads libraries meanwhile
    if (const char* reason = dlerror(); why.empty() && reason != nullptr) why = reason;
  }
  if (handle == nullptr) throw Error(fmt::format("NCCL could not be opened: {}", why), kNcclHint);
  find_function(handle, file_, "ncclGetVersion", calls_.get_version);
  find_function(handle, file_, "ncclGetErrorString", calls_.error_text);
  check(calls_.get_version(&version_), "ask for its version");
  if (version_ < kOldestNccl)
    throw Error(fmt::format("{} is NCCL {}; {} or newer is needed", file_, version_text(),
                            nccl_version_text(kOldestNccl)),
                kNcclHint);
  find_function(handle, file_, "ncclGetUniqueId", calls_.get_unique_id);
  find_function(handle, file_, "ncclCommInitRankConfig", calls_.comm_init);
  find_function(handle, file_, "ncclCommFinalize", calls_.comm_finalize);
  find_function(handle, file_, "ncclCommDestroy", calls_.comm_destroy);
  find_function(handle, file_, "ncclCommAbort", calls_.comm_abort);
  find_function(handle, file_, "ncclCommGetAsyncError", calls_.async_error);
  find_function(handle, file_, "ncclGetLastError", calls_.last_error);
  find_function(handle, file_, "ncclGroupStart", calls_.group_start);
  find_function(handle, file_, "ncclGroupEnd", calls_.group_end);
  find_function(handle, file_, "ncclSend", calls_.send);
  find_function(handle, file_, "ncclRecv", calls_.receive);
  find_function(handle, file_, "ncclBroadcast", calls_.broadcast);
}

std::string NcclLibrary::version_text() const { return nccl_version_text(version_); }

void NcclLibrary::check(nccl::Result result, const std::string& what, nccl::Comm* comm) const {
  if (result == nccl::kSuccess || result == nccl::kInProgress) return;
  std::string text = calls_.error_text(result);
  const char* const more = calls_.last_error == nullptr ? nullptr : calls_.last_error(comm);
  if (more != nullptr && *more != '\0') text += fmt::format(" ({})", more);
  throw Error(fmt::format("NCCL failed to {}: {}", what, text),
              "NCCL_DEBUG=INFO makes NCCL say more; parallel.link = \"mpi\" goes without it");
}

std::string nccl_version_text(int version) {
  // Versions before 2.9 had two digits less.
  if (version < 10000)
    return fmt::format("{}.{}.{}", version / 1000, version / 100 % 10, version % 100);
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace longstride::comm
