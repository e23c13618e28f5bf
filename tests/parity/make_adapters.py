#!/usr/bin/env python3
"""Makes tests/parity/adapters: LoRA adapters of some models of tests/parity/fixtures as PEFT saves them, with the
loss and gradients that PEFT computes, and the loss of the model that PEFT's merge_and_unload makes of them.

    python3 tests/parity/make_adapters.py [NAME ...]      all of them, or those named

Needs torch, transformers and peft in the versions of bench/requirements.txt.
"""
import json
import platform
import shutil
import sys
import tempfile
import warnings
import zlib
from pathlib import Path

import peft
import torch
import transformers
from safetensors.torch import load_file, save_file

from exact_reference import losses_and_gradients, make_exact

HERE = Path(__file__).resolve().parent
ADAPTERS = HERE / "adapters"
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
NORMS = ["input_layernorm", "post_attention_layernorm", "q_norm", "k_norm", "norm"]

# name: (base fixture, LoraConfig's fields, type of the stored tensors)
CASES = {
    "qwen2-all": ("qwen2", {"r": 8, "lora_alpha": 16, "target_modules": ALL}, torch.float32),
    "qwen3-rank-1": ("qwen3", {"r": 1, "lora_alpha": 2, "target_modules": ["q_proj", "v_proj"]}, torch.float32),
    "llama-rank-64-rslora": ("llama-gqa", {"r": 64, "lora_alpha": 16, "use_rslora": True,
                                           "target_modules": "all-linear"}, torch.float32),
    "llama-biases": ("llama-biases", {"r": 3, "lora_alpha": 5, "target_modules": ALL}, torch.float32),
    "mistral-one-layer": ("mistral-window", {"r": 4, "lora_alpha": 12, "layers_to_transform": [1],
                                             "target_modules": ["k_proj", "o_proj", "gate_proj", "down_proj"]},
                          torch.float32),
    "llama-pattern": ("llama-mha", {"r": 2, "lora_alpha": 4, "target_modules": r".*\.(q|up)_proj"}, torch.float32),
    "qwen3-saved": ("qwen3", {"r": 8, "lora_alpha": 8, "target_modules": ["v_proj", "down_proj"],
                              "modules_to_save": ["embed_tokens", "lm_head", *NORMS]}, torch.float32),
    "qwen2-tied-embedding": ("qwen2-tied", {"r": 8, "lora_alpha": 16, "target_modules": ALL,
                                            "modules_to_save": ["embed_tokens"]}, torch.float32),
    "llama-tied-head": ("llama-mqa", {"r": 2, "lora_alpha": 4, "target_modules": ["o_proj"],
                                      "modules_to_save": ["lm_head"]}, torch.float32),
    "qwen3-tied-together": ("qwen3-tied", {"r": 2, "lora_alpha": 4, "target_modules": ["k_proj", "up_proj"],
                                           "modules_to_save": ["embed_tokens"], "ensure_weight_tying": True},
                            torch.float32),
    "phi3-all": ("phi3", {"r": 4, "lora_alpha": 8, "target_modules": "all-linear"}, torch.float32),
    "phi3-some": ("phi3-window", {"r": 3, "lora_alpha": 3, "target_modules": ["qkv_proj", "down_proj"],
                                  "modules_to_save": ["lm_head", "norm"]}, torch.float32),
    "olmo2-all": ("olmo2", {"r": 8, "lora_alpha": 16, "target_modules": ALL}, torch.float32),
    "gemma3-all": ("gemma3", {"r": 8, "lora_alpha": 16, "target_modules": ALL}, torch.float32),
    "qwen2-bf16-adapter": ("qwen2", {"r": 8, "lora_alpha": 16, "target_modules": ["q_proj", "k_proj", "v_proj"]},
                           torch.bfloat16),
}


def load(base):
    return transformers.AutoModelForCausalLM.from_pretrained(HERE / "fixtures" / base, dtype=torch.float32,
                                                             attn_implementation="sdpa")


