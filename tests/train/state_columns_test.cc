// Columns other than AdamW's are laid out, cut, moved to host and disk and back without changing a
// bit. Arithmetic on them is not tested.
#include "train/state_columns.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "tests/data/temp_directory.h"
#include "tests/train/optimizer_fixture.h"
#include "train/state_slices.h"

namespace longstride {
namespace {

// Smaller parameters have other columns.
constexpr std::int64_t kSmall = 700;

// A moment in BF16, one in 8 bits with a scale for every 256 elements or else in F32, and a master.
StateColumns small_columns() {
  return {{.name = "moment", .what = "moments", .dtype = DType::kBF16},
          {.name = "second", .what = "small moments", .below = kSmall},
          {.name = "second", .what = "coarse moments", .dtype = DType::kU8, .from = kSmall},
          {.name = "scale", .what = "scales", .dtype = DType::kF32, .block = 256, .from = kSmall},
          {.name = "master", .what = "masters"}};
}

std::vector<ParameterSpec> some_frozen() {
  std::vector<ParameterSpec> specs = parameter_specs(optimizer_model(), DType::kBF16);
  for (std::size_t i = 2; i < specs.size(); i += 5) specs[i].trainable = false;
  return specs;
}

// Expected value `i` of a parameter's column in a round.
std::byte byte_at(std::int64_t round, std::int64_t column, std::int64_t parameter, std::int64_t i) {
  return static_cast<std::byte>((round * 101 + column * 31 + parameter * 7 + i * 13 + i / 251) %
                                256);
}

std::string expected(std::int64_t round, std::int64_t column, std::int64_t parameter,
                     std::int64_t bytes) {
  std::string text;
  for (std::int64_t i = 0; i < bytes; ++i)
    text.push_back(static_cast<char>(byte_at(round, column, parameter, i)));
  return text;
}

std::string read(OptimizerState& state, std::int64_t column, std::int64_t parameter) {
  std::string text;
  state.read(column, parameter, [&](std::span<const std::byte> bytes) {
    text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
  return text;
}

// A visitor that checks the bytes of one round and writes those of the next.
OptimizerState::Visitor next_round(const std::vector<ParameterSpec>& specs,
                                   const StateColumns& columns, std::int64_t round) {
  return [&specs, &columns, round](const StateSegment& segment) {
    for (std::size_t c = 0; c < columns.size(); ++c) {
      const View& view = segment.columns[c];
      const ParameterSpec& spec = specs[static_cast<std::size_t>(segment.parameter)];
      ASSERT_EQ(view.present(), columns[c].has(spec));
      if (!view.present()) continue;
      ASSERT_EQ(view.dtype(), columns[c].dtype);
      ASSERT_EQ(segment.first % columns[c].block, 0);
      ASSERT_EQ(view.shape(), Shape({columns[c].values(segment.elements)}));
      ASSERT_EQ(reinterpret_cast<std::uintptr_t>(view.data()) % 16, 0u);
      auto* data = static_cast<std::byte*>(view.data());
      const std::int64_t from = columns[c].bytes(segment.first);
      for (std::int64_t i = 0; i < view.bytes(); ++i) {
        const auto column = static_cast<std::int64_t>(c);
        const std::byte before =
            round == 0 ? std::byte{0} : byte_at(round, column, segment.parameter, from + i);
        ASSERT_EQ(data[i], before);
        data[i] = byte_at(round + 1, column, segment.parameter, from + i);
      }
    }
  };
}

TEST(StateColumns, AreCutAtWholeBlocks) {
  EXPECT_EQ(cut_alignment(adamw_columns(parameter_specs(optimizer_model()), {})), 64);
  const StateColumns columns = small_columns();
  const std::int64_t alignment = cut_alignment(columns);
  EXPECT_EQ(alignment, 1024);
  const std::vector<ParameterSpec> specs = some_frozen();
  for (const std::int64_t slice : {1024, 3072, 1 << 20, 0}) {
    const StateSlices cut = cut_state(specs, columns, slice);
    std::vector<std::int64_t> seen(specs.size());
    for (std::int64_t s = 0; s < cut.size(); ++s) {
      EXPECT_LE(cut.bytes(s), cut.slice_bytes);
      for (const StatePiece& piece : cut[s].pieces) {
        std::int64_t& at = seen[static_cast<std::size_t>(piece.parameter)];
        EXPECT_EQ(piece.first, at);
        EXPECT_EQ(piece.first % alignment, 0);
        at += piece.elements;
        for (std::int64_t c = 0; c < std::ssize(columns); ++c) {
          EXPECT_EQ(cut.column_begin(s, c) % 256, 0);
          ASSERT_EQ(piece.has(c),
                    cut.column(c).has(specs[static_cast<std::size_t>(piece.parameter)]));
          if (!piece.has(c)) continue;
          EXPECT_EQ(cut.offset(s, c, piece) % 16, 0);
          EXPECT_LE(cut.offset(s, c, piece) + cut.column(c).bytes(piece.elements),
                    cut.column_begin(s, c + 1));
        }
      }
    }
    for (std::size_t i = 0; i < specs.size(); ++i) {
      EXPECT_EQ(seen[i], specs[i].trainable ? specs[i].shape.elements() : 0);
      EXPECT_EQ(cut.first_slice[i] >= 0, specs[i].trainable);
    }
  }
  EXPECT_THROW(cut_state(specs, columns, 64), InternalError);
}

TEST(StateColumns, GiveTheTensorsOfACheckpoint) {
  const std::vector<ParameterSpec> specs = some_frozen();
  const std::vector<StateTensor> tensors = state_tensors(specs, small_columns());
  std::size_t at = 0;
  for (const StateColumn& column : small_columns())
    for (std::size_t i = 0; i < specs.size(); ++i) {
      if (!column.has(specs[i])) continue;
      ASSERT_LT(at, tensors.size());
      const StateTensor& tensor = tensors[at++];
      const std::int64_t elements = specs[i].shape.elements();
      EXPECT_EQ(tensor.tensor.name, column.name + "." + specs[i].name);
      EXPECT_EQ(tensor.tensor.dtype, column.dtype);
      EXPECT_EQ(tensor.tensor.shape,
                column.block == 1 ? specs[i].shape : Shape({(elements + 255) / 256}));
      EXPECT_EQ(tensor.parameter, static_cast<std::int64_t>(i));
      EXPECT_EQ(tensor.bytes(), column.bytes(elements));
    }
  EXPECT_EQ(at, tensors.size());
  // Both kinds of parameters are there, and no two tensors have one name.
  std::set<std::string> names;
  std::set<std::int64_t> used;
  for (const StateTensor& tensor : tensors) {
    names.insert(tensor.tensor.name);
    used.insert(tensor.column);
  }
  EXPECT_EQ(names.size(), tensors.size());
  EXPECT_EQ(used.size(), small_columns().size());
}

TEST(StateColumns, GoToHostAndDiskAndComeBack) {
  const TempDirectory disk;
  const auto device = make_cpu_device();
  const std::vector<ParameterSpec> specs = some_frozen();
  const StateColumns columns = small_columns();
  const std::vector<StateTensor> tensors = state_tensors(specs, columns);
  std::vector<StateOptions> places = {StateOptions{}};
  for (const std::int64_t slice : {1024, 3072, 1 << 20, 0}) {
    places.push_back(on_host(slice));
    places.push_back(on_disk(disk.path(), slice));
    StateOptions half = on_disk(disk.path(), slice);
    half.host_bytes = optimizer_state_bytes(specs, columns, half).host +
                      optimizer_state_bytes(specs, columns, on_host(slice)).host / 2;
    places.push_back(half);
  }
  for (const StateOptions& place : places) {
    const StateBytes needed = optimizer_state_bytes(specs, columns, place);
    const std::int64_t before = device->allocated_bytes();
    const auto state = make_optimizer_state(*device, specs, columns, place);
    EXPECT_EQ(device->allocated_bytes() - before, needed.device + needed.host);
    EXPECT_EQ(state->bytes().device, needed.device);
    EXPECT_EQ(state->bytes().host, needed.host);
    EXPECT_EQ(state->bytes().disk, needed.disk);
    const auto holds = [&](std::int64_t round) {
      for (const StateTensor& t : tensors)
        if (read(*state, t.column, t.parameter) !=
            expected(round, t.column, t.parameter, t.bytes()))
          return false;
      return true;
    };
    state->start(next_round(specs, columns, 0));
    EXPECT_TRUE(holds(1));
    state->visit(next_round(specs, columns, 1));
    state->visit(next_round(specs, columns, 2));
    EXPECT_TRUE(holds(3));
    std::string held;
    state->load([&](std::int64_t column, std::int64_t parameter) {
      const std::int64_t elements = specs[static_cast<std::size_t>(parameter)].shape.elements();
      held =
          expected(5, column, parameter, columns[static_cast<std::size_t>(column)].bytes(elements));
      return std::as_bytes(std::span<const char>(held));
    });
    EXPECT_TRUE(holds(5));
    state->visit(next_round(specs, columns, 5));
    EXPECT_TRUE(holds(6));
    if (!state->on_device()) continue;
    for (const StateTensor& t : tensors) {
      std::string text(static_cast<std::size_t>(t.bytes()), '\0');
      state->copy_out(t.column, t.parameter, 0, std::as_writable_bytes(std::span<char>(text)));
      EXPECT_EQ(text, expected(6, t.column, t.parameter, t.bytes()));
    }
  }
}

}  // namespace
}  // namespace longstride
