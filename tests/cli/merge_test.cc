// longstride merge: the model that PEFT's merge_and_unload makes, for adapters that PEFT wrote.
#include <sys/mount.h>

#include <cstring>

#include "model/adapter_directory.h"
#include "model/safetensors_reader.h"
#include "tests/cli/run_directory.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;
using Strings = std::vector<std::string>;

const fs::path kParity = source_directory() / "tests" / "parity";

fs::path fixture(const std::string& base) { return kParity / "fixtures" / base; }
fs::path adapter(const std::string& name) { return kParity / "adapters" / name; }
std::string base_of(const std::string& name) {
  return read_json(adapter(name) / "expected.json").at("base");
}

ProgramResult merged(const RunDirectory& run, const fs::path& model, const fs::path& adapter,
                     const std::string& out = "merged", RunOptions options = {}) {
  return run.run({"merge", "--model", model.string(), "--adapter", adapter.string(), "--out", out},
                 std::move(options));
}

TEST(Merge, HasTheLossesOfPeftsMergedModel) {
  for (const auto& entry : fs::directory_iterator(kParity / "adapters")) {
    const std::string name = entry.path().filename().string();
    SCOPED_TRACE(name);
    const RunDirectory run;
    const Json expected = read_json(entry.path() / "expected.json");
    const fs::path base = fixture(base_of(name));
    ASSERT_TRUE(ended(merged(run, base, entry.path()), 0));
    EXPECT_EQ(run.names().count("merged"), 1u);
    ASSERT_TRUE(ended(
        run.run({"gradients", "--model", "merged", "--tokens", (base / "tokens.bin").string(),
                 "--page", "16", "--chunk", "64", "--device", "cpu", "--losses", "losses.st"}),
        0));
    const std::vector<float> losses =
        SafetensorsReader::open_file(run.path("losses.st")).read_floats("loss");
    double sum = 0;
    for (const float loss : losses) sum += static_cast<double>(loss);
    const double loss = expected.at("loss"), predicted = expected.at("predicted");
    EXPECT_NEAR(sum / predicted, loss, 1e-5 * loss);
    for (const Json& token : expected.at("token_losses")) {
      const double right = token.at("loss");
      EXPECT_NEAR(static_cast<double>(losses.at(token.at("index"))), right,
                  1e-4 * std::max(1.0, right));
    }
    const Json config = read_json(run.path("merged/config.json"));
    EXPECT_EQ(config.at("tie_word_embeddings"), expected.at("merged_is_tied"));
    Json before = read_json(base / "config.json");
    before["tie_word_embeddings"] = expected.at("merged_is_tied");
    EXPECT_EQ(config, before);
  }
}

// In the type of the file, each value is the fp32 sum rounded once; other tensors keep their bytes.
TEST(Merge, RoundsOnceToTheTypeOfTheFile) {
  const RunDirectory run;
  const fs::path base = fixture("bf16");
  const ModelDirectory model = ModelDirectory::open(base);
  const AdapterConfig config{.rank = 3, .alpha = 7, .targets = {"down_proj"}, .layers = {1}};
  Random random(5);
  std::vector<TensorToWrite> tensors;
  std::vector<std::vector<float>> values;
  for (const AdapterTensor& t : adapter_tensors(config, model.config(), "test")) {
    tensors.push_back({t.name, DType::kF32, t.shape});
    values.emplace_back(static_cast<std::size_t>(t.shape.elements()));
    for (float& v : values.back()) v = static_cast<float>(random.below(1000)) / 500.0f - 1.0f;
  }
  fs::create_directories(run.path("adapter"));
  write_adapter_directory(run.path("adapter"), config,
                          {tensors, [&](std::int64_t i, const ByteSink& sink) {
                             sink(std::as_bytes(std::span(values[static_cast<std::size_t>(i)])));
                           }});
  ASSERT_TRUE(ended(merged(run, base, run.path("adapter")), 0));
  const ModelDirectory result = ModelDirectory::open(run.path("merged"));
  const std::string changed = "model.layers.1.mlp.down_proj.weight";
  for (const std::string& name : model.reader().names()) {
    const auto before = model.reader().bytes(name), after = result.reader().bytes(name);
    ASSERT_EQ(result.reader().info(name).dtype, DType::kBF16);
    if (name != changed) {
      EXPECT_TRUE(std::ranges::equal(before, after)) << name;
    }
  }
  const std::vector<float> w = model.reader().read_floats(changed),
                           sum = result.reader().read_floats(changed);
  const std::size_t in = static_cast<std::size_t>(model.config().ffn_size);
  std::size_t neighbours = 0;
  for (std::size_t i = 0; i < w.size(); ++i) {
    double product = 0;
    for (std::size_t r = 0; r < 3; ++r)
      product += static_cast<double>(values[1][i / in * 3 + r]) *
                 static_cast<double>(values[0][r * in + i % in]);
    const double exact = static_cast<double>(w[i]) + 7.0 / 3.0 * product;
    const float rounded = to_float(to_bf16(static_cast<float>(exact)));
    // A sum in single precision may fall on the other side of a border between two values.
    if (sum[i] == rounded) continue;
    ++neighbours;
    EXPECT_NEAR(static_cast<double>(sum[i]), exact, std::abs(exact) / 255) << i;
  }
  EXPECT_LE(neighbours, w.size() / 500);
}

