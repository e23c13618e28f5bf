"""Losses and gradients of the engine against transformers' autograd, in fp32: signed weights, clipped ratios, DPO.

Needs torch and transformers, and is skipped without them; test_against_fixtures.py compares with what they computed."""
import os
import unittest

import longstride
import transformers_cases as cases
from engine_support import SETTINGS, array_of

try:
    import torch
    import transformers
except ImportError:
    torch = None


@unittest.skipIf(torch is None, "torch and transformers are not installed")
class AgainstTransformers(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)

    def engine(self, name, **settings):
        path = os.path.join(cases.FIXTURES, name)
        return longstride.Engine(path, context=256, chunk=32, page=16, **SETTINGS, **settings)

    def compare(self, model, engine, tolerance=1e-4):
        wanted = cases.by_engine_names(model, {name: p.grad for name, p in model.named_parameters()})
        self.assertEqual(engine.gradients.keys(), wanted.keys())
        for name, view in engine.gradients.items():
            got, want = torch.as_tensor(array_of(view)).cpu(), wanted[name]
            error = (got - want).norm() / want.norm().clamp_min(1e-12)
            self.assertLess(float(error), tolerance, name)

    def check(self, case):
        for name in cases.FAMILIES:
            with self.subTest(name):
                engine = self.engine(name)
                model = transformers.AutoModelForCausalLM.from_pretrained(
                    os.path.join(cases.FIXTURES, name), dtype=torch.float32, attn_implementation="eager")
                inputs = cases.inputs_of(engine.vocabulary)
                old = cases.old_logprobs(inputs, engine.score(inputs["tokens"]).logprobs)
                loss_of = cases.torch_loss(case, inputs, old)
                if case == "dpo":
                    got = engine.backward_of(loss_of, inputs["tokens"], documents=cases.DOCUMENTS)
                else:
                    got = cases.run(engine, case, inputs, old)
                loss = loss_of(cases.torch_logprobs(model, case, inputs["tokens"]))
                loss.backward()
                want = float(loss.detach())
                self.assertAlmostEqual(got.loss, want, delta=1e-4 * abs(want) + 1e-5)
                self.compare(model, engine)

    def test_signed_weights(self):
        self.check("signed")

    def test_clipped_ratios(self):
        self.check("clipped")

    def test_dpo_through_backward_of(self):
        self.check("dpo")

    def test_adamw_of_torch_over_the_views(self):
        engine, other = self.engine("qwen2", optimizer=cases.OPTIMIZER), self.engine("qwen2")
        tokens = cases.inputs_of(engine.vocabulary)["tokens"]
        weights = {name: torch.from_dlpack(view) for name, view in other.weights.items()}
        gradients = {name: torch.from_dlpack(view) for name, view in other.gradients.items()}
        decayed = [w for w in weights.values() if w.ndim == 2]
        others = [w for w in weights.values() if w.ndim != 2]
        for name, w in weights.items():
            w.grad = gradients[name]
        optimizer = torch.optim.AdamW([{"params": decayed}, {"params": others, "weight_decay": 0}], **cases.ADAMW)
        for _ in range(cases.STEPS):
            engine.backward(tokens)
            engine.update(cases.ADAMW["lr"])
            engine.zero_grad()
            other.backward(tokens)
            optimizer.step()
            other.zero_grad()
        for name, view in engine.weights.items():
            self.assertLess(float((torch.from_dlpack(view) - weights[name]).abs().max()), 1e-6, name)


if __name__ == "__main__":
    unittest.main()