def save(directory, base, fields, dtype, generator):
    """Random values large enough that the adapter shows, saved by PEFT."""
    model = peft.get_peft_model(load(base), peft.LoraConfig(task_type="CAUSAL_LM", **fields))
    for name, p in model.named_parameters():
        if p.requires_grad:
            noise = torch.randn(p.shape, generator=generator)
            p.data = p.data + 0.1 * noise if "lora" not in name else 0.8 * noise / p.shape[1] ** 0.5
    model.save_pretrained(directory)
    (directory / "README.md").unlink()
    weights = directory / "adapter_model.safetensors"
    save_file({n: t.to(dtype).contiguous() for n, t in load_file(weights).items()}, weights, {"format": "pt"})
    path = directory / "adapter_config.json"
    config = json.loads(path.read_text())
    # Paths of the machine that made it, and sets in a random order, have no place in a fixture.
    config["base_model_name_or_path"] = f"tests/parity/fixtures/{base}"
    if isinstance(config["target_modules"], list):
        config["target_modules"].sort()
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def stored_name(name):
    """A parameter of a PeftModel as its file calls it."""
    return name.replace(".modules_to_save.default", "").replace(".default.weight", ".weight")


def make(name):
    base, fields, dtype = CASES[name]
    directory = ADAPTERS / name
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    save(directory, base, fields, dtype, torch.Generator().manual_seed(zlib.crc32(name.encode())))
    expected = json.loads((HERE / "fixtures" / base / "expected.json").read_text())
    documents, first = expected["documents"], expected["first_position"]
    ids = (HERE / "fixtures" / base / "tokens.bin").read_bytes()
    tokens = torch.frombuffer(bytearray(ids), dtype=torch.int32).long()

    # Eager adapters in float64: PEFT's own forward pass over the patched model.
    exact = peft.PeftModel.from_pretrained(make_exact(load(base)), directory, is_trainable=True)
    exact.base_model.model.double()
    loss, token_losses, gradients = losses_and_gradients(exact, tokens, documents, first)
    single = peft.PeftModel.from_pretrained(load(base), directory, is_trainable=True)
    single_loss = losses_and_gradients(single, tokens, documents, first)[0]
    merged = single.merge_and_unload().requires_grad_(True)
    merged_loss = losses_and_gradients(merged, tokens, documents, first)[0]
    assert abs(single_loss - loss) < 1e-5 and abs(merged_loss - loss) < 1e-5, (loss, single_loss, merged_loss)
    effect = max(abs(token_losses[t["index"]] - t["loss"]) for t in expected["token_losses"])
    assert effect > 0.1, (name, "has no effect", effect)
    with tempfile.TemporaryDirectory() as scratch:
        merged.save_pretrained(scratch)
        tied = json.loads((Path(scratch) / "config.json").read_text())["tie_word_embeddings"]

    save_file({stored_name(n): g.float().contiguous() for n, g in gradients.items()},
              directory / "expected.safetensors")
    chosen = sorted({*list(token_losses)[:4], *list(token_losses)[::37], *list(token_losses)[-2:]})
    (directory / "expected.json").write_text(json.dumps({
        "base": base,
        "loss": loss,
        "predicted": len(token_losses),
        "token_losses": [{"index": i, "loss": token_losses[i]} for i in chosen],
        "float32": {"loss": single_loss, "merged_loss": merged_loss},
        "merged_is_tied": tied,
        "computed_in": "float64, as in tests/parity/fixtures; gradients of what PEFT trains, by the names in "
                       "adapter_model.safetensors, rounded to float32",
        "made_by": "tests/parity/make_adapters.py",
        "versions": {"python": platform.python_version(), "torch": torch.__version__.split("+")[0],
                     "transformers": transformers.__version__, "peft": peft.__version__},
    }, indent=2) + "\n")
    size = sum(f.stat().st_size for f in directory.iterdir())
    print(f"{name:28s} {size / 1000:6.0f} kB  loss {loss:.6f} (base {expected['loss']:.6f}, "
          f"a token's off by {effect:.2f})  tied {tied}")
    return size


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    warnings.simplefilter("ignore")
    names = sys.argv[1:] or list(CASES)
    if unknown := [n for n in names if n not in CASES]:
        sys.exit(f"no adapter is called {', '.join(unknown)}; there are: {', '.join(CASES)}")
    print(f"{sum(make(n) for n in names) / 1e6:.2f} MB in all")


if __name__ == "__main__":
    main()
