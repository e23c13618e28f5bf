// Steps whose pages are in 8 bits: every pass reads the same keys and values, no tier and no plan
// changes a bit, and gradients stay close to those of wide pages.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <utility>

#include "tests/data/temp_directory.h"
#include "tests/pages/watched_mover.h"
#include "tests/train/like_reference.h"
#include "tests/train/sparse_case.h"
#include "tests/train/step_fixture.h"

namespace longstride {
namespace {

constexpr std::int64_t kChunk = 32, kPage = 16;

struct Codes {
  const char *kv, *gradients;
  const char *odd_kv = kv, *odd_gradients = gradients;  // of every second layer
};
constexpr Codes kAllCodes[] = {{"int8", "f32"},
                               {"fp8", "bf16"},
                               {"auto", "int8"},
                               {"auto", "fp8"},
                               {"int8", "int8"},
                               {"fp8", "fp8"},
                               {"int8", "int8", "auto", "bf16"},
                               {"auto", "f32", "fp8", "int8"},
                               {"int8", "bf16", "int8", "int8"}};

// Dense layers and windows; or sparse layers among them.
NumericsChoice choice_of(const Codes& codes, const ModelConfig& config, bool sparse) {
  NumericsChoice choice;
  for (std::int64_t l = 0; l < config.layers; ++l) {
    choice.layer_kv_dtypes.emplace_back(l % 2 == 0 ? codes.kv : codes.odd_kv);
    choice.layer_kv_gradient_dtypes.emplace_back(l % 2 == 0 ? codes.gradients
                                                            : codes.odd_gradients);
  }
  if (!sparse) return choice;
  for (std::int64_t l = 0; l < config.layers; ++l)
    choice.sparse.budgets.push_back(l % 3 == 2 ? SparseLayers::kNone : 4 + l);
  choice.sparse.selection = {.sinks = 1, .recent = 1, .union_pages = 9, .summary_tokens = 4};
  return choice;
}

RandomCase case_of(std::uint64_t seed, std::int64_t tokens, int documents) {
  Random random(seed, 21);
  RandomCase c;
  c.config = random_config(random);
  if (seed % 2 == 1)  // keys of several segments
    c.config.windows.assign(static_cast<std::size_t>(c.config.layers), 0);
  fill_sequence(c, random, tokens, documents, 0);
  return c;
}

struct Outcome {
  std::vector<float> losses, evaluated;
  std::unique_ptr<ParameterSet> gradients;
  StepMemory memory;
  std::int64_t allocated = 0;
};

Outcome run(Device& device, const RandomCase& c, const ParameterSet& weights,
            const NumericsChoice& choice, std::int64_t keep, const PageBudget& pages,
            const MakeMover& make_mover = nullptr) {
  Outcome outcome;
  outcome.gradients = std::make_unique<ParameterSet>(device, c.config, DType::kF32, "gradients");
  const std::int64_t before = device.allocated_bytes();
  StepRunner runner = planned_runner(c.config, weights, *outcome.gradients,
                                     choose_numerics(device, c.config, kChunk, kPage, choice),
                                     {.max_tokens = static_cast<std::int64_t>(c.tokens.size()),
                                      .keep_chunks = keep,
                                      .pages = pages,
                                      .packed = c.document_starts.size() > 1,
                                      .evaluates = true},
                                     make_mover);
  outcome.allocated = device.allocated_bytes() - before;
  runner.record_losses();
  for (int i = 0; i < 2; ++i) {  // the first run must leave no state behind
    outcome.gradients->zero();
    runner.run({c.tokens, c.targets, c.document_starts, 0, 7}, 1.0);
  }
  outcome.losses.assign(runner.losses().begin(), runner.losses().end());
  runner.evaluate({c.tokens, c.targets, c.document_starts});
  outcome.evaluated.assign(runner.losses().begin(), runner.losses().end());
  outcome.memory = runner.memory();
  return outcome;
}

TEST(StepCodedPages, NoTierAndNoPlanChangesABit) {
  const auto device = make_cpu_device();
  const TempDirectory directory;
  std::uint64_t seed = 0;
  for (const Codes& codes : kAllCodes) {
    for (const bool sparse : {false, true}) {
      ++seed;
      const RandomCase c = case_of(seed, 420 + static_cast<std::int64_t>(seed), seed % 3 ? 1 : 3);
      const auto weights = random_weights(*device, c.config, seed);
      const NumericsChoice choice = choice_of(codes, c.config, sparse);
      const Outcome resident = run(*device, c, *weights, choice, 1, {});
      EXPECT_EQ(resident.evaluated, resident.losses);
      EXPECT_EQ(resident.allocated, resident.memory.total());
      const Outcome kept = run(*device, c, *weights, choice, 3, {});
      EXPECT_TRUE(same_bits(*kept.gradients, *resident.gradients)) << seed;
      const std::int64_t least =
          StepPlanner(*device, c.config, parameter_specs(c.config, DType::kF32),
                      choose_numerics(*device, c.config, kChunk, kPage, choice),
                      {.max_tokens = static_cast<std::int64_t>(c.tokens.size()),
                       .packed = c.document_starts.size() > 1,
                       .evaluates = true})
              .least_page_bytes();
      const std::int64_t host =
          resident.memory.kv_pages / 4 + (sparse ? 2 * resident.memory.kv_gradient_pages : 0);
      for (const PageBudget& pages :
           {PageBudget{least, PageBudget::kAll},
            PageBudget{least, host, PageBudget::kAll, directory.path()}}) {
        MoverWatch watch{.seed = seed, .granule = 2};
        const Outcome tiered = run(*device, c, *weights, choice, 1, pages,
                                   [&](Device&) { return std::make_unique<WatchedMover>(watch); });
        EXPECT_EQ(tiered.losses, resident.losses) << seed;
        EXPECT_TRUE(same_bits(*tiered.gradients, *resident.gradients)) << seed;
        EXPECT_EQ(watch.races, 0);
      }
    }
  }
}

// The reference rounds keys and values where the pages do, for every query, and passes gradients
// through. A few of its codes differ, because it computes in double.
TEST(StepCodedPages, IsTheModelWithRoundedKeysAndValues) {
  const auto device = make_cpu_device();
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    const RandomCase c = case_of(seed, 150, 2);
    const auto weights = random_weights(*device, c.config, seed);
    const auto [word, code] =
        seed % 2 == 0 ? std::pair{"int8", DType::kI8} : std::pair{"fp8", DType::kF8E4M3};
    const reference::Result expected =
        reference::run(c.config, *weights, c.tokens, c.targets, c.document_starts, 0, nullptr,
                       reference::PageCodes{code, kPage});
    double furthest = 0;
    const StepOutcome wide = run_step(*device, c, *weights, kChunk, kPage, 1);
    for (std::int64_t p = 0; p < wide.gradients->size(); ++p) {
      const View view = wide.gradients->view(p);
      const std::string& name = wide.gradients->specs()[static_cast<std::size_t>(p)].name;
      furthest = std::max(
          furthest,
          relative_error(view.as<float>(), expected.gradients.at(name).data(), view.elements()));
    }
    EXPECT_GT(furthest, 4e-3) << "wide pages would pass too";
    for (const std::int64_t chunk : {kChunk, std::int64_t{64}})
      expect_like_reference(
          run_step(*device, c, *weights, chunk, kPage, 1, 0, false, {.layer_kv_dtypes = {word}}),
          expected, 2e-3);
  }
}

TEST(StepCodedPages, PagesTakeAQuarterOfF32AndAScale) {
  const auto device = make_cpu_device();
  const RandomCase c = case_of(0, 290, 1);
  const auto plan = [&](const NumericsChoice& choice) {
    return plan_step(*device, c.config, parameter_specs(c.config),
                     choose_numerics(*device, c.config, kChunk, kPage, choice), {290, 1})
        .memory;
  };
  const StepMemory wide = plan({}),
                   coded = plan({.kv_gradient_dtype = "fp8", .layer_kv_dtypes = {"int8"}});
  const std::int64_t C = c.config.head_size;
  EXPECT_EQ(coded.kv_pages * 4 * C * kPage, wide.kv_pages * (kPage * (C + 2) + 2 * C));
  EXPECT_EQ(coded.kv_gradient_pages * 4 * C, wide.kv_gradient_pages * (C + 2));
  EXPECT_EQ(coded.workspace, wide.workspace);
  EXPECT_GT(coded.wide_pages, 0);
  EXPECT_EQ(wide.wide_pages, 0);
}

// What the copies take depends on the segments, not on the context.
TEST(StepCodedPages, WideCopiesDoNotGrowWithTheContext) {
  const auto device = make_cpu_device();
  const RandomCase c = case_of(0, 100, 1);
  const auto wide = [&](std::int64_t tokens) {
    return plan_step(*device, c.config, parameter_specs(c.config),
                     choose_numerics(*device, c.config, kChunk, kPage,
                                     {.kv_gradient_dtype = "int8", .kv_dtype = "int8"}),
                     {tokens, 1})
        .memory.wide_pages;
  };
  EXPECT_EQ(wide(4000), wide(16000));
}

// The first layer keeps wide keys and values, and layers whose gradient pages are few keep them in
// bf16, unless the user says otherwise.
TEST(StepCodedPages, SomeLayersKeepTheirTypes) {
  const auto device = make_cpu_device();
  ModelConfig config;
  config.layers = 4;
  config.vocabulary = 10;
  config.windows = {0, 8 * kChunk, 8 * kChunk + 1, 0};
  const auto pages = [&](const NumericsChoice& choice) {
    std::vector<PageTypes> types;
    const NumericsRecord record = choose_numerics(*device, config, kChunk, kPage, choice);
    for (std::int64_t l = 0; l < 4; ++l) types.push_back(record.pages_of(l));
    return types;
  };
  const PageTypes coded{DType::kI8, DType::kI8}, few{DType::kI8, DType::kBF16},
      wide{DType::kF32, DType::kI8};
  EXPECT_EQ(pages({.kv_gradient_dtype = "int8", .kv_dtype = "int8"}),
            (std::vector{wide, few, coded, coded}));
  NumericsChoice choice{.kv_dtype = "int8", .layer_kv_gradient_dtypes = {"int8"}};
  EXPECT_EQ(pages(choice), (std::vector{wide, coded, coded, coded}));
  choice.layer_kv_dtypes = {"int8"};
  EXPECT_EQ(pages(choice), std::vector(4, coded));
  choice.layer_kv_dtypes = {"auto", "int8"};
  EXPECT_EQ(pages(choice), (std::vector{wide, coded, wide, coded}));
  choice.layer_kv_dtypes = {"fp8*3"};
  EXPECT_TRUE(says(error_of([&] { pages(choice); }),
                   {"attention.kv_dtype", "3 layers", "model 4", "fp8*24"}));
  choice.layer_kv_dtypes = {"bf16"};
  EXPECT_TRUE(says(error_of([&] { pages(choice); }), {"attention.kv_dtype", "bf16", "int8"}));
  choice.layer_kv_dtypes = {};
  choice.layer_kv_gradient_dtypes = {"int9"};
  EXPECT_TRUE(
      says(error_of([&] { pages(choice); }), {"attention.kv_gradient_dtype", "int9", "bf16"}));
}

// A hundred pages, each a chunk, in so many sparse layers.
RandomCase many_chunks(std::int64_t layers) {
  Random random(5, 21);
  RandomCase c;
  c.config = random_config(random);
  c.config.layers = layers;
  c.config.windows.assign(static_cast<std::size_t>(layers), 0);
  fill_sequence(c, random, 100 * kPage, 1, 0);
  return c;
}

NumericsChoice all_sparse(std::int64_t layers, std::int64_t budget, std::int64_t union_pages) {
  NumericsChoice choice;
  choice.sparse.budgets.assign(static_cast<std::size_t>(layers), budget);
  choice.sparse.selection = {
      .sinks = 1, .recent = 1, .union_pages = union_pages, .summary_tokens = 4};
  return choice;
}

// A few pages of a sparse layer get most of the additions.
TEST(StepCodedPages, HotPagesSaveMostOfTheError) {
  const auto device = make_cpu_device();
  const RandomCase c = many_chunks(2);
  const auto weights = gentle_weights(*device, c.config, 5);
  NumericsChoice choice = all_sparse(2, 4, 6);
  const auto gradients = [&](const char* type, std::int64_t hot) {
    choice.kv_gradient_dtype = type;
    choice.hot_pages = hot;
    return run_step(*device, c, *weights, kPage, kPage, 1, 0, false, choice).gradients;
  };
  const auto exact = gradients("f32", 64);
  const auto error = [&](const char* type, std::int64_t hot) {
    const auto coded = gradients(type, hot);
    return relative_error(reinterpret_cast<const float*>(coded->data()),
                          reinterpret_cast<const float*>(exact->data()), coded->bytes() / 4);
  };
  const double none = error("int8", 0), few = error("int8", 4);
  EXPECT_LT(few, none / 3);
  EXPECT_LT(few, error("bf16", 0));
}

// Pages are selected by keys as they are before they are rounded: the first layer, whose queries do
// not depend on pages, selects the same ones.
TEST(StepCodedPages, RoundingDoesNotChangeWhatTheFirstLayerSelects) {
  const auto device = make_cpu_device();
  const RandomCase c = many_chunks(1);
  const auto weights = gentle_weights(*device, c.config, 5);
  NumericsChoice choice = all_sparse(1, 8, 12);
  const auto selected = [&](const char* type) {
    choice.kv_dtype = type;
    ParameterSet gradients(*device, c.config, DType::kF32, "gradients");
    StepRunner runner = planned_runner(c.config, *weights, gradients,
                                       choose_numerics(*device, c.config, kPage, kPage, choice),
                                       {std::ssize(c.tokens)});
    runner.run({c.tokens, c.targets, c.document_starts, 0, 7}, 1.0);
    std::vector<std::int32_t> pages;
    for (std::int64_t chunk = 0; chunk < 100; ++chunk)
      for (const std::int32_t page : runner.selected().pages(chunk, 0)) pages.push_back(page);
    return pages;
  };
  const std::vector<std::int32_t> wide = selected("auto");
  EXPECT_GT(wide.size(), 700U);
  EXPECT_EQ(selected("int8"), wide);
  EXPECT_EQ(selected("fp8"), wide);
}

TEST(StepCodedPages, EverySequenceRoundsGradientsDifferently) {
  const auto device = make_cpu_device();
  const RandomCase c = case_of(3, 290, 1);
  const auto weights = random_weights(*device, c.config, 3);
  for (const char* code : {"int8", "fp8"}) {
    const auto gradients = [&](std::uint64_t key, const char* type) {
      return run_step(*device, c, *weights, kChunk, kPage, 1, 0, false, {.kv_gradient_dtype = type},
                      key)
          .gradients;
    };
    const auto exact = gradients(1, "f32"), a = gradients(1, code), b = gradients(2, code);
    EXPECT_FALSE(same_bits(*a, *b));
    EXPECT_TRUE(same_bits(*a, *gradients(1, code)));
    for (std::int64_t p = 0; p < a->size(); ++p)
      EXPECT_LT(
          relative_error(a->view(p).as<float>(), exact->view(p).as<float>(), a->view(p).elements()),
          0.2)
          << a->specs()[static_cast<std::size_t>(p)].name;
  }
}

// Relative errors of gradients (Frobenius norm, by kind of parameter) against wide pages, as the
// number of chunks grows. With LONGSTRIDE_LONG_TESTS it goes up to 1024, as the table of
// docs/sparse.md does.
TEST(StepCodedPages, SlowErrorsByNumberOfChunks) {
  const auto device = make_cpu_device();
  ModelConfig m;
  m.layers = 2, m.kv_heads = 2, m.query_heads = 4, m.head_size = 64;
  m.hidden_size = 128, m.ffn_size = 256, m.vocabulary = 50;
  m.rms_eps = 1e-5, m.rope.theta = 1000, m.max_positions = 1 << 20;
  m.windows = {0, 0};
  ParameterSet weights(*device, m, DType::kF32, "weights");
  initialize_random(weights, m, 1);
  const bool long_too = std::getenv("LONGSTRIDE_LONG_TESTS") != nullptr;
  for (const std::int64_t chunks : {16, 64, 256, 1024}) {
    if (chunks > 64 && !long_too) break;
    RandomCase c;
    c.config = m;
    Random random(1, 4);
    fill_sequence(c, random, chunks * kPage, 1, 0);
    const auto gradients = [&](const NumericsChoice& choice) {
      return run_step(*device, c, weights, kPage, kPage, 1, 0, false, choice, 5);
    };
    const StepOutcome exact = gradients({});
    for (const Codes& codes : {Codes{"int8", "f32"}, Codes{"fp8", "f32"}, Codes{"auto", "bf16"},
                               Codes{"auto", "int8"}, Codes{"auto", "fp8"}}) {
      const StepOutcome coded =
          gradients({.kv_gradient_dtype = codes.gradients, .layer_kv_dtypes = {codes.kv}});
      std::map<std::string, double> worst;
      for (std::int64_t p = 0; p < coded.gradients->size(); ++p) {
        const std::string& name = coded.gradients->specs()[static_cast<std::size_t>(p)].name;
        const View view = coded.gradients->view(p);
        const std::string kind = name.ends_with("k_proj.weight")   ? "k_proj"
                                 : name.ends_with("v_proj.weight") ? "v_proj"
                                                                   : "others";
        worst[kind] = std::max(
            worst[kind], relative_error(view.as<float>(), exact.gradients->view(p).as<float>(),
                                        view.elements()));
      }
      fmt::print(
          "{:5} chunks, K/V {:4}, gradients {:4}: k_proj {:.4f}  v_proj {:.4f}  others "
          "{:.4f}  loss {:+.1e}\n",
          chunks, codes.kv, codes.gradients, worst["k_proj"], worst["v_proj"], worst["others"],
          coded.loss() / exact.loss() - 1);
      // Twice what was seen.
      const bool fp8 = codes.kv == std::string("fp8") || codes.gradients == std::string("fp8");
      for (const auto& [kind, error] : worst)
        EXPECT_LT(error, (fp8 ? 0.13 : 0.033) * (chunks > 64 ? 4 : 1)) << kind;
    }
  }
}

}  // namespace
}  // namespace longstride