TEST(Merge, KeepsTheOtherFilesAndTheModel) {
  const RunDirectory run;
  fs::copy(fixture("qwen2"), run.path("model"));
  run.files().write_text("model/tokenizer.json", "{}");
  run.files().write_text("model/generation_config.json", R"({"eos_token_id": 5})");
  const auto before = run.contents("model");
  ASSERT_TRUE(ended(merged(run, "model", adapter("qwen2-all"), "new/merged/"), 0));
  EXPECT_TRUE(same_files(before, run.contents("model")));
  EXPECT_EQ(run.names("new/merged"),
            (std::set<std::string>{"config.json", "generation_config.json", "model.safetensors",
                                   "tokenizer.json"}));
  EXPECT_EQ(run.read("new/merged/generation_config.json"), R"({"eos_token_id": 5})");
}

TEST(Merge, RefusesWhatItCannotMerge) {
  const RunDirectory run;
  const fs::path base = fixture("qwen2"), good = adapter("qwen2-all");
  const auto nothing = [&] { return !fs::exists(run.path("merged")); };
  fs::create_directories(run.path("there"));
  EXPECT_TRUE(refused(merged(run, base, good, "there"), {"there exists already", "--out"}));
  EXPECT_TRUE(refused(merged(run, fixture("llama-gqa"), good),
                      {"adapter_model.safetensors", "has shape", "another model"}));
  EXPECT_TRUE(refused(merged(run, base, base), {"adapter_config.json: no such file"}));
  EXPECT_TRUE(refused(merged(run, run.path("none"), good), {"none: no such directory"}));
  EXPECT_TRUE(ended(run.run({"merge", "--model", "a", "--adapter", "b", "--out", ""}), 2));

  fs::copy(base, run.path("quantized"));
  Json config = read_json(base / "config.json");
  config["quantization_config"] = {{"load_in_4bit", true}};
  run.files().write_text("quantized/config.json", config.dump());
  EXPECT_TRUE(refused(merged(run, "quantized", good), {"quantized", "original model"}));

  fs::copy(good, run.path("dora"));
  config = read_json(good / kAdapterConfig);
  config["use_dora"] = true;
  run.files().write_text(std::string("dora/") + kAdapterConfig, config.dump());
  EXPECT_TRUE(refused(merged(run, base, "dora"), {"use_dora", "DoRA", "merge_and_unload"}));

  RunOptions limited;
  limited.file_bytes = 20'000;
  EXPECT_TRUE(refused(merged(run, base, good, "merged", limited),
                      {"cannot write", "model.safetensors", "File too large"}));
  EXPECT_TRUE(nothing());
  for (const std::string& name : run.names()) EXPECT_FALSE(name.starts_with(".")) << name;
}

TEST(Merge, RefusesADiskThatIsTooSmall) {
  const RunDirectory run;
  fs::create_directories(run.path("disk"));
  if (::mount("tmpfs", run.path("disk").c_str(), "tmpfs", 0, "size=20k") != 0)
    GTEST_SKIP() << "this user or container may not mount a file system";
  const ProgramResult result = merged(run, fixture("qwen2"), adapter("qwen2-all"), "disk/merged");
  EXPECT_TRUE(refused(result, {"the merged model takes", "free", "--out"}));
  EXPECT_TRUE(run.names("disk").empty());
  ::umount2(run.path("disk").c_str(), MNT_DETACH);
}

// Values that the type of the model's file cannot hold are not written.
TEST(Merge, RefusesToOverflow) {
  const RunDirectory run;
  const fs::path base = fixture("f16");
  const ModelDirectory model = ModelDirectory::open(base);
  const AdapterConfig config{.rank = 1, .alpha = 1, .targets = {"q_proj"}, .layers = {0}};
  std::vector<TensorToWrite> tensors;
  for (const AdapterTensor& t : adapter_tensors(config, model.config(), "test"))
    tensors.push_back({t.name, DType::kF32, t.shape});
  fs::create_directories(run.path("adapter"));
  write_adapter_directory(
      run.path("adapter"), config,
      {tensors, [&](std::int64_t i, const ByteSink& sink) {
         const std::vector<float> values(
             static_cast<std::size_t>(tensors[static_cast<std::size_t>(i)].shape.elements()),
             1000.0f);
         sink(std::as_bytes(std::span(values)));
       }});
  EXPECT_TRUE(refused(merged(run, base, run.path("adapter")),
                      {"model.layers.0.self_attn.q_proj.weight", "beyond those of F16"}));
  EXPECT_FALSE(fs::exists(run.path("merged")));
}

}  // namespace
}  // namespace longstride
