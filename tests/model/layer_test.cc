// One layer over one chunk: the activations it retains, the gradients it adds to, and recording and
// replay of its workspace. tests/train compares gradients of a whole model with a reference.
#include "model/layer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "attention/visits.h"
#include "base/random.h"
#include "pages/kv_store.h"

namespace longstride {
namespace {

constexpr std::int64_t kPage = 8, kChunk = 24, kHidden = 12, kHeadSize = 8;

ModelConfig small_config(bool qk_norm) {
  ModelConfig config;
  config.hidden_size = kHidden;
  config.layers = 1;
  config.query_heads = 4;
  config.kv_heads = 2;
  config.head_size = kHeadSize;
  config.ffn_size = 20;
  config.vocabulary = 4;
  config.qkv_bias = config.output_bias = config.mlp_bias = true;
  config.qk_norm = qk_norm;
  config.windows = {10};
  return config;
}

std::vector<float> random_values(std::int64_t n, std::uint64_t stream) {
  Random random(71, stream);
  std::vector<float> values(static_cast<std::size_t>(n));
  for (float& v : values) v = static_cast<float>(random.normal());
  return values;
}

struct Outcome {
  std::vector<float> y_TD, dx_TD;
};

// All parameters random; the loss is the product of the output with the fixed `dy`.
class Layer : public ::testing::TestWithParam<bool> {
 protected:
  Layer() {
    for (std::int64_t i = 0; i < weights_.size(); ++i) {
      const View view = weights_.view(i);
      const std::vector<float> values =
          random_values(view.elements(), 100 + static_cast<std::uint64_t>(i));
      for (std::int64_t e = 0; e < view.elements(); ++e)
        view.as<float>()[e] =
            0.3f * values[static_cast<std::size_t>(e)] + (view.shape().rank() == 1 ? 0.5f : 0.0f);
    }
    for (std::int64_t t = 0; t < kChunk; ++t)
      for (std::int64_t i = 0; i < kHeadSize / 2; ++i) {
        const double angle = static_cast<double>(t) * std::pow(0.3, static_cast<double>(i));
        cos_.push_back(static_cast<float>(std::cos(angle)));
        sin_.push_back(static_cast<float>(std::sin(angle)));
      }
  }

  ChunkContext context(Device& device, Workspace& workspace, std::int64_t tokens) {
    const Shape shape{tokens, kHeadSize / 2};
    return {device,
            workspace,
            config_,
            0,
            tokens,
            ConstView(cos_.data(), DType::kF32, shape),
            ConstView(sin_.data(), DType::kF32, shape)};
  }

  // The forward task, which retains everything or nothing, and the backward task.
  std::vector<Task> tasks(const SequenceLayout& layout, bool retain) const {
    const auto segments =
        std::make_shared<std::vector<KeySegment>>(cut_keys(layout.keys(0, config_.windows[0]), {}));
    Task forward{.kind = TaskKind::kLayerForward,
                 .layer = 0,
                 .retains = retain ? Retention::all() : Retention(),
                 .keys_too = retain,
                 .output = true,
                 .append = true,
                 .appended = layout.chunk_pages(0),
                 .visited = layout.chunk_pages(0),
                 .segments = segments};
    Task backward{.kind = TaskKind::kLayerBackward,
                  .layer = 0,
                  .held = Retention::all(),
                  .visited = layout.chunk_pages(0),
                  .freed = layout.chunk_pages(0),
                  .segments = segments};
    return {std::move(forward), std::move(backward)};
  }

  // Forward, and backward if activations are retained. The same code records and runs.
  Outcome pass(const ChunkContext& ctx, const ParameterSet& weights, const ParameterSet& gradients,
               bool retain, const std::vector<float>& x_TD) {
    const bool runs = ctx.device.kind() == DeviceKind::kCpu;
    const LayerParameters w = weights.model().layers[0], g = gradients.model().layers[0];
    const SequenceLayout layout{ctx.tokens, kChunk, kPage, {0}};
    const std::vector<Task> todo = tasks(layout, retain);
    ShapesPages shapes(kPage);
    PageStore& pages = runs ? static_cast<PageStore&>(store_) : shapes;
    if (runs) store_.begin({.episodes = {{EpisodeKind::kForward, 1, todo}}});
    VisitLists visits;
    visits.build(layout, 0, config_.windows[0]);
    const auto n = static_cast<std::size_t>(ctx.tokens * kHidden);
    Outcome out;
    Lease stream_TD = ctx.take("x", {ctx.tokens, kHidden});
    if (runs) std::copy_n(x_TD.begin(), n, stream_TD.view().as<float>());
    const LayerPass forward{
        .ctx = ctx, .weights = w, .task = todo[0], .pages = pages, .visits = visits.view()};
    pages.enter(todo[0]);
    layer_store_kv(forward, stream_TD);
    LayerActivations held;
    stream_TD = layer_forward(forward, std::move(stream_TD), held);
    pages.leave(todo[0]);
    if (runs) out.y_TD.assign(stream_TD.view().as<float>(), stream_TD.view().as<float>() + n);
    if (retain) {
      if (runs) std::copy_n(dy_TD_.begin(), n, stream_TD.view().as<float>());
      const LayerPass backward{
          .ctx = ctx, .weights = w, .task = todo[1], .pages = pages, .visits = visits.view()};
      pages.enter(todo[1]);
      layer_backward(backward, g, std::move(held), stream_TD);
      pages.leave(todo[1]);
      if (runs) out.dx_TD.assign(stream_TD.view().as<float>(), stream_TD.view().as<float>() + n);
    }
    store_.release_all();
    return out;
  }

