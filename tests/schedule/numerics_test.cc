#include "schedule/numerics.h"

#include <gtest/gtest.h>

#include "tests/data/temp_directory.h"

namespace longstride {
namespace {

NumericsRecord example() {
  NumericsRecord record;
  record.chunk_tokens = 4096;
  record.page_tokens = 128;
  record.head_block_rows = 256;
  record.compute = DType::kBF16;
  record.kv_gradient_dtype = DType::kBF16;
  record.quantize = "nf4";
  record.tied_apart = true;
  record.data_groups = 4;
  record.determinism = Determinism::kFast;
  record.device = "cpu";
  record.kernels = "OpenBLAS 0.3.21 Haswell";
  record.choices = {{"a product", "7f 3"}};
  record.sparse.budgets = {64, SparseLayers::kNone};
  record.sparse.selection = {2, 3, 400, 32, Summary::kOutliers, Scoring::kOomb};
  record.hot_pages = 48;
  record.set_pages({{DType::kI8, DType::kF8E4M3}, {DType::kBF16, DType::kF32}});
  return record;
}

Json as_json(const NumericsRecord& record) { return Json::parse(to_json(record).dump()); }

TEST(NumericsRecord, ComesBackFromJson) {
  EXPECT_EQ(numerics_from_json(as_json(example()), "here"), example());
}

// A field that is in the record but not in its JSON would be lost in checkpoints.
TEST(NumericsRecord, JsonHoldsEveryField) {
  const auto names = {"chunk_tokens",      "page_tokens", "head_block_rows", "compute",
                      "kv_gradient_dtype", "determinism", "device",          "kernels",
                      "choices",           "sparse",      "quantize",        "tied_apart",
                      "data_groups",       "kv_dtype",    "kv_dtypes",       "kv_gradient_dtypes",
                      "kv_centred",        "hot_pages"};
  const Json json = as_json(example());
  EXPECT_EQ(json.size(), names.size());
  for (const char* name : names) EXPECT_TRUE(json.contains(name)) << name;
  EXPECT_EQ(sizeof(NumericsRecord), 7 * sizeof(std::int64_t) + sizeof(SparseLayers) +
                                        3 * sizeof(std::string) + sizeof(std::vector<PageTypes>) +
                                        sizeof(std::map<std::string, std::string>));
}

TEST(NumericsRecord, DamageIsNamed) {
  const Json whole = as_json(example());
  for (const auto& [key, value] : whole.items()) {
    Json missing = as_json(example());
    missing.erase(key);
    if (key == "choices") {
      EXPECT_TRUE(numerics_from_json(missing, "state.json").choices.empty());
    } else if (key == "sparse") {
      EXPECT_FALSE(numerics_from_json(missing, "state.json").sparse.any());
    } else if (key == "quantize") {
      EXPECT_EQ(numerics_from_json(missing, "state.json").quantize, "");
    } else if (key == "tied_apart") {
      EXPECT_FALSE(numerics_from_json(missing, "state.json").tied_apart);
    } else if (key == "data_groups") {
      EXPECT_EQ(numerics_from_json(missing, "state.json").data_groups, 1);
    } else if (key == "hot_pages") {
      EXPECT_EQ(numerics_from_json(missing, "state.json").hot_pages, 0);
    } else if (key == "kv_dtype") {
      EXPECT_FALSE(numerics_from_json(missing, "state.json").kv_codes);
    } else if (key == "kv_centred") {
      EXPECT_TRUE(says(error_of([&] { numerics_from_json(missing, "state.json"); }),
                       {"state.json", "8 bits", "version", "new run"}));
    } else {
      EXPECT_TRUE(says(error_of([&] { numerics_from_json(missing, "state.json"); }),
                       {"state.json", "damaged", key, "another checkpoint"}));
    }
    std::vector<Json> wrong = {nullptr, Json::array()};
    if (value.is_object())
      wrong.insert(wrong.end(), {7, "text", Json{{"a product", 7}}});
    else
      wrong.push_back(Json::object());
    if (value.is_boolean()) wrong.insert(wrong.end(), {1, "true"});
    if (value.is_string()) wrong.insert(wrong.end(), {7, 1.5, true});
    if (key == "compute" || key == "kv_gradient_dtype" || key == "determinism")
      wrong.insert(wrong.end(), {"", "BF16", "exactly"});
    else if (value.is_number())
      wrong.insert(wrong.end(), {"4096", 1.5, true, 0, -128, 18446744073709551615ull});
    for (const Json& bad : wrong) {
      Json json = as_json(example());
      json[key] = bad;
      EXPECT_TRUE(says(error_of([&] { numerics_from_json(json, "state.json"); }),
                       {"state.json", "damaged"}))
          << key << " = " << bad;
    }
  }
  for (const auto& [key, value] : whole.at("sparse").items())
    for (const Json& bad : {Json(nullptr), Json(-2), Json("other"), Json(1.5)}) {
      Json json = as_json(example());
      json["sparse"][key] = key == "budgets" ? Json::array({bad}) : bad;
      EXPECT_TRUE(says(error_of([&] { numerics_from_json(json, "state.json"); }),
                       {"state.json", "damaged", "another checkpoint"}))
          << key << " = " << bad;
    }
  Json older = as_json(example());
  older["sparse"].erase("summary");
  EXPECT_EQ(numerics_from_json(older, "state.json").sparse.selection.summary, Summary::kMeans);
  for (const Json& json : {Json(nullptr), Json(3), Json("text"), Json::array()})
    EXPECT_TRUE(says(error_of([&] { numerics_from_json(json, "state.json"); }), {"state.json"}));
}

TEST(DescribeDifference, NamesWhatDiffers) {
  EXPECT_EQ(describe_difference(example(), example()), "");
  NumericsRecord there = example();
  there.chunk_tokens = 512;
  EXPECT_EQ(describe_difference(example(), there), "chunk_tokens: 4096 here, 512 there");
  there.device = "cuda";
  EXPECT_EQ(describe_difference(example(), there),
            "chunk_tokens: 4096 here, 512 there; device: \"cpu\" here, \"cuda\" there");
}

TEST(DescribeDifference, SeesEveryField) {
  const Json whole = as_json(example());
  for (const auto& [key, value] : whole.items()) {
    if (key == "choices") continue;     // reused on resume, so never compared
    if (key == "kv_centred") continue;  // never false in a record that can be read
    Json changed = as_json(example());
    if (key == "sparse")
      changed.at(key).at("sinks") = 1;
    else
      changed[key] = value == "bf16"     ? Json("f32")
                     : value == "fast"   ? Json("exact")
                     : value == true     ? Json(false)
                     : value == "int8"   ? Json("fp8")
                     : value == "fp8"    ? Json("int8")
                     : value.is_array()  ? Json({"int8", "fp8"})
                     : value.is_string() ? Json("other")
                                         : Json(1);
    const std::string text = describe_difference(example(), numerics_from_json(changed, "here"));
    EXPECT_TRUE(text.starts_with(key + ": ")) << text;
  }
}

}  // namespace
}  // namespace longstride
