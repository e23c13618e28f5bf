// A whole-sequence transformer in double precision, written for clarity: every operation is a plain
// loop that pushes its own derivative onto a tape. The chunked trainer is compared with it.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <numbers>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/chunk_runner.h"
#include "model/parameters.h"
#include "model/rope_frequencies.h"
#include "tensor/page_codes.h"
#include "tests/train/reference_selection.h"

namespace longstride::reference {

struct Matrix {
  std::int64_t rows = 0, cols = 0;
  std::vector<double> value, grad;
  Matrix(std::int64_t r, std::int64_t c)
      : rows(r), cols(c), value(static_cast<std::size_t>(r * c)), grad(value.size()) {}
  double& at(std::int64_t r, std::int64_t c) {
    return value[static_cast<std::size_t>(r * cols + c)];
  }
  double& d(std::int64_t r, std::int64_t c) { return grad[static_cast<std::size_t>(r * cols + c)]; }
};
using Node = std::shared_ptr<Matrix>;

// Keys and values in 8 bits, in pages of so many tokens.
struct PageCodes {
  DType code;
  std::int64_t tokens;
};

class Tape {
 public:
  Node make(std::int64_t r, std::int64_t c) { return std::make_shared<Matrix>(r, c); }

  // x w^T + b
  Node linear(Node x, Node w, Node b) {
    Node y = make(x->rows, w->rows);
    for (std::int64_t t = 0; t < x->rows; ++t)
      for (std::int64_t o = 0; o < w->rows; ++o) {
        double sum = b ? b->value[static_cast<std::size_t>(o)] : 0.0;
        for (std::int64_t i = 0; i < w->cols; ++i) sum += x->at(t, i) * w->at(o, i);
        y->at(t, o) = sum;
      }
    back_.push_back([=] {
      for (std::int64_t t = 0; t < x->rows; ++t)
        for (std::int64_t o = 0; o < w->rows; ++o) {
          if (b) b->grad[static_cast<std::size_t>(o)] += y->d(t, o);
          for (std::int64_t i = 0; i < w->cols; ++i) {
            x->d(t, i) += y->d(t, o) * w->at(o, i);
            w->d(o, i) += y->d(t, o) * x->at(t, i);
          }
        }
    });
    return y;
  }

  Node add(Node a, Node b) {
    Node y = make(a->rows, a->cols);
    for (std::size_t i = 0; i < y->value.size(); ++i) y->value[i] = a->value[i] + b->value[i];
    back_.push_back([=] {
      for (std::size_t i = 0; i < y->value.size(); ++i)
        a->grad[i] += y->grad[i], b->grad[i] += y->grad[i];
    });
    return y;
  }

  // Normalises each group of w->value.size() columns; the factors are offset + w.
  Node rms_norm(Node x, Node w, double eps, double offset = 0) {
    const auto n = static_cast<std::int64_t>(w->value.size()), groups = x->cols / n;
    Node y = make(x->rows, x->cols);
    for (std::int64_t r = 0; r < x->rows * groups; ++r) {
      const double s = scale_of(&x->value[static_cast<std::size_t>(r * n)], n, eps);
      for (std::int64_t i = 0; i < n; ++i)
        y->value[static_cast<std::size_t>(r * n + i)] =
            x->value[static_cast<std::size_t>(r * n + i)] * s *
            (offset + w->value[static_cast<std::size_t>(i)]);
    }
    back_.push_back([=] {
      for (std::int64_t r = 0; r < x->rows * groups; ++r) {
        const double* xr = &x->value[static_cast<std::size_t>(r * n)];
        const double* dy = &y->grad[static_cast<std::size_t>(r * n)];
        const double s = scale_of(xr, n, eps);
        double dot = 0;
        for (std::int64_t i = 0; i < n; ++i)
          dot += dy[i] * (offset + w->value[static_cast<std::size_t>(i)]) * xr[i];
        for (std::int64_t i = 0; i < n; ++i) {
          w->grad[static_cast<std::size_t>(i)] += dy[i] * xr[i] * s;
          x->grad[static_cast<std::size_t>(r * n + i)] +=
              s * dy[i] * (offset + w->value[static_cast<std::size_t>(i)]) -
              s * s * s * xr[i] * dot / static_cast<double>(n);
        }
      }
    });
    return y;
  }

