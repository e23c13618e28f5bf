#!/usr/bin/env python3
"""Gradients of LoRA adapters on the GPU against PyTorch, computed as PEFT does: A and B in fp32, their product of the
input in fp32, added to the frozen projection in the model's type.

A small random bf16 model, adapters of rank 8 on all projections and a sequence per family and seed. The reference is
PyTorch in fp32 on the same weights. Required of longstride: in fp32 (with the model's weights in fp32) every gradient
within 1e-4 of it; in bf16, worst tensor, at most 1.2 times the error of PyTorch's own bf16 (relative Frobenius errors; the
mean over seeds of the worst tensor's).

    LONGSTRIDE=build/release/longstride python3 tests/parity/gpu_adapters.py [FAMILY ...]
"""
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file

from gpu_parity import CHUNK, FAMILIES, PAGE, SEEDS, SHAPE, TOKENS, make_model, worst

RANK, ALPHA = 8, 16
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
PREFIX = "base_model.model."


class Adapted(torch.nn.Module):
    """A projection with an adapter, as PEFT's lora.Linear computes it."""

    def __init__(self, base, a, b):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a, self.b = torch.nn.Parameter(a), torch.nn.Parameter(b)

    def forward(self, x):
        y = self.base(x)
        u = torch.nn.functional.linear(x.to(self.a.dtype), self.a)
        return (y + torch.nn.functional.linear(u, self.b) * (ALPHA / RANK)).to(y.dtype)


def projections(model):
    return [(name, module) for name, module in model.named_modules() if name.rsplit(".", 1)[-1] in TARGETS]


def make_adapter(model, folder):
    tensors = {}
    for name, module in projections(model):
        tensors[f"{PREFIX}{name}.lora_A.weight"] = torch.randn(RANK, module.in_features) / module.in_features**0.5
        tensors[f"{PREFIX}{name}.lora_B.weight"] = 0.05 * torch.randn(module.out_features, RANK)
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps(
        {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": RANK, "lora_alpha": ALPHA, "lora_dropout": 0.0, "bias": "none",
         "target_modules": TARGETS, "base_model_name_or_path": None}))


def torch_gradients(family, folder, tokens, dtype):
    model = getattr(transformers, family.split()[0] + "ForCausalLM").from_pretrained(
        folder / "model", dtype=dtype, attn_implementation="sdpa").requires_grad_(False)
    tensors = load_file(folder / "adapter" / "adapter_model.safetensors")
    for name, module in projections(model):
        parent = model.get_submodule(name.rsplit(".", 1)[0])
        setattr(parent, name.rsplit(".", 1)[-1], Adapted(module, tensors[f"{PREFIX}{name}.lora_A.weight"],
                                                         tensors[f"{PREFIX}{name}.lora_B.weight"]))
    model = model.cuda().train()
    logits = model(input_ids=tokens[None].cuda(), use_cache=False).logits[0, :-1].float()
    loss = torch.nn.functional.cross_entropy(logits, tokens[1:].cuda())
    loss.backward()
    gradients = {}
    for name, module in model.named_modules():
        if isinstance(module, Adapted):
            gradients[f"{PREFIX}{name}.lora_A.weight"] = module.a.grad.double().cpu()
            gradients[f"{PREFIX}{name}.lora_B.weight"] = module.b.grad.double().cpu()
    return loss.item(), gradients


def our_gradients(folder, model, compute):
    out = folder / f"{compute}.safetensors"
    done = subprocess.run([os.environ.get("LONGSTRIDE", "build/release/longstride"), "gradients", "--model", folder / model,
                           "--adapter", folder / "adapter", "--tokens", folder / "tokens.bin", "--out", out, "--chunk",
                           str(CHUNK), "--page", str(PAGE), "--device", "cuda", "--compute", compute],
                          check=True, capture_output=True, text=True)
    return json.loads(done.stdout)["loss"], {k: v.double() for k, v in load_file(out).items()}


def check(family):
    ours, theirs, plain = [], [], []
    for seed in SEEDS:
        with tempfile.TemporaryDirectory() as text:
            folder = Path(text)
            model = make_model(family, seed)
            model.save_pretrained(folder / "model")
            make_adapter(model, folder / "adapter")
            model.float().save_pretrained(folder / "wide")  # so that folded adapters are not rounded
            tokens = torch.randint(0, SHAPE["vocab_size"], (TOKENS,))
            (folder / "tokens.bin").write_bytes(tokens.numpy().astype("<u4").tobytes())
            loss, reference = torch_gradients(family, folder, tokens, torch.float32)
            our_loss, f32 = our_gradients(folder, "wide", "f32")
            plain.append(max(worst(f32, reference)[0], abs(our_loss - loss) / loss))
            ours.append(worst(our_gradients(folder, "model", "bf16")[1], reference))
            theirs.append(worst(torch_gradients(family, folder, tokens, torch.bfloat16)[1], reference))
    mean = [sum(e for e, _ in errors) / len(errors) for errors in (ours, theirs)]
    good = max(plain) < 1e-4 and mean[0] <= 1.2 * mean[1]
    print(f"{family + ' with adapters':32s} fp32 {max(plain):.1e}   bf16 {mean[0]:.4f} ({ours[0][1]}) against PyTorch's "
          f"{mean[1]:.4f} ({theirs[0][1]}): {mean[0] / mean[1]:.2f}   {'ok' if good else 'FAILED'}", flush=True)
    return good


def main():
    transformers.utils.logging.disable_progress_bar()
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    families = sys.argv[1:] or [family for family in FAMILIES if family != "Phi3"]  # its projections are fused
    sys.exit(0 if all([check(family) for family in families]) else 1)


if __name__ == "__main__":
    main()
