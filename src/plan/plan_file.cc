#include "plan/plan_file.h"

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "plan/step_plan_json.h"
#include "tensor/dtype_words.h"

namespace longstride {
namespace {

constexpr std::string_view kBegin = R"({"made_by":"longstride plan")";

// One word for all layers, or one per layer.
OrderedJson page_words(const ModelConfig& c, const NumericsRecord& r, bool gradients) {
  const auto word = [&](std::int64_t layer) {
    return word_of_pages(r.pages_of(layer).of(gradients));
  };
  if (r.layer_pages.empty()) return word(0);
  OrderedJson words = OrderedJson::array();
  for (std::int64_t layer = 0; layer < c.layers; ++layer) words.push_back(word(layer));
  return words;
}

// Everything outside of the plan that decides the sizes in it.
OrderedJson shapes_of(const ModelConfig& c, const NumericsRecord& r, std::int64_t tokens) {
  return {{"context", tokens},
          {"chunk", r.chunk_tokens},
          {"page", r.page_tokens},
          {"layers", c.layers},
          {"hidden_size", c.hidden_size},
          {"ffn_size", c.ffn_size},
          {"query_heads", c.query_heads},
          {"kv_heads", c.kv_heads},
          {"head_size", c.head_size},
          {"vocabulary", c.vocabulary},
          {"qk_norm", c.qk_norm},
          {"output_norms", c.output_norms},
          {"two_ropes", c.local_rope.has_value()},
          {"windows", c.windows},
          {"sparse", to_json(r.sparse)},
          {"compute", word_of(r.compute)},
          {"kv_dtype", page_words(c, r, false)},
          {"kv_gradient_dtype", page_words(c, r, true)},
          {"hot_pages", r.hot_pages},
          {"exact", r.exact()},
          {"head_block_rows", r.head_block_rows}};
}

}  // namespace

void write_plan_file(const std::filesystem::path& path, const ModelConfig& config,
                     const NumericsRecord& numerics, const StepPlan& plan) {
  const OrderedJson json = {{"made_by", "longstride plan"},
                            {"shapes", shapes_of(config, numerics, plan.max_tokens)},
                            {"plan", to_json(plan)}};
  write_file_atomic(path, dump_json(json) + "\n");
}

StepPlan read_plan_file(const std::filesystem::path& path, const ModelConfig& config,
                        const NumericsRecord& numerics, std::int64_t tokens) {
  const Json json = parse_json(read_text(path), path.string());
  if (!json.is_object() || !json.contains("shapes") || !json.contains("plan"))
    throw Error(fmt::format("{} is no plan", path.string()), "longstride plan --out writes one");
  const Json& shapes = json["shapes"];
  const OrderedJson wanted = shapes_of(config, numerics, tokens);
  for (const auto& [name, value] : wanted.items()) {
    const Json here = Json::parse(value.dump());
    if (shapes.contains(name) && shapes[name] == here) continue;
    throw Error(
        fmt::format("{}: the plan is for another step: its {} is {}, here it is {}", path.string(),
                    name, shapes.contains(name) ? shapes[name].dump() : "missing", here.dump()),
        "make a plan with the same model, context and chunk");
  }
  StepPlan plan = step_plan_from_json(json["plan"], path.string());
  if (plan.trained != TrainedParts{})
    throw Error(fmt::format("{}: the plan trains only a part of the parameters", path.string()),
                "make a plan without model.train and model.freeze");
  return plan;
}

bool begins_as_plan_file(std::string_view head) { return head.starts_with(kBegin); }

}  // namespace longstride
