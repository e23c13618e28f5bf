// Small elementwise operations: the contract is in ops/elementwise.h.
#include "ops/elementwise.h"

#include "ops/cuda/for_elements.cuh"

namespace longstride::ops::cuda {
namespace {

template <class E>
struct AddBody {
  const E *a, *b;
  E* y;

  static constexpr int kWidth = vector_width<E>;
  template <int N>
  struct Inputs {
    Packed<E, N> a, b;
  };
  template <int N>
  __device__ Inputs<N> load(std::int64_t i) const {
    return {Packed<E, N>::load(a + i), Packed<E, N>::load(b + i)};
  }
  template <int N>
  __device__ void store(std::int64_t i, const Inputs<N>& inputs) const {
    float p[N], q[N];
    inputs.a.unpack(p);
    inputs.b.unpack(q);
#pragma unroll
    for (int j = 0; j < N; ++j) p[j] += q[j];
    store_floats<N>(p, y + i);
  }
};

template <class From, class To>
struct ConvertBody {
  const From* x;
  To* y;

  static constexpr int kWidth = vector_width<From, To>;
  template <int N>
  using Inputs = Packed<From, N>;
  template <int N>
  __device__ Inputs<N> load(std::int64_t i) const {
    return Inputs<N>::load(x + i);
  }
  template <int N>
  __device__ void store(std::int64_t i, const Inputs<N>& inputs) const {
    float values[N];
    inputs.unpack(values);
    store_floats<N>(values, y + i);
  }
};

}  // namespace

void add(Stream& stream, const Add& args) {
  const Shape& shape = args.y.shape();
  dispatch_activation(args.y.dtype(), [&](auto type) {
    using E = typename decltype(type)::type;
    for_elements<2>(stream, shape.elements(),
                    aligned({args.a.data(), args.b.data(), args.y.data()}),
                    AddBody<E>{args.a.as<E>(), args.b.as<E>(), args.y.as<E>()});
  });
}

void convert(Stream& stream, const Convert& args) {
  dispatch_weight(args.x.dtype(), [&](auto from) {
    using From = typename decltype(from)::type;
    dispatch_weight(args.y.dtype(), [&](auto to) {
      using To = typename decltype(to)::type;
      for_elements<4>(stream, args.x.elements(), aligned({args.x.data(), args.y.data()}),
                      ConvertBody<From, To>{args.x.as<From>(), args.y.as<To>()});
    });
  });
}

void zero(Stream& stream, const Zero& args) {
  if (args.y.elements() == 0) return;
  LS_CUDA(cudaMemsetAsync(args.y.data(), 0, static_cast<std::size_t>(args.y.bytes()),
                          longstride::cuda::cuda_stream(stream).handle()));
}

}  // namespace longstride::ops::cuda
