#!/usr/bin/env python3
"""PyTorch on the CPU, one training step (forward and backward, no optimizer): the yardstick of `bench step`.

A Llama-like model in fp32, one sequence, scaled_dot_product_attention (is_causal, enable_gqa), every layer
checkpointed, the loss in blocks of rows that are checkpointed too, so that no block's logits are kept.
Prints one JSON line. `step_bytes` is the peak resident memory of the step less what was resident right
before it, when weights and (zero) gradients were already there and touched.
"""
import argparse
import ctypes
import gc
import json
import os
import resource
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--context", type=int, default=16384, help="tokens in the one sequence")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--reps", type=int, default=2, help="timed steps; the fastest counts")
    p.add_argument("--warmup", type=int, default=1, help="untimed steps at the full context")
    p.add_argument("--model", choices=["plain", "transformers"], default="transformers",
                   help="transformers: LlamaForCausalLM; plain: the same model written out below")
    p.add_argument("--compile", action="store_true", help="torch.compile every layer (needs a C++ compiler)")
    p.add_argument("--layers", type=int, default=8)
    p.add_argument("--hidden", type=int, default=512)
    p.add_argument("--heads", type=int, default=8)
    p.add_argument("--kv-heads", type=int, default=2)
    p.add_argument("--head-size", type=int, default=64)
    p.add_argument("--ffn", type=int, default=1536)
    p.add_argument("--vocabulary", type=int, default=32768)
    p.add_argument("--rope-theta", type=float, default=10000.0)
    p.add_argument("--loss-rows", type=int, default=1024, help="rows of logits at once")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--profile", action="store_true", help="print the operators that take the time, to stderr")
    return p.parse_args()


EPS = 1e-6


class Norm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight, EPS)


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin


class Layer(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.a = a
        self.norm1, self.norm2 = Norm(a.hidden), Norm(a.hidden)
        self.q = nn.Linear(a.hidden, a.heads * a.head_size, bias=False)
        self.k = nn.Linear(a.hidden, a.kv_heads * a.head_size, bias=False)
        self.v = nn.Linear(a.hidden, a.kv_heads * a.head_size, bias=False)
        self.o = nn.Linear(a.heads * a.head_size, a.hidden, bias=False)
        self.gate = nn.Linear(a.hidden, a.ffn, bias=False)
        self.up = nn.Linear(a.hidden, a.ffn, bias=False)
        self.down = nn.Linear(a.ffn, a.hidden, bias=False)

    def forward(self, x, cos, sin):
        b, t, _ = x.shape
        h = self.norm1(x)
        q, k, v = (p(h).view(b, t, -1, self.a.head_size).transpose(1, 2) for p in (self.q, self.k, self.v))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.a.heads != self.a.kv_heads)
        x = x + self.o(y.transpose(1, 2).reshape(b, t, -1))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Plain(nn.Module):
    """The same model as transformers' LlamaForCausalLM, written out: a check that transformers costs nothing extra."""

    def __init__(self, a):
        super().__init__()
        self.embedding = nn.Embedding(a.vocabulary, a.hidden)
        self.layers = nn.ModuleList(Layer(a) for _ in range(a.layers))
        self.norm = Norm(a.hidden)
        self.head = nn.Linear(a.hidden, a.vocabulary, bias=False)
        self.inv_freq = a.rope_theta ** -(torch.arange(0, a.head_size, 2, dtype=torch.float64) / a.head_size)
        for w in self.parameters():
            if w.dim() == 2:
                nn.init.normal_(w, std=0.02)
        self.blocks = [torch.compile(layer, dynamic=False) if a.compile else layer for layer in self.layers]

    def hidden(self, ids):
        angles = torch.arange(ids.shape[1], dtype=torch.float64)[:, None] * self.inv_freq
        angles = torch.cat((angles, angles), dim=-1)
        cos, sin = angles.cos().float(), angles.sin().float()
        x = self.embedding(ids)
        for block in self.blocks:
            x = checkpoint(block, x, cos, sin, use_reentrant=False)
        return self.norm(x)


