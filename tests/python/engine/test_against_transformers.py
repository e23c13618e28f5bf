"""Losses and gradients of the engine against transformers' autograd, in fp32: signed weights, clipped ratios, DPO.

Needs torch and transformers, and is skipped without them."""
import os
import unittest

import numpy

import longstride
from engine_support import SETTINGS, array_of

try:
    import torch
    import transformers
except ImportError:
    torch = None

FIXTURES = os.path.join(os.path.dirname(__file__), "..", "..", "parity", "fixtures")
FAMILIES = ("qwen2", "qwen3", "llama-gqa", "mistral-window", "phi3", "olmo2", "gemma3")


def part_of(name, model):
    """The gradient of a projection that transformers holds in one tensor with others: (tensor, first row)."""
    config = model.config
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    q, k = config.num_attention_heads * size, config.num_key_value_heads * size
    for part, whole, row in (("q_proj", "qkv_proj", 0), ("k_proj", "qkv_proj", q), ("v_proj", "qkv_proj", q + k),
                             ("gate_proj", "gate_up_proj", 0), ("up_proj", "gate_up_proj", config.intermediate_size)):
        if part in name:
            return name.replace(part, whole), row
    raise KeyError(name)


@unittest.skipIf(torch is None, "torch and transformers are not installed")
class AgainstTransformers(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)

    def pair(self, name, **settings):
        path = os.path.join(FIXTURES, name)
        model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32,
                                                                  attn_implementation="eager")
        engine = longstride.Engine(path, context=256, chunk=32, page=16, **SETTINGS, **settings)
        tokens = numpy.random.default_rng(5).integers(0, engine.vocabulary, 120)
        return model, engine, tokens

    @staticmethod
    def logprobs(model, tokens):
        ids = torch.as_tensor(tokens)[None]
        logits = model(input_ids=ids).logits[0, :-1].float()
        return torch.log_softmax(logits, -1).gather(-1, ids[0, 1:, None])[:, 0]

    def compare(self, model, engine, tolerance=1e-4):
        wanted = dict(model.named_parameters())
        for name, view in engine.gradients.items():
            got = torch.as_tensor(array_of(view)).cpu()
            whole, row = (name, 0) if name in wanted else part_of(name, model)
            want = wanted[whole].grad[row:row + got.shape[0]]
            error = (got - want).norm() / want.norm().clamp_min(1e-12)
            self.assertLess(float(error), tolerance, name)

    def test_signed_weights(self):
        for name in FAMILIES:
            with self.subTest(name):
                model, engine, tokens = self.pair(name)
                weights = numpy.random.default_rng(1).normal(size=119).astype(numpy.float32)
                got = engine.backward(tokens, weights=weights, divisor=50.0)
                loss = -(self.logprobs(model, tokens) * torch.as_tensor(weights)).sum() / 50
                loss.backward()
                self.assertAlmostEqual(got.loss, float(loss.detach()), delta=1e-4 * abs(float(loss.detach())) + 1e-5)
                self.compare(model, engine)

    def test_clipped_ratios(self):
        for name in FAMILIES:
            with self.subTest(name):
                model, engine, tokens = self.pair(name)
                rng = numpy.random.default_rng(2)
                advantages = rng.normal(size=119).astype(numpy.float32)
                now = engine.score(tokens).logprobs
                old = (now - numpy.log(rng.uniform(0.5, 1.6, 119))).astype(numpy.float32)
                got = engine.backward(tokens, weights=advantages, old_logprobs=old, clip=(0.2, 0.28), divisor=119.0)
                ratio = torch.exp(self.logprobs(model, tokens) - torch.as_tensor(old))
                a = torch.as_tensor(advantages)
                loss = -torch.minimum(ratio * a, ratio.clamp(0.8, 1.28) * a).mean()
                loss.backward()
                self.assertAlmostEqual(got.loss, float(loss.detach()), delta=1e-4)
                self.compare(model, engine)

    def test_dpo_through_backward_of(self):
        for name in FAMILIES:
            with self.subTest(name):
                model, engine, tokens = self.pair(name)
                # Two answers to one prompt, packed as documents; the second half is the rejected one.
                reference = numpy.random.default_rng(3).normal(-5, 1, 119).astype(numpy.float32)

                def dpo(logprobs):
                    difference = logprobs - torch.as_tensor(reference)
                    margin = difference[20:59].sum() - difference[80:119].sum()
                    return -torch.nn.functional.logsigmoid(0.1 * margin)

                got = engine.backward_of(dpo, tokens, documents=[0, 60])
                first, second = self.logprobs(model, tokens[:60]), self.logprobs(model, tokens[60:])
                joined = torch.cat([first, torch.zeros(1), second])
                loss = dpo(joined)
                loss.backward()
                self.assertAlmostEqual(got.loss, float(loss.detach()), delta=1e-4 * max(1.0, float(loss.detach())))
                self.compare(model, engine)

    def test_adamw_of_torch_over_the_views(self):
        model, engine, tokens = self.pair("qwen2", optimizer={"weight_decay": 0.01, "clip_norm": 0, "beta2": 0.95})
        other = longstride.Engine(os.path.join(FIXTURES, "qwen2"), context=256, chunk=32, page=16, **SETTINGS)
        weights = {name: torch.from_dlpack(view) for name, view in other.weights.items()}
        gradients = {name: torch.from_dlpack(view) for name, view in other.gradients.items()}
        decayed = [w for w in weights.values() if w.ndim == 2]
        others = [w for w in weights.values() if w.ndim != 2]
        for name, w in weights.items():
            w.grad = gradients[name]
        optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.01}, {"params": others, "weight_decay": 0}],
                                      lr=1e-3, betas=(0.9, 0.95), eps=1e-8)
        for _ in range(5):
            engine.backward(tokens)
            engine.update(1e-3)
            engine.zero_grad()
            other.backward(tokens)
            optimizer.step()
            other.zero_grad()
        for name, view in engine.weights.items():
            self.assertLess(float((torch.from_dlpack(view) - weights[name]).abs().max()), 1e-6, name)


if __name__ == "__main__":
    unittest.main()
