#include "train/kernel_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <optional>

#include "base/cache_folder.h"
#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/log.h"
#include "base/system_calls.h"

namespace longstride {
namespace fs = std::filesystem;
namespace {

Json read(const fs::path& file) {
  std::error_code none;
  if (file.empty() || !fs::exists(file, none)) return Json::object();
  try {
    Json json = Json::parse(read_text(file));
    if (json.is_object()) return json;
    log_warning("{} is not a JSON object: kernels are measured anew", file.string());
  } catch (const std::exception& e) {
    log_warning("{} cannot be read, so kernels are measured anew: {}", file.string(), e.what());
  }
  return Json::object();
}

// A lock on a file, held by one process at a time.
class FileLock {
 public:
  explicit FileLock(const std::string& path)
      : file_(
            retry_eintr([&] { return ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666); })) {
    if (file_ >= 0) retry_eintr([&] { return ::flock(file_, LOCK_EX); });
  }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  ~FileLock() {
    if (file_ >= 0) close_descriptor(file_);
  }

 private:
  int file_;
};

}  // namespace

fs::path kernel_cache_file() {
  constexpr const char* kName = "kernels.json";
  const std::optional<fs::path> folder = cache_folder();
  return folder ? *folder / kName : fs::path();
}

ops::KernelChoices remembered_choices(const fs::path& file, const std::string& machine) {
  const Json json = read(file);
  ops::KernelChoices choices;
  if (const auto found = json.find(machine); found != json.end() && found->is_object())
    for (const auto& [what, how] : found->items())
      if (how.is_string()) choices[what] = how.get<std::string>();
  return choices;
}

ops::KernelChoices remember_choices(const fs::path& file, const std::string& machine,
                                    const ops::KernelChoices& choices) {
  if (file.empty()) {
    log_warning(
        "there is no folder for caches (HOME, or LONGSTRIDE_CACHE): measured kernels are "
        "not remembered for the next run");
    return choices;
  }
  try {
    fs::create_directories(file.parent_path());
    const FileLock lock(file.string() + ".lock");
    Json json = read(file);
    if (!json[machine].is_object()) json[machine] = Json::object();
    ops::KernelChoices standing;
    for (const auto& [what, how] : choices) {
      Json& entry = json[machine][what];
      if (!entry.is_string()) entry = how;
      standing[what] = entry.get<std::string>();
    }
    write_file_atomic(file, dump_json(json, 1) + "\n");
    return standing;
  } catch (const std::exception& e) {
    log_warning("measured kernels are not remembered for the next run: {}", e.what());
    return choices;
  }
}

}  // namespace longstride
