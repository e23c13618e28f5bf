#include "train/rank_save.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "comm/control.h"
#include "model/file_tensors.h"
#include "train/sharded_state.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

// Number of the file that holds a tensor, from 1: the embedding, the layers, what comes after them.
// The name may be PEFT's, or that of a moment.
std::int64_t file_number(const std::string& name, std::int64_t layers) {
  constexpr std::string_view kLayers = "layers.";
  if (const auto at = name.find(kLayers); at != std::string::npos) {
    std::int64_t layer = -1;
    std::from_chars(name.data() + at + kLayers.size(), name.data() + name.size(), layer);
    if (layer >= 0 && layer < layers) return layer + 2;
  }
  return name.find("embed_tokens") != std::string::npos ? 1 : layers + 2;
}

std::map<std::int64_t, std::vector<std::int64_t>> by_file(const TensorsToWrite& tensors,
                                                          std::int64_t layers) {
  std::map<std::int64_t, std::vector<std::int64_t>> files;
  for (std::size_t i = 0; i < tensors.tensors.size(); ++i)
    files[file_number(tensors.tensors[i].name, layers)].push_back(static_cast<std::int64_t>(i));
  return files;
}

std::string part_name(const char* what, std::int64_t number, std::int64_t layers) {
  return fmt::format("{}-{:05}-of-{:05}.safetensors", what, number, layers + 2);
}

OrderedJson error_report(const std::exception_ptr& why) {
  try {
    std::rethrow_exception(why);
  } catch (const Error& e) {
    return {{"error", e.what()}, {"hint", e.hint()}};
  } catch (const std::exception& e) {
    return {{"error", fmt::format("could not be saved: {}", e.what())},
            {"hint", "earlier saves are untouched; choose another checkpoint.directory"}};
  }
}

// What a rank has done, as text for the others. An error is told by `error`.
OrderedJson report_of(const std::function<void(OrderedJson&)>& work) {
  OrderedJson report = OrderedJson::object();
  try {
    work(report);
  } catch (const comm::RankFailed&) {
    throw;
  } catch (const std::exception&) {
    report = error_report(std::current_exception());
  }
  return report;
}

void throw_error(const OrderedJson& report, const std::string& who = "") {
  if (report.contains("error"))
    throw Error(who + report["error"].get<std::string>(), report["hint"].get<std::string>());
}

// Throws the same on all ranks.
std::vector<OrderedJson> gather_reports(comm::MessageLink& link, const OrderedJson& mine) {
  std::vector<OrderedJson> all;
  for (const std::string& text : comm::gather_texts(link, dump_json(mine)))
    all.push_back(OrderedJson::parse(text));
  for (int rank = 0; rank < link.size(); ++rank)
    throw_error(all[static_cast<std::size_t>(rank)],
                fmt::format("rank {} on {}: ", rank, link.host(rank)));
  return all;
}

void add_files(OrderedJson& report, const std::vector<WrittenFile>& files) {
  OrderedJson& list = report["files"] = OrderedJson::array();
  for (const WrittenFile& file : files)
    list.push_back({{"name", file.name}, {"bytes", file.bytes}, {"checksum", file.checksum}});
}

void add_tensors(OrderedJson& report, const TensorsToWrite& weights) {
  OrderedJson& list = report["tensors"] = OrderedJson::array();
  for (const TensorToWrite& tensor : weights.tensors) {
    std::vector<std::int64_t> shape;
    for (int d = 0; d < tensor.shape.rank(); ++d) shape.push_back(tensor.shape[d]);
    list.push_back({{"name", tensor.name},
                    {"dtype", static_cast<int>(tensor.dtype)},
                    {"shape", std::move(shape)}});
  }
  if (weights.format) report["format"] = static_cast<int>(*weights.format);
}

std::vector<WrittenFile> files_of(const std::vector<OrderedJson>& reports) {
  std::vector<WrittenFile> files;
  for (const OrderedJson& report : reports)
    for (const OrderedJson& file : report.at("files"))
      files.push_back({file.at("name"), file.at("bytes"), file.at("checksum")});
  return files;
}

