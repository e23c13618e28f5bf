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

// What a rank has done, as text for the others. An error is told by `error`.
OrderedJson report_of(const std::function<void(OrderedJson&)>& work) {
  OrderedJson report = OrderedJson::object();
  try {
    work(report);
  } catch (const comm::RankFailed&) {
    throw;
  } catch (const Error& e) {
    report = {{"error", e.what()}, {"hint", e.hint()}};
  } catch (const std::exception& e) {
    report = {{"error", fmt::format("could not be saved: {}", e.what())},
              {"hint", "earlier saves are untouched; choose another checkpoint.directory"}};
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

// The tensors of all ranks on rank 0. Adapters are small.
TensorsToWrite collect(comm::MessageLink& link, const std::vector<Held>& all,
                       const TensorsToWrite& mine) {
  const auto bytes_of = [&](std::int64_t index) {
    std::vector<std::byte> bytes;
    mine.read(index, [&](std::span<const std::byte> piece) {
      bytes.insert(bytes.end(), piece.begin(), piece.end());
    });
    return bytes;
  };
  TensorsToWrite collected;
  std::vector<std::vector<std::byte>> values;
  for (const Held& held : all) {
    std::vector<std::byte> bytes;
    if (held.rank == link.rank()) bytes = bytes_of(held.index);
    if (link.rank() != 0) {
      if (held.rank == link.rank()) link.wait(link.start_send(0, bytes, comm::Traffic::kControl));
      continue;
    }
    if (held.rank != 0) {
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

// The files of this rank's layers.
void write_own(const fs::path& directory, const CheckpointContents& mine, OrderedJson& report) {
  const std::int64_t layers = mine.config.layers;
  const TensorsToWrite &weights = mine.tensors.weights, &state = mine.tensors.state;
  std::vector<WrittenFile> files;
  if (mine.adapter == nullptr)
    for (const auto& [number, indices] : by_file(weights, layers))
      if (mine.shards == nullptr || mine.shards->writes_weights(number))
        files.push_back(write_safetensors_part(directory / part_name("model", number, layers),
                                               weights.tensors, indices, finite_weights(weights)));
  for (const auto& [number, indices] : by_file(state, layers)) {
    const auto write = [&, &number = number, &indices = indices] {
      return write_optimizer_file(directory, part_name("optimizer", number, layers), state,
                                  indices);
    };
    if (mine.shards == nullptr)
      files.push_back(write());
    else if (mine.shards->writes(indices))
      files.push_back(mine.shards->write(indices, write));
    else
      mine.shards->send(indices);
  }
  add_files(report, files);
  add_tensors(report,
              mine.shards == nullptr || mine.shards->lists_weights() ? weights : TensorsToWrite());
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

fs::path save_on_ranks(comm::MessageLink& link, const fs::path& root,
                       const CheckpointContents& mine,
                       const std::vector<ParameterSpec>& parameters) {
  fs::path target = checkpoint_path(root, mine.state.step);
  const bool first = link.rank() == 0;
  std::optional<DirectoryWriter> writer;  // of rank 0; removes what is not committed
  const OrderedJson begun =
      OrderedJson::parse(comm::share_text(link, 0, dump_json(report_of([&](OrderedJson& report) {
                                            if (!first) return;
                                            make_writable_directory(root);
                                            writer.emplace(target);
                                            make_state_directory(writer->path());
                                            report["path"] = writer->path().string();
                                          }))));
  throw_error(begun);
  const fs::path directory = begun.at("path").get<std::string>();
  const std::vector<OrderedJson> reports = gather_reports(
      link, report_of([&](OrderedJson& report) { write_own(directory, mine, report); }));
  const std::vector<Held> all = tensors_of(reports, parameters);
  TensorsToWrite collected;
  if (mine.adapter != nullptr) collected = collect(link, all, mine.tensors.weights);
  const OrderedJson ended = OrderedJson::parse(comm::share_text(
      link, 0, dump_json(report_of([&](OrderedJson&) {
        if (!first) return;
        std::vector<WrittenFile> files = files_of(reports);
        for (WrittenFile& file : write_common(directory, mine, reports, all, std::move(collected)))
          files.push_back(std::move(file));
        std::ranges::sort(files, {}, &WrittenFile::name);
        write_state_file(directory, mine.state, files);
        writer->commit();
      }))));
  throw_error(ended);
  return target;
}

}  // namespace longstride
