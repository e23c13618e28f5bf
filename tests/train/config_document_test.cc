// docs/configuration.md and the examples against the code.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "base/files.h"
#include "tests/where.h"
#include "train/config.h"
#include "train/config_table.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

TEST(ConfigDocument, EveryKeyHasItsSectionOnce) {
  std::set<std::string> names;
  for (const ConfigKey& key : config_keys()) {
    EXPECT_TRUE(names.insert(key.name()).second) << key.name();
    bool known = false;
    for (const ConfigSection& section : config_sections())
      known |= std::string_view(section.name) == key.section;
    EXPECT_TRUE(known) << key.section;
    EXPECT_EQ(std::string(key.description).find('|'), std::string::npos) << "would break the table";
  }
}

// The page's tables, line by line. To update the page: LONGSTRIDE_UPDATE_DOCS=1 and run this test.
TEST(ConfigDocument, DocumentedAsItIs) {
  const fs::path page = source_directory() / "docs/configuration.md";
  const std::string marker = "-->\n\n", text = read_text(page);
  const auto end_of_prose = text.find(marker);
  ASSERT_NE(end_of_prose, std::string::npos);
  const std::string prose = text.substr(0, end_of_prose + marker.size());
  if (std::getenv("LONGSTRIDE_UPDATE_DOCS") != nullptr)
    std::ofstream(page) << prose << configuration_markdown();
  std::istringstream expected(configuration_markdown()),
      written(read_text(page).substr(prose.size()));
  std::string want, have;
  while (std::getline(expected, want)) {
    ASSERT_TRUE(std::getline(written, have)) << "missing: " << want;
    EXPECT_EQ(have, want) << "run with LONGSTRIDE_UPDATE_DOCS=1 to update docs/configuration.md";
  }
  EXPECT_FALSE(std::getline(written, have)) << "left over: " << have;
}

// The reverse, without the generator: what the page says about each key matches the code.
TEST(ConfigDocument, EveryKeyIsInTheDocument) {
  const std::string text = read_text(source_directory() / "docs/configuration.md");
  const OrderedJson defaults = config_to_json(TrainConfig{});
  std::size_t rows = 0;
  for (std::size_t at = text.find("\n| `"); at != std::string::npos;
       at = text.find("\n| `", at + 1))
    ++rows;
  EXPECT_EQ(rows, config_keys().size());
  for (const ConfigKey& key : config_keys()) {
    const auto at = text.find("| `" + key.name() + "` | ");
    ASSERT_NE(at, std::string::npos) << key.name();
    const std::string row = text.substr(at, text.find('\n', at) - at);
    EXPECT_NE(row.find(key.description), std::string::npos) << row;
    const OrderedJson& section = defaults[key.section];
    if (key.required || !section.contains(key.key) || key.type == ConfigType::kSize) continue;
    const OrderedJson& value = section[key.key];
    // JSON and TOML format all of these alike, except for the exponents of small numbers.
    if (value.is_number_float()) {
      const auto quote = row.find("| `", 3);
      ASSERT_NE(quote, std::string::npos) << row;
      EXPECT_EQ(std::stod(row.substr(quote + 3)), value.get<double>()) << row;
    } else {
      EXPECT_NE(row.find("| `" + value.dump() + "` |"), std::string::npos) << row;
    }
  }
}

TEST(ConfigDocument, ExamplesAreValid) {
  const TrainConfig tiny = load_train_config(source_directory() / "examples/tiny.toml");
  EXPECT_EQ(tiny.model.preset, "tiny-llama");
  EXPECT_EQ(tiny.data.format, "text");
  const TrainConfig finetune = load_train_config(source_directory() / "examples/finetune.toml");
  EXPECT_EQ(finetune.model.path, source_directory() / "examples/model");
  EXPECT_EQ(finetune.training.context, 32768);
}

}  // namespace
}  // namespace longstride
