#include "plan/pipeline_svg.h"

#include <gtest/gtest.h>

#include <regex>

#include "tests/plan/xml_check.h"

namespace longstride {
namespace {

PipelineRun run_of(std::int64_t stages, std::int64_t chunks, std::int64_t sequences) {
  PipelineInput input;
  for (std::int64_t s = 0; s < stages; ++s) {
    std::vector<PipelineTask>& tasks = input.stages.emplace_back();
    const bool first = s == 0, last = s + 1 == stages;
    for (std::int64_t c = 0; c < chunks; ++c)
      tasks.push_back({PipelinePhase::kForward, c, 0.02 + 0.001 * static_cast<double>(c),
                       first ? -1 : c, last ? -1 : c});
    for (std::int64_t c = chunks - 1; c >= 0; --c) {
      if (c + 1 < chunks)
        tasks.push_back(
            {PipelinePhase::kRecompute, c, 0.02 + 0.001 * static_cast<double>(c), -1, -1});
      tasks.push_back({PipelinePhase::kBackward, c, 0.05 + 0.0025 * static_cast<double>(c),
                       last ? -1 : c, first ? -1 : c});
    }
  }
  input.chunk_bytes.assign(static_cast<std::size_t>(chunks), 1 << 20);
  input.link.bytes_per_s = 5e9;
  input.sequences = sequences;
  return simulate_pipeline(input);
}

std::string picture_of(const PipelineRun& run) {
  PipelinePicture picture{"a <pipeline> & more", "predicted", {}};
  for (std::int64_t s = 0; s < run.stages(); ++s)
    picture.stages.push_back("layers " + std::to_string(4 * s) + " to " +
                             std::to_string(4 * s + 3));
  return to_svg(run, picture);
}

bool shows(const std::string& svg, const std::string& text) {
  return svg.find(text) != std::string::npos;
}

std::int64_t count(const std::string& svg, const std::string& text) {
  std::int64_t n = 0;
  for (std::size_t at = svg.find(text); at != std::string::npos; at = svg.find(text, at + 1)) ++n;
  return n;
}

TEST(PipelineSvg, IsWellFormedAndInsideItsPicture) {
  for (const auto& [stages, chunks, sequences] :
       {std::tuple(1, 1, 1), std::tuple(2, 3, 1), std::tuple(7, 64, 1), std::tuple(8, 256, 8),
        std::tuple(64, 1024, 2)}) {
    const std::string svg = picture_of(run_of(stages, chunks, sequences));
    EXPECT_EQ(XmlCheck::check(svg), "") << stages;
    EXPECT_TRUE(svg.starts_with(kPipelineSvgBegin));
    EXPECT_LT(svg.size(), 1'500'000u * (stages > 8 ? 10u : 1u)) << stages << " x " << chunks;
    std::smatch size;
    ASSERT_TRUE(std::regex_search(svg, size,
                                  std::regex("width=\"([0-9.]+)\" height=\"([0-9.]+)\" viewBox")));
    const std::regex element(
        "<(?:rect|text) x=\"([^\"]+)\" y=\"([^\"]+)\""
        "(?: width=\"([^\"]+)\" height=\"([^\"]+)\")?");
    for (auto it = std::sregex_iterator(svg.begin(), svg.end(), element);
         it != std::sregex_iterator(); ++it) {
      const auto number = [&](int g) { return (*it)[g].matched ? std::stod((*it)[g]) : 0.0; };
      ASSERT_TRUE(number(1) >= 0 && number(2) >= 0 && number(1) + number(3) <= std::stod(size[1]) &&
                  number(2) + number(4) <= std::stod(size[2]))
          << it->str();
    }
  }
}

TEST(PipelineSvg, NamesWhatIsThere) {
  const PipelineRun run = run_of(7, 64, 1);
  const std::string svg = picture_of(run);
  for (const char* text :
       {">forward<", ">recompute<", ">backward<", ">waiting<", ">stage 6<", ">layers 24 to 27<",
        "a &lt;pipeline&gt; &amp; more", "time of the step", "stage 3, chunk 63: backward"})
    EXPECT_TRUE(shows(svg, text)) << text;
  EXPECT_TRUE(shows(svg, fmt::format(">{:.1f}%<", 100 * run.idle_share(3))));
  EXPECT_FALSE(shows(picture_of(run_of(2, 1, 1)), ">recompute<"));
  EXPECT_FALSE(shows(svg, "of sequence"));
  EXPECT_TRUE(shows(picture_of(run_of(2, 4, 2)), "chunk 3 of sequence 1"));
}

// Few chunks are all drawn; of very many, only as many boxes as there are pixels for.
TEST(PipelineSvg, NarrowTasksAreDrawnTogether) {
  EXPECT_EQ(count(picture_of(run_of(2, 8, 1)), "<title>"), 2 * (8 + 7 + 8));
  EXPECT_LT(count(picture_of(run_of(2, 2048, 4)), "<rect"), 2 * 990 / 1.2 + 20);
}

}  // namespace
}  // namespace longstride
