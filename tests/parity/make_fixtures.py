#!/usr/bin/env python3
"""Makes tests/parity/fixtures: tiny random models, and the loss and gradients transformers computes for them.

    python3 tests/parity/make_fixtures.py [NAME ...]      all of them, or those named

Without torch and transformers at hand it makes .venv in the project root with the versions of
bench/requirements.txt and runs itself there. See README.md beside this file for what a fixture holds.
"""
import json
import os
import platform
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
FIXTURES = HERE / "fixtures"

try:
    import torch
    import transformers
    from safetensors.torch import save_file
except ImportError:
    venv = ROOT / ".venv"
    if Path(sys.prefix) == venv:
        raise
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    subprocess.run([venv / "bin/pip", "install", "-q", "-r", ROOT / "bench/requirements.txt"], check=True)
    os.execv(venv / "bin/python", [str(venv / "bin/python"), __file__, *sys.argv[1:]])

from exact_reference import losses_and_gradients, make_exact, worst_error  # noqa: E402

SMALL = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-6, "max_position_embeddings": 512}
THETA = {"rope_type": "default", "rope_theta": 10000.0}
# One head of 16 has 8 pairs, enough for a scaled, a blended and an untouched frequency.
WIDE = {"num_attention_heads": 2, "num_key_value_heads": 1}


def yarn(**more):
    return {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64, **more}


LLAMA3 = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0, "original_max_position_embeddings": 64}

# name: (architecture, config, what else). What else: tokens, documents, first_position, dtype, shard (bytes),
# old (config.json as published models have it: a function from the config's dictionary to the one to write),
# matters (config fields without which the result must be clearly another).
CASES = {}


def case(name, architecture, config, **other):
    CASES[name] = (architecture, {**SMALL, "rope_parameters": THETA, **config}, other)


def old_style(**more):
    """rope_theta and rope_scaling instead of rope_parameters, torch_dtype instead of dtype, no layer_types."""

    def convert(config):
        rope = config.pop("rope_parameters")
        config["rope_theta"] = rope.pop("rope_theta")
        config["torch_dtype"] = config.pop("dtype")
        config.pop("layer_types", None)
        return {**config, **more}

    return convert


NO_WINDOW = {"use_sliding_window": False}
NO_SCALING = {"rope_parameters": THETA}

case("qwen2", "qwen2", {})
case("qwen2-tied", "qwen2", {"tie_word_embeddings": True})
case("qwen2-window", "qwen2", {"use_sliding_window": True, "sliding_window": 40, "max_window_layers": 1},
     old=old_style(), matters=NO_WINDOW)
case("qwen2-old-config", "qwen2", {"rope_parameters": {"rope_type": "default", "rope_theta": 1000.0}},
     old=old_style(use_sliding_window=False, sliding_window=131072, max_window_layers=2), matters=NO_SCALING)
case("qwen2-old-yarn", "qwen2", {**WIDE, "rope_parameters": yarn()},
     old=old_style(rope_scaling={"factor": 4.0, "original_max_position_embeddings": 64, "type": "yarn"}),
     matters=NO_SCALING)
case("qwen3", "qwen3", {"head_dim": 12})
case("qwen3-tied", "qwen3", {"head_dim": 16, "tie_word_embeddings": True})
case("qwen3-bias-window", "qwen3", {"head_dim": 16, "attention_bias": True, "use_sliding_window": True,
                                    "sliding_window": 130, "max_window_layers": 0}, matters=NO_WINDOW)
