#!/usr/bin/env python3
"""From documentation to a trained model, end to end: prepare, plan, train, eval and report, on a CPU.

    pip install '.[prepare,report]'
    python3 examples/debian_docs.py OUT

Takes texts that a Debian system has in /usr/share/doc, makes a tokenizer and a tiny model with random weights, and runs
the commands of longstride on them. Each is printed before it runs, and works from a shell as it stands. All is written
below OUT, which must not exist. Exits with 1 if the loss on held-out texts did not fall. With a model of your own in
place of OUT/model, and a smaller learning rate, these are the steps of fine-tuning it.
"""
import argparse
import fnmatch
import gzip
import importlib.util
import json
import pathlib
import shlex
import subprocess
import sys
import time
import zlib

import longstride

NAMES = ("copyright", "changelog*", "NEWS*", "README*", "*.md", "*.md.gz", "*.txt", "*.txt.gz")
LONGEST, LEAST = 60_000, 50_000  # characters: of a text, of all texts
PRESET = {"preset": "tiny-qwen3", "context": "4K", "device": "cpu", "seed": 1}
CONFIGURATION = """\
[model]
path = "model"

[data]
path = "data"                # its split train
pack = "whole"               # no document is cut that fits in the context

[training]
context = "4K"
chunk = 1024
steps = {steps}
seed = 1

[optimizer]
learning_rate = 3e-3         # for random weights; a trained model takes about 1e-5

[schedule]
warmup_steps = 5

[eval]
path = "data"                # its split eval
every = {every}
samples = 4

[checkpoint]
directory = "run"

[device]
name = "cpu"
"""


class Failed(Exception):
    """What ends the example, with a message for its reader."""


def text_of(path):
    """The text of a file, or None where it is none that `prepare` reads."""
    try:
        raw = path.read_bytes()
        return (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError):
        return None


def collect(source, target, most):
    """Copies texts below `source`, each once, `most` characters in all. Packed ones stay packed; `prepare` unpacks."""
    found, held = {}, 0
    # By a checksum of the name, so that packages from all over the alphabet come first.
    for path in sorted(source.glob("*/*"), key=lambda path: zlib.crc32(bytes(path.relative_to(source)))):
        text = text_of(path) if any(fnmatch.fnmatch(path.name, name) for name in NAMES) else None
        if text is not None and 500 <= len(text) <= LONGEST and text not in found and held < most:
            found[text] = path
            held += len(text)
    if held < LEAST:
        raise Failed(f"{source} has {held} characters of texts in its folders, and {LEAST} are needed\n"
                     "  hint: images of containers often come without documentation; --docs DIR names another "
                     "directory, whose folders have files named like README, *.md or *.txt")
    for path in found.values():
        copy = target / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    print(f"{len(found)} texts from {source}, {held} characters, in {target}")
    return list(found)


def make_model(directory, texts):
    """A Hugging Face directory: a built-in shape with random weights, and a tokenizer of the texts that fits it."""
    import tokenizers

    with longstride.Engine(**PRESET) as engine:
        engine.save(directory)
        size = engine.vocabulary
    bytes_and_pairs = tokenizers.ByteLevelBPETokenizer()
    bytes_and_pairs.train_from_iterator(texts, vocab_size=size, special_tokens=["<|endoftext|>"], show_progress=False)
    bytes_and_pairs.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>"}))


def command(*words, output=None):
    """Prints a command and runs it. Its output goes to the file `output`, if one is named."""
    words = [str(word) for word in words]
    print(f"\n$ longstride {shlex.join(words)}" + (f" > {shlex.quote(str(output))}" if output else ""), flush=True)
    run = subprocess.run([sys.executable, "-m", "longstride", *words], check=False,
                         stdout=subprocess.PIPE if output else None)
    if run.returncode:
        raise Failed(f"longstride {words[0]} ended with status {run.returncode}")
    if output:
        output.write_bytes(run.stdout)


def main():
    parser = argparse.ArgumentParser(description="trains a tiny model on Debian's documentation, end to end, on a CPU")
    parser.add_argument("out", type=pathlib.Path, metavar="OUT", help="a directory that does not exist yet")
    parser.add_argument("--docs", type=pathlib.Path, default="/usr/share/doc", metavar="DIR",
                        help="default: %(default)s")
    parser.add_argument("--characters", type=int, default=2_000_000, help="so many of text (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=150, help="of training (default: %(default)s)")
    options = parser.parse_args()
    out, began = options.out, time.monotonic()
    if out.exists():
        raise Failed(f"{out} exists\n  hint: name a new directory, or remove it")
    if options.steps < 1:
        raise Failed("--steps must be at least 1")

    for package in ("tokenizers", "transformers", "xxhash", "plotly"):
        if importlib.util.find_spec(package) is None:
            raise Failed(f"the package {package} is missing\n  hint: pip install 'longstride[prepare,report]'")

    texts = collect(options.docs, out / "texts", options.characters)
    make_model(out / "model", texts)
    # Tokens and the held-out split; documents with a hidden number, of which only the number is a target.
    held_out = max(0.1, min(0.5, 5 / len(texts)))  # by each text's hash; of few texts more, so that there are some
    command("prepare", out / "texts", "--tokenizer", out / "model", "--out", out / "data",
            "--eval-fraction", f"{held_out:.2g}")
    command("prepare", "needle", "--lengths", "512,1K,2K", "--depths", "0,0.5,1", "--count", 2,
            "--tokenizer", out / "model", "--out", out / "needles")
    # What a step needs and how long it takes, before it runs; then the run.
    (out / "run.toml").write_text(CONFIGURATION.format(steps=options.steps, every=max(1, options.steps // 5)))
    command("plan", out / "run.toml")
    command("train", out / "run.toml")
    # The trained model on everything that was held out, and on the needles. It is far too small and young to find
    # one: the map in the report shows what a better model would fill.
    trained = out / "run" / f"step-{options.steps}"
    command("eval", "--model", trained, "--tokens", out / "data", "--context", "4K", "--device", "cpu")
    command("eval", "--model", trained, "--tokens", out / "needles", "--device", "cpu", "--json",
            output=out / "run" / "eval-needles.json")
    command("report", out / "run", "--needle", out / "needles")

    lines = [json.loads(line) for line in (out / "run" / "metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if line.get("kind") == "eval"]
    print(f"\nheld-out loss {losses[0]:.3f} at first, {losses[-1]:.3f} after {options.steps} steps; "
          f"{time.monotonic() - began:.0f} s; look at {out}/run/report.html")
    if losses[-1] > losses[0] - 0.5:
        raise Failed("the held-out loss did not fall by 0.5: give it more --steps")
    if not (out / "run" / "report.html").is_file():
        raise Failed("there is no report")


if __name__ == "__main__":
    try:
        main()
    except (Failed, OSError) as error:
        sys.exit(f"error: {error}")
    except longstride.Error as error:
        sys.exit(f"error: {error.message}\n  hint: {error.hint}")
