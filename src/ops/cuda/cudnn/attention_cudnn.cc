#include "ops/cuda/attention_cudnn.h"

#include <cudnn_frontend.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/recent_map.h"
#include "base/sizes.h"
#include "device/cuda/check.h"
#include "device/cuda/cuda_stream.h"
#include "device/cuda/loaded_library.h"

namespace longstride::ops::cuda {
namespace {

namespace fe = cudnn_frontend;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

// There are few lengths (attention_lengths.h, kEvenTokens): a training run has some tens per pass.
constexpr std::size_t kMostPlans = 512;

enum Id : std::int64_t { kQ = 1, kK, kV, kOut, kStats, kDout, kDq, kDk, kDv };

void check(cudnnStatus_t status, const char* what) {
  LS_CHECK(status == CUDNN_STATUS_SUCCESS, "{}: {}", what, cudnnGetErrorString(status));
}

struct Plan {
  Plan() {
    graph.set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
  }
  fe::graph::Graph graph;
  bool usable = false, reported = false;
  std::string why_not;
};

std::vector<std::int64_t> query_dims(const RunShape& s) {
  return {s.batch, s.query_heads, s.tokens, s.head_size};
}
std::vector<std::int64_t> query_strides(const RunShape& s) {
  const std::int64_t all = s.tokens * s.query_heads * s.head_size;
  if (s.packed) return {all, s.tokens * s.head_size, s.head_size, 1};
  return {all, s.head_size, s.query_heads * s.head_size, 1};
}
std::vector<std::int64_t> kv_dims(const RunShape& s) {
  return {s.batch, s.kv_heads, s.keys, s.head_size};
}
std::vector<std::int64_t> kv_strides(const RunShape& s) {
  return {s.keys * s.kv_stride, s.head_size, s.kv_stride, 1};
}
std::vector<std::int64_t> stats_dims(const RunShape& s) {
  return {s.batch, s.query_heads, s.tokens, 1};
}
std::vector<std::int64_t> stats_strides(const RunShape& s) {
  return {s.query_heads * s.tokens, s.tokens, 1, 1};
}

Tensor input(fe::graph::Graph& graph, Id id, const char* name,
             const std::vector<std::int64_t>& dims, const std::vector<std::int64_t>& strides,
             fe::DataType_t type = fe::DataType_t::BFLOAT16) {
  return graph.tensor(fe::graph::Tensor_attributes()
                          .set_name(name)
                          .set_uid(id)
                          .set_dim(dims)
                          .set_stride(strides)
                          .set_data_type(type));
}

void output(const Tensor& tensor, Id id, const std::vector<std::int64_t>& dims,
            const std::vector<std::int64_t>& strides,
            fe::DataType_t type = fe::DataType_t::BFLOAT16) {
  tensor->set_output(true).set_uid(id).set_dim(dims).set_stride(strides).set_data_type(type);
}

template <class Attributes>
void set_mask(Attributes& attributes, const RunShape& s) {
  if (!s.causal) return;
  // In a square both alignments are the same, but cuDNN's backward pass skips masked tiles only
  // with TOP_LEFT.
  attributes
      .set_diagonal_alignment(s.tokens == s.keys ? fe::DiagonalAlignment_t::TOP_LEFT
                                                 : fe::DiagonalAlignment_t::BOTTOM_RIGHT)
      .set_diagonal_band_right_bound(0);
}

void finish(Plan& plan, cudnnHandle_t handle) {
  fe::graph::Graph& graph = plan.graph;
  fe::error_t error = graph.validate();
  if (error.is_good()) error = graph.build_operation_graph(handle);
  if (error.is_good()) error = graph.create_execution_plans({fe::HeurMode_t::A});
  if (error.is_good()) error = graph.check_support(handle);
  if (error.is_good()) error = graph.build_plans(handle, fe::BuildPlanPolicy_t::HEURISTICS_CHOICE);
  plan.usable = error.is_good();
  if (!plan.usable) plan.why_not = error.get_message();
}

std::unique_ptr<Plan> make_forward(const RunShape& s, cudnnHandle_t handle) {
  auto plan = std::make_unique<Plan>();
  fe::graph::Graph& graph = plan->graph;
  const Tensor q = input(graph, kQ, "q", query_dims(s), query_strides(s));
  const Tensor k = input(graph, kK, "k", kv_dims(s), kv_strides(s));
  const Tensor v = input(graph, kV, "v", kv_dims(s), kv_strides(s));
  auto attributes = fe::graph::SDPA_attributes().set_name("forward").set_attn_scale(s.scale);
  attributes.set_generate_stats(true);
  set_mask(attributes, s);
  auto [out, stats] = graph.sdpa(q, k, v, attributes);
  output(out, kOut, query_dims(s), query_strides(s));
  output(stats, kStats, stats_dims(s), stats_strides(s), fe::DataType_t::FLOAT);
  finish(*plan, handle);
  return plan;
}

std::unique_ptr<Plan> make_backward(const RunShape& s, bool deterministic, cudnnHandle_t handle) {
  auto plan = std::make_unique<Plan>();
  fe::graph::Graph& graph = plan->graph;
  const Tensor q = input(graph, kQ, "q", query_dims(s), query_strides(s));
  const Tensor k = input(graph, kK, "k", kv_dims(s), kv_strides(s));
  const Tensor v = input(graph, kV, "v", kv_dims(s), kv_strides(s));
  const Tensor out = input(graph, kOut, "out", query_dims(s), query_strides(s));
  const Tensor dout = input(graph, kDout, "dout", query_dims(s), query_strides(s));
  const Tensor stats =
      input(graph, kStats, "lse", stats_dims(s), stats_strides(s), fe::DataType_t::FLOAT);
  auto attributes =
      fe::graph::SDPA_backward_attributes().set_name("backward").set_attn_scale(s.scale);
  attributes.set_deterministic_algorithm(deterministic);
  set_mask(attributes, s);
  auto [dq, dk, dv] = graph.sdpa_backward(q, k, v, out, dout, stats, attributes);
  output(dq, kDq, query_dims(s), query_strides(s));
  output(dk, kDk, kv_dims(s), kv_strides(s));
  output(dv, kDv, kv_dims(s), kv_strides(s));
  finish(*plan, handle);
  return plan;
}

}  // namespace

struct CudnnAttention::Plans {
  Stream& stream;
  cudnnHandle_t handle = nullptr;
  void* workspace = nullptr;
  std::int64_t workspace_bytes = 0, made = 0;
  RecentMap<std::pair<RunShape, Pass>, std::unique_ptr<Plan>> plans{kMostPlans};

