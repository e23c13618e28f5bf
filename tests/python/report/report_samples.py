"""Makes runs for the tests: a directory with metrics.jsonl and a checkpoint, as a real run leaves them."""
import json
import math
import os
import struct
import sys
from datetime import datetime, timedelta, timezone

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path.insert(0, os.path.join(ROOT, "python"))

BEGIN = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
MIB = 1 << 20


def time_of(seconds):
    return (BEGIN + timedelta(seconds=seconds)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def step_line(step, total=100, resumed_at=0, **more):
    """A line of a step; resumed_at: the last step of the process before."""
    seconds = 2.0 + 0.1 * math.sin(step)
    line = {
        "time": time_of(2 * step), "step": step, "total_steps": total, "loss": 2 + 4 * math.exp(-step / 20),
        "gradient_norm": 1 + 0.5 * math.cos(step), "learning_rate": 1e-4 * min(1, step / 10), "tokens": 4096,
        "targets": 4095, "accuracy": 0.2 + 0.001 * step, "epoch": step / 50, "sample": step,
        "elapsed": 2.0 * (step - resumed_at), "seconds_left": 2.0 * (total - step), "seconds": seconds,
        "seconds_forward": 0.5, "seconds_recompute": 0.25, "seconds_backward": 1.0, "seconds_update": 0.05,
        "tokens_per_s": 4096 / seconds, "tflops": 1.5, "mfu": None, "trainable_parameters": 96, "bytes": 90 * MIB,
        "bytes_weights": 20 * MIB, "bytes_gradients": 20 * MIB, "bytes_optimizer": 4 * MIB, "bytes_kv_pages": 16 * MIB,
        "bytes_kv_gradient_pages": 16 * MIB, "bytes_workspace": 10 * MIB, "bytes_other": 4 * MIB,
        "bytes_host_optimizer": 40 * MIB, "bytes_disk_optimizer": 0, "bytes_host_pages": 64 * MIB,
        "bytes_disk_pages": 128 * MIB, "bytes_host_activations": 0, "bytes_disk_activations": 0,
        "bytes_moved_out": 32 * MIB, "bytes_moved_in": 48 * MIB, "hidden_share": 0.9, "bytes_limit": 100 * MIB,
        "peak_rss": 300 * MIB, "skipped": False}
    return line | more


def eval_line(step, **more):
    bins = [{"from": 1 << k, "to": (2 << k) - 1, "loss": 4 - 0.1 * k - 0.01 * step, "accuracy": 0.1 + 0.02 * k,
             "targets": 1 << k} for k in range(12)]
    return {"time": time_of(2 * step + 1), "kind": "eval", "step": step, "loss": 3 - 0.01 * step, "accuracy": 0.3,
            "targets": 4095, "by_position": bins, "seconds": 0.5} | more


def write_lines(path, lines):
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines)


def write_checkpoint(directory, step=100, **sections):
    """A checkpoint with state.json, config.json and a model of 96 parameters."""
    path = os.path.join(directory, f"step-{step}")
    os.makedirs(os.path.join(path, "state"))
    config = {"model": {"preset": "tiny-qwen2"}, "data": {"path": ["tokens.bin"]},
              "training": {"context": 4096, "chunk": 512, "page": 64, "keep_chunks": 1, "steps": step, "batch": 1},
              "attention": {"kind": "model"}, "optimizer": {"learning_rate": 1e-4, "clip_norm": 1.0, "state": "fp32"},
              "schedule": {"kind": "cosine", "warmup_steps": 10}, "memory": {"activations": "auto"}} | sections
    state = {"format": 1, "step": step, "config": config,
             "numerics": {"chunk_tokens": 512, "page_tokens": 64, "compute": "f32", "determinism": "exact",
                          "device": "a test"}}
    with open(os.path.join(path, "state", "state.json"), "w", encoding="utf-8") as file:
        file.write(json.dumps(state, indent=2) + "\n0123456789abcdef\n")
    with open(os.path.join(path, "config.json"), "w", encoding="utf-8") as file:
        json.dump({"model_type": "qwen2", "num_hidden_layers": 2, "hidden_size": 64}, file)
    header = json.dumps({"__metadata__": {"format": "pt"},
                         "a": {"dtype": "F32", "shape": [4, 8], "data_offsets": [0, 128]},
                         "b": {"dtype": "F32", "shape": [64], "data_offsets": [128, 384]}}).encode()
    with open(os.path.join(path, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header + bytes(384))
    return path


def make_run(directory, steps=100, resumed_at=40, checkpoint=True, **more):
    """A finished run that was resumed once, with evaluations every 20 steps."""
    os.makedirs(directory)
    lines = [eval_line(0)]
    for step in range(1, steps + 1):
        lines.append(step_line(step, steps, resumed_at if step > resumed_at else 0, **more))
        if step % 20 == 0:
            lines.append(eval_line(step))
    write_lines(os.path.join(directory, "metrics.jsonl"), lines)
    if checkpoint:
        write_checkpoint(directory, steps)
    return directory


def make_needles(directory, per_cell=4):
    """(eval.json, needle.json): needles are found but for the middle of the longest documents."""
    documents, needles = [], []
    for length in (4096, 8192, 16384):
        for depth in (0.0, 0.5, 1.0):
            for k in range(per_cell):
                found = not (length == 16384 and depth == 0.5 and k)
                documents.append({"tokens": length, "targets": 6, "loss": 0.1 if found else 2.0,
                                  "correct": 6 if found else 3, "all_correct": found})
                needles.append({"length": length, "depth": depth})
    evaluation = {"loss": 1.0, "accuracy": 0.9, "targets": 6 * len(documents),
                  "by_position": eval_line(0)["by_position"], "documents": documents, "seconds": 1.0}
    paths = os.path.join(directory, "eval.json"), os.path.join(directory, "needle.json")
    for path, value in zip(paths, (evaluation, needles)):
        with open(path, "w", encoding="utf-8") as file:
            json.dump(value, file)
    return paths
