#!/usr/bin/env python3
"""One training step (forward and backward, no optimizer) of a Qwen2.5 shape in PyTorch on a GPU: the yardstick.

transformers' Qwen2 with random bf16 weights, fused attention (cuDNN's where it takes the shape), the loss in
checkpointed blocks of rows. Prints one JSON line per context: the faster of two timed runs after a warm-up.
"""
import argparse
import gc
import json
import sys
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint
from transformers import Qwen2Config, Qwen2ForCausalLM

SHAPES = {
    "qwen2.5-0.5b": dict(vocab_size=151936, hidden_size=896, intermediate_size=4864, num_hidden_layers=24,
                         num_attention_heads=14, num_key_value_heads=2, tie_word_embeddings=True),
    "qwen2.5-7b": dict(vocab_size=152064, hidden_size=3584, intermediate_size=18944, num_hidden_layers=28,
                       num_attention_heads=28, num_key_value_heads=4, tie_word_embeddings=False),
}
LOSS_ROWS = 4096


def build(args):
    config = Qwen2Config(**SHAPES[args.preset], max_position_embeddings=1 << 23, rms_norm_eps=1e-6)
    if args.layers:
        config.num_hidden_layers = args.layers
        config.layer_types = config.layer_types[:args.layers]
    config._attn_implementation = "sdpa"
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = Qwen2ForCausalLM(config)
    model.train()
    if args.checkpoint:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if args.compile:
        for layer in model.model.layers:
            layer.forward = torch.compile(layer.forward, dynamic=False)
    return model


def step(model, tokens, targets):
    """Seconds of the forward and of the backward pass, and the loss."""
    def block_loss(hidden, wanted):
        return F.cross_entropy(model.lm_head(hidden).float(), wanted, reduction="sum")

    torch.cuda.synchronize()
    start = time.perf_counter()
    with sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION], set_priority=True):
        hidden = model.model(input_ids=tokens, use_cache=False).last_hidden_state[0]
        blocks = zip(hidden.split(LOSS_ROWS), targets.split(LOSS_ROWS))
        loss = sum(checkpoint(block_loss, h, y, use_reentrant=False) for h, y in blocks) / len(targets)
        torch.cuda.synchronize()
        middle = time.perf_counter()
        loss.backward()
    torch.cuda.synchronize()
    return middle - start, time.perf_counter() - middle, loss.item()


def measure(model, context, repeat):
    vocabulary = model.config.vocab_size
    tokens = torch.randint(0, vocabulary, (1, context), device="cuda")
    targets = torch.roll(tokens[0], -1)
    best, first = None, None
    for run in range(1 + repeat):
        model.zero_grad(set_to_none=True)
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        forward, backward, loss = step(model, tokens, targets)
        if run == 0:
            first = forward + backward
        elif best is None or forward + backward < best["seconds"]:
            best = {"seconds": forward + backward, "forward": forward, "backward": backward, "loss": loss,
                    "peak_bytes": torch.cuda.max_memory_allocated()}
    return {**best, "first_seconds": first, "tokens_per_s": context / best["seconds"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("contexts", help="tokens, e.g. 8192,32768")
    parser.add_argument("--preset", choices=SHAPES, default="qwen2.5-7b")
    parser.add_argument("--layers", type=int, help="use only so many layers")
    parser.add_argument("--no-checkpoint", dest="checkpoint", action="store_false")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--repeat", type=int, default=1, help="timed runs; the fastest counts")
    args = parser.parse_args()
    torch.manual_seed(0)
    if torch.backends.cudnn.version() is None:
        sys.exit("torch finds no cuDNN: its attention would be the slower one (is LD_LIBRARY_PATH set?)")
    model = build(args)
    for context in map(int, args.contexts.split(",")):
        record = {"system": "torch", "torch": torch.__version__, "cudnn": torch.backends.cudnn.version(), "device": torch.cuda.get_device_name(),
                  "preset": args.preset, "context": context, "compile": args.compile, "checkpoint": args.checkpoint}
        try:
            record |= measure(model, context, args.repeat)
        except torch.OutOfMemoryError:
            record["out_of_memory"] = True
        print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main()
