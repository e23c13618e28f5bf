#include "schedule/numerics.h"

#include "base/error.h"

namespace longstride {

OrderedJson to_json(const NumericsRecord& r) {
  return {{"chunk_tokens", r.chunk_tokens},
          {"page_tokens", r.page_tokens},
          {"head_block_rows", r.head_block_rows},
          {"kv_gradient_dtype", r.kv_gradient_dtype},
          {"determinism", r.determinism},
          {"device", r.device},
          {"kernels", r.kernels}};
}

NumericsRecord numerics_from_json(const Json& json, const std::string& where) {
  NumericsRecord r;
  try {
    json.at("chunk_tokens").get_to(r.chunk_tokens);
    json.at("page_tokens").get_to(r.page_tokens);
    json.at("head_block_rows").get_to(r.head_block_rows);
    json.at("kv_gradient_dtype").get_to(r.kv_gradient_dtype);
    json.at("determinism").get_to(r.determinism);
    json.at("device").get_to(r.device);
    json.at("kernels").get_to(r.kernels);
  } catch (const Json::exception& e) {
    throw Error(fmt::format("{}: the numerics record is damaged: {}", where, e.what()), "resume from another checkpoint");
  }
  return r;
}

std::string describe_difference(const NumericsRecord& here, const NumericsRecord& there) {
  const OrderedJson a = to_json(here), b = to_json(there);
  std::string text;
  for (const auto& [key, value] : a.items())
    if (value != b.at(key)) text += fmt::format("{}{}: {} here, {} there", text.empty() ? "" : "; ", key, value.dump(), b.at(key).dump());
  return text;
}

}  // namespace longstride
