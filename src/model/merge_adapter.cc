#include "model/merge_adapter.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/thread_pool.h"
#include "model/host_values.h"
#include "ops/linear.h"

namespace longstride {
namespace {

constexpr const char* kEmbeddingName = "model.embed_tokens.weight";
constexpr const char* kHeadName = "lm_head.weight";
constexpr std::int64_t kBlockElements = std::int64_t{4} << 20;

// Where a tensor of the result comes from.
struct Source {
  std::string name;                      // of the model's tensor
  const AdapterTensor* whole = nullptr;  // replaces it
  const AdapterTensor *a = nullptr, *b = nullptr;
};

// A module's A and B as the product wants them.
struct Factors {
  std::vector<float> a_RI, b_OR;
  std::int64_t rank = 0, in = 0;
};

class Merger {
 public:
  Merger(const ModelDirectory& model, const AdapterDirectory& adapter, Device& host,
         std::vector<Source> sources)
      : model_(model), adapter_(adapter), host_(host), sources_(std::move(sources)) {
    LS_CHECK(host.shares_host_memory(), "{} cannot compute on host memory", host.name());
  }

  void read(std::int64_t index, const ByteSink& sink) {
    const Source& source = sources_[static_cast<std::size_t>(index)];
    const SafetensorsReader& reader = source.whole != nullptr ? adapter_.reader() : model_.reader();
    const std::string& name = source.whole != nullptr ? source.whole->name : source.name;
    const DType from = *reader.info(name).dtype, to = *model_.reader().info(source.name).dtype;
    const std::vector<std::int64_t>& shape = reader.info(name).shape;
    const std::int64_t rows = shape.front(), width = shape.size() > 1 ? shape[1] : 1;
    const std::int64_t block = std::max<std::int64_t>(1, kBlockElements / width);
    Factors factors;
    if (source.a != nullptr)
      factors = {adapter_.floats(*source.a), adapter_.floats(*source.b), adapter_.config().rank,
                 width};
    for (std::int64_t row = 0; row < rows; row += block) {
      const std::int64_t count = std::min(block, rows - row) * width;
      const std::byte* bytes = reader.bytes(name).data() + row * width * size_of(from);
      if (const std::int64_t bad = first_nonfinite(bytes, from, count); bad >= 0)
        refuse_value(bytes + bad * size_of(from), from, reader.file_of(name).string(), name);
      product_.resize(static_cast<std::size_t>(count));
      if (source.a != nullptr) compute_product(factors, row, count / width);
      rounded_.resize(static_cast<std::size_t>(count * size_of(to)));
      round_sum(bytes, from, source.a != nullptr, to, count);
      if (first_nonfinite(rounded_.data(), to, count) >= 0)
        throw Error(fmt::format("{}: the merged {} has values beyond those of {}",
                                adapter_.path().string(), source.name, name_of(to)),
                    "the adapter is broken, or its values need a model stored as F32 or BF16");
      sink(rounded_);
    }
  }

 private:
  [[noreturn]] static void refuse_value(const std::byte* bytes, DType dtype,
                                        const std::string& file, const std::string& name) {
    float value = 0;
    load_floats(bytes, dtype, {&value, 1});
    throw Error(fmt::format("{}: tensor {} holds {}", file, name, value),
                "the weights are broken; get the model again");
  }

  // B*A, for `rows` rows of W from `first` on.
  void compute_product(Factors& f, std::int64_t first, std::int64_t rows) {
    ops::linear_backward(host_.stream(),
                         {.dy_RO = {f.b_OR.data() + first * f.rank, DType::kF32, {rows, f.rank}},
                          .w_OI = {f.a_RI.data(), DType::kF32, {f.rank, f.in}},
                          .dx_RI = {product_.data(), DType::kF32, {rows, f.in}}});
    host_.stream().synchronize();
  }

  // Rounds the values at `bytes`, plus scale times the product if `adds`.
  void round_sum(const std::byte* bytes, DType from, bool adds, DType to, std::int64_t count) {
    constexpr std::int64_t kPiece = std::int64_t{1} << 16;
    const auto scale = static_cast<float>(adapter_.config().scale());
    parallel_for((count + kPiece - 1) / kPiece, [&](std::int64_t piece) {
      const std::int64_t begin = piece * kPiece, n = std::min(kPiece, count - begin);
      std::vector<float> values(static_cast<std::size_t>(n));
      load_floats(bytes + begin * size_of(from), from, values);
      if (adds)
        for (std::size_t i = 0; i < values.size(); ++i)
          values[i] += scale * product_[static_cast<std::size_t>(begin) + i];
      store_floats(values, to, rounded_.data() + begin * size_of(to));
    });
  }

  const ModelDirectory& model_;
  const AdapterDirectory& adapter_;
  Device& host_;
  std::vector<Source> sources_;
  std::vector<float> product_;
  std::vector<std::byte> rounded_;
};

// "model.layers.0.self_attn.q_proj.weight" -> "model.layers.0.self_attn.q_proj.lora_A.weight".
std::string factor_name(const std::string& weight, char part) {
  return fmt::format("{}.lora_{}.weight", weight.substr(0, weight.rfind('.')), part);
}

}  // namespace

std::int64_t MergedModel::bytes() const {
  std::int64_t sum = 0;
  for (const TensorToWrite& t : weights.tensors) sum += t.shape.elements() * size_of(t.dtype);
  return sum;
}

MergedModel merge(const ModelDirectory& model, const AdapterDirectory& adapter, Device& host) {
  MergedModel merged{model.config(), {}};
  std::vector<Source> sources;
  const std::vector<ParameterSpec> specs = model.specs();
  for (const FileTensor& tensor : file_tensors(specs)) {
    Source source{.name = tensor.name, .whole = adapter.find(tensor.name)};
    if (tensor.name.ends_with(".weight")) {
      source.a = adapter.find(factor_name(tensor.name, 'A'));
      source.b = adapter.find(factor_name(tensor.name, 'B'));
    }
    sources.push_back(source);
    merged.weights.tensors.push_back(
        {tensor.name, specs[static_cast<std::size_t>(tensor.first)].dtype, tensor.shape});
  }
  const AdapterTensor *embedding = adapter.find(kEmbeddingName), *head = adapter.find(kHeadName);
  const bool apart = (embedding != nullptr || head != nullptr) && !adapter.config().tie_weights;
  if (model.config().tied_embeddings && apart) {
    // The head is what the embedding was, or its own tensor.
    const TensorToWrite& table = merged.weights.tensors.front();
    LS_CHECK(table.name == kEmbeddingName, "{}", table.name);
    merged.weights.tensors.push_back({kHeadName, table.dtype, table.shape});
    sources.push_back({.name = kEmbeddingName, .whole = head});
    merged.config.tied_embeddings = false;
    merged.config.raw["tie_word_embeddings"] = false;
  }
  const auto merger = std::make_shared<Merger>(model, adapter, host, std::move(sources));
  merged.weights.read = [merger](std::int64_t i, const ByteSink& sink) { merger->read(i, sink); };
  return merged;
}

}  // namespace longstride
