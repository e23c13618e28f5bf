// SwiGLU: the contract is in ops/swiglu.h. Both directions read and write each element once.
#include "ops/swiglu.h"

#include <type_traits>

#include "ops/cuda/for_elements.cuh"

namespace longstride::ops::cuda {
namespace {

// f(x) = x * sigmoid(z(x)): z.
template <Activation kActivation>
__device__ __forceinline__ float z_of(float x) {
  return kActivation == Activation::kSilu ? x : x * (kGelu + kGeluCubic * x * x);
}

// x times the derivative of z.
template <Activation kActivation>
__device__ __forceinline__ float slope_of(float x) {
  return kActivation == Activation::kSilu ? x : x * (kGelu + 3.0f * kGeluCubic * x * x);
}

template <Activation kActivation>
__device__ __forceinline__ float product_of(float gate, float up) {
  return gate / (1.0f + expf(-z_of<kActivation>(gate))) * up;
}

template <class E, Activation kActivation>
struct ForwardBody {
  const E *gate, *up;
  E* y;
  std::int64_t F, gap;  // columns of the output beside them

  static constexpr int kWidth = vector_width<E>;
  template <int N>
  struct Inputs {
    Packed<E, N> gate, up;
  };
  template <int N>
  __device__ Inputs<N> load(std::int64_t i) const {
    return {Packed<E, N>::load(gate + i), Packed<E, N>::load(up + i)};
  }
  template <int N>
  __device__ void store(std::int64_t i, const Inputs<N>& inputs) const {
    float g[N], u[N];
    inputs.gate.unpack(g);
    inputs.up.unpack(u);
#pragma unroll
    for (int j = 0; j < N; ++j) g[j] = product_of<kActivation>(g[j], u[j]);
    store_floats<N>(g, y + (gap == 0 ? i : i + i / F * gap));
  }
};

template <class E, Activation kActivation>
struct BackwardBody {
  const E *dy, *gate, *up;
  E *dgate, *dup, *y;  // y: null if not wanted

  static constexpr int kWidth = vector_width<E>;
  template <int N>
  struct Inputs {
    Packed<E, N> dy, gate, up;
  };
  template <int N>
  __device__ Inputs<N> load(std::int64_t i) const {
    return {Packed<E, N>::load(dy + i), Packed<E, N>::load(gate + i), Packed<E, N>::load(up + i)};
  }
  template <int N>
  __device__ void store(std::int64_t i, const Inputs<N>& inputs) const {
    float d[N], g[N], u[N];
    inputs.dy.unpack(d);
    inputs.gate.unpack(g);
    inputs.up.unpack(u);
    if (y != nullptr) store_product<N>(i, g, u);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float sigmoid = 1.0f / (1.0f + expf(-z_of<kActivation>(g[j])));
      u[j] = d[j] * u[j] * sigmoid * (1.0f + slope_of<kActivation>(g[j]) * (1.0f - sigmoid));
      d[j] = d[j] * g[j] * sigmoid;
    }
    store_floats<N>(u, dgate + i);
    store_floats<N>(d, dup + i);
  }
  template <int N>
  __device__ __forceinline__ void store_product(std::int64_t i, const float (&g)[N],
                                                const float (&u)[N]) const {
    float product[N];
#pragma unroll
    for (int j = 0; j < N; ++j) product[j] = product_of<kActivation>(g[j], u[j]);
    store_floats<N>(product, y + i);
  }
};

// Calls f(integral constant) for the activation.
template <class F>
void dispatch_kind(Activation activation, const F& f) {
  if (activation == Activation::kSilu)
    return f(std::integral_constant<Activation, Activation::kSilu>{});
  f(std::integral_constant<Activation, Activation::kTanhGelu>{});
}

}  // namespace

void swiglu_forward(Stream& stream, const SwigluForward& args) {
  const Shape& shape = args.gate_TF.shape();
  const bool wider = args.y_TW.shape() != shape;
  const std::int64_t F = wider ? shape[1] : 0, gap = wider ? args.y_TW.dim(1) - F : 0;
  dispatch_activation(args.gate_TF.dtype(), [&](auto type) {
    using E = typename decltype(type)::type;
    dispatch_kind(args.activation, [&](auto kind) {
      using Body = ForwardBody<E, decltype(kind)::value>;
      // A piece must not cross the end of a row.
      const bool whole = gap == 0 || (F % Body::kWidth == 0 && gap % Body::kWidth == 0);
      for_elements<2>(stream, shape.elements(),
                      whole && aligned({args.gate_TF.data(), args.up_TF.data(), args.y_TW.data()}),
                      Body{args.gate_TF.as<E>(), args.up_TF.as<E>(), args.y_TW.as<E>(), F, gap});
    });
  });
}

void swiglu_backward(Stream& stream, const SwigluBackward& args) {
  const Shape& shape = args.gate_TF.shape();
  dispatch_activation(args.gate_TF.dtype(), [&](auto type) {
    using E = typename decltype(type)::type;
    E* const y = args.y_TF.present() ? args.y_TF.as<E>() : nullptr;
    dispatch_kind(args.activation, [&](auto kind) {
      for_elements<2>(stream, shape.elements(),
                      aligned({args.dy_TF.data(), args.gate_TF.data(), args.up_TF.data(),
                               args.dgate_TF.data(), args.dup_TF.data(), y}),
                      BackwardBody<E, decltype(kind)::value>{
                          args.dy_TF.as<E>(), args.gate_TF.as<E>(), args.up_TF.as<E>(),
                          args.dgate_TF.as<E>(), args.dup_TF.as<E>(), y});
    });
  });
}

}  // namespace longstride::ops::cuda
