#include "train/same_run.h"

#include "base/error.h"
#include "base/log.h"
#include "data/corpus_digest.h"

namespace longstride {
namespace {

// Settings that decide what the run computes.
constexpr std::pair<const char*, const char*> kFixedKeys[] = {
    {"model", "path"},          {"model", "preset"},     {"model", "dtype"},
    {"model", "window"},        {"data", "format"},      {"data", "document_token"},
    {"data", "pack"},           {"data", "shuffle"},     {"training", "context"},
    {"training", "chunk"},      {"training", "page"},    {"training", "batch"},
    {"training", "seed"},       {"numerics", "compute"}, {"numerics", "kv_gradient_dtype"},
    {"numerics", "determinism"}};
// Where the data lie does not, as long as they are the same.
constexpr const char* kDataPaths[] = {"path", "document_index", "loss_mask"};

const OrderedJson* value_at(const OrderedJson& config, const char* section, const char* key) {
  if (!config.contains(section) || !config.at(section).contains(key)) return nullptr;
  return &config.at(section).at(key);
}

// A setting in the two configurations.
struct Compared {
  const char *section, *key;
  const OrderedJson *now, *then;

  bool same() const {
    return (now == nullptr) == (then == nullptr) && (now == nullptr || *now == *then);
  }
  [[noreturn]] void refuse(const std::filesystem::path& directory) const {
    throw Error(fmt::format("{}.{} is {} but the checkpoint {} was made with {}", section, key,
                            now ? dump_json(*now) : "not set", directory.string(),
                            then ? dump_json(*then) : "nothing set"),
                "put the old value back to resume, or start a new run in another "
                "checkpoint.directory (with this checkpoint as model.path)");
  }
};

}  // namespace

void check_same_run(const RunPlan& plan, const TrainState& saved,
                    const std::filesystem::path& directory) {
  const OrderedJson config = config_to_json(plan.config);
  const auto compared = [&](const char* section, const char* key) {
    return Compared{section, key, value_at(config, section, key),
                    value_at(saved.config, section, key)};
  };
  for (const auto& [section, key] : kFixedKeys)
    if (const Compared c = compared(section, key); !c.same()) c.refuse(directory);

  bool same_paths = true, as_many = true;
  for (const char* key : kDataPaths) {
    const Compared path = compared("data", key);
    same_paths = same_paths && path.same();
    // No document goes over the end of a file, so another number of files is other data.
    as_many = as_many && (path.now == nullptr) == (path.then == nullptr) &&
              (path.now == nullptr || path.now->size() == path.then->size());
  }
  if (saved.data_digest.empty() ? same_paths
                                : as_many && saved.data_digest == corpus_digest(*plan.corpus))
    return;
  for (const char* key : kDataPaths)
    if (const Compared path = compared("data", key); !path.same()) path.refuse(directory);
  // Somebody may have mended them.
  log_warning("data.path {} holds other data than when {} was saved: the run goes on with these",
              dump_json(*compared("data", "path").now), directory.string());
}

}  // namespace longstride
