// longstride plan: tables, JSON and pictures of what contexts need.
#include <gtest/gtest.h>

#include "base/files.h"
#include "base/json.h"
#include "tests/cli/run_program.h"
#include "tests/data/temp_directory.h"

namespace longstride {
namespace {

std::vector<std::string> with(std::vector<std::string> words,
                              const std::vector<std::string>& more) {
  words.insert(words.begin(), "plan");
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

Json json_of(const std::vector<std::string>& words) {
  const ProgramResult run = run_program(with(words, {"--json", "--device", "cpu"}));
  EXPECT_EQ(run.status, 0) << run.text();
  return parse_json(run.out, "stdout");
}

TEST(Plan, OneRowForEveryContext) {
  const ProgramResult run = run_program(
      with({"--preset", "tiny-llama"}, {"--context", "4K,16K", "--price", "2", "--device", "cpu"}));
  ASSERT_EQ(run.status, 0) << run.text();
  for (const char* word : {"tiny-llama on ", "context", "kept", "recompute", "tokens/s", "MFU",
                           "cost of 1M tokens", "\n     4K ", "\n    16K ", "workspace"})
    EXPECT_NE(run.out.find(word), std::string::npos) << word << "\n" << run.out;
}

TEST(Plan, FiguresAddUp) {
  const Json json = json_of({"--preset", "tiny-llama", "--context", "2K,64K", "--chunk", "512"});
  ASSERT_EQ(json["plans"].size(), 2u);
  double before = 0;
  for (const Json& plan : json["plans"]) {
    ASSERT_TRUE(plan["fits"].get<bool>());
    EXPECT_EQ(plan["chunk"], 512);
    const Json &s = plan["seconds"], &b = plan["bytes"];
    double sum = 0;
    for (const char* part :
         {"products", "attention", "recompute", "other", "transfers", "update"}) {
      EXPECT_GE(s[part].get<double>(), -1e-12) << part;
      sum += s[part].get<double>();
    }
    EXPECT_NEAR(sum, s["total"].get<double>(), 1e-9 * sum);
    EXPECT_NEAR(plan["tokens_per_s"].get<double>() * sum, plan["context"].get<double>(), 1e-3);
    std::int64_t bytes = 0;
    for (const char* tenant : {"weights", "gradients", "optimizer", "kv_pages", "kv_gradient_pages",
                               "page_summaries", "rope", "retained", "workspace"})
      bytes += b[tenant].get<std::int64_t>();
    EXPECT_EQ(bytes, b["device"]);
    EXPECT_LE(b["device"].get<std::int64_t>(), b["device_available"].get<std::int64_t>());
    EXPECT_GT(sum, before);
    before = sum;
  }
}

// Less memory: pages leave or activations are recomputed, and the step takes no less time.
TEST(Plan, MoreMemoryIsNeverSlower) {
  double before = 1e30;
  for (const char* memory : {"40MiB", "64MiB", "100MiB", "400MiB"}) {
    const Json plan = json_of({"--preset", "tiny-llama", "--context", "32K", "--chunk", "512",
                               "--gpu-memory", memory, "--host-memory", "1GiB"})["plans"][0];
    ASSERT_TRUE(plan["fits"].get<bool>()) << memory << plan.dump();
    const double seconds = plan["seconds"]["total"].get<double>();
    EXPECT_LE(seconds, before * (1 + 1e-9)) << memory;
    before = seconds;
  }
}

TEST(Plan, SaysWhatToChange) {
  const ProgramResult run =
      run_program(with({"--preset", "tiny-llama", "--context", "1M", "--gpu-memory", "40MiB"},
                       {"--host-memory", "100MiB", "--device", "cpu"}));
  ASSERT_EQ(run.status, 0) << run.text();
  EXPECT_NE(run.out.find("1M does not fit as asked: "), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("* it would fit with memory.disk_path"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("   1M *  "), std::string::npos) << run.out;  // a row with these settings
}

// The longest context fits, and one that is a few percent longer does not.
TEST(Plan, Longest) {
  const std::vector<std::string> limits = {"--preset",     "tiny-llama", "--chunk",       "512",
                                           "--gpu-memory", "64MiB",      "--host-memory", "0"};
  std::vector<std::string> words = limits;
  words.emplace_back("--longest");
  const Json found = json_of(words)["plans"][0];
  ASSERT_TRUE(found["fits"].get<bool>());
  words = limits;
  words.insert(words.end(),
               {"--context", std::to_string(found["context"].get<std::int64_t>() * 103 / 100)});
  EXPECT_FALSE(json_of(words)["plans"][0]["fits"].get<bool>());
}

TEST(Plan, Pictures) {
  const TempDirectory directory;
  const std::filesystem::path svg = directory.path() / "m.svg", html = directory.path() / "p.html";
  for (int i = 0; i < 2; ++i) {  // its own files may be replaced
    const ProgramResult run =
        run_program(with({"--preset", "tiny-llama", "--context", "4K,16K", "--device", "cpu"},
                         {"--svg", svg.string(), "--html", html.string()}));
    ASSERT_EQ(run.status, 0) << run.text();
  }
  EXPECT_NE(read_text(svg).find("tiny-llama, 16K tokens"), std::string::npos);
  const std::string page = read_text(html);
  EXPECT_NE(page.find("4K tokens"), std::string::npos);
  EXPECT_NE(page.find("<svg"), std::string::npos);
}

// What there is no room for on disk either is one matter; what nobody can plan is another.
TEST(Plan, FarTooLong) {
  const std::vector<std::string> disk = {"--preset", "tiny-llama", "--disk", "1000T", "--context"};
  const auto problem = [&](const char* context, const char* chunk) {
    std::vector<std::string> words = disk;
    words.insert(words.end(), {context, "--chunk", chunk});
    const Json plan = json_of(words)["plans"][0];
    EXPECT_FALSE(plan["fits"].get<bool>());
    return plan.value("problem", "");
  };
  EXPECT_NE(problem("1G", "16K").find("too long to plan"), std::string::npos);
  EXPECT_NE(problem("64M", "128").find("too many to plan"), std::string::npos);
}

// The longest context may come first.
TEST(Plan, PictureOfTheLongest) {
  const TempDirectory directory;
  const std::string svg = (directory.path() / "m.svg").string();
  const ProgramResult run = run_program(
      with({"--preset", "tiny-llama", "--context", "16K,4K", "--device", "cpu"}, {"--svg", svg}));
  ASSERT_EQ(run.status, 0) << run.text();
  EXPECT_NE(read_text(svg).find("tiny-llama, 16K tokens"), std::string::npos);
}

// Of a file, all settings count: the batch and the device too.
TEST(Plan, SettingsOfAFile) {
  const TempDirectory directory;
  directory.write_text("run.toml", R"(
[model]
preset = "tiny-llama"
[data]
path = "tokens.bin"
[training]
context = "4K"
chunk = 512
steps = 1
[checkpoint]
directory = "out"
[device]
name = "cpu"
)");
  const std::string file = (directory.path() / "run.toml").string();
  const auto plan = [&](const char* batch) { return json_of({file, batch})["plans"][0]; };
  const Json one = plan("--training.batch=1"), four = plan("--training.batch=4");
  const auto seconds = [](const Json& p, const char* what) {
    return p["seconds"][what].get<double>();
  };
  EXPECT_NEAR(seconds(four, "total"), 4 * seconds(one, "total") - 3 * seconds(one, "update"),
              1e-9 * seconds(four, "total"));
  EXPECT_NEAR(seconds(four, "products"), 4 * seconds(one, "products"), 1e-9);
  EXPECT_GE(seconds(four, "other"), 0);
  EXPECT_GT(four["tokens_per_s"].get<double>(), one["tokens_per_s"].get<double>());
  const auto refuses = [&](const std::vector<std::string>& words, const char* said) {
    const ProgramResult run = run_program(with({file}, words));
    EXPECT_EQ(run.status, 2) << run.text();
    EXPECT_NE(run.text().find(said), std::string::npos) << run.text();
  };
  refuses({"--attention", "sparse"}, "--attention.kind=VALUE");
  refuses({"--kv-gradient-dtype", "bf16"}, "--numerics.kv_gradient_dtype=VALUE");
  if (run_program({"plan", "--preset", "tiny-llama", "--context", "4K", "--device", "cuda"})
          .status != 0)
    refuses({"--device.name=cuda"}, "error: this ");
}

// bench step runs a plan from a file, and no other step's.
TEST(Plan, RunsFromAFile) {
  const TempDirectory directory;
  const std::string file = (directory.path() / "plan.json").string();
  const ProgramResult made =
      run_program(with({"--preset", "tiny-llama", "--context", "2K", "--chunk", "256"},
                       {"--device", "cpu", "--out", file}));
  ASSERT_EQ(made.status, 0) << made.text();
  const auto bench = [&](const char* context, const char* chunk, const std::string& plan) {
    return run_program({"bench", "step", "--preset", "tiny-llama", "--context", context, "--chunk",
                        chunk, "--device", "cpu", "--plan", plan});
  };
  const ProgramResult planned = bench("2K", "256", file), plain = bench("2K", "256", "recompute");
  ASSERT_EQ(planned.status, 0) << planned.text();
  const Json a = parse_json(planned.out, "stdout"), b = parse_json(plain.out, "stdout");
  EXPECT_EQ(a["loss"], b["loss"]);
  EXPECT_GT(a["memory"]["retained"].get<std::int64_t>(), 0);
  EXPECT_LT(a["predicted_seconds"].get<double>(), b["predicted_seconds"].get<double>());
  for (const ProgramResult& other : {bench("4K", "256", file), bench("2K", "512", file)}) {
    EXPECT_EQ(other.status, 2);
    EXPECT_NE(other.text().find("the plan is for another step"), std::string::npos) << other.text();
  }
  EXPECT_EQ(run_program({"bench", "step", "--preset", "tiny-llama", "--context", "2K", "--chunk",
                         "256", "--device", "cpu", "--plan", file, "--keep-chunks", "2"})
                .status,
            2);
  directory.write_text("plan.json", "{}");
  EXPECT_EQ(bench("2K", "256", file).status, 2);
  EXPECT_EQ(bench("2K", "256", "nowhere.json").status, 2);
}

TEST(Plan, AnotherMachine) {
  const ProgramResult run = run_program(
      with({"--preset", "qwen2.5-7b", "--context", "128K"}, {"--machine", "h200", "--json"}));
  if (run.text().find("this build has no CUDA") != std::string::npos)
    GTEST_SKIP() << "built without CUDA";
  ASSERT_EQ(run.status, 0) << run.text();
  const Json plan = parse_json(run.out, "stdout")["plans"][0];
  EXPECT_TRUE(plan["fits"].get<bool>());
  EXPECT_GT(plan["bytes"]["retained"].get<double>(), 20e9);
  const Json& b = plan["bytes"];
  EXPECT_LE(b["workspace"].get<double>(), 1.01 * b["workspace_bound"].get<double>());
  // Half of the memory takes longer.
  const ProgramResult half =
      run_program(with({"--preset", "qwen2.5-7b", "--context", "128K", "--gpu-memory", "80GiB"},
                       {"--machine", "h200", "--json"}));
  ASSERT_EQ(half.status, 0) << half.text();
  const double seconds = plan["seconds"]["total"].get<double>();
  EXPECT_GT(parse_json(half.out, "stdout")["plans"][0]["seconds"]["total"].get<double>(), seconds);
  // A disk is not used for the optimizer's state where host memory serves the step less.
  const ProgramResult disk =
      run_program(with({"--preset", "qwen2.5-7b", "--context", "128K", "--disk", "400GiB"},
                       {"--machine", "h200", "--json"}));
  ASSERT_EQ(disk.status, 0) << disk.text();
  EXPECT_LT(parse_json(disk.out, "stdout")["plans"][0]["seconds"]["total"].get<double>(),
            1.01 * seconds);
}

TEST(Plan, Refuses) {
  const TempDirectory directory;
  const auto refuses = [](const std::vector<std::string>& words,
                          const std::vector<std::string>& said) {
    const ProgramResult run = run_program(with(words, {}));
    EXPECT_EQ(run.status, 2) << run.text();
    for (const std::string& s : said)
      EXPECT_NE(run.text().find(s), std::string::npos) << run.text();
  };
  refuses({"--context", "4K"}, {"no model is given"});
  refuses({"--model", (directory.path() / "no").string(), "--context", "4K"},
          {"no such directory"});
  refuses({"--preset", "tiny-lama", "--context", "4K"}, {"tiny-llama"});
  refuses({"--preset", "tiny-llama"}, {"no context is given", "--longest"});
  refuses({"--preset", "tiny-llama", "--context", "4K", "--model", "x"}, {"more than one model"});
  refuses({"--preset", "tiny-llama", "--context", "1"}, {"--context 1"});
  refuses({"--preset", "tiny-llama", "--context", "8388607T"}, {"--context 8388607T is too long"});
  refuses({"--preset", "tiny-llama", "--context", "4K", "--chunk", "2G"}, {"--chunk 2G"});
  refuses({"--preset", "tiny-llama", "--context", "4K", "--machine", ""}, {"--machine"});
  refuses({"--preset", "tiny-llama", "--context", "4K", "--chunk", "100"},
          {"multiple of the page"});
  refuses({"--preset", "tiny-llama", "--context", "4K", "--machine", "h300"},
          {"no machine 'h300'", "h200"});
  refuses({"--preset", "tiny-llama", "--context", "4K", "--training.batch=2"},
          {"without a configuration file"});
  directory.write_text("rates.json", R"({"name": "mine", "measured": true})");
  refuses({"--preset", "tiny-llama", "--context", "4K", "--machine",
           (directory.path() / "rates.json").string()},
          {"rates.json", "missing"});
  refuses({"--preset", "tiny-llama", "--context", "4K", "--machine", "h200", "--device", "cpu"},
          {"both --machine and --device"});
  refuses({"--preset", "tiny-llama", "--context", "4K", "--svg", (directory.path() / "a").string(),
           "--html", (directory.path() / "a").string()},
          {"--svg and --html are both"});
  EXPECT_FALSE(std::filesystem::exists(directory.path() / "a"));
  directory.write_text("other.svg", "<svg>mine</svg>");
  refuses({"--preset", "tiny-llama", "--context", "4K", "--svg",
           (directory.path() / "other.svg").string()},
          {"other.svg"});
}

}  // namespace
}  // namespace longstride
