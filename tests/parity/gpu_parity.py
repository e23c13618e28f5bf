#!/usr/bin/env python3
"""Gradients on the GPU against transformers, for every family (invariant 5).

A small random bf16 model and a sequence per family and seed. The reference is transformers in fp32 on the same
weights. Required of longstride: in fp32 every gradient within 1e-4 of it; in bf16, worst tensor, at most 1.2 times
the error of transformers' own bf16 (relative Frobenius errors; the mean over seeds of the worst tensor's).
Sparse attention: the same, with the pages that longstride selected as transformers' mask, layer by layer.

    LONGSTRIDE=build/release/longstride python3 tests/parity/gpu_parity.py [FAMILY ...]
"""
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file

SEEDS = (0, 1, 2)
TOKENS = 1600
CHUNK, PAGE = 512, 128
SHAPE = {"vocab_size": 1024, "hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 4,
         "num_attention_heads": 8, "num_key_value_heads": 2, "rms_norm_eps": 1e-6, "max_position_embeddings": 8192}
FAMILIES = {
    "Qwen2": {},
    "Qwen3": {"head_dim": 64},
    "Llama": {"rope_parameters": {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
                                  "high_freq_factor": 4.0, "original_max_position_embeddings": 1024}},
    "Mistral": {"sliding_window": 300},
    "Phi3": {"pad_token_id": None, "bos_token_id": None, "eos_token_id": None},
    "Olmo2": {"num_key_value_heads": 8},
    "Gemma3": {"head_dim": 64, "query_pre_attn_scalar": 64, "sliding_window": 300, "pad_token_id": None,
               "layer_types": ["sliding_attention"] * 3 + ["full_attention"]},
    "Gemma3 of head size 256": {"head_dim": 256, "query_pre_attn_scalar": 256, "sliding_window": 300, "pad_token_id": None,
                                "num_attention_heads": 4, "layer_types": ["sliding_attention"] * 3 + ["full_attention"]},
}


def make_model(family, seed):
    torch.manual_seed(seed)
    name = family.split()[0]
    config = getattr(transformers, name + ("TextConfig" if name == "Gemma3" else "Config"))(**{**SHAPE, **FAMILIES[family]}, tie_word_embeddings=False)
    model = getattr(transformers, name + "ForCausalLM")(config)
    with torch.no_grad():
        for tensor, p in model.named_parameters():
            one = 0 if family.startswith("Gemma3") else 1
            p.copy_(one + 0.1 * torch.randn_like(p) if "norm" in tensor else 0.05 * torch.randn_like(p))
    return model.to(torch.bfloat16)


SPARSE = ["--attention", "sparse", "--budget", "4", "--sinks", "1", "--recent", "1", "--union", "7"]


def masks_of(lists):
    """Per layer [T, T]: whether query t attends to key s. The lists name pages before the query's chunk."""
    t = torch.arange(TOKENS)
    masks = []
    for layer in range(SHAPE["num_hidden_layers"]):
        pages = (TOKENS + PAGE - 1) // PAGE
        visits = torch.zeros(pages, pages + 1, dtype=torch.bool)  # -1 goes to the last column
        visits.scatter_(1, lists[f"layers.{layer}"].long() % (pages + 1), True)
        own = t[:, None] // CHUNK == t[None] // CHUNK
        masks.append((own & (t[None] <= t[:, None])) | visits[t[:, None] // PAGE, t[None] // PAGE])
    return masks


def use_masks(model, masks):
    for layer, mask in zip(model.model.layers, masks):
        def replace(_, arguments, named, mask=mask[None, None].cuda()):
            return arguments, {**named, "attention_mask": mask}
        layer.self_attn.register_forward_pre_hook(replace, with_kwargs=True)


def torch_gradients(family, folder, tokens, dtype, masks=()):
    # Loaded in its type: Module.to would round the RoPE frequencies too.
    model = getattr(transformers, family.split()[0] + "ForCausalLM").from_pretrained(
        folder / "model", dtype=dtype, attn_implementation="sdpa").cuda().train()
    use_masks(model, masks)
    logits = model(input_ids=tokens[None].cuda(), use_cache=False).logits[0, :-1].float()
    loss = torch.nn.functional.cross_entropy(logits, tokens[1:].cuda())
    loss.backward()
    return loss.item(), {name: p.grad.detach().double().cpu() for name, p in model.named_parameters()}


def our_gradients(folder, compute, sparse):
    """Loss, gradients, and the masks of sparse layers."""
    out, lists = folder / f"{compute}.safetensors", folder / f"{compute}-lists.safetensors"
    done = subprocess.run([os.environ.get("LONGSTRIDE", "build/release/longstride"), "gradients", "--model", folder / "model",
                           "--tokens", folder / "tokens.bin", "--out", out, "--chunk", str(CHUNK), "--page", str(PAGE),
                           "--device", "cuda", "--compute", compute, *([*SPARSE, "--lists", lists] if sparse else [])],
                          check=True, capture_output=True, text=True)
    return (json.loads(done.stdout)["loss"], {k: v.double() for k, v in load_file(out).items()},
            masks_of(load_file(lists)) if sparse else ())


def worst(gradients, reference):
    errors = {name: ((gradients[name] - r).norm() / r.norm()).item() for name, r in reference.items()}
    name = max(errors, key=errors.get)
    return errors[name], name


def check(family, sparse=False):
    ours, theirs, plain = [], [], []
    for seed in SEEDS:
        with tempfile.TemporaryDirectory() as text:
            folder = Path(text)
            model = make_model(family, seed)
            model.save_pretrained(folder / "model")
            tokens = torch.randint(0, SHAPE["vocab_size"], (TOKENS,))
            (folder / "tokens.bin").write_bytes(tokens.numpy().astype("<u4").tobytes())
            our_loss, f32, masks = our_gradients(folder, "f32", sparse)
            loss, reference = torch_gradients(family, folder, tokens, torch.float32, masks)
            plain.append(max(worst(f32, reference)[0], abs(our_loss - loss) / loss))
            _, in_bf16, masks = our_gradients(folder, "bf16", sparse)
            if sparse:  # other lists than in fp32, where scores are close
                _, reference = torch_gradients(family, folder, tokens, torch.float32, masks)
            ours.append(worst(in_bf16, reference))
            theirs.append(worst(torch_gradients(family, folder, tokens, torch.bfloat16, masks)[1], reference))
    mean = [sum(e for e, _ in errors) / len(errors) for errors in (ours, theirs)]
    good = max(plain) < 1e-4 and mean[0] <= 1.2 * mean[1]
    print(f"{family + (' sparse' if sparse else ''):24s} fp32 {max(plain):.1e}   bf16 {mean[0]:.4f} ({ours[0][1]}) against "
          f"PyTorch's {mean[1]:.4f} ({theirs[0][1]}): {mean[0] / mean[1]:.2f}   {'ok' if good else 'FAILED'}", flush=True)
    return good


def main():
    transformers.utils.logging.disable_progress_bar()
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    families = sys.argv[1:] or FAMILIES
    results = [check(family) for family in families]
    results += [check(family, sparse=True) for family in families if "sliding_window" not in FAMILIES[family]]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