  WorkspaceTrace record(std::int64_t tokens, bool keep) {
    Workspace workspace;
    const ParameterSet shapes(shapes_device(DeviceKind::kCpu), config_, DType::kF32, "weights");
    workspace.start_recording();
    pass(context(shapes_device(DeviceKind::kCpu), workspace, tokens), shapes, shapes, keep, {});
    return workspace.finish_recording();
  }

  // Runs on the CPU at disjoint addresses, in an arena full of NaN: nothing may be read before it
  // is written.
  Outcome run(const WorkspaceTrace& trace, std::int64_t tokens, bool keep,
              const std::vector<float>& x_TD) {
    std::vector<std::int64_t> offsets;
    std::int64_t bytes = 0;
    for (const WorkspaceRequest& r : trace) {
      offsets.push_back(bytes);
      bytes += (r.bytes + 255) / 256 * 256;
    }
    const auto arena = device_->allocate(bytes, "workspace");
    std::memset(arena->data(), 0xff, static_cast<std::size_t>(bytes));
    Workspace workspace;
    workspace.start_replay(arena->data(), trace, offsets);
    const Outcome out =
        pass(context(*device_, workspace, tokens), weights_, gradients_, keep, x_TD);
    workspace.finish_replay();
    return out;
  }
  Outcome run(bool keep, const std::vector<float>& x_TD) {
    return run(record(kChunk, keep), kChunk, keep, x_TD);
  }

  double loss(const std::vector<float>& x_TD) {
    double sum = 0;
    const std::vector<float> y = run(false, x_TD).y_TD;
    for (std::size_t i = 0; i < y.size(); ++i)
      sum += static_cast<double>(y[i]) * static_cast<double>(dy_TD_[i]);
    return sum;
  }

