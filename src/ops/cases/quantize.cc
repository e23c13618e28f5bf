#include "ops/quantize.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops/cases/registry.h"
#include "tensor/block_formats.h"
#include "tensor/dynamic_code.h"

namespace longstride::ops {
namespace {

// A record is an argument of bytes: those between its parts stay as they are.
std::int64_t record_bytes(DType format, std::int64_t O, std::int64_t I) {
  return bytes_of(format, {O, I});
}

void put(std::vector<double>& record, std::int64_t at, float x) {
  std::uint8_t bytes[4];
  std::memcpy(bytes, &x, 4);
  std::copy_n(bytes, 4, record.begin() + at);
}

float take(const std::vector<double>& record, std::int64_t at) {
  std::uint8_t bytes[4];
  for (int i = 0; i < 4; ++i)
    bytes[i] = static_cast<std::uint8_t>(record[static_cast<std::size_t>(at + i)]);
  float x = 0;
  std::memcpy(&x, bytes, 4);
  return x;
}

// Values divided by their largest magnitude; the last block, if it is short, has its own rules.
float divide(std::vector<float>& x, std::size_t whole) {
  float largest = 0;
  for (const float v : x) largest = std::max(largest, std::fabs(v));
  const float divisor = std::max(largest, 1e-38f);
  for (float& v : x) v = x.size() == whole ? v * (1.0f / divisor) : v / divisor;
  return x.size() == whole ? largest : divisor;
}

// The first value at least as near as the next one.
template <class Table>
std::size_t nearest(const Table& table, float x) {
  std::size_t i = 0;
  while (i + 1 < table.size() && x > (table[i] + table[i + 1]) / 2) ++i;
  return i;
}

void reference_nf4(const std::vector<double>& w, const BlockRecord& parts, bool nested,
                   std::vector<double>& record) {
  std::vector<float> scales;
  for (std::size_t first = 0; first < w.size(); first += 64) {
    const std::size_t n = std::min<std::size_t>(64, w.size() - first);
    std::vector<float> x(w.begin() + static_cast<std::ptrdiff_t>(first),
                         w.begin() + static_cast<std::ptrdiff_t>(first + n));
    scales.push_back(divide(x, 64));
    x.resize(n + n % 2);
    for (std::size_t i = 0; i < n; i += 2)
      record[(first + i) / 2] =
          static_cast<double>(nearest(kNf4Table, x[i]) * 16 + nearest(kNf4Table, x[i + 1]));
  }
  if (!nested) {
    for (std::size_t i = 0; i < scales.size(); ++i)
      put(record, parts.scales.offset + static_cast<std::int64_t>(4 * i), scales[i]);
    return;
  }
  float sum = 0;  // exact: see quantize_problem
  for (const float s : scales) sum += s;
  const float mean = sum / static_cast<float>(scales.size());
  put(record, parts.offset.offset, mean);
  for (std::size_t first = 0; first < scales.size(); first += 256) {
    std::vector<float> x;
    for (std::size_t i = first; i < std::min(first + 256, scales.size()); ++i)
      x.push_back(scales[i] - mean);
    put(record, parts.nested.offset + static_cast<std::int64_t>(first / 64), divide(x, 256));
    for (std::size_t i = 0; i < x.size(); ++i)
      record[static_cast<std::size_t>(parts.scales.offset) + first + i] =
          static_cast<double>(nearest(kDynamicMap, x[i]));
  }
}

void reference_int8(const std::vector<double>& w, std::int64_t O, const BlockRecord& parts,
                    std::vector<double>& record) {
  const std::size_t rows = static_cast<std::size_t>(O), columns = w.size() / rows;
  for (std::size_t o = 0; o < rows; ++o) {
    float largest = 0;
    for (std::size_t i = 0; i < columns; ++i)
      largest = std::max(largest, std::fabs(static_cast<float>(w[o * columns + i])));
    put(record, parts.scales.offset + static_cast<std::int64_t>(4 * o), largest);
    for (std::size_t i = 0; i < columns; ++i) {
      const float x = static_cast<float>(w[o * columns + i]) * (1.0f / largest * 127.0f);
      const int code = largest == 0 ? 0 : static_cast<int>(std::nearbyint(x));
      record[o * columns + i] = static_cast<std::uint8_t>(code);
    }
  }
}

Problem quantize_problem(DType format, DType type, std::int64_t O, std::int64_t I) {
  Problem p;
  HostTensor& w = p.input("w", type, {O, I});
  // Multiples of 1/256, so that the scales add up exactly in any order. A row of zeros, and an
  // outlier.
  for (std::int64_t i = 0; i < w.elements(); ++i) {
    const double x = i / I == 1 ? 0.0 : std::round(w.get(i) * 256) / 256;
    w.set(i, i == 2 * I + 3 ? 17.0 : x);
  }
  p.update("q", DType::kU8, {record_bytes(format, O, I)}, 0);
  const std::int64_t scratch = quantize_scratch_elements(format, {O, I});
  p.scratch("scratch", [=](const Stream&) { return scratch; });
  p.run = [=](Stream& stream, const Bound& v) {
    quantize_weight(
        stream,
        {.w_OI = v("w"), .q_OI = View(v("q").data(), format, {O, I}), .scratch = v("scratch")});
  };
  p.reference = [=](Values& v) {
    const BlockRecord parts = block_record(format, {O, I});
    if (format == DType::kInt8Rows)
      reference_int8(v["w"], O, parts, v["q"]);
    else
      reference_nf4(v["w"], parts, format == DType::kNf4, v["q"]);
  };
  p.bytes = static_cast<double>(O * I * size_of(type) + record_bytes(format, O, I));
  return p;
}

float reference_value(const std::vector<double>& q, DType format, const BlockRecord& parts,
                      std::int64_t I, std::int64_t element) {
  const auto byte = [&](std::int64_t at) {
    return static_cast<int>(q[static_cast<std::size_t>(at)]);
  };
  if (format == DType::kInt8Rows) {
    const float code = static_cast<std::int8_t>(byte(element));
    return code * take(q, parts.scales.offset + element / I * 4) * kInt8Step;
  }
  const int pair = byte(element / 2);
  const float value = kNf4Table[static_cast<std::size_t>(element % 2 == 0 ? pair / 16 : pair % 16)];
  const std::int64_t block = element / 64;
  if (format == DType::kNf4Wide) return value * take(q, parts.scales.offset + block * 4);
  const float map = kDynamicMap[static_cast<std::size_t>(byte(parts.scales.offset + block))];
  // Exact in double, so that it is rounded before the sum.
  const auto product =
      static_cast<float>(static_cast<double>(map) * take(q, parts.nested.offset + block / 256 * 4));
  return value * static_cast<float>(static_cast<double>(product) + take(q, parts.offset.offset));
}

// Outputs have no tolerance: the values are given to the bit.
Problem widen_problem(DType format, DType type, std::int64_t O, std::int64_t I, std::int64_t R) {
  Problem p;
  const std::int64_t bytes = record_bytes(format, O, I);
  HostTensor& q = p.input("q", DType::kU8, {bytes}, 127);
  const BlockRecord parts = block_record(format, {O, I});
  const auto set_floats = [&](const BlockRecord::Part& part) {
    Random random(3);
    for (std::int64_t at = 0; at < part.bytes; at += 4) {
      const float x = static_cast<float>(random.next_u32()) * 0x1.0p-32f;
      std::memcpy(q.bytes.data() + part.offset + at, &x, 4);
    }
  };
  if (format != DType::kNf4) set_floats(parts.scales);
  set_floats(parts.nested);
  set_floats(parts.offset);
  if (R > 0) p.input("tail", type, {O, R});
  p.output("y", type, {O, I + R}, 0);
  p.run = [=](Stream& stream, const Bound& v) {
    widen_weight(
        stream,
        {.q_OI = View(v("q").data(), format, {O, I}), .tail_OR = v("tail"), .y_OW = v("y")});
  };
  p.reference = [=](Values& v) {
    HostTensor rounded(type, {1});
    for (std::int64_t o = 0; o < O; ++o) {
      for (std::int64_t i = 0; i < I + R; ++i) {
        double& y = v["y"][static_cast<std::size_t>(o * (I + R) + i)];
        if (i < I) {
          rounded.set(0, reference_value(v["q"], format, parts, I, o * I + i));
          y = rounded.get(0);
        } else {
          y = v["tail"][static_cast<std::size_t>(o * R + i - I)];
        }
      }
    }
  };
  p.bytes = static_cast<double>(bytes + O * (I + 2 * R) * size_of(type));
  return p;
}

}  // namespace

std::vector<OpCase> quantize_cases() {
  OpCase quantize{"quantize_weight", {}, {}}, widen{"widen_weight", {}, {}};
  constexpr DType kFormats[] = {DType::kNf4, DType::kNf4Wide, DType::kInt8Rows};
  struct Size {
    std::int64_t O, I, R;
  };
  // The end inside a block, inside a byte, inside a nested block; more than one nested block.
  for (const Size& s : {Size{5, 64, 8}, Size{7, 24, 16}, Size{3, 17, 3}, Size{96, 192, 0},
                        Size{150, 128, 1}, Size{130, 264, 24}}) {
    for (const DType format : kFormats) {
      for (const DType type : {DType::kF32, DType::kBF16, DType::kF16})
        quantize.tests.push_back(
            {fmt::format("{} from {} O={} I={}", name_of(format), name_of(type), s.O, s.I),
             [=] { return quantize_problem(format, type, s.O, s.I); }});
      for (const DType type : {DType::kF32, DType::kBF16})
        widen.tests.push_back(
            {fmt::format("{} to {} O={} I={} R={}", name_of(format), name_of(type), s.O, s.I, s.R),
             [=] { return widen_problem(format, type, s.O, s.I, s.R); }});
    }
  }
  const auto benchmark = [&](DType format, DType type, const Size& s, std::vector<Variant>& from,
                             std::vector<Variant>& to) {
    from.push_back({fmt::format("{} from {} O={} I={}", name_of(format), name_of(type), s.O, s.I),
                    [=] { return quantize_problem(format, type, s.O, s.I); }});
    to.push_back(
        {fmt::format("{} to {} O={} I={} R={}", name_of(format), name_of(type), s.O, s.I, s.R),
         [=] { return widen_problem(format, type, s.O, s.I, s.R); }});
  };
  for (const DType format : kFormats) {
    benchmark(format, DType::kF32, {4864, 896, 0}, quantize.benchmarks, widen.benchmarks);
    for (const std::int64_t R : {0, 16})
      benchmark(format, DType::kBF16, {18944, 3584, R}, quantize.benchmarks16, widen.benchmarks16);
  }
  return {quantize, widen};
}

}  // namespace longstride::ops
