#include "schedule/numerics.h"

#include <limits>

#include "base/error.h"
#include "tensor/dtype_words.h"

namespace longstride {
namespace {

std::string_view word_of(Determinism d) { return d == Determinism::kExact ? "exact" : "fast"; }

}  // namespace

std::optional<Determinism> determinism_of_word(std::string_view word) {
  for (const Determinism d : {Determinism::kExact, Determinism::kFast})
    if (word_of(d) == word) return d;
  return std::nullopt;
}

OrderedJson to_json(const NumericsRecord& r) {
  return {{"chunk_tokens", r.chunk_tokens},
          {"page_tokens", r.page_tokens},
          {"head_block_rows", r.head_block_rows},
          {"compute", word_of(r.compute)},
          {"kv_gradient_dtype", word_of(r.kv_gradient_dtype)},
          {"determinism", word_of(r.determinism)},
          {"device", r.device},
          {"kernels", r.kernels},
          {"choices", r.choices}};
}

NumericsRecord numerics_from_json(const Json& json, const std::string& where) {
  NumericsRecord r;
  const auto damaged = [&](const char* key) {
    return Error(fmt::format("{}: the numerics record is damaged: {} is {}", where, key,
                             dump_json(json.at(key))),
                 "resume from another checkpoint");
  };
  // The library would convert 1.5 and true to integers.
  const auto read_count = [&](const char* key, std::int64_t& count) {
    const Json& value = json.at(key);
    if (!value.is_number_integer() || value < 1 || value > std::numeric_limits<std::int64_t>::max())
      throw damaged(key);
    value.get_to(count);
  };
  const auto read_word = [&](const char* key, const auto& meaning_of, auto& meaning) {
    const auto found = meaning_of(json.at(key).get<std::string>());
    if (!found) throw damaged(key);
    meaning = *found;
  };
  try {
    read_count("chunk_tokens", r.chunk_tokens);
    read_count("page_tokens", r.page_tokens);
    read_count("head_block_rows", r.head_block_rows);
    read_word("compute", dtype_of_word, r.compute);
    read_word("kv_gradient_dtype", dtype_of_word, r.kv_gradient_dtype);
    read_word("determinism", determinism_of_word, r.determinism);
    json.at("device").get_to(r.device);
    json.at("kernels").get_to(r.kernels);
    // Older checkpoints lack them.
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