def from_transformers(a):
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=a.vocabulary, hidden_size=a.hidden, intermediate_size=a.ffn, num_hidden_layers=a.layers,
        num_attention_heads=a.heads, num_key_value_heads=a.kv_heads, head_dim=a.head_size,
        max_position_embeddings=max(a.context, 2048), rms_norm_eps=EPS, tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": a.rope_theta})
    config._attn_implementation = "sdpa"
    model = LlamaForCausalLM(config)
    model.train()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if a.compile:
        for layer in model.model.layers:
            layer.forward = torch.compile(layer.forward, dynamic=False)
    model.hidden = lambda ids: model.model(input_ids=ids, use_cache=False).last_hidden_state
    model.head = model.lm_head
    return model


def step(model, ids, labels, rows):
    def block_loss(h, y):
        return F.cross_entropy(model.head(h), y, reduction="sum")

    h = model.hidden(ids)[0]
    loss = 0
    for i in range(0, len(labels), rows):
        loss = loss + checkpoint(block_loss, h[i:i + rows], labels[i:i + rows], use_reentrant=False)
    loss = loss / (len(labels) - 1)
    loss.backward()
    return loss.item()


def status(key):
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith(key + ":"))


def reset_peak():
    """Starts the peak anew; False where the kernel does not allow it, and the peak is then the process's."""
    try:
        with open("/proc/self/clear_refs", "w") as f:
            f.write("5")
        return True
    except OSError:
        return False


def busy_seconds():
    """Processor seconds used by everything on the machine but this process, so that a disturbed run shows."""
    with open("/proc/stat") as f:
        user, nice, system, _, _, irq, softirq, *_ = (int(x) for x in f.readline().split()[1:])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK") - time.process_time()


def settle():
    """Gives freed memory back to the system, so that a step's peak is counted from weights and gradients alone."""
    gc.collect()
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    except (OSError, AttributeError):
        pass


def main():
    a = arguments()
    torch.set_num_threads(a.threads)
    torch.manual_seed(a.seed)
    model = Plain(a) if a.model == "plain" else from_transformers(a)
    for p in model.parameters():
        p.grad = torch.empty_like(p).fill_(0)  # written, not merely reserved, so that it is resident
    ids = torch.randint(0, a.vocabulary, (1, a.context))
    labels = torch.cat((ids[0, 1:], torch.tensor([-100])))

    def clear():
        for p in model.parameters():
            p.grad.zero_()

    # A short step first loads code and starts threads, which no step should be charged for.
    step(model, ids[:, :256], labels[:256], a.loss_rows)
    for _ in range(a.warmup):
        clear()
        step(model, ids, labels, a.loss_rows)

    runs = []
    for _ in range(a.reps):
        clear()
        settle()
        reset = reset_peak()
        baseline = status("VmRSS")
        begin, cpu, busy = time.perf_counter(), time.process_time(), busy_seconds()
        loss = step(model, ids, labels, a.loss_rows)
        seconds = time.perf_counter() - begin
        peak = status("VmHWM") if reset else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        runs.append({"seconds": seconds, "cpu_seconds": time.process_time() - cpu, "loss": loss, "peak_rss": peak, "baseline_rss": baseline,
                     "step_bytes": peak - baseline,
                     "busy_elsewhere": (busy_seconds() - busy) / seconds / os.cpu_count()})

    if a.profile:
        import sys
        from torch.profiler import profile
        with profile() as p:
            clear()
            step(model, ids, labels, a.loss_rows)
        print(p.key_averages().table(sort_by="self_cpu_time_total", row_limit=16), file=sys.stderr)

    best = min(runs, key=lambda r: r["seconds"])
    least = min(runs, key=lambda r: r["step_bytes"])
    norm = sum(p.grad.double().square().sum() for p in model.parameters()).sqrt().item()
    print(json.dumps({
        "program": "torch", "model": a.model, "compile": a.compile, "context": a.context, "threads": a.threads,
        "tokens_per_s": a.context / best["seconds"], "seconds": best["seconds"],
        "cpu_seconds": best["cpu_seconds"], "loss": best["loss"], "gradient_norm": norm, "peak_rss": least["peak_rss"], "baseline_rss": least["baseline_rss"],
        "step_bytes": least["step_bytes"],
        "busy_elsewhere": best["busy_elsewhere"], "all_seconds": [r["seconds"] for r in runs],
        "parameters": sum(p.numel() for p in model.parameters()),
        "torch": torch.__version__, "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "allocator": os.environ.get("LD_PRELOAD", "default")}))


if __name__ == "__main__":
    main()
