// Greedy generation gives what transformers generates (generated.json), across page borders and
// whatever the page and the chunk.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "base/files.h"
#include "base/json.h"
#include "model/model_directory.h"
#include "tests/where.h"
#include "train/generator.h"
#include "train/step.h"

namespace longstride {
namespace {

using Tokens = std::vector<std::int32_t>;

const std::filesystem::path kParity = source_directory() / "tests" / "parity";

// A fixture's model, its prompt and what follows.
struct Expected {
  ModelDirectory model;
  std::unique_ptr<Device> device = make_cpu_device();
  ParameterSet weights;
  Tokens prompt, tokens;

  explicit Expected(const std::string& name)
      : model(ModelDirectory::open(kParity / "fixtures" / name)),
        weights(*device, model.specs(), "weights") {
    model.load(weights);
    const Json json = read_json(kParity / "generated.json").at("fixtures").at(name);
    tokens = json.at("tokens").get<Tokens>();
    const MappedFile file(kParity / "fixtures" / name / "tokens.bin");
    prompt.resize(json.at("prompt").get<std::size_t>());
    std::memcpy(prompt.data(), file.bytes().data(), prompt.size() * 4);
  }
  std::unique_ptr<Generator> generator(std::int64_t page, std::int64_t chunk) {
    return std::make_unique<Generator>(model.config(), weights,
                                       choose_numerics(*device, model.config(), chunk, page),
                                       std::ssize(prompt) + std::ssize(tokens));
  }
};

std::vector<std::string> names() {
  std::vector<std::string> found;
  const Json json = read_json(kParity / "generated.json");
  for (const auto& [name, value] : json.at("fixtures").items()) found.push_back(name);
  return found;
}

class Generated : public testing::TestWithParam<std::string> {};

TEST_P(Generated, IsWhatTransformersGenerates) {
  Expected e(GetParam());
  const std::pair<std::int64_t, std::int64_t> sizes[] = {
      {16, 16}, {16, 32}, {32, 64}, {24, 48}, {128, 1024}};
  for (const auto& [page, chunk] : sizes) {
    SCOPED_TRACE(fmt::format("page {} chunk {}", page, chunk));
    const auto generator = e.generator(page, chunk);
    generator->extend(e.prompt);
    EXPECT_EQ(generate(*generator, {.count = std::ssize(e.tokens)}), e.tokens);
  }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, Generated, testing::ValuesIn(names()), [](const auto& test) {
  std::string name = test.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

// Wherever a sequence was interrupted, continuing it gives the same.
TEST(GeneratedParts, DoNotDependOnWhereASequenceWasTakenUp) {
  for (const char* name : {"qwen3", "mistral-window"}) {
    Expected e(name);
    for (const std::int64_t part : {1, 9, 10, 26, 58}) {  // 79 and 80, 96 and 128 tokens with 70
      SCOPED_TRACE(fmt::format("{}, {} tokens first", name, part));
      Tokens prompt = e.prompt;
      prompt.insert(prompt.end(), e.tokens.begin(), e.tokens.begin() + part);
      const auto generator = e.generator(16, 32);
      // In one piece, and token by token after the first few.
      generator->extend(prompt);
      const Tokens rest(e.tokens.begin() + part, e.tokens.end());
      EXPECT_EQ(generate(*generator, {.count = std::ssize(rest)}), rest);
      generator->clear();
      generator->extend(std::span(prompt).first(5));
      for (std::size_t i = 5; i < prompt.size(); ++i) generator->extend({&prompt[i], 1});
      EXPECT_EQ(generate(*generator, {.count = std::ssize(rest)}), rest);
    }
  }
}

}  // namespace
}  // namespace longstride