  Plan& find(const RunShape& s, Pass pass) {
    if (const std::unique_ptr<Plan>* plan = plans.find({s, pass})) return **plan;
    if (plans.full()) {
      stream.synchronize();  // the dropped plan's kernels may still be queued
      plans.drop_oldest();
    }
    std::unique_ptr<Plan> plan = pass == Pass::kForward
                                     ? make_forward(s, handle)
                                     : make_backward(s, pass == Pass::kExactBackward, handle);
    ++made;
    adopt(*plan);
    return *plans.add({s, pass}, std::move(plan));
  }
  // Grows the workspace for a new plan.
  void adopt(const Plan& plan) {
    if (!plan.usable) return;
    std::int64_t bytes = 0;
    fe::error_t error = plan.graph.get_workspace_size(bytes);
    LS_CHECK(error.is_good(), "{}", error.get_message());
    if (bytes <= workspace_bytes) return;
    if (workspace != nullptr) {
      stream.synchronize();
      LS_CUDA(cudaFree(workspace));
      workspace = nullptr;
      workspace_bytes = 0;
    }
    if (cudaMalloc(&workspace, static_cast<std::size_t>(bytes)) != cudaSuccess) {
      cudaGetLastError();
      plans.clear();  // there is no workspace for any of them now
      throw Error(fmt::format("not enough GPU memory for cuDNN's attention: it asks for {}",
                              format_bytes(static_cast<double>(bytes))),
                  "make training.chunk smaller, or set numerics.determinism to \"fast\", which "
                  "needs less");
    }
    workspace_bytes = bytes;
  }
  void execute(Plan& plan, std::unordered_map<std::int64_t, void*>& tensors) const {
    LS_CHECK(plan.usable, "{}", plan.why_not);
    fe::error_t error = plan.graph.execute(handle, tensors, workspace);
    LS_CHECK(error.is_good(), "{}", error.get_message());
  }
};

std::string cudnn_version() {
  if (!longstride::cuda::cudnn_library().available()) return "none";
  const std::size_t version = cudnnGetVersion();
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

CudnnAttention::CudnnAttention(Stream& stream) : plans_(new Plans{stream}) {
  if (!longstride::cuda::cudnn_library().available()) {
    log_warning(
        "libcudnn.so.9 was not found: attention runs through our own kernels, which are slower");
    return;
  }
  check(cudnnCreate(&plans_->handle), "cudnnCreate");
  check(cudnnSetStream(plans_->handle, longstride::cuda::cuda_stream(stream).handle()),
        "cudnnSetStream");
}

CudnnAttention::~CudnnAttention() {
  plans_->plans.clear();
  cudaFree(plans_->workspace);
  if (plans_->handle != nullptr) cudnnDestroy(plans_->handle);
}

bool CudnnAttention::supports(const RunShape& shape, Pass pass) {
  if (plans_->handle == nullptr) return false;
  Plan& plan = plans_->find(shape, pass);
  if (!plan.usable && !std::exchange(plan.reported, true))
    log_warning("cuDNN does not take {} times {} queries over {} keys of head size {}: {}",
                shape.batch, shape.tokens, shape.keys, shape.head_size, plan.why_not);
  return plan.usable;
}

void CudnnAttention::forward(const RunShape& shape, const RunForward& a) {
  std::unordered_map<std::int64_t, void*> tensors = {{kQ, const_cast<void*>(a.q)},
                                                     {kK, const_cast<void*>(a.k)},
                                                     {kV, const_cast<void*>(a.v)},
                                                     {kOut, a.out},
                                                     {kStats, a.lse}};
  plans_->execute(plans_->find(shape, Pass::kForward), tensors);
}

void CudnnAttention::backward(const RunShape& shape, const RunBackward& a, Pass pass) {
  std::unordered_map<std::int64_t, void*> tensors = {{kQ, const_cast<void*>(a.q)},
                                                     {kK, const_cast<void*>(a.k)},
                                                     {kV, const_cast<void*>(a.v)},
                                                     {kOut, const_cast<void*>(a.out)},
                                                     {kDout, const_cast<void*>(a.dout)},
                                                     {kStats, const_cast<float*>(a.lse)},
                                                     {kDq, a.dq},
                                                     {kDk, a.dk},
                                                     {kDv, a.dv}};
  plans_->execute(plans_->find(shape, pass), tensors);
}

std::int64_t CudnnAttention::plans_made() const { return plans_->made; }

std::int64_t CudnnAttention::workspace_bytes() const { return plans_->workspace_bytes; }

}  // namespace longstride::ops::cuda
