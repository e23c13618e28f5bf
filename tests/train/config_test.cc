#include "train/config.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/data/temp_directory.h"
#include "train/config_table.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMinimal = R"([model]
preset = "tiny-llama"
[data]
path = "tokens.bin"
[training]
context = "4K"
steps = 10
[checkpoint]
directory = "out"
)";

TrainConfig parse(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return parse_train_config(text, "run.toml", "base", overrides);
}

TrainConfig minimal(const std::vector<std::string>& overrides = {}) {
  return parse(kMinimal, overrides);
}

std::string error_with(const std::vector<std::string>& overrides) {
  return error_of([&] { minimal(overrides); });
}
// kMinimal has 9 lines.
std::string error_in(const std::string& more) {
  return error_of([&] { parse(kMinimal + more); });
}

TEST(Config, Minimal) {
  const TrainConfig config = minimal();
  EXPECT_EQ(config.model.preset, "tiny-llama");
  EXPECT_EQ(config.data.path, (std::vector<fs::path>{"base/tokens.bin"}));
  EXPECT_EQ(config.training.context, 4096);
  EXPECT_FALSE(config.training.chunk.has_value());  // auto
  EXPECT_EQ(config.training.page, 128);
  EXPECT_EQ(config.training.keep_chunks, 1);
  EXPECT_EQ(config.training.batch, 1);
  EXPECT_EQ(config.data.pack, Packing::kStretches);
  EXPECT_FALSE(config.data.document_token.has_value());
  EXPECT_EQ(config.checkpoint.directory, "base/out");
  EXPECT_EQ(config.metrics.file, "base/out/metrics.jsonl");
  EXPECT_EQ(config.device.name, "auto");
}

TEST(Config, EveryKindOfValue) {
  const TrainConfig config = parse(R"(
model.path = "/models/m"
[data]
path = ["a.bin", "../b.bin", "/c.bin"]
format = "u16"
document_token = 7
pack = false
[training]
context = 5000
chunk = "2K"
page = 256
steps = 3
seed = 9223372036854775807
[optimizer]
learning_rate = 1
beta1 = 0.5
[checkpoint]
directory = "out"
[metrics]
file = "m.jsonl"
)");
  EXPECT_EQ(config.model.path, "/models/m");
  EXPECT_EQ(config.data.path, (std::vector<fs::path>{"base/a.bin", "b.bin", "/c.bin"}));
  EXPECT_EQ(config.data.format, "u16");
  EXPECT_EQ(config.data.document_token, 7);
  EXPECT_EQ(config.data.pack, Packing::kDocuments);
  EXPECT_EQ(config.training.context, 5000);
  EXPECT_EQ(config.training.chunk, 2048);
  EXPECT_EQ(config.training.page, 256);
  EXPECT_EQ(config.training.seed, 9223372036854775807);
  EXPECT_EQ(config.optimizer.learning_rate, 1.0);
  EXPECT_EQ(config.optimizer.beta1, 0.5);
  EXPECT_EQ(config.metrics.file, "base/m.jsonl");
}

TEST(Config, Overrides) {
  const TrainConfig config =
      minimal({"training.steps=20", "training.context=128K", "optimizer.learning_rate=2e-5",
               "data.pack=false", "data.path=[\"x\", \"y\"]", "schedule.kind=linear",
               "checkpoint.directory=2024", "training.steps=30"});
  EXPECT_EQ(config.training.steps, 30) << "the last one counts";
  EXPECT_EQ(config.training.context, 131072);
  EXPECT_EQ(config.optimizer.learning_rate, 2e-5);
  EXPECT_EQ(config.data.pack, Packing::kDocuments);
  EXPECT_EQ(config.data.path, (std::vector<fs::path>{"x", "y"}))
      << "relative to the current directory";
  EXPECT_EQ(config.schedule.kind, "linear");
  EXPECT_EQ(config.checkpoint.directory, "2024") << "a path, not a number";
}

TEST(Config, OverridesOfPaths) {
  EXPECT_EQ(minimal({"data.path=some dir/t=1.bin"}).data.path[0], "some dir/t=1.bin");
  EXPECT_EQ(minimal({"data.path=\"quoted\""}).data.path[0], "quoted");
  EXPECT_EQ(minimal({"data.path=[1, 2]"}).data.path[0], "[1, 2]");
  EXPECT_EQ(minimal({"data.path=true"}).data.path[0], "true");
  EXPECT_EQ(minimal({"data.path=x\ny = 1"}).data.path[0], "x\ny = 1")
      << "never more than one value";
}