  Node rope(Node x, std::int64_t head_size, const std::vector<std::int64_t>& positions,
            const RopeFrequencies& f) {
    Node y = make(x->rows, x->cols);
    const auto turn = [=](Matrix& from, std::vector<double>& source, std::vector<double>& to,
                          bool back) {
      for (std::int64_t t = 0; t < from.rows; ++t)
        for (std::int64_t head = 0; head < from.cols / head_size; ++head)
          for (std::int64_t i = 0; i < head_size / 2; ++i) {
            const double angle = static_cast<double>(positions[static_cast<std::size_t>(t)]) *
                                 f.frequencies[static_cast<std::size_t>(i)];
            const double c = std::cos(angle) * f.attention_factor,
                         s = std::sin(angle) * f.attention_factor * (back ? -1 : 1);
            const auto a = static_cast<std::size_t>(t * from.cols + head * head_size + i),
                       b = a + static_cast<std::size_t>(head_size / 2);
            to[a] += source[a] * c - source[b] * s;
            to[b] += source[b] * c + source[a] * s;
          }
    };
    turn(*x, x->value, y->value, false);
    back_.push_back([=] { turn(*x, y->grad, x->grad, true); });
    return y;
  }

  // A row per token, as pages in 8 bits hold its heads; the gradient passes through.
  Node coded(Node x, std::int64_t head_size, const PageCodes& pages) {
    Node y = make(x->rows, x->cols);
    const auto C = static_cast<std::size_t>(head_size), columns = static_cast<std::size_t>(x->cols),
               of_page = columns * static_cast<std::size_t>(pages.tokens);
    for (std::size_t page = 0; page < x->value.size(); page += of_page) {
      const std::size_t end = std::min(page + of_page, x->value.size());
      std::vector<double> centres(columns);
      for (std::size_t c = 0; c < columns; ++c) {
        double sum = 0;
        for (std::size_t i = page + c; i < end; i += columns) sum += x->value[i];
        centres[c] = static_cast<double>(to_float(to_bf16(static_cast<float>(
            sum * static_cast<double>(columns) / static_cast<double>(end - page)))));
      }
      for (std::size_t row = page; row < end; row += C) {
        const auto off = [&](std::size_t i) {
          return static_cast<float>(x->value[row + i] - centres[(row + i - page) % columns]);
        };
        std::uint32_t most = 0;
        for (std::size_t i = 0; i < C; ++i)
          most = std::max(most, std::bit_cast<std::uint32_t>(std::abs(off(i))));
        const bf16 scale = row_scale(pages.code, most);
        for (std::size_t i = 0; i < C; ++i)
          y->value[row + i] =
              static_cast<double>(
                  code_value(pages.code, nearest_code(pages.code, off(i) * inverse_scale(scale))) *
                  to_float(scale)) +
              centres[(row + i - page) % columns];
      }
    }
    back_.push_back([=] {
      for (std::size_t i = 0; i < y->value.size(); ++i) x->grad[i] += y->grad[i];
    });
    return y;
  }

  // Query t attends to key s if first_visible[t] <= s <= t, and it is not hidden.
  Node attention(Node q, Node k, Node v, std::int64_t heads, std::int64_t kv_heads, double scale,
                 const std::vector<std::int64_t>& first_visible,
                 const std::function<bool(std::int64_t t, std::int64_t s)>& hidden) {
    const std::int64_t T = q->rows, C = q->cols / heads, group = heads / kv_heads;
    Node y = make(T, q->cols);
    auto weights = std::make_shared<std::vector<double>>(static_cast<std::size_t>(heads * T * T));
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t t = 0; t < T; ++t) {
        double* p = &(*weights)[static_cast<std::size_t>((h * T + t) * T)];
        double sum = 0;
        for (std::int64_t s = first_visible[static_cast<std::size_t>(t)]; s <= t; ++s) {
          if (hidden && hidden(t, s)) continue;
          double score = 0;
          for (std::int64_t c = 0; c < C; ++c)
            score += q->at(t, h * C + c) * k->at(s, h / group * C + c);
          sum += p[s] = std::exp(score * scale);
        }
        for (std::int64_t s = 0; s <= t; ++s) {
          p[s] /= sum;
          for (std::int64_t c = 0; c < C; ++c)
            y->at(t, h * C + c) += p[s] * v->at(s, h / group * C + c);
        }
      }
    back_.push_back([=] {
      for (std::int64_t h = 0; h < heads; ++h)
        for (std::int64_t t = 0; t < T; ++t) {
          const double* p = &(*weights)[static_cast<std::size_t>((h * T + t) * T)];
          std::vector<double> dp(static_cast<std::size_t>(t + 1));
          double mean = 0;
          for (std::int64_t s = 0; s <= t; ++s) {
            for (std::int64_t c = 0; c < C; ++c) {
              dp[static_cast<std::size_t>(s)] += y->d(t, h * C + c) * v->at(s, h / group * C + c);
              v->d(s, h / group * C + c) += p[s] * y->d(t, h * C + c);
            }
            mean += p[s] * dp[static_cast<std::size_t>(s)];
          }
          for (std::int64_t s = 0; s <= t; ++s) {
            const double ds = p[s] * (dp[static_cast<std::size_t>(s)] - mean) * scale;
            for (std::int64_t c = 0; c < C; ++c) {
              q->d(t, h * C + c) += ds * k->at(s, h / group * C + c);
              k->d(s, h / group * C + c) += ds * q->at(t, h * C + c);
            }
          }
        }
    });
    return y;
  }