case("llama-mha", "llama", {"num_key_value_heads": 4})
case("llama-gqa", "llama", {"hidden_size": 48, "num_attention_heads": 6, "num_key_value_heads": 2})
case("llama-mqa", "llama", {"num_key_value_heads": 1, "tie_word_embeddings": True})
case("llama-biases", "llama", {"attention_bias": True, "mlp_bias": True})
case("mistral-window", "mistral", {"sliding_window": 33}, matters={"sliding_window": None})
case("mistral-dense", "mistral", {"sliding_window": None, "head_dim": 10})
case("phi3", "phi3", {}, matters={"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}})
case("phi3-window", "phi3", {"num_key_value_heads": 1, "sliding_window": 33}, old=old_style(rope_scaling=None),
     matters={"sliding_window": None})
case("olmo2", "olmo2", {})
case("olmo2-bias-tied", "olmo2", {"attention_bias": True, "tie_word_embeddings": True, "num_key_value_heads": 4},
     old=old_style(rope_scaling=None))
GEMMA_ROPE = {"full_attention": {"rope_type": "linear", "rope_theta": 100000.0, "factor": 8.0},
              "sliding_attention": {"rope_type": "default", "rope_theta": 1000.0}}
GEMMA = {"head_dim": 12, "query_pre_attn_scalar": 20, "sliding_window": 24, "tie_word_embeddings": True,
         "rope_parameters": GEMMA_ROPE}


def old_gemma(config):
    """As published: one rope_scaling, two thetas, and a pattern instead of the list of layers."""
    ropes = config.pop("rope_parameters")
    config["rope_theta"] = ropes["full_attention"].pop("rope_theta")
    config["rope_local_base_freq"] = ropes["sliding_attention"]["rope_theta"]
    config["rope_scaling"] = ropes["full_attention"]
    config["torch_dtype"] = config.pop("dtype")
    config["sliding_window_pattern"] = 2
    for key in ("layer_types", "_sliding_window_pattern"):
        config.pop(key, None)
    return config


case("gemma3", "gemma3_text", {**GEMMA, "num_hidden_layers": 3,
                               "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
     matters={"query_pre_attn_scalar": 12})
case("gemma3-old-config", "gemma3_text", {**GEMMA, "layer_types": ["sliding_attention", "full_attention"]}, old=old_gemma,
     matters={"rope_parameters": {"full_attention": THETA, "sliding_attention": THETA}})
case("gemma3-head-256", "gemma3_text", {**GEMMA, **WIDE, "hidden_size": 16, "head_dim": 256, "query_pre_attn_scalar": 256,
                                        "layer_types": ["sliding_attention", "full_attention"]},
     matters={"sliding_window": 512})
case("gemma3-packed", "gemma3_text", {**GEMMA, "attention_bias": True, "tie_word_embeddings": False, "sliding_window": 30,
                                      "layer_types": ["sliding_attention", "full_attention"]},
     tokens=300, documents=[128, 1, 119, 52], dtype=torch.bfloat16, matters={"sliding_window": 512})
case("llama-head-8", "llama", {"head_dim": 8, "num_attention_heads": 2, "num_key_value_heads": 1})
case("llama-head-16", "llama", {"head_dim": 16, "num_key_value_heads": 2})
case("llama-head-64", "llama", {"head_dim": 64, **WIDE, "num_hidden_layers": 1})
case("rope-linear", "llama", {**WIDE, "rope_parameters": {**THETA, "rope_type": "linear", "factor": 2.5}},
     matters=NO_SCALING)
case("rope-linear-old", "llama", {**WIDE, "rope_parameters": {**THETA, "rope_type": "linear", "factor": 2.5}},
     old=old_style(rope_scaling={"type": "linear", "factor": 2.5}), matters=NO_SCALING)
case("rope-llama3", "llama", {**WIDE, "rope_parameters": LLAMA3}, matters=NO_SCALING)
case("rope-llama3-old", "llama", {**WIDE, "rope_parameters": {**LLAMA3, "rope_theta": 500.0}},
     old=old_style(rope_scaling={k: v for k, v in LLAMA3.items() if k != "rope_theta"}), matters=NO_SCALING)
case("rope-yarn", "llama", {**WIDE, "rope_parameters": yarn()}, matters=NO_SCALING)
case("rope-yarn-betas", "qwen3", {**WIDE, "head_dim": 24, "rope_parameters": yarn(factor=6.0, beta_fast=16.0, beta_slow=2.0)},
     matters={"rope_parameters": yarn(factor=6.0)})
case("rope-yarn-attention-factor", "llama", {**WIDE, "rope_parameters": yarn(attention_factor=0.7)},
     matters={"rope_parameters": yarn()})
case("rope-yarn-no-truncate", "llama", {**WIDE, "rope_parameters": yarn(truncate=False)},
     matters={"rope_parameters": yarn()})
case("rope-yarn-mscale", "mistral", {**WIDE, "sliding_window": None, "rope_parameters": yarn(factor=8.0, mscale=2.0, mscale_all_dim=0.5)},
     matters={"sliding_window": None, "rope_parameters": yarn(factor=8.0)})
case("sharded", "qwen2", {}, shard=24_000)
case("bf16", "qwen3", {"head_dim": 16}, dtype=torch.bfloat16)
case("f16", "llama", {}, dtype=torch.float16)
case("packed", "qwen2", {}, tokens=280, documents=[61, 1, 128, 90])
case("packed-window", "mistral", {"sliding_window": 30}, tokens=300, documents=[128, 120, 52],
     matters={"sliding_window": None})
case("far-1m", "qwen2", {**WIDE, "rope_parameters": yarn(), "max_position_embeddings": 1 << 22},
     first_position=1_048_576 + 12_345)
# Passes 2^31 on the way.
case("far-2g", "llama", {**WIDE, "max_position_embeddings": 1 << 32}, tokens=1100, first_position=2**31 - 1000)


def random_weights(model, generator):
    """Values large enough that every part shows: attention far from uniform, no norm at 1, no bias at 0."""
    for name, p in model.named_parameters():
        noise = torch.randn(p.shape, generator=generator)
        if "norm" in name:
            value = 0.25 * noise + (0 if model.config.model_type == "gemma3_text" else 1)
        elif name.endswith("bias"):
            value = 0.25 * noise
        elif "embed_tokens" in name:
            value = 0.3 * noise if model.config.tie_word_embeddings else noise
        else:
            gain = 1.5 if ("q_proj" in name or "k_proj" in name or "qkv_proj" in name) else 1.0
            value = gain * noise / p.shape[1] ** 0.5
        p.data = value


def config_class(architecture):
    return {"llama": transformers.LlamaConfig, "mistral": transformers.MistralConfig,
            "qwen2": transformers.Qwen2Config, "qwen3": transformers.Qwen3Config,
            "phi3": transformers.Phi3Config, "olmo2": transformers.Olmo2Config,
            "gemma3_text": transformers.Gemma3TextConfig}[architecture]


def write_model(directory, architecture, fields, other, generator):
    dtype = other.get("dtype", torch.float32)
    # No token is special here: published defaults would name ids beyond this vocabulary or mean nothing.
    config = config_class(architecture)(**fields, bos_token_id=None, eos_token_id=None, pad_token_id=None)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    random_weights(model, generator)
    model.to(dtype).save_pretrained(directory, max_shard_size=other.get("shard", "1GB"))
    (directory / "generation_config.json").unlink(missing_ok=True)
    if convert := other.get("old"):
        path = directory / "config.json"
        path.write_text(json.dumps(convert(json.loads(path.read_text())), indent=2, sort_keys=True) + "\n")


def load(directory, attention, **override):
    """The model as transformers reads the directory, weights as float32."""
    config = transformers.AutoConfig.from_pretrained(directory)
    if override:  # by way of the class, which derives other fields from these
        derived = ("rope_parameters", "model_type") + (() if config.model_type == "gemma3_text" else ("layer_types",))
        fields = {k: v for k, v in config.to_dict().items() if k not in derived}
        config = type(config)(**{**fields, "rope_parameters": dict(config.rope_parameters), **override})
    return transformers.AutoModelForCausalLM.from_pretrained(
        directory, config=config, dtype=torch.float32, attn_implementation=attention)


def make(name):
    architecture, fields, other = CASES[name]
    directory = FIXTURES / name
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    write_model(directory, architecture, fields, other, generator)

    count = other.get("tokens", 200)
    documents = other.get("documents", [count])
    first = other.get("first_position", 0)
    tokens = torch.randint(0, fields["vocab_size"], (count,), generator=generator)
    (directory / "tokens.bin").write_bytes(tokens.numpy().astype("<u4").tobytes())

    exact = make_exact(load(directory, "sdpa"))
    loss, token_losses, gradients = losses_and_gradients(exact, tokens, documents, first)

    def difference(model, position=first):
        other_loss, _, other_gradients = losses_and_gradients(model, tokens, documents, position)
        return abs(other_loss - loss), worst_error(other_gradients, gradients)

    # transformers as it is, in float32, agrees; at far positions it cannot, so there it is asked about near
    # ones: attention depends on distances alone, and the result is the same.
    single = {a: difference(load(directory, a), 0) for a in ("eager", "sdpa")}
    for a, (loss_error, gradient_error) in single.items():
        assert loss_error < 1e-5 and gradient_error < 3e-5, (name, a, loss_error, gradient_error)
    notes = {}
    if first:
        near = difference(exact, 0)
        assert max(near) < 1e-6, (name, near)
        notes["float32_worst_gradient_error_at_first_position"] = difference(load(directory, "sdpa"))[1]
    if override := other.get("matters"):
        effect = difference(make_exact(load(directory, "sdpa", **override)))[1]
        assert effect > 1e-2, (name, "has no effect", effect)
        notes["worst_gradient_change_without_it"] = effect

    save_file({n: g.float().contiguous() for n, g in gradients.items()}, directory / "expected.safetensors")
    chosen = sorted({*list(token_losses)[:4], *list(token_losses)[::37], *list(token_losses)[-2:]})
    (directory / "expected.json").write_text(json.dumps({
        "loss": loss,
        "tokens": count,
        "predicted": len(token_losses),
        "documents": documents,
        "first_position": first,
        "token_losses": [{"index": i, "loss": token_losses[i]} for i in chosen],
        "computed_in": "float64 from the stored weights: sdpa attention, norms and rotary tables patched to float64, "
                       "every document by itself; gradients rounded to float32",
        "loss_is": "the mean over all predicted tokens; the last token of a document predicts nothing",
        "float32_transformers": {a: {"loss_error": e[0], "worst_gradient_error": e[1]} for a, e in single.items()},
        **notes,
        "made_by": "tests/parity/make_fixtures.py",
        "versions": {"python": platform.python_version(), "torch": torch.__version__.split("+")[0],
                     "transformers": transformers.__version__},
    }, indent=2) + "\n")
    size = sum(f.stat().st_size for f in directory.iterdir())
    print(f"{name:28s} {size / 1000:6.0f} kB  loss {loss:.6f}  "
          f"float32 off by {max(e[1] for e in single.values()):.1e}  {notes}")
    return size


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    names = sys.argv[1:] or list(CASES)
    if unknown := [n for n in names if n not in CASES]:
        sys.exit(f"no fixture is called {', '.join(unknown)}; there are: {', '.join(CASES)}")
    if not sys.argv[1:]:
        shutil.rmtree(FIXTURES, ignore_errors=True)
    print(f"{sum(make(n) for n in names) / 1e6:.2f} MB in all")


if __name__ == "__main__":
    main()