TEST(Config, RopeSettings) {
  EXPECT_FALSE(minimal().model.rope.any());
  const std::vector<std::string> given = {"model.rope_type=yarn", "model.rope_theta=1e6",
                                          "model.rope_factor=4",
                                          "model.rope_original_positions=32K"};
  const RopeChoice rope = minimal(given).model.rope;
  EXPECT_EQ(rope.type, "yarn");
  EXPECT_EQ(rope.theta, 1e6);
  EXPECT_EQ(rope.factor, 4.0);
  EXPECT_EQ(rope.original_positions, 32768);
  const TrainConfig again = parse(config_to_toml(minimal(given)));
  EXPECT_EQ(again.model.rope.type, "yarn");
  EXPECT_EQ(again.model.rope.factor, 4.0);
  std::vector<std::string> taken_back = given;
  for (const char* key : {"type", "theta", "factor", "original_positions"})
    taken_back.push_back(std::string("model.rope_") + key + "=");
  EXPECT_FALSE(minimal(taken_back).model.rope.any());
  EXPECT_NE(error_with({"model.rope_type=yarm"}).find("did you mean \"yarn\"?"), std::string::npos);
  for (const char* bad : {"model.rope_factor=0.99", "model.rope_theta=0", "model.rope_theta=-1",
                          "model.rope_original_positions=0", "model.rope_factor=many"})
    EXPECT_NE(error_with({bad}).find(std::string(bad).substr(0, 12)), std::string::npos) << bad;
}

TEST(Config, AnEmptyOverrideUnsets) {
  const std::string with_token = std::string(kMinimal).replace(
      std::string(kMinimal).find("[training]"), 0, "document_token = 5\n");
  EXPECT_EQ(parse(with_token).data.document_token, 5);
  EXPECT_FALSE(parse(with_token, {"data.document_token="}).data.document_token.has_value());
  EXPECT_TRUE(minimal({"data.loss_mask=m", "data.loss_mask="}).data.loss_mask.empty());
}

TEST(Config, FileAndItsDirectory) {
  const TempDirectory temp;
  const fs::path file = temp.write_text("run.toml", kMinimal);
  EXPECT_EQ(load_train_config(file).data.path[0], temp.path() / "tokens.bin");
  EXPECT_TRUE(says(error_of([&] { load_train_config(temp.path() / "none.toml"); }),
                   {"none.toml", "No such file"}));
}

TEST(Config, DumpsReadBackTheSame) {
  TrainConfig config =
      minimal({"data.document_token=3", "optimizer.epsilon=1e-12",
               "data.path=[\"a \\\"b\\\" \\\\c\", \"d\\te\"]", "optimizer.learning_rate=0.0003"});
  const std::string text = config_to_toml(config);
  const TrainConfig back = parse_train_config(text, "dump", "");
  EXPECT_EQ(config_to_toml(back), text);
  EXPECT_EQ(config_to_json(back), config_to_json(config));
  EXPECT_EQ(back.data.path[0], "a \"b\" \\c");
  EXPECT_EQ(back.data.path[1], "d\te");
  EXPECT_EQ(back.optimizer.epsilon, 1e-12);
  EXPECT_EQ(back.metrics.file, config.metrics.file);
  const OrderedJson json = config_to_json(config);
  EXPECT_EQ(json["training"]["context"], 4096);
  EXPECT_EQ(json["data"]["path"].size(), 2u);
  EXPECT_EQ(json["data"]["document_token"], 3);
  EXPECT_EQ(json["data"]["pack"], true);
  EXPECT_FALSE(json["data"].contains("loss_mask"));
  EXPECT_FALSE(config_to_json(minimal())["data"].contains("document_token"));
}