// A tensor of the whole model, and who has it.
struct Held {
  TensorToWrite tensor;
  int rank = 0;
  std::int64_t index = 0;   // in that rank's list
  std::int64_t number = 0;  // of its file tensor in the whole model

  std::int64_t bytes() const { return tensor.shape.elements() * size_of(tensor.dtype); }
};

std::vector<Held> tensors_of(const std::vector<OrderedJson>& reports,
                             const std::vector<ParameterSpec>& parameters) {
  std::map<std::string, std::int64_t> numbers;
  for (const FileTensor& tensor : file_tensors(parameters))
    numbers.emplace(tensor.name, std::ssize(numbers));
  std::vector<Held> all;
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    std::int64_t index = 0, number = -1;
    for (const OrderedJson& json : reports[rank].at("tensors")) {
      Shape shape;
      for (const std::int64_t d : json.at("shape").get<std::vector<std::int64_t>>())
        shape.append(d);
      const std::string name = json.at("name");
      // Parts of a quantized tensor follow it, under names of their own.
      if (const auto found = numbers.find(name); found != numbers.end()) number = found->second;
      all.push_back({{name, static_cast<DType>(json.at("dtype").get<int>()), shape},
                     static_cast<int>(rank),
                     index++,
                     number});
    }
  }
  std::ranges::stable_sort(all, {}, &Held::number);
  return all;
}

std::vector<std::byte> bytes_of(const TensorsToWrite& tensors, std::int64_t index) {
  std::vector<std::byte> bytes;
  tensors.read(index, [&](std::span<const std::byte> piece) {
    bytes.insert(bytes.end(), piece.begin(), piece.end());
  });
  return bytes;
}

// The tensors of all ranks on rank 0; `mine` are the bytes of this one's. Adapters are small.
TensorsToWrite collect(comm::MessageLink& link, const std::vector<Held>& all,
                       const std::vector<std::vector<std::byte>>& mine) {
  TensorsToWrite collected;
  std::vector<std::vector<std::byte>> values;
  for (const Held& held : all) {
    const bool has_it = held.rank == link.rank();
    if (link.rank() != 0) {
      if (has_it)
        link.wait(link.start_send(0, mine.at(static_cast<std::size_t>(held.index)),
                                  comm::Traffic::kControl));
      continue;
    }
    std::vector<std::byte> bytes;
    if (has_it) {
      bytes = mine.at(static_cast<std::size_t>(held.index));
    } else {
      bytes.resize(static_cast<std::size_t>(held.bytes()));
      link.wait(link.start_receive(held.rank, bytes, comm::Traffic::kControl));
    }
    collected.tensors.push_back(held.tensor);
    values.push_back(std::move(bytes));
  }
  collected.read = [values = std::move(values)](std::int64_t i, const ByteSink& sink) {
    sink(values[static_cast<std::size_t>(i)]);
  };
  return collected;
}

// The same tensors; `on_piece` is called before each piece of them.
TensorsToWrite watched(const TensorsToWrite& tensors, const std::function<void()>& on_piece) {
  TensorsToWrite all = tensors;
  all.read = [&tensors, &on_piece](std::int64_t i, const ByteSink& sink) {
    tensors.read(i, [&](std::span<const std::byte> piece) {
      on_piece();
      sink(piece);
    });
  };
  return all;
}

// What rank 0 writes when all have written theirs.
std::vector<WrittenFile> write_common(const fs::path& directory, const CheckpointContents& mine,
                                      const std::vector<OrderedJson>& reports,
                                      const std::vector<Held>& all, TensorsToWrite collected) {
  if (mine.adapter != nullptr)
    return write_weights(directory, mine.adapter, mine.config, {std::move(collected), {}},
                         mine.side_files);
  TensorsToWrite weights;
  std::map<std::string, std::string> file_names;
  for (const Held& held : all) {
    weights.tensors.push_back(held.tensor);
    file_names[held.tensor.name] =
        part_name("model", file_number(held.tensor.name, mine.config.layers), mine.config.layers);
  }
  for (const OrderedJson& report : reports)
    if (report.contains("format")) weights.format = static_cast<DType>(report["format"].get<int>());
  std::vector<WrittenFile> files =
      write_beside_weights(directory, mine.config, weights, mine.side_files);
  files.push_back(write_safetensors_index(directory, weights.tensors, file_names));
  return files;
}

}  // namespace

