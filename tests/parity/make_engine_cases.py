#!/usr/bin/env python3
"""Makes tests/parity/engine: what the losses of the Python engine should be, and their gradients, so that they are
compared where torch is not installed.

    python3 tests/parity/make_engine_cases.py [NAME ...]      all families, or those named

For each family of tests/python/engine/transformers_cases.py, NAME.npz has the inputs, and for signed weights, clipped
ratios and DPO: the loss, the log-probabilities, and every gradient as a sketch (tests/python/engine/sketch.py: 32
products with random signs, which an error of 1e-4 in any gradient changes). All of it is computed in float64, as the
other fixtures are. Then every seventh element of all weights (all, of small ones) after five steps of torch's AdamW, in
float64, with the gradients `sketch.noise`.

Needs torch and transformers in the versions of bench/requirements.txt.
"""
import json
import platform
import sys
from pathlib import Path

import numpy
import torch
import transformers

from exact_reference import make_exact

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "python" / "engine"))
import sketch  # noqa: E402
import transformers_cases as cases  # noqa: E402

FOLDER = HERE / "engine"


def load(name, attention):
    return transformers.AutoModelForCausalLM.from_pretrained(Path(cases.FIXTURES) / name, dtype=torch.float32,
                                                             attn_implementation=attention)


def compute(model, case, inputs, old):
    """(loss, log-probabilities, gradients by the engine's names)"""
    model.zero_grad()
    logprobs = cases.torch_logprobs(model, case, inputs["tokens"])
    loss = cases.torch_loss(case, inputs, old)(logprobs)
    loss.backward()
    gradients = cases.by_engine_names(model, {name: p.grad for name, p in model.named_parameters()})
    return float(loss.detach()), logprobs.detach().numpy(), {name: g.numpy() for name, g in gradients.items()}


def adamw(model):
    """Weights after some steps with gradients from a hash, by the engine's names."""
    names = cases.by_engine_names(model, dict(model.named_parameters()))
    weights = {name: w.detach().double().clone().requires_grad_(True) for name, w in names.items()}
    groups = [{"params": [w for w in weights.values() if w.ndim == 2]},
              {"params": [w for w in weights.values() if w.ndim != 2], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, **cases.ADAMW)
    for step in range(cases.STEPS):
        for name, w in weights.items():
            w.grad = torch.as_tensor(sketch.noise(name, step, tuple(w.shape))).double()
        optimizer.step()
    return {name: w.detach().numpy() for name, w in weights.items()}


def make(name):
    exact, single = make_exact(load(name, "sdpa")), load(name, "eager")
    inputs = cases.inputs_of(exact.config.vocab_size)
    with torch.no_grad():
        old = cases.old_logprobs(inputs, cases.torch_logprobs(exact, "clipped", inputs["tokens"]).numpy())
    stored, off = {f"input/{key}": value for key, value in inputs.items()} | {"input/old": old}, {}
    # No ratio may be so close to where it is clipped that rounding decides.
    bounds = numpy.array([1 - cases.CLIP[0], 1 + cases.CLIP[1]])
    assert numpy.abs(inputs["ratios"][:, None] - bounds).min() > 1e-4
    for case in cases.CASES:
        loss, logprobs, gradients = compute(exact, case, inputs, old)
        single_loss, _, others = compute(single, case, inputs, old)
        worst = max(numpy.linalg.norm(others[one] - g) / numpy.linalg.norm(g) for one, g in gradients.items())
        guess = max(sketch.error(one, others[one], sketch.sketch(one, g)) for one, g in gradients.items())
        assert abs(single_loss - loss) < 3e-5 * max(1, abs(loss)), (name, case, single_loss, loss)
        assert max(worst, guess) < 3e-5, (name, case, worst, guess)
        off[case] = {"loss": single_loss - loss, "worst_gradient_error": float(worst)}
        stored |= {f"{case}/loss": numpy.float64(loss), f"{case}/logprobs": logprobs.astype(numpy.float32)}
        stored |= {f"{case}/gradient/{one}": sketch.sketch(one, g).astype(numpy.float32)
                   for one, g in gradients.items()}
    stored |= {f"adamw/{one}": sketch.some(w).astype(numpy.float32) for one, w in adamw(single).items()}
    about = {"made_by": "tests/parity/make_engine_cases.py", "float32_transformers": off,
             "versions": {"python": platform.python_version(), "torch": torch.__version__.split("+")[0],
                          "transformers": transformers.__version__, "numpy": numpy.__version__}}
    path = FOLDER / f"{name}.npz"
    numpy.savez_compressed(path, about=json.dumps(about), **stored)
    print(f"{name:16s} {path.stat().st_size / 1000:6.0f} kB  "
          + "  ".join(f"{case}: loss {stored[case + '/loss']:.4f}, float32 off by {one['worst_gradient_error']:.1e}"
                      for case, one in off.items()))
    return path.stat().st_size


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    names = sys.argv[1:] or cases.FAMILIES
    if unknown := [name for name in names if name not in cases.FAMILIES]:
        sys.exit(f"no family is called {', '.join(unknown)}; there are: {', '.join(cases.FAMILIES)}")
    FOLDER.mkdir(exist_ok=True)
    print(f"{sum(make(name) for name in names) / 1e6:.2f} MB in all")


if __name__ == "__main__":
    main()