// Every key with a changed value comes back from a dump, so none is parsed and lost.
TEST(Config, EveryKeyIsStored) {
  for (const ConfigKey& key : config_keys()) {
    const std::string name = key.name();
    std::string value;
    switch (key.type) {
      case ConfigType::kBool:
        value = "false";
        break;
      case ConfigType::kChoice:
        value = key.limits.choices.back();
        break;
      case ConfigType::kNumber:
        value = key.limits.at_least == 1 || key.limits.over == 1 ? "1.625" : "0.625";
        break;
      case ConfigType::kSize:
        value = name == "training.page" ? "32" : "3072";
        break;
      case ConfigType::kInteger:
        value = "8";
        break;
      case ConfigType::kNumbers:
        value = "[0.625]";
        break;
      case ConfigType::kPacking:
        value = "whole";
        break;
      default:
        value = "v8";
        break;
    }
    std::vector<std::string> overrides = {name + "=" + value};
    if (name == "model.path") overrides.emplace_back("model.preset=");
    if (name == "parallel.data") overrides.emplace_back("training.batch=16");
    if (name == "data.long") overrides.emplace_back("data.pack=whole");
    if (name == "data.format") overrides.emplace_back("data.document_token=");
    if (name.starts_with("eval.") && name != "eval.path") overrides.emplace_back("eval.path=held");
    if (name.starts_with("lora.") && name != "lora.rank") overrides.emplace_back("lora.rank=4");
    const OrderedJson json = config_to_json(minimal(overrides));
    ASSERT_TRUE(json[key.section].contains(key.key)) << name;
    const OrderedJson& stored = json[key.section][key.key];
    const OrderedJson& scalar = stored.is_array() ? stored[0] : stored;
    if (key.type == ConfigType::kNumbers) value = "0.625";
    EXPECT_EQ(scalar.is_string() ? scalar.get<std::string>() : scalar.dump(), value) << name;
  }
}

TEST(Config, MixAndPacking) {
  const TrainConfig config = minimal(
      {"data.path=[\"a\", \"b\"]", "data.mix=[7, 0.5]", "data.pack=whole", "data.long=drop"});
  EXPECT_EQ(config.data.mix, (std::vector<double>{7, 0.5}));
  EXPECT_EQ(config.data.pack, Packing::kWhole);
  EXPECT_EQ(config.data.long_documents, "drop");
  const std::string text = config_to_toml(config);
  EXPECT_TRUE(says(text, {"mix = [7, 0.5]", "pack = \"whole\"", "long = \"drop\""}));
  EXPECT_EQ(config_to_toml(parse_train_config(text, "dump", "")), text);
  EXPECT_EQ(config_to_json(config)["data"]["pack"], "whole");
  EXPECT_EQ(minimal({"data.pack=true"}).data.pack, Packing::kStretches);
  EXPECT_TRUE(minimal({"data.mix=[]"}).data.mix.empty());
  EXPECT_FALSE(config_to_json(minimal())["data"].contains("format")) << "prepared data say it";
}

// Bad input.

TEST(Config, MixAndPackingThatDoNotFit) {
  EXPECT_TRUE(says(error_with({"data.mix=[1, 2]"}), {"data.mix has 2 shares", "1 entries"}));
  EXPECT_TRUE(says(error_with({"data.mix=[0]"}), {"data.mix must be array of numbers", "[0]"}));
  EXPECT_TRUE(says(error_with({"data.mix=[-1]"}), {"data.mix must be", "[-1]"}));
  EXPECT_TRUE(says(error_with({"data.mix=[nan]"}), {"data.mix must be"}));
  EXPECT_TRUE(says(error_with({"data.mix=[1e9]"}), {"data.mix must be", "1000000"}));
  EXPECT_TRUE(says(error_with({"data.mix=0.5"}), {"data.mix must be array of numbers", "0.5"}));
  EXPECT_TRUE(says(error_with({"data.mix=[\"a\"]"}), {"data.mix must be", "an array"}));
  EXPECT_TRUE(says(error_with({"data.mix=[1, \"a\"]"}), {"data.mix must be", "other things"}));
  EXPECT_TRUE(says(error_with({"data.pack=half"}), {"true, false or \"whole\""}));
  EXPECT_TRUE(says(error_with({"data.long=cut"}),
                   {"data.long = \"cut\" has no effect with data.pack = true", "\"whole\""}));
  EXPECT_EQ(error_with({"data.long=split"}), "");
  EXPECT_EQ(error_with({"data.long=cut", "data.pack=false"}), "");
}

TEST(Config, NotToml) {
  EXPECT_TRUE(says(error_in("[schedule]\nkind = = 3\n"), {"run.toml:11:", "TOML"}));
  EXPECT_TRUE(
      says(error_of([] { parse("[training]\ncontext = 128K\n"); }), {"run.toml:2:", "\"128K\""}));
  EXPECT_TRUE(says(error_in("[data]\nformat = \"u16\"\n"), {"run.toml:10:"})) << "a section twice";
}

