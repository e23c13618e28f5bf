#include "schedule/numerics.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "tensor/dtype_words.h"

namespace longstride {
namespace {

std::string_view word_of(Determinism d) { return d == Determinism::kExact ? "exact" : "fast"; }

std::string_view word_of(Scoring s) {
  switch (s) {
    case Scoring::kMass:
      return "mass";
    case Scoring::kFocus:
      return "focus";
    case Scoring::kOomb:
      return "oomb";
  }
  return "";
}

std::string_view word_of(Summary s) { return s == Summary::kMeans ? "means" : "outliers"; }

}  // namespace

std::optional<Determinism> determinism_of_word(std::string_view word) {
  for (const Determinism d : {Determinism::kExact, Determinism::kFast})
    if (word_of(d) == word) return d;
  return std::nullopt;
}

std::optional<Scoring> scoring_of_word(std::string_view word) {
  for (const Scoring s : {Scoring::kMass, Scoring::kFocus, Scoring::kOomb})
    if (word_of(s) == word) return s;
  return std::nullopt;
}

std::optional<Summary> summary_of_word(std::string_view word) {
  for (const Summary s : {Summary::kMeans, Summary::kOutliers})
    if (word_of(s) == word) return s;
  return std::nullopt;
}

OrderedJson to_json(const SparseLayers& sparse) {
  const Selection& s = sparse.selection;
  return {{"budgets", sparse.budgets},
          {"sinks", s.sinks},
          {"recent", s.recent},
          {"union_pages", s.union_pages},
          {"summary", word_of(s.summary)},
          {"summary_tokens", s.summary_tokens},
          {"scoring", word_of(s.scoring)}};
}

SparseLayers sparse_layers_from(const Json& json) {
  SparseLayers sparse;
  const auto read = [](const Json& value, std::int64_t least, std::int64_t& into) {
    // The library would convert 1.5 and true to integers.
    if (!value.is_number_integer() || value < least ||
        value > std::numeric_limits<std::int64_t>::max())
      throw Error(fmt::format("the settings of sparse attention contain {}", dump_json(value)), "");
    value.get_to(into);
  };
  for (const Json& budget : json.at("budgets"))
    read(budget, SparseLayers::kNone, sparse.budgets.emplace_back());
  Selection& s = sparse.selection;
  read(json.at("sinks"), 0, s.sinks);
  read(json.at("recent"), 0, s.recent);
  read(json.at("union_pages"), 0, s.union_pages);
  read(json.at("summary_tokens"), 1, s.summary_tokens);
  const auto scoring = scoring_of_word(json.at("scoring").get<std::string>());
  if (!scoring) throw Error(fmt::format("the scoring is {}", dump_json(json.at("scoring"))), "");
  s.scoring = *scoring;
  // Records without it are older than outliers.
  s.summary = Summary::kMeans;
  if (!json.contains("summary")) return sparse;
  const auto summary = summary_of_word(json.at("summary").get<std::string>());
  if (!summary) throw Error(fmt::format("the summary is {}", dump_json(json.at("summary"))), "");
  s.summary = *summary;
  return sparse;
}

void NumericsRecord::set_pages(std::vector<PageTypes> layers) {
  const PageTypes first = layers.at(0);
  kv_codes = is_page_code(first.kv) ? std::optional(first.kv) : std::nullopt;
  kv_gradient_dtype = first.gradients;
  if (std::ranges::all_of(layers, [&](const PageTypes& types) { return types == first; }))
    layers.clear();
  layer_pages = std::move(layers);
}

bool NumericsRecord::any_kv_coded() const {
  return kv_codes || std::ranges::any_of(layer_pages, [](const PageTypes& types) {
           return is_page_code(types.kv);
         });
}

namespace {

// The keys of layers' types, for keys and values and for gradients.
constexpr const char* kLayerKeys[] = {"kv_dtypes", "kv_gradient_dtypes"};

OrderedJson words_of(const std::vector<PageTypes>& layers, bool gradients) {
  OrderedJson words = OrderedJson::array();
  for (const PageTypes& types : layers) words.push_back(word_of_pages(types.of(gradients)));
  return words;
}

// Types of layers by their words; nothing if there are none, and Error if they make no sense.
std::vector<PageTypes> layer_pages_from(const Json& json) {
  std::vector<PageTypes> layers;
  if (!json.contains(kLayerKeys[0]) && !json.contains(kLayerKeys[1])) return layers;
  const Json &kv = json.at(kLayerKeys[0]), &gradients = json.at(kLayerKeys[1]);
  if (kv.size() != gradients.size() || kv.empty())
    throw Error(fmt::format("{} and {} are lists of {} and {}", kLayerKeys[0], kLayerKeys[1],
                            kv.size(), gradients.size()),
                "");
  for (std::size_t l = 0; l < kv.size(); ++l) {
    const std::optional<DType> of_kv = gradient_page_type_of_word(kv.at(l).get<std::string>()),
                               of_gradients =
                                   gradient_page_type_of_word(gradients.at(l).get<std::string>());
    if (!of_kv || !of_gradients)
      throw Error(fmt::format("the pages of layer {} are {} and {}", l, dump_json(kv.at(l)),
                              dump_json(gradients.at(l))),
                  "");
    layers.push_back({*of_kv, *of_gradients});
  }
  return layers;
}

}  // namespace

OrderedJson to_json(const NumericsRecord& r) {
  OrderedJson json = {{"chunk_tokens", r.chunk_tokens},
                      {"page_tokens", r.page_tokens},
                      {"head_block_rows", r.head_block_rows},
                      {"compute", word_of(r.compute)},
                      {"kv_gradient_dtype", word_of_pages(r.kv_gradient_dtype)},
                      {"determinism", word_of(r.determinism)},
                      {"device", r.device},
                      {"kernels", r.kernels},
                      {"choices", r.choices}};
  if (r.kv_codes) json["kv_dtype"] = word_of_pages(*r.kv_codes);
  for (const bool gradients : {false, true})
    if (!r.layer_pages.empty()) json[kLayerKeys[gradients]] = words_of(r.layer_pages, gradients);
  if (r.any_kv_coded()) json["kv_centred"] = true;
  if (r.hot_pages > 0) json["hot_pages"] = r.hot_pages;
  if (r.sparse.any()) json["sparse"] = to_json(r.sparse);
  if (!r.quantize.empty()) json["quantize"] = r.quantize;
  if (r.tied_apart) json["tied_apart"] = true;
  if (r.data_groups > 1) json["data_groups"] = r.data_groups;
  return json;
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
    read_word("kv_gradient_dtype", gradient_page_type_of_word, r.kv_gradient_dtype);
    read_word("determinism", determinism_of_word, r.determinism);
    json.at("device").get_to(r.device);
    json.at("kernels").get_to(r.kernels);
    // Older checkpoints lack them.
    if (json.contains("choices")) json.at("choices").get_to(r.choices);
    if (json.contains("kv_dtype")) read_word("kv_dtype", page_code_of_word, r.kv_codes);
    r.layer_pages = layer_pages_from(json);
    if (json.contains("hot_pages")) read_count("hot_pages", r.hot_pages);
    if (r.any_kv_coded() && !json.value("kv_centred", false))
      throw Error(
          fmt::format("{}: its pages in 8 bits have a form that this version does not have", where),
          "go on with the version that made it, or begin a new run with its weights");
    if (json.contains("quantize")) json.at("quantize").get_to(r.quantize);
    if (json.contains("tied_apart")) json.at("tied_apart").get_to(r.tied_apart);
    if (json.contains("data_groups")) read_count("data_groups", r.data_groups);
    if (json.contains("sparse")) r.sparse = sparse_layers_from(json.at("sparse"));
  } catch (const Json::exception& e) {
    throw Error(fmt::format("{}: the numerics record is damaged: {}", where, e.what()),
                "resume from another checkpoint");
  } catch (const Error& e) {
    if (!e.hint().empty()) throw;
    throw Error(fmt::format("{}: the numerics record is damaged: {}", where, e.what()),
                "resume from another checkpoint");
  }
  return r;
}

std::string describe_difference(const NumericsRecord& here, const NumericsRecord& there) {
  const OrderedJson a = to_json(here), b = to_json(there);
  std::string text;
  const auto value_in = [](const OrderedJson& json, const std::string& key) {
    return json.contains(key) ? dump_json(json.at(key)) : std::string("none");
  };
  const auto compare = [&](const std::string& key) {
    if (const std::string x = value_in(a, key), y = value_in(b, key); x != y)
      text += fmt::format("{}{}: {} here, {} there", text.empty() ? "" : "; ", key, x, y);
  };
  for (const auto& [key, value] : a.items())
    if (key != "choices") compare(key);
  for (const char* key : {"kv_dtype", kLayerKeys[0], kLayerKeys[1], "kv_centred", "hot_pages",
                          "sparse", "quantize", "tied_apart", "data_groups"})
    if (!a.contains(key)) compare(key);
  return text;
}

}  // namespace longstride