  std::unique_ptr<Device> device_ = make_cpu_device();
  ModelConfig config_ = small_config(GetParam());
  ParameterSet weights_{*device_, config_, DType::kF32, "weights"};
  ParameterSet gradients_{*device_, config_, DType::kF32, "gradients"};
  KvStore store_{*device_,
                 KvShape{1, 2, kHeadSize, kPage},
                 {.logical_pages = kChunk / kPage,
                  .kv = {{.pages = kChunk / kPage}},
                  .gradients = {{.pages = kChunk / kPage}}}};
  std::vector<float> cos_, sin_, x_TD_ = random_values(kChunk * kHidden, 1),
                                 dy_TD_ = random_values(kChunk * kHidden, 2);
};

INSTANTIATE_TEST_SUITE_P(QkNorm, Layer, ::testing::Bool());

TEST_P(Layer, KeptOrNotGivesTheSameBits) {
  const std::vector<float> y = run(false, x_TD_).y_TD;
  EXPECT_EQ(y, run(true, x_TD_).y_TD);
  EXPECT_TRUE(std::all_of(y.begin(), y.end(), [](float v) { return std::isfinite(v); }));
  EXPECT_NE(y, x_TD_);
}

TEST_P(Layer, KeepsWhatTheHeaderSays) {
  Workspace workspace;
  const ParameterSet shapes(shapes_device(DeviceKind::kCpu), config_, DType::kF32, "weights");
  workspace.start_recording();
  {
    const ChunkContext ctx = context(shapes_device(DeviceKind::kCpu), workspace, kChunk);
    const LayerParameters w = shapes.model().layers[0];
    const SequenceLayout layout{kChunk, kChunk, kPage, {0}};
    const Task task = tasks(layout, true)[0];
    ShapesPages pages(kPage);
    LayerActivations kept;
    const Lease y =
        layer_forward({.ctx = ctx, .weights = w, .task = task, .pages = pages, .visits = {}},
                      ctx.take("x", {kChunk, kHidden}), kept);
    EXPECT_EQ(y.view().shape(), (Shape{kChunk, kHidden}));
    EXPECT_EQ(kept.input_TD.view().shape(), (Shape{kChunk, kHidden}));
    EXPECT_EQ(kept.q_THC.view().shape(), (Shape{kChunk, 4, kHeadSize}));
    EXPECT_EQ(kept.attention_THC.view().shape(), (Shape{kChunk, 4, kHeadSize}));
    EXPECT_EQ(kept.lse_HT.view().shape(), (Shape{4, kChunk}));
    EXPECT_EQ(kept.mid_TD.view().shape(), (Shape{kChunk, kHidden}));
    EXPECT_EQ(kept.gate_TF.view().shape(), (Shape{kChunk, 20}));
    EXPECT_EQ(kept.up_TF.view().shape(), (Shape{kChunk, 20}));
    EXPECT_EQ(kept.k_TKC.present(), config_.qk_norm);
  }
  EXPECT_NO_THROW(workspace.finish_recording());
}

TEST_P(Layer, NothingIsLeftTakenAndNothingKeptWithoutBeingAsked) {
  // Only the output, one residual, is alive at the end of the forward pass.
  const WorkspaceTrace trace = record(kChunk, false);
  std::int64_t last = 0;
  for (const WorkspaceRequest& r : trace) last = std::max(last, r.end);
  std::vector<std::string> living;
  for (const WorkspaceRequest& r : trace)
    if (r.end == last) living.emplace_back(r.name);
  EXPECT_EQ(living, (std::vector<std::string>{"residual"}));
}

TEST_P(Layer, AShortChunkReplaysTheTraceOfAFullOne) {
  const WorkspaceTrace full = record(kChunk, true);
  for (const std::int64_t tokens : {std::int64_t{1}, kPage, kPage + 3, kChunk - 1}) {
    const Outcome in_full = run(full, tokens, true, x_TD_),
                  own = run(record(tokens, true), tokens, true, x_TD_);
    EXPECT_EQ(in_full.y_TD, own.y_TD) << tokens;
    EXPECT_EQ(in_full.dx_TD, own.dx_TD) << tokens;
  }
}

TEST_P(Layer, ParameterGradientsAddUpAndTheInputsDoNot) {
  const std::vector<float> dx = run(true, x_TD_).dx_TD;
  std::vector<std::vector<float>> once;
  for (std::int64_t i = 0; i < gradients_.size(); ++i) {
    const View g = gradients_.view(i);
    once.emplace_back(g.as<float>(), g.as<float>() + g.elements());
  }
  EXPECT_EQ(run(true, x_TD_).dx_TD, dx);
  int touched = 0;
  for (std::int64_t i = 0; i < gradients_.size(); ++i) {
    const std::vector<float>& first = once[static_cast<std::size_t>(i)];
    const float* twice = gradients_.view(i).as<float>();
    float largest = 0;
    for (const float v : first) largest = std::max(largest, std::abs(v));
    touched += largest > 0;
    for (std::size_t e = 0; e < first.size(); ++e)
      ASSERT_NEAR(twice[e], 2 * first[e], 1e-5f * largest)
          << gradients_.specs()[static_cast<std::size_t>(i)].name;
  }
  // Everything except embedding, final norm and head.
  EXPECT_EQ(touched, gradients_.size() - 3);
}

// Along a random direction the loss changes as the gradient predicts: for the input, and for all
// parameters at once.
TEST_P(Layer, GradientsAreThoseOfTheLoss) {
  const std::vector<float> dx = run(true, x_TD_).dx_TD;
  const float h = 2e-3f;
  const std::vector<float> direction = random_values(kChunk * kHidden, 3);
  double expected = 0;
  std::vector<float> ahead = x_TD_, behind = x_TD_;
  for (std::size_t i = 0; i < dx.size(); ++i) {
    expected += static_cast<double>(dx[i]) * static_cast<double>(direction[i]);
    ahead[i] += h * direction[i];
    behind[i] -= h * direction[i];
  }
  EXPECT_NEAR((loss(ahead) - loss(behind)) / (2 * static_cast<double>(h)), expected,
              0.01 * std::abs(expected));

  expected = 0;
  const auto step = [&](float size) {
    for (std::int64_t i = 0; i < weights_.size(); ++i) {
      const View w = weights_.view(i);
      const std::vector<float> along =
          random_values(w.elements(), 200 + static_cast<std::uint64_t>(i));
      for (std::int64_t e = 0; e < w.elements(); ++e)
        w.as<float>()[e] += size * along[static_cast<std::size_t>(e)];
    }
  };
  for (std::int64_t i = 0; i < weights_.size(); ++i) {
    const View g = gradients_.view(i);
    const std::vector<float> along =
        random_values(g.elements(), 200 + static_cast<std::uint64_t>(i));
    for (std::int64_t e = 0; e < g.elements(); ++e)
      expected += static_cast<double>(g.as<float>()[e]) *
                  static_cast<double>(along[static_cast<std::size_t>(e)]);
  }
  step(h);
  const double up = loss(x_TD_);
  step(-2 * h);
  const double down = loss(x_TD_);
  EXPECT_NEAR((up - down) / (2 * static_cast<double>(h)), expected, 0.01 * std::abs(expected));
}

}  // namespace
}  // namespace longstride
