#include "base/json.h"

#include <gtest/gtest.h>

#include "tests/data/temp_directory.h"

namespace longstride {
namespace {

TEST(ReadJson, ReadsAFile) {
  const TempDirectory temp;
  const Json json = read_json(temp.write_text("a.json", R"({"layers": 4, "name": "tiny"})"));
  EXPECT_EQ(json.at("layers"), 4);
  EXPECT_EQ(json.at("name"), "tiny");
}

TEST(ReadJson, NamesTheFile) {
  const TempDirectory temp;
  const auto missing = temp.path() / "missing.json";
  EXPECT_TRUE(says(error_of([&] { read_json(missing); }), {missing.string(), "No such file"}));
  EXPECT_TRUE(says(error_of([&] { read_json(temp.path()); }), {temp.path().string()}));
  const auto cut = temp.write_text("cut.json", R"({"layers": 4, )");
  EXPECT_TRUE(says(error_of([&] { read_json(cut); }), {cut.string(), "not valid JSON"}));
}

TEST(ParseJson, RefusesWhatIsNotJson) {
  // A number too large for a double and bytes that are not UTF-8 included.
  for (const std::string text :
       {"", "{", "{]", "{} {}", "nan", "{\"a\": 1e999}", "\"\xff\xfe\"", "\"\\ud800\""})
    EXPECT_TRUE(says(error_of([&] { parse_json(text, "here.json"); }),
                     {"here.json", "not valid JSON", "restore it"}))
        << text;
}

TEST(OrderedJson, KeepsTheOrderOfKeys) {
  const OrderedJson json = {{"z", 1}, {"a", 2}, {"m", 3}};
  EXPECT_EQ(json.dump(), R"({"z":1,"a":2,"m":3})");
}

}  // namespace
}  // namespace longstride