  // x * sigmoid(z): of silu z = x; of gelu, in its tanh form, z = 2 sqrt(2/pi) (x + 0.044715 x^3).
  Node swiglu(Node gate, Node up, bool gelu) {
    Node y = make(gate->rows, gate->cols);
    const double a = gelu ? 2 * std::sqrt(2 / std::numbers::pi) : 1, b = gelu ? 0.044715 * a : 0;
    const auto sigmoid = [=](double x) { return 1.0 / (1.0 + std::exp(-(a * x + b * x * x * x))); };
    for (std::size_t i = 0; i < y->value.size(); ++i)
      y->value[i] = gate->value[i] * sigmoid(gate->value[i]) * up->value[i];
    back_.push_back([=] {
      for (std::size_t i = 0; i < y->value.size(); ++i) {
        const double g = gate->value[i], s = sigmoid(g);
        gate->grad[i] += y->grad[i] * up->value[i] * (s + g * s * (1 - s) * (a + 3 * b * g * g));
        up->grad[i] += y->grad[i] * g * s;
      }
    });
    return y;
  }

  Node embedding(Node table, const std::vector<std::int32_t>& tokens, double scale) {
    Node y = make(static_cast<std::int64_t>(tokens.size()), table->cols);
    for (std::int64_t t = 0; t < y->rows; ++t)
      for (std::int64_t i = 0; i < y->cols; ++i)
        y->at(t, i) = scale * table->at(tokens[static_cast<std::size_t>(t)], i);
    back_.push_back([=] {
      for (std::int64_t t = 0; t < y->rows; ++t)
        for (std::int64_t i = 0; i < y->cols; ++i)
          table->d(tokens[static_cast<std::size_t>(t)], i) += scale * y->d(t, i);
    });
    return y;
  }

  // Mean of -log softmax(logits)[target] over targets >= 0. Starts the derivative.
  double cross_entropy(Node logits, const std::vector<std::int32_t>& targets) {
    double loss = 0, counted = 0;
    for (const std::int32_t target : targets) counted += target >= 0;
    for (std::int64_t t = 0; t < logits->rows; ++t) {
      const std::int32_t target = targets[static_cast<std::size_t>(t)];
      if (target < 0) continue;
      double sum = 0;
      for (std::int64_t i = 0; i < logits->cols; ++i) sum += std::exp(logits->at(t, i));
      loss += std::log(sum) - logits->at(t, target);
      for (std::int64_t i = 0; i < logits->cols; ++i)
        logits->d(t, i) = (std::exp(logits->at(t, i)) / sum - (i == target)) / counted;
    }
    return loss / counted;
  }

  void backward() {
    for (auto f = back_.rbegin(); f != back_.rend(); ++f) (*f)();
  }

 private:
  static double scale_of(const double* x, std::int64_t n, double eps) {
    double squares = 0;
    for (std::int64_t i = 0; i < n; ++i) squares += x[i] * x[i];
    return 1.0 / std::sqrt(squares / static_cast<double>(n) + eps);
  }
  std::vector<std::function<void()>> back_;
};

struct Result {
  double loss = 0;
  std::map<std::string, std::vector<double>> gradients;  // Hugging Face names
  // Sparse layers: by layer, then query page.
  std::vector<std::vector<std::set<std::int64_t>>> selected;
};

