#include "ops/cases/case.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace longstride::ops {
namespace {

template <class E>
E load(const HostTensor& t, std::int64_t i) {
  E x;
  std::memcpy(&x, t.bytes.data() + i * static_cast<std::int64_t>(sizeof(E)), sizeof(E));
  return x;
}

template <class E>
void store(HostTensor& t, std::int64_t i, E x) {
  std::memcpy(t.bytes.data() + i * static_cast<std::int64_t>(sizeof(E)), &x, sizeof(E));
}

// The same name always gets the same numbers, whatever the other arguments.
std::uint64_t stream_of(const std::string& name) {
  std::uint64_t h = 14695981039346656037u;
  for (char c : name) h = (h ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return h;
}

void fill_uniform(HostTensor& t, const std::string& name, double magnitude) {
  // Large tensors of benchmarks repeat a period of numbers: drawing every number would take longer
  // than the benchmark.
  constexpr std::int64_t kPeriod = (std::int64_t{1} << 20) + 7;
  Random random(1, stream_of(name));
  const std::int64_t n = t.elements(), drawn = std::min(n, kPeriod);
  for (std::int64_t i = 0; i < drawn; ++i) {
    t.set(i, (random.next_u32() * 0x1.0p-31 - 1.0) * magnitude);
  }
  const std::int64_t size = size_of(t.dtype);
  for (std::int64_t done = drawn; done < n; done += drawn)
    std::memcpy(t.bytes.data() + done * size, t.bytes.data(),
                static_cast<std::size_t>(std::min(drawn, n - done) * size));
}

}  // namespace

HostTensor::HostTensor(DType t, Shape s)
    : dtype(t), shape(s), bytes(static_cast<std::size_t>(bytes_of(t, s))) {}

double HostTensor::get(std::int64_t i) const {
  switch (dtype) {
    case DType::kF32:
      return load<float>(*this, i);
    case DType::kBF16:
      return to_float(load<bf16>(*this, i));
    case DType::kF16:
      return to_float(load<f16>(*this, i));
    case DType::kI32:
      return load<std::int32_t>(*this, i);
    case DType::kI64:
      return static_cast<double>(load<std::int64_t>(*this, i));
    case DType::kU8:
      return load<std::uint8_t>(*this, i);
    case DType::kI8:
      return load<std::int8_t>(*this, i);
    case DType::kF64:
      return load<double>(*this, i);
    default:
      break;
  }
  LS_CHECK(false, "element of {}", name_of(dtype));
  return 0;
}

void HostTensor::set(std::int64_t i, double x) {
  switch (dtype) {
    case DType::kF32:
      return store(*this, i, static_cast<float>(x));
    case DType::kBF16:
      return store(*this, i, to_bf16(static_cast<float>(x)));
    case DType::kF16:
      return store(*this, i, to_f16(static_cast<float>(x)));
    case DType::kI32:
      return store(*this, i, static_cast<std::int32_t>(std::llround(x)));
    case DType::kI64:
      return store(*this, i, static_cast<std::int64_t>(std::llround(x)));
    case DType::kU8:
      return store(*this, i, static_cast<std::uint8_t>(std::llround(x)));
    case DType::kI8:
      return store(*this, i, static_cast<std::int8_t>(std::llround(x)));
    case DType::kF64:
      return store(*this, i, x);
    default:
      break;
  }
  LS_CHECK(false, "element of {}", name_of(dtype));
}

Problem in_bf16(Problem problem, const std::vector<std::string>& names, double tolerance) {
  for (Argument& a : problem.arguments) {
    const bool writes = a.role != Role::kInput && a.role != Role::kScratch;
    if (writes) a.tolerance = tolerance;
    if (std::find(names.begin(), names.end(), a.name) == names.end()) continue;
    HostTensor rounded(DType::kBF16, a.tensor.shape);
    for (std::int64_t i = 0; i < a.tensor.elements(); ++i) rounded.set(i, a.tensor.get(i));
    a.tensor = std::move(rounded);
  }
  problem.loss = nullptr;
  problem.gradients.clear();
  return problem;
}

View Bound::operator()(const std::string& name) const {
  const auto it = views_.find(name);
  return it == views_.end() ? View() : it->second;
}

HostTensor& Problem::input(const std::string& name, DType t, Shape s, double magnitude) {
  arguments.push_back({name, Role::kInput, HostTensor(t, s), 0});
  fill_uniform(arguments.back().tensor, name, magnitude);
  return arguments.back().tensor;
}

HostTensor& Problem::update(const std::string& name, DType t, Shape s, double tolerance) {
  arguments.push_back({name, Role::kUpdate, HostTensor(t, s), tolerance});
  fill_uniform(arguments.back().tensor, name, 1);
  return arguments.back().tensor;
}

HostTensor& Problem::in_place(const std::string& name, DType t, Shape s, double magnitude) {
  arguments.push_back({name, Role::kInPlace, HostTensor(t, s), kTolerance});
  fill_uniform(arguments.back().tensor, name, magnitude);
  return arguments.back().tensor;
}

void Problem::output(const std::string& name, DType t, Shape s, double tolerance) {
  arguments.push_back({name, Role::kOutput, HostTensor(t, s), tolerance});
}

void Problem::scratch(const std::string& name,
                      std::function<std::int64_t(const Stream&)> elements) {
  arguments.push_back(
      {name, Role::kScratch, HostTensor(DType::kF32, {0}), 0, 0, std::move(elements)});
}

}  // namespace longstride::ops
