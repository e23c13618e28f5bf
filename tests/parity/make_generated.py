#!/usr/bin/env python3
"""Makes tests/parity/generated.json: what transformers generates, greedily, from the models of tests/parity/fixtures.

    python3 tests/parity/make_generated.py

Needs torch and transformers in the versions of bench/requirements.txt. For each fixture: the first `prompt` tokens of
its tokens.bin, continued by `tokens`. Computed with model.generate in float32, and by the same model in float64
(exact_reference.py) over the whole sequence; the two must agree. `least_gap` is the smallest difference between the two
largest logits: where it is large against rounding, any correct program makes the same choice.
"""
import json
import platform
from pathlib import Path

import torch
import transformers

from exact_reference import make_exact

HERE = Path(__file__).resolve().parent
PROMPT, COUNT = 70, 100
# Not those that begin at a far position or hold several documents: a prompt is one document from position 0.
NAMES = ["qwen2", "qwen2-tied", "qwen2-window", "qwen2-old-yarn", "qwen3", "qwen3-tied", "qwen3-bias-window", "llama-mha",
         "llama-gqa", "llama-mqa", "llama-biases", "mistral-window", "mistral-dense", "rope-linear", "rope-llama3",
         "rope-yarn", "rope-yarn-mscale", "bf16", "f16"]


def load(directory):
    return transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="sdpa")


def make(name):
    directory = HERE / "fixtures" / name
    ids = torch.frombuffer(bytearray((directory / "tokens.bin").read_bytes()), dtype=torch.int32).long()[None, :PROMPT]
    with torch.no_grad():
        made = load(directory).generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=COUNT, do_sample=False,
                                        eos_token_id=None, pad_token_id=0)
        logits = make_exact(load(directory))(input_ids=made, use_cache=False).logits[0, PROMPT - 1:-1]
    tokens = made[0, PROMPT:]
    top = logits.topk(2, dim=-1)
    assert (top.indices[:, 0] == tokens).all(), name
    gap = (top.values[:, 0] - top.values[:, 1]).min().item()
    assert gap > 1e-4, (name, gap)
    print(f"{name:28s} least gap {gap:.1e}  {len(set(tokens.tolist()))} different tokens")
    return {"prompt": PROMPT, "least_gap": gap, "tokens": tokens.tolist()}


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    result = {"made_by": "tests/parity/make_generated.py",
              "versions": {"python": platform.python_version(), "torch": torch.__version__.split("+")[0],
                           "transformers": transformers.__version__},
              "fixtures": {name: make(name) for name in NAMES}}
    text = json.dumps(result, indent=1)
    # Lists of numbers on one line.
    lines = []
    for line in text.split("\n"):
        if lines and (lines[-1].endswith("[") or lines[-1].endswith(",")) and line.strip().rstrip(",").isdigit():
            lines[-1] += line.strip()
        elif lines and line.strip().startswith("]"):
            lines[-1] += line.strip()
        else:
            lines.append(line)
    (HERE / "generated.json").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