TEST(Config, UnknownKeySuggestsTheNearest) {
  EXPECT_TRUE(
      says(error_in("every_step = 1\n"), {"run.toml:10: unknown key checkpoint.every_step"}));
  EXPECT_TRUE(says(error_in("evry = 1\n"), {"run.toml:10", "did you mean checkpoint.every?"}));
  EXPECT_TRUE(
      says(error_with({"training.contxt=1"}),
           {"--training.contxt=1: unknown key training.contxt", "did you mean training.context?"}));
  EXPECT_TRUE(
      says(error_with({"training.learning_rate=1"}), {"did you mean optimizer.learning_rate?"}));
  EXPECT_TRUE(
      says(error_with({"device.qqqqqqqqqqqq=1"}), {"the keys of [device] are name, threads"}));
}

TEST(Config, UnknownSectionSuggestsTheNearest) {
  EXPECT_TRUE(says(error_in("[optimiser]\nbeta1 = 0.5\n"),
                   {"run.toml:10: unknown section [optimiser]", "did you mean [optimizer]?"}));
  EXPECT_TRUE(says(error_with({"trainig.steps=1"}), {"unknown section [trainig]", "[training]"}));
  EXPECT_TRUE(says(error_in("[zzzzzzzzzzzzzzzz]\n"), {"the sections are model, data"}));
}

TEST(Config, KeyOutsideSections) {
  EXPECT_TRUE(
      says(error_of([] { parse("steps = 3\n"); }), {"run.toml:1", "outside", "[training]"}));
  EXPECT_TRUE(
      says(error_of([] { parse("training = 3\n"); }), {"run.toml:1", "training is a section"}));
  EXPECT_TRUE(says(error_of([] { parse("foo = 3\n"); }), {"outside", "the sections are"}));
}

TEST(Config, OverrideOfNoForm) {
  for (const std::string bad : {"training.steps", "steps=3", "=3", "a=b.c"})
    EXPECT_TRUE(says(error_with({bad}), {"--" + bad, "--section.key=value"}));
}

TEST(Config, WrongTypeSaysWhatWasExpectedAndWhere) {
  EXPECT_TRUE(says(
      error_in("every = \"ten\"\n"),
      {"run.toml:10: checkpoint.every must be integer, at least 0, but is the string \"ten\""}));
  EXPECT_TRUE(says(error_in("every = 1.5\n"), {"run.toml:10", "integer", "1.5"}));
  EXPECT_TRUE(says(error_in("every = [1]\n"), {"the array [1]"}));
  EXPECT_TRUE(says(error_in("every = {a = 1}\n"), {"a table"}));
  EXPECT_TRUE(says(error_in("every = 2024-01-01\n"), {"a date"}));
  EXPECT_TRUE(
      says(error_in("[device]\nname = 3\n"),
           {"run.toml:11: device.name must be one of \"auto\", \"cpu\", \"cuda\", but is 3"}));
  EXPECT_TRUE(says(error_in("[metrics]\nfile = 3\n"),
                   {"run.toml:11: metrics.file must be path, but is 3"}));
  EXPECT_TRUE(says(error_of([] { parse("[data]\npath = [1, 2]\n"); }),
                   {"run.toml:2", "path or array of paths", "[1, 2]"}));
  EXPECT_TRUE(says(
      error_with({"data.pack=yes"}),
      {"--data.pack=yes: data.pack must be true, false or \"whole\", but is the string \"yes\""}));
  EXPECT_TRUE(says(error_with({"optimizer.beta1=high"}), {"number", "\"high\""}));
  EXPECT_TRUE(
      says(error_with({"training.context=long"}), {"training.context", "'long' is not a size"}));
  EXPECT_TRUE(says(error_with({"training.context=1.5"}), {"training.context must be size"}));
}

TEST(Config, OutOfRange) {
  const char* bad[] = {"training.context=0",
                       "training.context=1",
                       "training.context=-5",
                       "training.steps=0",
                       "training.batch=0",
                       "training.batch=1000001",
                       "training.seed=-1",
                       "training.keep_chunks=0",
                       "training.page=8",
                       "training.page=24",
                       "training.page=128K",
                       "training.chunk=0",
                       "optimizer.learning_rate=0",
                       "optimizer.learning_rate=-1",
                       "optimizer.learning_rate=nan",
                       "optimizer.learning_rate=inf",
                       "optimizer.beta1=1",
                       "optimizer.beta2=-0.1",
                       "optimizer.epsilon=0",
                       "optimizer.weight_decay=-1",
                       "optimizer.clip_norm=-1",
                       "schedule.warmup_steps=-1",
                       "schedule.final_fraction=1.5",
                       "checkpoint.every=-1",
                       "checkpoint.keep=-1",
                       "device.threads=-1",
                       "data.document_token=-1",
                       "data.document_token=2147483648",
                       "training.steps=2000000000000"};
  for (const std::string text : bad)
    EXPECT_TRUE(
        says(error_with({text}), {"--" + text, text.substr(0, text.find('=')) + " must be"}))
        << text;
}

