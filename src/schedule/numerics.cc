#include "schedule/numerics.h"

#include <limits>

#include "base/error.h"

namespace longstride {

OrderedJson to_json(const NumericsRecord& r) {
  return {{"chunk_tokens", r.chunk_tokens},
          {"page_tokens", r.page_tokens},
          {"head_block_rows", r.head_block_rows},
          {"compute", r.compute},
          {"kv_gradient_dtype", r.kv_gradient_dtype},
          {"determinism", r.determinism},
          {"device", r.device},
          {"kernels", r.kernels},
          {"choices", r.choices}};
}

NumericsRecord numerics_from_json(const Json& json, const std::string& where) {
  NumericsRecord r;
  // The library would turn 1.5 and true into integers.
  const auto read_count = [&](const char* key, std::int64_t& count) {
    const Json& value = json.at(key);
    if (!value.is_number_integer() || value < 1 || value > std::numeric_limits<std::int64_t>::max())
      throw Error(
          fmt::format("{}: the numerics record is damaged: {} is {}", where, key, dump_json(value)),
          "resume from another checkpoint");
    value.get_to(count);
  };
  try {
    read_count("chunk_tokens", r.chunk_tokens);
    read_count("page_tokens", r.page_tokens);
    read_count("head_block_rows", r.head_block_rows);
    json.at("compute").get_to(r.compute);
    json.at("kv_gradient_dtype").get_to(r.kv_gradient_dtype);
    json.at("determinism").get_to(r.determinism);
    json.at("device").get_to(r.device);
    json.at("kernels").get_to(r.kernels);
    // Checkpoints of before there were any lack them.
    if (json.contains("choices")) json.at("choices").get_to(r.choices);
  } catch (const Json::exception& e) {
    throw Error(fmt::format("{}: the numerics record is damaged: {}", where, e.what()),
                "resume from another checkpoint");
  }
  return r;
}

std::string describe_difference(const NumericsRecord& here, const NumericsRecord& there) {
  const OrderedJson a = to_json(here), b = to_json(there);
  std::string text;
  for (const auto& [key, value] : a.items())
    if (key != "choices" && value != b.at(key))
      text += fmt::format("{}{}: {} here, {} there", text.empty() ? "" : "; ", key,
                          dump_json(value), dump_json(b.at(key)));
  return text;
}

}  // namespace longstride
