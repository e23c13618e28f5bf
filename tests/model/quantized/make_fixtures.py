#!/usr/bin/env python3
"""Makes the fixtures beside this file with bitsandbytes and transformers, on the CPU.

    python3 tests/model/quantized/make_fixtures.py

blocks.safetensors: matrices, their codes and scales, and the values that they stand for.
nf4, nf4-wide, int8: tiny models that transformers quantized and saved (nf4-wide: scales in F32), with tokens.bin,
the loss in expected.json, and in expected.safetensors every projection's values and the gradients of what is not
quantized, all of the model with those values as plain F32 weights.

Needs torch, transformers and bitsandbytes 0.50.
"""
import json
import os
import shutil
from pathlib import Path

os.environ["TORCHDYNAMO_DISABLE"] = "1"  # compiled code may fuse what is to be rounded in between

import bitsandbytes.functional as bnb
import torch
import transformers
from safetensors.torch import save_file

HERE = Path(__file__).resolve().parent
torch.set_num_threads(1)  # the order of a sum depends on it


ANY_DEVICE = torch._C.DispatchKey.CompositeExplicitAutograd


def nearest_codes(scales, code):
    """quantize_blockwise as bitsandbytes defines it for any device. Its CPU library takes a shortcut through a table of
    65536 steps, which gives the neighbouring code now and then."""
    return torch.ops.bitsandbytes.quantize_blockwise.default._op_dk(ANY_DEVICE, scales, code, 256)


def dequantize(codes, state, dtype):
    """dequantize_4bit as bitsandbytes defines it for any device. Its AVX-512 code takes wrong scales where rows are not
    whole blocks, and loses denormals."""
    absmax = state.absmax
    if state.nested:
        absmax = bnb.dequantize_blockwise(absmax, state.state2) + state.offset
    return torch.ops.bitsandbytes.dequantize_4bit.default._op_dk(
        ANY_DEVICE, codes, absmax, 64, "nf4", list(state.shape), dtype).reshape(state.shape)


def matrices():
    g = torch.Generator().manual_seed(7)
    plain = torch.randn(24, 64, generator=g) * 0.05
    hard = torch.randn(40, 64, generator=g)
    hard[1] = 0                     # a block and a row of zeros
    hard[2] = 1e-40                 # denormals
    hard[3] *= 1e-38
    hard[4, 5] = 3e4                # outliers
    hard[5, 6] = -2e4
    hard[6] = torch.linspace(-1, 1, 64)
    hard[7, 0] = 1.0                # on the bounds between codes
    bounds = bnb.get_4bit_type("nf4", device="cpu")
    hard[7, 1:16] = (bounds[1:] + bounds[:-1]) / 2
    hard[7, 16:] = 0
    yield "plain", plain
    yield "hard", hard
    yield "half", plain.half()
    yield "odd", torch.randn(3, 17, generator=g)                       # ends inside a block and a byte
    yield "short", torch.randn(1, 1, generator=g)
    yield "large", (torch.randn(201, 199, generator=g) * torch.rand(201, 1, generator=g)).bfloat16()


def blocks():
    out = {}
    for name, w in matrices():
        out[f"{name}.w"] = w
        codes, absmax = torch.ops.bitsandbytes.quantize_4bit.default(w, 64, "nf4", torch.uint8)
        wide = bnb.QuantState(absmax=absmax, shape=w.shape, code=bnb.get_4bit_type("nf4", device="cpu"), blocksize=64,
                              quant_type="nf4", dtype=w.dtype)
        offset = absmax.mean()
        scale_codes, nested = nearest_codes(absmax - offset, bnb.create_dynamic_map())
        state2 = bnb.QuantState(absmax=nested, code=bnb.create_dynamic_map(), blocksize=256, dtype=torch.float32)
        state = bnb.QuantState(absmax=scale_codes, shape=w.shape, code=wide.code, blocksize=64, quant_type="nf4",
                               dtype=w.dtype, offset=offset, state2=state2)
        out |= {f"{name}.nf4.codes": codes, f"{name}.nf4.scales": scale_codes, f"{name}.nf4.nested": nested,
                f"{name}.nf4.offset": offset.reshape(1), f"{name}.wide.scales": absmax}
        rows, row_scales, _ = bnb.int8_vectorwise_quant(w)
        out |= {f"{name}.int8.codes": rows, f"{name}.int8.scales": row_scales}
        for label, dtype in (("f32", torch.float32), ("bf16", torch.bfloat16)):
            if name == "large" and label == "f32":
                continue
            for kind, s in (("nf4", state), ("wide", wide)):
                out[f"{name}.{kind}.{label}"] = dequantize(codes, s, dtype)
            out[f"{name}.int8.{label}"] = bnb.int8_vectorwise_dequant(rows, row_scales).to(dtype)
    save_file({k: v.contiguous() for k, v in out.items()}, HERE / "blocks.safetensors")


def model(name, **quantization):
    directory = HERE / name
    shutil.rmtree(directory, ignore_errors=True)
    generator = torch.Generator().manual_seed(11)
    config = transformers.Qwen2Config(
        vocab_size=64, hidden_size=48, intermediate_size=80, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=512, rope_parameters={"rope_type": "default", "rope_theta": 1e4},
        bos_token_id=None, eos_token_id=None, pad_token_id=None)
    plain = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    for p in plain.parameters():
        p.data = torch.randn(p.shape, generator=generator) / (p.shape[-1] ** 0.5 if p.dim() > 1 else 4) + (p.dim() == 1)
    source = HERE / "plain"
    plain.save_pretrained(source)
    quantized = transformers.AutoModelForCausalLM.from_pretrained(
        source, dtype=torch.float32, device_map="cpu", quantization_config=transformers.BitsAndBytesConfig(**quantization))
    quantized.save_pretrained(directory)
    (directory / "generation_config.json").unlink(missing_ok=True)
    # What was saved is what is expected: nothing of `quantized` is used from here on.
    saved = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, device_map="cpu")
    expected = {}
    for key, module in saved.named_modules():
        if key.endswith("_proj"):
            w = module.weight
            values = (dequantize(w.data, w.quant_state, torch.float32) if getattr(w, "quant_state", None) is not None else
                      bnb.int8_vectorwise_dequant(w.data if w.CB is None else w.CB, w.SCB if w.SCB is not None else module.state.SCB))
            target = plain.get_submodule(key).weight
            expected[f"{key}.weight"] = values.float().reshape(target.shape)
            target.data = expected[f"{key}.weight"].clone()
    tokens = torch.randint(0, 64, (200,), generator=generator)
    (directory / "tokens.bin").write_bytes(tokens.numpy().astype("<u4").tobytes())
    plain.double()
    loss = torch.nn.functional.cross_entropy(plain(tokens[None]).logits[0, :-1], tokens[1:])
    loss.backward()
    for key, p in plain.named_parameters():
        if f"{key}" not in expected:
            expected[f"{key}.gradient"] = p.grad.float()
    save_file({k: v.contiguous() for k, v in expected.items()}, directory / "expected.safetensors")
    (directory / "expected.json").write_text(json.dumps({"loss": loss.item(), "predicted": 199}, indent=2) + "\n")
    shutil.rmtree(source)


blocks()
four = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_compute_dtype": torch.float32}
model("nf4", **four, bnb_4bit_use_double_quant=True)
model("nf4-wide", **four)
model("int8", load_in_8bit=True)