TEST(Config, UnknownChoice) {
  EXPECT_TRUE(says(error_with({"schedule.kind=cosin"}), {"\"cosin\"", "did you mean \"cosine\"?"}));
  EXPECT_TRUE(says(error_with({"data.format=u64"}), {"\"u32\", \"u16\", \"text\"", "\"u64\""}));
  EXPECT_TRUE(
      says(error_with({"numerics.kv_gradient_dtype=f16"}), {"\"f32\", \"bf16\"", "\"f16\""}));
  EXPECT_TRUE(
      says(error_with({"numerics.determinism=slow"}), {"\"exact\"", "\"fast\"", "\"slow\""}));
  EXPECT_TRUE(says(error_with({"device.name="}), {"must be one of"}));
}

TEST(Config, MissingKeys) {
  EXPECT_TRUE(
      says(error_of([] { parse(""); }), {"no model is given", "model.path", "model.preset"}));
  for (const std::string line :
       {"path = \"tokens.bin\"\n", "context = \"4K\"\n", "steps = 10\n", "directory = \"out\"\n"}) {
    std::string text = kMinimal;
    text.erase(text.find(line), line.size());
    EXPECT_TRUE(says(error_of([&] { parse(text); }),
                     {line.substr(0, line.find(' ')) + " is missing", "--"}))
        << line;
  }
  EXPECT_TRUE(says(error_with({"data.path="}), {"data.path is missing"}));
  EXPECT_TRUE(says(error_with({"data.path=[]"}), {"data.path is missing"}));
}

TEST(Config, ModelPathAndPreset) {
  EXPECT_TRUE(
      says(error_with({"model.path=x"}), {"both model.path (x) and model.preset (tiny-llama)"}));
  EXPECT_TRUE(
      says(error_with({"model.path=x", "model.preset=", "model.dtype=bf16"}), {"model.dtype"}));
  EXPECT_EQ(minimal({"model.dtype=bf16"}).model.dtype, "bf16");
  EXPECT_TRUE(
      says(error_with({"model.path=x", "model.preset=", "model.window=1K"}), {"model.window"}));
  EXPECT_EQ(minimal({"model.window=1K"}).model.window, 1024);
}

TEST(Config, ChunkNotAMultipleOfThePage) {
  EXPECT_TRUE(says(error_with({"training.chunk=1040"}),
                   {"training.chunk (1040) is not a multiple of training.page (128)", "1152"}));
  EXPECT_EQ(minimal({"training.chunk=1040", "training.page=16"}).training.chunk, 1040);
  EXPECT_EQ(minimal({"training.chunk=1M"}).training.chunk, 1 << 20)
      << "larger than the context is fine";
}

TEST(Config, WarmUpMayBeLongerThanTheRun) {
  EXPECT_EQ(minimal({"schedule.warmup_steps=11"}).schedule.warmup_steps, 11);
  EXPECT_EQ(minimal({"schedule.warmup_steps=10"}).schedule.warmup_steps, 10);
}

TEST(Config, DataOptionsThatDoNotGoTogether) {
  EXPECT_TRUE(says(error_with({"data.format=text", "data.document_token=1"}),
                   {"data.document_token", "\"text\""}));
  EXPECT_TRUE(says(error_with({"data.format=text", "data.document_index=i"}),
                   {"data.document_index", "\"text\""}));
  EXPECT_TRUE(
      says(error_with({"data.format=text", "data.loss_mask=m"}), {"data.loss_mask", "\"text\""}));
  EXPECT_TRUE(says(error_with({"data.document_token=1", "data.document_index=i"}),
                   {"both data.document_token and data.document_index"}));
  EXPECT_TRUE(says(error_with({"data.path=[\"a\", \"b\"]", "data.loss_mask=m"}),
                   {"data.loss_mask", "names 2"}));
}

TEST(Config, ValidateChecksAConfigMadeInCode) {
  TrainConfig config = minimal();
  EXPECT_EQ(error_of([&] { validate(config); }), "");
  config.optimizer.beta1 = 2;
  EXPECT_TRUE(says(error_of([&] { validate(config); }), {"optimizer.beta1"}));
  config = minimal();
  config.device.name = "tpu";
  EXPECT_TRUE(says(error_of([&] { validate(config); }), {"device.name", "tpu"}));
}

}  // namespace
}  // namespace longstride