RankSave::RankSave(comm::MessageLink& link, const fs::path& root, const CheckpointContents& mine,
                   const std::vector<ParameterSpec>& parameters)
    : link_(link),
      mine_(mine),
      parameters_(parameters),
      target_(checkpoint_path(root, mine.state.step)) {
  const OrderedJson begun =
      OrderedJson::parse(comm::share_text(link, 0, dump_json(report_of([&](OrderedJson& report) {
                                            if (link.rank() != 0) return;
                                            make_writable_directory(root);
                                            writer_.emplace(target_);
                                            make_state_directory(writer_->path());
                                            report["path"] = writer_->path().string();
                                          }))));
  throw_error(begun);
  directory_ = begun.at("path").get<std::string>();
}

void RankSave::write(const std::function<void()>& on_piece) {
  report_ = report_of([&](OrderedJson& report) {
    const TensorsToWrite weights = watched(mine_.tensors.weights, on_piece),
                         state = watched(mine_.tensors.state, on_piece);
    const std::int64_t layers = mine_.config.layers;
    ShardedState* shards = mine_.shards;
    const bool lists_weights = shards == nullptr || shards->lists_weights();
    std::vector<WrittenFile> files;
    if (mine_.adapter == nullptr)
      for (const auto& [number, indices] : by_file(weights, layers)) {
        if (shards != nullptr && !shards->writes_weights(number)) continue;
        files.push_back(write_safetensors_part(directory_ / part_name("model", number, layers),
                                               weights.tensors, indices, finite_weights(weights)));
      }
    else if (lists_weights)
      for (std::int64_t i = 0; i < std::ssize(weights.tensors); ++i)
        adapters_.push_back(bytes_of(weights, i));
    for (const auto& [number, indices] : by_file(state, layers)) {
      const auto write_file = [&, &number = number, &indices = indices] {
        return write_optimizer_file(directory_, part_name("optimizer", number, layers), state,
                                    indices);
      };
      if (shards == nullptr)
        files.push_back(write_file());
      else if (shards->writes(indices))
        files.push_back(shards->write(indices, write_file));
      else
        shards->send(indices);
    }
    add_files(report, files);
    add_tensors(report, lists_weights ? weights : TensorsToWrite());
  });
}

void RankSave::fail(const std::exception_ptr& why) { report_ = error_report(why); }

fs::path RankSave::commit() {
  const std::vector<OrderedJson> reports = gather_reports(link_, report_);
  const std::vector<Held> all = tensors_of(reports, parameters_);
  TensorsToWrite collected;
  if (mine_.adapter != nullptr) collected = collect(link_, all, adapters_);
  const OrderedJson ended = OrderedJson::parse(
      comm::share_text(link_, 0, dump_json(report_of([&](OrderedJson&) {
                         if (link_.rank() != 0) return;
                         std::vector<WrittenFile> files = files_of(reports);
                         for (WrittenFile& file :
                              write_common(directory_, mine_, reports, all, std::move(collected)))
                           files.push_back(std::move(file));
                         std::ranges::sort(files, {}, &WrittenFile::name);
                         write_state_file(directory_, mine_.state, files);
                         writer_->commit();
                       }))));
  throw_error(ended);
  return target_;
}

fs::path save_on_ranks(comm::MessageLink& link, const fs::path& root,
                       const CheckpointContents& mine,
                       const std::vector<ParameterSpec>& parameters) {
  RankSave save(link, root, mine, parameters);
  save.write([&] { link.progressed(); });
  return save.commit();
}

}  // namespace longstride
