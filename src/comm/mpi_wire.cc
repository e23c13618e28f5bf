#include "comm/mpi_wire.h"

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <thread>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "comm/mpi/plugin.h"

namespace longstride::comm {
namespace {

namespace fs = std::filesystem;

constexpr int kNotes = 1, kParts = 2;  // channels
constexpr const char* kPluginFile = "liblongstride_mpi.so";

std::vector<fs::path> places() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing changes the environment meanwhile
  if (const char* named = std::getenv("LONGSTRIDE_MPI"); named != nullptr && *named != '\0')
    return {named};
  std::error_code failed;
  const fs::path folder = fs::read_symlink("/proc/self/exe", failed).parent_path();
  return {folder / kPluginFile, folder.parent_path() / "lib" / kPluginFile};
}

const LongstrideMpi& plugin() {
  static const LongstrideMpi* const loaded = [] {
    std::string why;
    for (const fs::path& place : places()) {
      // Global: MPI opens parts of itself later, which look for its symbols.
      void* const handle = dlopen(place.c_str(), RTLD_NOW | RTLD_GLOBAL);
      if (handle == nullptr) {
        // NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread loads libraries meanwhile
        why += fmt::format("{}{}", why.empty() ? "" : "; ", dlerror());
        continue;
      }
      auto* const get =
          reinterpret_cast<const LongstrideMpi* (*)()>(dlsym(handle, kLongstrideMpiSymbol));
      const LongstrideMpi* const found = get == nullptr ? nullptr : get();
      if (found != nullptr && found->version == kLongstrideMpiVersion) return found;
      throw Error(
          fmt::format("{} is not the MPI plugin of this version of longstride", place.string()),
          "build both from the same sources: scripts/build release");
    }
    throw Error(
        fmt::format("a launcher has started several processes, but the MPI plugin could not be "
                    "loaded: {}",
                    why),
        "install Open MPI (Debian: libopenmpi-dev and openmpi-bin) and build again, or name "
        "the plugin in LONGSTRIDE_MPI; or start a single process, without mpirun or srun");
  }();
  return *loaded;
}

void check(int result) {
  if (result != 0)
    throw Error(fmt::format("MPI failed: {}", plugin().error()),
                "another rank may have died: its own output says more");
}

class MpiWire final : public Wire {
 public:
  explicit MpiWire(int expected) {
    if (plugin().open(&rank_, &size_) != 0)
      throw Error(fmt::format("MPI could not be opened: {}", plugin().error()),
                  "try a small MPI program with the same launcher first");
    if (size_ != expected)
      throw Error(
          fmt::format("the launcher has started {} processes, but MPI knows {}", expected, size_),
          "use the mpirun of the MPI that the plugin is linked with; with srun add --mpi=pmix");
    notes_.resize(static_cast<std::size_t>(size_));
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void send_note(int to, std::vector<std::byte> note) override {
    auto& queue = notes_[static_cast<std::size_t>(to)];
    queue.push_back({std::move(note), nullptr});
    Sent& sent = queue.back();
    check(plugin().send(sent.note.data(), static_cast<std::int64_t>(sent.note.size()), to, kNotes,
                        &sent.request));
  }
  int notes_under_way(int to) const override {
    return static_cast<int>(notes_[static_cast<std::size_t>(to)].size());
  }
  std::optional<Arrived> next_note() override {
    forget_sent_notes();
    Arrived arrived;
    std::int64_t bytes = 0;
    check(plugin().probe(kNotes, &arrived.from, &bytes));
    if (bytes < 0) return std::nullopt;
    arrived.note.resize(static_cast<std::size_t>(bytes));
    check(plugin().take(arrived.note.data(), bytes, arrived.from, kNotes));
    return arrived;
  }

  Request send(int to, const std::byte* data, std::int64_t bytes) override {
    void*& request = requests_[++last_];
    check(plugin().send(data, bytes, to, kParts, &request));
    return last_;
  }
  Request receive(int from, std::byte* data, std::int64_t bytes) override {
    void*& request = requests_[++last_];
    check(plugin().receive(data, bytes, from, kParts, &request));
    return last_;
  }
  bool done(Request request) override {
    const auto found = requests_.find(request);
    LS_CHECK(found != requests_.end(), "request {} is unknown", request);
    check(plugin().test(&found->second));
    if (found->second != nullptr) return false;
    requests_.erase(found);
    return true;
  }
  void cancel(Request request) override {
    const auto found = requests_.find(request);
    if (found == requests_.end()) return;
    check(plugin().cancel(&found->second));
    requests_.erase(found);
  }

  void close() override {
    using Clock = std::chrono::steady_clock;
    const auto end = Clock::now() + std::chrono::seconds(2);
    while (forget_sent_notes() > 0 && Clock::now() < end)
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    check(plugin().close());
  }
  void abort(int status) override {
    // The launcher ends all ranks by this signal, and a program may have caught it to save first.
    std::signal(SIGTERM, SIG_DFL);
    // One after the other: Open MPI's launcher breaks off if several ranks ask at once.
    std::this_thread::sleep_for(std::chrono::milliseconds(std::min(3, rank()) * 600));
    // A launcher that crashes meanwhile does not end us.
    std::thread([status] {
      std::this_thread::sleep_for(std::chrono::milliseconds(1500));
      std::_Exit(status);
    }).detach();
    plugin().abort(status);
  }

 private:
  struct Sent {
    std::vector<std::byte> note;
    void* request = nullptr;
  };
  // Returns how many are left.
  std::size_t forget_sent_notes() {
    std::size_t left = 0;
    for (auto& queue : notes_) {
      while (!queue.empty()) {
        check(plugin().test(&queue.front().request));
        if (queue.front().request != nullptr) break;
        queue.pop_front();
      }
      left += queue.size();
    }
    return left;
  }

  int rank_ = 0, size_ = 0;
  std::vector<std::deque<Sent>> notes_;  // by receiver
  std::unordered_map<Request, void*> requests_;
  Request last_ = 0;
};

}  // namespace

MakeWire open_mpi(int expected) {
  plugin();
  return [expected] { return std::make_unique<MpiWire>(expected); };
}

std::string mpi_library() {
  const std::string text = plugin().library();
  return text.substr(0, text.find(','));
}

}  // namespace longstride::comm
