"""What a transformers model computes, in float64: loss, per-token losses and every gradient.

transformers forces single precision in three places: RMS norms, rotary tables, and the softmax of eager
attention. The first two are replaced here, on the one model at hand; sdpa attention stays in float64 by
itself. The frequencies are computed anew in float64 from the config, and compared with transformers' own.
"""
import math
import types

import torch
import torch.nn.functional as F


def rope_frequencies(config, layer_type=None):
    """Frequencies (float64, one per pair) and the factor on cos and sin, by the formulas of transformers."""
    p = config.rope_parameters if layer_type is None else config.rope_parameters[layer_type]
    kind, base, factor = p["rope_type"], float(p["rope_theta"]), p.get("factor")
    dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    exponent = torch.arange(0, dim, 2, dtype=torch.float64) / dim
    f = base**-exponent
    if kind == "default":
        return f, 1.0
    if kind == "linear":
        return f / factor, 1.0
    original = p["original_max_position_embeddings"]
    if kind == "llama3":
        low, high = p["low_freq_factor"], p["high_freq_factor"]
        turns = original * f / (2 * math.pi)  # within the original context
        smooth = ((turns - low) / (high - low)).clamp(0, 1)
        return (1 - smooth) * f / factor + smooth * f, 1.0
    assert kind == "yarn", kind
    if factor is None:
        factor = config.max_position_embeddings / original

    def scale(m):
        return 1.0 if factor <= 1 else 0.1 * m * math.log(factor) + 1.0

    attention = p.get("attention_factor")
    if attention is None:
        m, m_all = p.get("mscale"), p.get("mscale_all_dim")
        attention = scale(m) / scale(m_all) if m and m_all else scale(1)

    def pair_with(turns):
        return dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))

    low, high = pair_with(p.get("beta_fast") or 32), pair_with(p.get("beta_slow") or 1)
    if p.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    if low == high:
        high += 0.001
    ramp = ((torch.arange(dim // 2, dtype=torch.float64) - low) / (high - low)).clamp(0, 1)
    return f / factor * ramp + f * (1 - ramp), attention


def _exact_gemma_norm(self, x):
    return (1 + self.weight) * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps))


def _exact_norm(self, x):
    return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))


def _exact_rotary(self, x, position_ids):
    # Single precision is off by hundredths of a radian at position 1M, and cannot tell neighbours apart
    # beyond 2^24: far positions need doubles.
    angles = position_ids[..., None].double() * self.exact_frequencies
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos() * self.exact_factor, angles.sin() * self.exact_factor


def _exact_rotary_of(self, x, position_ids, layer_type):
    frequencies, factor = self.exact_of[layer_type]
    angles = position_ids[..., None].double() * frequencies
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos() * factor, angles.sin() * factor


def _make_rotary_exact(rotary, config):
    if not hasattr(rotary, "layer_types"):
        frequencies, factor = rope_frequencies(config)
        torch.testing.assert_close(rotary.inv_freq.double(), frequencies, rtol=2e-6, atol=0)
        assert abs(rotary.attention_scaling - factor) < 1e-12, (rotary.attention_scaling, factor)
        rotary.exact_frequencies, rotary.exact_factor = frequencies, factor
        rotary.forward = types.MethodType(_exact_rotary, rotary)
        return
    rotary.exact_of = {}  # Gemma 3: kinds of layers have their own
    for kind in rotary.layer_types:
        frequencies, factor = rotary.exact_of[kind] = rope_frequencies(config, kind)
        torch.testing.assert_close(getattr(rotary, f"{kind}_inv_freq").double(), frequencies, rtol=2e-6, atol=0)
        assert abs(getattr(rotary, f"{kind}_attention_scaling") - factor) < 1e-12, kind
    rotary.forward = types.MethodType(_exact_rotary_of, rotary)


def make_exact(model):
    """Turns `model` into one that computes in float64 throughout. It must use sdpa attention."""
    assert model.config._attn_implementation == "sdpa"
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            gemma = type(module).__name__.startswith("Gemma")
            module.forward = types.MethodType(_exact_gemma_norm if gemma else _exact_norm, module)
    _make_rotary_exact(model.model.rotary_emb, model.config)
    model.double()
    assert all(p.dtype == torch.float64 for p in model.parameters())
    return model


def losses_and_gradients(model, tokens, documents, first_position=0):
    """Each document by itself, positions from `first_position`. The loss is the mean over all predicted tokens.

    Returns (loss, {index of the predicting token: its loss}, {name: gradient}).
    """
    model.zero_grad()
    predicted = len(tokens) - len(documents)
    loss_sum, token_losses, begin = 0.0, {}, 0
    for length in documents:
        ids = tokens[begin:begin + length][None]
        if length > 1:
            positions = torch.arange(first_position, first_position + length)[None]
            logits = model(input_ids=ids, position_ids=positions, use_cache=False).logits[0, :-1]
            losses = F.cross_entropy(logits, ids[0, 1:], reduction="none")
            (losses.sum() / predicted).backward()
            loss_sum += losses.double().sum().item()
            token_losses |= {begin + i: v for i, v in enumerate(losses.tolist())}
        begin += length
    assert begin == len(tokens)
    return loss_sum / predicted, token_losses, {
        n: p.grad.clone() for n, p in model.named_parameters() if p.requires_grad}


def worst_error(gradients, reference):
    """The largest relative Frobenius error of any tensor."""
    assert gradients.keys() == reference.keys()
    return max(((gradients[n].double() - r.double()).norm() / r.double().norm()).item()
               for n, r in reference.items())
