// The optimizer's state of a stage in a save, where several processes have a shard of it each.
// Files are cut by layers: one process writes a file, and those that have a part of its tensors
// send it. Weights, which all of them have, are divided by files.
//
// All processes of a stage go through the same files in the same order: for each one calls write,
// the others send. Not thread-safe: the thread that runs the step owns it, and saves wait for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "comm/link.h"
#include "model/file_tensors.h"
#include "model/parameters.h"
#include "model/written_file.h"
#include "train/optimizer.h"
#include "train/state_columns.h"

namespace longstride {

class ShardedState {
 public:
  using Indices = std::vector<std::int64_t>;  // of tensors()

  // `link`: between the processes of the stage. All must outlive it.
  ShardedState(const ParameterSet& weights, Optimizer& optimizer, comm::Link& link);
  ShardedState(const ShardedState&) = delete;
  ShardedState& operator=(const ShardedState&) = delete;

  // Whole tensors of the whole stage. `read` is for use within write().
  TensorsToWrite tensors();

  // Files of weights, by a number that is the same in all processes.
  bool writes_weights(std::int64_t file) const { return file % link_.size() == link_.rank(); }
  // Whether this process names the weights of the stage to the others.
  bool lists_weights() const { return link_.rank() == 0; }

  // Whether this process writes the file of these tensors: it has the beginning of the first.
  bool writes(const Indices& file) const;
  // Calls `write_file`, which reads every one of the tensors once, as a safetensors file orders
  // them. If it throws, what the others send is taken all the same.
  WrittenFile write(const Indices& file, const std::function<WrittenFile()>& write_file);
  void send(const Indices& file);

 private:
  // Bytes of a tensor that one process has.
  struct Part {
    int rank = 0;
    std::int64_t bytes = 0;
  };
  std::vector<Part> parts_of(std::int64_t tensor) const;
  // As the file has them.
  Indices in_order(Indices file) const;
  void read(std::int64_t tensor, const ByteSink& sink);
  void receive(const Part& part, const ByteSink& sink);
  void send_part(const StateTensor& tensor, int to);

  const ParameterSet& weights_;
  Optimizer& optimizer_;
  comm::Link& link_;
  std::vector<StateTensor> tensors_;
  // By process and parameter: elements that it has.
  std::vector<std::vector<std::int64_t>> elements_;
  // Of the file that is written: what has yet to come, the next one last.
  std::vector<Part> coming_;
  std::vector<std::byte> buffer_;
};

}  // namespace longstride