// `weights` holds F32 values on the host.
inline Result run(const ModelConfig& config, const ParameterSet& weights,
                  const std::vector<std::int32_t>& tokens, const std::vector<std::int32_t>& targets,
                  const std::vector<std::int64_t>& document_starts, std::int64_t first_position = 0,
                  const SelectionProblem* selection = nullptr,
                  const std::optional<PageCodes>& kv_codes = {}) {
  Result result;
  std::map<std::string, Node> p;
  for (std::int64_t i = 0; i < weights.size(); ++i) {
    const ParameterSpec& spec = weights.specs()[static_cast<std::size_t>(i)];
    Node node = std::make_shared<Matrix>(spec.shape.rank() == 2 ? spec.shape[0] : 1,
                                         spec.shape[spec.shape.rank() - 1]);
    const float* from = weights.view(i).as<float>();
    for (std::size_t e = 0; e < node->value.size(); ++e)
      node->value[e] = static_cast<double>(from[e]);
    p[spec.name] = node;
  }
  const auto get = [&](const std::string& name) { return p.contains(name) ? p.at(name) : nullptr; };

  const auto T = static_cast<std::int64_t>(tokens.size());
  const RopeFrequencies everywhere = rope_frequencies(config),
                        local = config.local_rope
                                    ? rope_frequencies(*config.local_rope, config.head_size)
                                    : RopeFrequencies{};
  std::vector<std::int64_t> positions, starts;
  for (std::int64_t t = 0, d = 0; t < T; ++t) {
    while (d + 1 < static_cast<std::int64_t>(document_starts.size()) &&
           document_starts[static_cast<std::size_t>(d + 1)] <= t)
      ++d;
    starts.push_back(document_starts[static_cast<std::size_t>(d)]);
    positions.push_back(first_position + t - starts.back());
  }

  const double scale =
      1 / std::sqrt(config.attention_scalar > 0 ? config.attention_scalar
                                                : static_cast<double>(config.head_size));
  Tape tape;
  Node x = tape.embedding(
      get("model.embed_tokens.weight"), tokens,
      config.scaled_embedding ? std::sqrt(static_cast<double>(config.hidden_size)) : 1.0);
  for (std::int64_t l = 0; l < config.layers; ++l) {
    const std::string layer = "model.layers." + std::to_string(l) + ".",
                      attn = layer + "self_attn.", mlp = layer + "mlp.";
    const std::int64_t window = config.windows[static_cast<std::size_t>(l)];
    std::vector<std::int64_t> first_visible = starts;
    for (std::int64_t t = 0; t < T; ++t)
      if (window > 0)
        first_visible[static_cast<std::size_t>(t)] =
            std::max(first_visible[static_cast<std::size_t>(t)], t - window + 1);
    const auto norm = [&](Node of, const std::string& name, bool present) {
      return present ? tape.rms_norm(of, get(layer + name + ".weight"), config.rms_eps,
                                     config.norm_offset)
                     : of;
    };
    Node h = norm(x, "input_layernorm", config.input_norms);
    Node q = tape.linear(h, get(attn + "q_proj.weight"), get(attn + "q_proj.bias"));
    Node k = tape.linear(h, get(attn + "k_proj.weight"), get(attn + "k_proj.bias"));
    Node v = tape.linear(h, get(attn + "v_proj.weight"), get(attn + "v_proj.bias"));
    if (config.qk_norm) {
      q = tape.rms_norm(q, get(attn + "q_norm.weight"), config.rms_eps, config.norm_offset);
      k = tape.rms_norm(k, get(attn + "k_norm.weight"), config.rms_eps, config.norm_offset);
    }
    const RopeFrequencies& frequencies = is_local(config, l) ? local : everywhere;
    q = tape.rope(q, config.head_size, positions, frequencies);
    k = tape.rope(k, config.head_size, positions, frequencies);
    if (kv_codes) {
      k = tape.coded(k, config.head_size, *kv_codes);
      v = tape.coded(v, config.head_size, *kv_codes);
    }
    std::function<bool(std::int64_t, std::int64_t)> hidden;
    auto& selected = result.selected.emplace_back();
    if (selection != nullptr && selection->sparse.is_sparse(l)) {
      first_visible = starts;
      selected = select_pages(*selection, selection->sparse.budget(l),
                              {q->value, config.query_heads, config.head_size},
                              {k->value, config.kv_heads, config.head_size}, scale, starts);
      hidden = [&selected, P = selection->page_tokens, C = selection->chunk_tokens](
                   std::int64_t t, std::int64_t s) {
        return s / C != t / C && !selected[static_cast<std::size_t>(t / P)].contains(s / P);
      };
    }
    Node a =
        tape.attention(q, k, v, config.query_heads, config.kv_heads, scale, first_visible, hidden);
    a = tape.linear(a, get(attn + "o_proj.weight"), get(attn + "o_proj.bias"));
    x = tape.add(x, norm(a, "post_attention_layernorm", config.output_norms));
    h = norm(x, config.output_norms ? "pre_feedforward_layernorm" : "post_attention_layernorm",
             config.input_norms);
    Node product = tape.swiglu(
        tape.linear(h, get(mlp + "gate_proj.weight"), get(mlp + "gate_proj.bias")),
        tape.linear(h, get(mlp + "up_proj.weight"), get(mlp + "up_proj.bias")), config.gelu);
    product = tape.linear(product, get(mlp + "down_proj.weight"), get(mlp + "down_proj.bias"));
    x = tape.add(x, norm(product, "post_feedforward_layernorm", config.output_norms));
  }
  x = tape.rms_norm(x, get("model.norm.weight"), config.rms_eps, config.norm_offset);
  Node head = config.tied_embeddings ? get("model.embed_tokens.weight") : get("lm_head.weight");
  result.loss = tape.cross_entropy(tape.linear(x, head, nullptr), targets);
  tape.backward();
  for (auto& [name, node] : p) result.gradients[name] = node->grad;
  return result;
}

}  // namespace longstride::reference
