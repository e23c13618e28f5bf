#include "model/load_weights.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/read_ahead.h"
#include "base/thread_pool.h"
#include "model/bitsandbytes_tensors.h"
#include "model/fold_adapters.h"
#include "model/host_values.h"
#include "model/weight_quantizer.h"

namespace longstride {
namespace {

constexpr std::int64_t kPieceElements = std::int64_t{1} << 18;
constexpr std::int64_t kBatchBytes = std::int64_t{24} << 20;  // of one staging buffer
constexpr std::int64_t kAlignment = 64;
// Read-ahead distance: about 80 ms of a fast disk.
constexpr std::int64_t kAheadBytes = std::int64_t{256} << 20;

// Contiguous elements of one parameter: the unit of work of a thread.
struct Piece {
  std::int64_t parameter = 0, first = 0, count = 0;  // elements
  std::span<const std::byte> source;
  DType dtype = DType::kF32;  // of the source
  bool converts = false;      // to F32
  std::byte* to = nullptr;    // on the device
  std::int64_t bytes = 0;     // on the device
  std::int64_t staged = 0;    // offset in its buffer
  std::int64_t bad = -1;      // the first element that is not finite
};

// Of parameter `i`, into `to`; offsets in buffers are assigned later.
void cut(const SafetensorsReader& reader, const ParameterSpec& spec, std::int64_t i, const View& to,
         std::vector<Piece>& pieces) {
  const std::string& name = spec.source.empty() ? spec.file_name() : spec.source;
  const DType dtype = *reader.info(name).dtype;
  std::span<const std::byte> source = reader.bytes(name);
  if (spec.part)
    source =
        source.subspan(static_cast<std::size_t>(spec.part->first * spec.shape[1] * size_of(dtype)),
                       static_cast<std::size_t>(to.elements() * size_of(dtype)));
  LS_CHECK(to.dtype() == dtype || to.dtype() == DType::kF32, "{} from {} into {}", name,
           name_of(dtype), name_of(to.dtype()));
  LS_CHECK(std::ssize(source) == to.elements() * size_of(dtype), "{}: {} bytes for {}", name,
           source.size(), to.shape().to_string());
  for (std::int64_t first = 0; first < to.elements(); first += kPieceElements) {
    const std::int64_t count = std::min(kPieceElements, to.elements() - first);
    pieces.push_back({.parameter = i,
                      .first = first,
                      .count = count,
                      .source = source.subspan(static_cast<std::size_t>(first * size_of(dtype)),
                                               static_cast<std::size_t>(count * size_of(dtype))),
                      .dtype = dtype,
                      .converts = to.dtype() != dtype,
                      .to = static_cast<std::byte*>(to.data()) + first * size_of(to.dtype()),
                      .bytes = count * size_of(to.dtype())});
  }
}

// Pieces [begin, end) that fit into a buffer, one after another.
std::size_t fill_buffer(std::span<Piece> pieces, std::size_t begin) {
  std::int64_t used = 0;
  std::size_t end = begin;
  for (; end < pieces.size() && used + pieces[end].bytes <= kBatchBytes; ++end) {
    pieces[end].staged = used;
    used += (pieces[end].bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  return end;
}

void stage(Piece& piece, std::byte* to) {
  piece.bad = first_nonfinite(piece.source.data(), piece.dtype, piece.count);
  if (piece.converts)
    load_floats(piece.source.data(), piece.dtype,
                {reinterpret_cast<float*>(to), static_cast<std::size_t>(piece.count)});
  else
    std::memcpy(to, piece.source.data(), piece.source.size());
}

void refuse_bad(const SafetensorsReader& reader, const ParameterSet& parameters,
                std::span<const Piece> pieces) {
  const auto bad = std::ranges::find_if(pieces, [](const Piece& p) { return p.bad >= 0; });
  if (bad == pieces.end()) return;
  const ParameterSpec& spec = parameters.specs()[static_cast<std::size_t>(bad->parameter)];
  const std::string& name = spec.file_name();
  const std::int64_t before = spec.part ? spec.part->first * spec.shape[1] : 0;
  float value = 0.0f;
  load_floats(bad->source.data() + bad->bad * size_of(bad->dtype), bad->dtype, {&value, 1});
  throw Error(fmt::format("{}: tensor {} holds {} at index {}", reader.file_of(name).string(), name,
                          value, before + bad->first + bad->bad),
              "the weights are broken; go back to a save from before they were");
}

const WaitSite kBufferAfterCopy{"weights/buffer-after-copy"};  // the buffer's last copy is done

// Two buffers: the device copies from one while threads fill the other.
class Staging {
 public:
  explicit Staging(Device& device)
      : memory_(device.allocate_host(2 * kBatchBytes, kBatchBytes, "the staging of weights")),
        mover_(device.make_mover()) {
    device.stream().synchronize();  // new memory is zeroed in stream order
  }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging() { finish_whatever_comes(*mover_); }

  // The next buffer, once the device has copied its contents.
  std::byte* next() {
    at_ = (at_ + 1) % left_.size();
    mover_->wait_on_host(left_[at_], kBufferAfterCopy);
    memory_->prepare(offset(), kBatchBytes);
    return memory_->data() + offset();
  }
  void send(std::span<const Piece> pieces) {
    copies_.clear();
    for (const Piece& piece : pieces) {
      const std::byte* from = memory_->data() + offset() + piece.staged;
      if (!copies_.empty() && copies_.back().to + copies_.back().bytes == piece.to &&
          copies_.back().from + copies_.back().bytes == from)
        copies_.back().bytes += piece.bytes;
      else
        copies_.push_back({piece.to, from, piece.bytes});
    }
    mover_->copy(Lane::kFromHost, copies_);
    left_[at_] = mover_->fence(Lane::kFromHost);
  }
  void finish() { mover_->finish(); }

 private:
  std::int64_t offset() const { return static_cast<std::int64_t>(at_) * kBatchBytes; }

  std::unique_ptr<Memory> memory_;
  std::unique_ptr<Mover> mover_;
  std::size_t at_ = 0;
  std::array<Fence, 2> left_{};
  std::vector<Mover::Copy> copies_;
};

// Reads, checks and copies pieces. Without `staging` the device shares the host's memory.
void load_pieces(const SafetensorsReader& reader, const ParameterSet& parameters,
                 std::span<Piece> pieces, std::optional<Staging>& staging) {
  std::size_t ahead = 0;
  for (std::int64_t bytes = 0; ahead < pieces.size() && bytes < kAheadBytes; ++ahead)
    bytes += std::ssize(pieces[ahead].source);
  const auto read_ahead = [&](std::size_t i) {
    if (i < pieces.size()) will_read(pieces[i].source);
  };
  parallel_for(static_cast<std::int64_t>(ahead),
               [&](std::int64_t i) { read_ahead(static_cast<std::size_t>(i)); });
  for (std::size_t begin = 0, end = 0; begin < pieces.size(); begin = end) {
    end = fill_buffer(pieces, begin);
    std::byte* const buffer = staging ? staging->next() : nullptr;
    parallel_for(static_cast<std::int64_t>(end - begin), [&](std::int64_t i) {
      const std::size_t at = begin + static_cast<std::size_t>(i);
      read_ahead(at + ahead);
      stage(pieces[at], buffer != nullptr ? buffer + pieces[at].staged : pieces[at].to);
    });
    refuse_bad(reader, parameters, pieces.subspan(begin, end - begin));
    if (staging) staging->send(pieces.subspan(begin, end - begin));
  }
  if (staging) staging->finish();
}

// Those that files hold, whose memory is as in a file.
bool is_plain(const ParameterSpec& spec) {
  return spec.tail == 0 && !spec.adapter && !spec.derived && !is_block_format(spec.dtype);
}

void load_plain(const SafetensorsReader& reader, ParameterSet& parameters,
                std::optional<Staging>& staging) {
  std::vector<Piece> pieces;
  for (std::int64_t i = 0; i < parameters.size(); ++i)
    if (const ParameterSpec& spec = parameters.specs()[static_cast<std::size_t>(i)]; is_plain(spec))
      cut(reader, spec, i, parameters.view(i), pieces);
  load_pieces(reader, parameters, pieces, staging);
}

// Weights of a block format: as they are, if the file has them so, else one at a time.
void load_quantized(const SafetensorsReader& reader, ParameterSet& parameters,
                    std::optional<Staging>& staging) {
  Device& device = parameters.device();
  WeightQuantizer quantizer(device);
  std::vector<Piece> pieces;
  for (std::int64_t i = 0; i < parameters.size(); ++i) {
    const View to = parameters.view(i);
    if (!is_block_format(to.dtype())) continue;
    const ParameterSpec& spec = parameters.specs()[static_cast<std::size_t>(i)];
    const std::string& name = spec.file_name();
    if (const std::optional<DType> format = quantized_format(reader, name)) {
      LS_CHECK(*format == to.dtype() && !spec.part, "{} from {} into {}", name, name_of(*format),
               name_of(to.dtype()));
      const std::vector<std::byte> record = read_record(reader, name, *format, to.shape());
      device.copy_from_host(to.data(), record.data(), std::ssize(record));
      continue;
    }
    pieces.clear();
    cut(reader, spec, i, quantizer.temporary(*reader.info(name).dtype, to.shape()), pieces);
    load_pieces(reader, parameters, pieces, staging);
    quantizer.quantize(to);
  }
}

}  // namespace

void load_weights(const SafetensorsReader& reader, ParameterSet& parameters) {
  std::optional<Staging> staging;
  if (!parameters.device().shares_host_memory()) staging.emplace(parameters.device());
  load_plain(reader, parameters, staging);
  load_quantized(reader, parameters, staging);
  fill_folded(parameters, [&](ParameterSet& plain, std::span<const std::int64_t>) {
    load_plain(reader, plain, staging);
  });
}

}  // namespace longstride
