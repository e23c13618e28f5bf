// User mistakes outside the model: settings, data, paths, options.
#include "tests/cli/run_directory.h"

namespace longstride {
namespace {

void expect_refused(const RunDirectory& run, const std::vector<std::string>& arguments,
                    const std::vector<std::string>& parts) {
  EXPECT_TRUE(refused(run.train(arguments), parts));
  EXPECT_TRUE(run.nothing_written());
}

TEST(BadConfig, AnUnknownKeyHasASuggestion) {
  expect_refused(
      RunDirectory(), {"--training.stepz=3"},
      {"--training.stepz=3: unknown key training.stepz", "did you mean training.steps?"});
}

TEST(BadConfig, AnUnknownKeyOfTheFileHasItsLine) {
  const RunDirectory run;
  run.files().write_text("run.toml", "[training]\nsteps = 3\n\ncontxt = 5\n");
  expect_refused(run, {}, {"run.toml:4: unknown key training.contxt", "training.context"});
}

TEST(BadConfig, AnUnknownSection) {
  expect_refused(RunDirectory(), {"--trainin.steps=3"},
                 {"unknown section [trainin]", "did you mean [training]?"});
}

TEST(BadConfig, AValueOfTheWrongType) {
  expect_refused(RunDirectory(), {"--training.steps=many"},
                 {"training.steps must be", "integer", "\"many\""});
  expect_refused(RunDirectory(), {"--data.pack=3"},
                 {"data.pack must be true, false or \"whole\"", "3"});
  expect_refused(RunDirectory(), {"--training.context=12Q"}, {"training.context", "12Q"});
}

TEST(BadConfig, NotToml) {
  const RunDirectory run;
  run.files().write_text("run.toml", "[training]\nsteps = \n");
  expect_refused(run, {}, {"run.toml:", "the file must be TOML"});
}

TEST(BadConfig, NoFile) {
  const RunDirectory run;
  EXPECT_TRUE(refused(run.run({"train", "nowhere.toml"}), {"nowhere.toml: No such file"}));
  EXPECT_TRUE(run.nothing_written());
}

TEST(BadConfig, AMissingKey) {
  const RunDirectory run;
  run.files().write_text("run.toml", "[model]\npreset = \"tiny-llama\"\n");
  expect_refused(run, {}, {"data.path is missing", "set `path` under [data]"});
}

TEST(BadConfig, AContextOfNothing) {
  expect_refused(RunDirectory(), {"--training.context=0"},
                 {"training.context must be", "at least 2", "but is 0"});
}

TEST(BadConfig, AChunkThatIsNoMultipleOfThePage) {
  expect_refused(
      RunDirectory(), {"--training.chunk=80", "--training.page=32"},
      {"training.chunk (80) is not a multiple of training.page (32)", "set training.chunk to 96"});
}

TEST(BadConfig, AnUnknownPreset) {
  expect_refused(RunDirectory(), {"--model.preset=tiny-lama"},
                 {"tiny-lama", "did you mean tiny-llama"});
}

TEST(BadConfig, ASettingWithoutItsValue) {
  expect_refused(RunDirectory(), {"--training.steps"},
                 {"'--training.steps' has no value", "write --training.steps=VALUE"});
}

TEST(BadConfig, AnUnknownOption) {
  expect_refused(RunDirectory(), {"--fast"},
                 {"unexpected argument '--fast'", "--section.key=value"});
}

TEST(BadConfig, NoCuda) {
  // Tests a missing GPU. The message depends on what is missing: a build with CUDA, the driver, or
  // the GPU.
  if (cuda_is_available()) GTEST_SKIP() << "this machine has a GPU";
  expect_refused(RunDirectory(), {"--device", "cuda"}, {"no ", "--device cpu"});
  expect_refused(RunDirectory(), {"--device.name=cuda"}, {"no ", "--device cpu"});
  expect_refused(RunDirectory(), {"--device", "tpu"}, {"device.name", "tpu"});
}

TEST(BadConfig, AContextThatCannotFit) {
  const RunDirectory run;
  RunOptions options;
  options.timeout_s = 10;
  const ProgramResult result = run.train({"--model.preset=qwen2.5-32b", "--training.context=900G",
                                          "--training.page=128", "--training.chunk=1K"},
                                         options);
  EXPECT_TRUE(refused(result, {"this run needs at least 460800.48 TiB", "the device has", "free",
                               "weights 122.05 GiB", "KV pages 460800.00 TiB",
                               "shorten training.context (now 966367641600)"}));
  EXPECT_TRUE(run.nothing_written());
}

TEST(BadConfig, AChunkThatCannotFit) {
  // Far more memory than a machine has, although the model is tiny.
  expect_refused(
      RunDirectory(),
      {"--training.context=1G", "--training.chunk=1G", "--training.page=128", "--dry-run"},
      {"this run needs ", "KV pages 512.00 GiB", "make training.chunk smaller"});
}

TEST(BadData, ATokenOutOfTheVocabulary) {
  const RunDirectory run;
  std::vector<std::uint32_t> tokens(200, 5);
  tokens[123] = 320;
  run.files().write("tokens.bin", tokens);
  EXPECT_TRUE(refused(run.train(), {"tokens.bin: token 123 has the value 320",
                                    "vocabulary is 320 (0 to 319)", "tokenizer"}));
  EXPECT_EQ(run.names("out"), (std::set<std::string>{"metrics.jsonl"}));
  EXPECT_TRUE(run.metrics().empty());
}

TEST(BadData, AnEmptyFile) {
  const RunDirectory run;
  run.files().write_text("tokens.bin", "");
  expect_refused(run, {}, {"tokens.bin: the file is empty"});
}

TEST(BadData, HalfAToken) {
  const RunDirectory run;
  run.files().write_text("tokens.bin", "1234567");
  expect_refused(run, {}, {"tokens.bin: 7 bytes are not a whole number of 4-byte tokens"});
}

TEST(BadData, OneTokenOnly) {
  const RunDirectory run;
  run.write_tokens("tokens.bin", 1);
  expect_refused(run, {}, {"1 tokens of data hold nothing to learn"});
}

TEST(BadOutput, BelowAFile) {
  const RunDirectory run;
  const auto before = run.contents("");
  EXPECT_TRUE(refused(run.train({"--checkpoint.directory=tokens.bin/out"}),
                      {"tokens.bin/out: Not a directory", "choose another path"}));
  EXPECT_TRUE(refused(run.train({"--metrics.file=tokens.bin/m.jsonl"}),
                      {"tokens.bin/m.jsonl", "set metrics.file"}));
  EXPECT_TRUE(refused(run.run({"bench", "step", "--preset", "tiny-llama", "--context", "64",
                               "--json", "tokens.bin/b.json"}),
                      {"tokens.bin/b.json", "Not a directory"}));
  EXPECT_TRUE(same_files(before, run.contents("")));
}

TEST(BadCommand, Unknown) {
  EXPECT_TRUE(refused(run_program({"trian"}), {"no command 'trian'", "did you mean train?"}));
  EXPECT_TRUE(
      refused(run_program({"xyzzy"}),
              {"no command 'xyzzy'",
               "train, eval, generate, merge, gradients, inspect, bench, plan, calibrate, demo"}));
}

TEST(BadCommand, None) {
  EXPECT_TRUE(ended(run_program({}), 2, {"A subcommand is required", "--help"}));
}

TEST(BadCommand, AnUnknownOption) {
  EXPECT_TRUE(ended(run_program({"inspect", ".", "--colour"}), 2, {"--colour", "--help"}));
  EXPECT_TRUE(ended(run_program({"bench", "step", "--preset", "tiny-llama", "--context", "64",
                                 "--device", "tpu"}),
                    2, {"--device", "tpu"}));
}

TEST(Help, GoesToStdout) {
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"--help"}, {"train", "--help"}, {"bench", "step", "--help"}}) {
    const ProgramResult result = run_program(words);
    EXPECT_TRUE(ended(result, 0));
    EXPECT_TRUE(says(result.out, {"Usage"}));
  }
  const ProgramResult version = run_program({"--version"});
  EXPECT_TRUE(ended(version, 0));
  EXPECT_TRUE(says(version.out, {"longstride "}));
}

}  // namespace
}  // namespace longstride
