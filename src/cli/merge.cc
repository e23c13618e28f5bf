// longstride merge --model DIR --adapter DIR --out DIR: a plain model with the adapter merged into
// its weights.
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/sizes.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/rope_options.h"
#include "cli/usage.h"
#include "model/config_support.h"
#include "model/merge_adapter.h"
#include "train/output_check.h"

namespace longstride::cli {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string model, adapter, out;
  RopeOptions rope;
};

// Rounding a merged weight to 4 or 8 bits would lose most of what the adapter learned.
void refuse_quantized(const fs::path& model) {
  const fs::path path = model / "config.json";
  if (!fs::exists(path)) return;  // the model's reader says what is missing
  const Json config = read_json(path);
  const auto quantization = config.find("quantization_config");
  if (quantization == config.end() || is_unset(*quantization)) return;
  throw Error(fmt::format("{}: the model is quantized, and an adapter cannot be merged into it",
                          path.string()),
              "name the original model, from which it was quantized, as --model");
}

void check_room(const fs::path& out, std::int64_t bytes) {
  const fs::path disk = nearest_existing(out);
  std::error_code error;
  const fs::space_info space = fs::space(disk, error);
  if (error || space.available >= static_cast<std::uintmax_t>(bytes)) return;
  throw Error(fmt::format("{}: the merged model takes {}, and the disk has {} free", out.string(),
                          format_bytes(static_cast<double>(bytes)),
                          format_bytes(static_cast<double>(space.available))),
              "name a disk with more room as --out, or free some");
}

int merge_command(const Options& o) {
  const fs::path out = o.out;
  std::error_code ignored;
  if (fs::exists(fs::symlink_status(out, ignored)))
    throw Error(fmt::format("{} exists already", out.string()),
                "name a new directory as --out, or remove this one");
  refuse_quantized(o.model);
  const ModelDirectory model = ModelDirectory::open(o.model);
  const AdapterDirectory adapter = AdapterDirectory::open(o.adapter, model.config());
  const std::vector<SideFile> side_files = read_side_files(model.path());
  const std::unique_ptr<Device> host = make_device("cpu");
  MergedModel merged = merge(model, adapter, *host);
  merged.config = config_with_rope(o.rope, std::move(merged.config), o.model, o.adapter,
                                   model.config().max_positions);
  check_room(out, merged.bytes());
  DirectoryWriter directory(out);
  write_model_directory(directory.path(), merged.config, merged.weights, side_files);
  directory.commit();
  return print_output(fmt::format("{}: {} with {} merged into it, {}\n", out.string(), o.model,
                                  o.adapter, format_bytes(static_cast<double>(merged.bytes()))));
}

}  // namespace

void add_merge(CLI::App& app, Action& action) {
  auto o = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("merge", "writes a model with a LoRA adapter merged into its weights");
  command->add_option("--model", o->model, "Hugging Face directory of the model it was trained on")
      ->required();
  command->add_option("--adapter", o->adapter, "directory that PEFT or longstride saved")
      ->required();
  command->add_option("--out", o->out, "directory to write; it must not exist")
      ->required()
      ->check(not_empty());
  add_rope_options(*command, o->rope);
  command->callback([o, &action] { action = [o] { return merge_command(*o); }; });
}

}  // namespace longstride::cli
