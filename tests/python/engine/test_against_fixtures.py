"""Losses, gradients and updates of the engine against what torch and transformers computed in float64
(tests/parity/make_engine_cases.py): signed weights, clipped ratios and DPO within 1e-4, AdamW within 1e-6.

Torch is not needed."""
import os
import unittest

import numpy

import longstride
import sketch
import transformers_cases as cases
from engine_support import SETTINGS, array_of, copy_of, write_to

FOLDER = os.path.join(cases.FIXTURES, "..", "engine")


class AgainstFixtures(unittest.TestCase):
    def open(self, name, **settings):
        """The engine, and what is expected of it, by parts: input, signed, clipped, dpo, adamw."""
        parts = {}
        with numpy.load(os.path.join(FOLDER, name + ".npz")) as stored:
            for key in stored.files:
                part, _, rest = key.partition("/")
                parts.setdefault(part, {})[rest] = stored[key]
        return longstride.Engine(os.path.join(cases.FIXTURES, name), context=256, chunk=32, page=16,
                                 **SETTINGS, **settings), parts

    @staticmethod
    def run_case(engine, case, inputs):
        """(loss, log-probabilities). DPO goes the way of backward_of, but for torch."""
        if case != "dpo":
            result = cases.run(engine, case, inputs, inputs["old"])
            return result.loss, result.logprobs
        loss = None

        def weights_of(logprobs):
            nonlocal loss
            loss, gradient = cases.dpo_by_hand(logprobs[:-1], inputs["reference"])
            return numpy.append(-gradient, 0).astype(numpy.float32)

        _, count, logprobs = engine._session.backward_of(
            inputs["tokens"], None, numpy.array(cases.DOCUMENTS, numpy.int64), weights_of, None)
        assert count == cases.TARGETS - 1
        return loss, logprobs[:-1]

    def faults(self, engine, case, parts):
        """What is not as it should be, as texts."""
        want = parts[case]
        loss, logprobs = self.run_case(engine, case, parts["input"])
        found = []
        if not abs(loss - want["loss"]) < 1e-4 * abs(want["loss"]) + 1e-5:
            found.append(f"loss {loss}, not {want['loss']}")
        if not numpy.abs(logprobs - want["logprobs"]).max() < 1e-4:
            found.append(f"log-probabilities off by {numpy.abs(logprobs - want['logprobs']).max()}")
        gradients = {name: copy_of(view) for name, view in engine.gradients.items()}
        engine.zero_grad()
        wanted = {key.removeprefix("gradient/"): value for key, value in want.items() if key.startswith("gradient/")}
        if gradients.keys() != wanted.keys():
            return [*found, f"gradients: {sorted(gradients.keys() ^ wanted.keys())} on one side alone"]
        for name, stored in wanted.items():
            if not (error := sketch.error(name, gradients[name], stored)) < sketch.LIMIT:
                found.append(f"{name}: the gradient is off by {error:.1e}")
        return found

    def test_losses_and_gradients(self):
        for name in cases.FAMILIES:
            engine, parts = self.open(name)
            for case in cases.CASES:
                with self.subTest(family=name, case=case):
                    self.assertEqual(self.faults(engine, case, parts), [])

    def test_adamw(self):
        for name in cases.FAMILIES:
            with self.subTest(name):
                engine, parts = self.open(name, optimizer=cases.OPTIMIZER)
                self.assertEqual(engine.weights.keys(), parts["adamw"].keys())
                for step in range(cases.STEPS):
                    for key, view in engine.gradients.items():
                        write_to(view, sketch.noise(key, step, tuple(array_of(view).shape)))
                    engine.update(cases.ADAMW["lr"])
                for key, view in engine.weights.items():
                    off = numpy.abs(sketch.some(copy_of(view)) - parts["adamw"][key]).max()
                    self.assertLess(off, 1e-6, key)

    def test_an_error_of_1e_4_in_any_gradient_is_seen(self):
        """One element, one row, or all of them."""
        chance = numpy.random.default_rng(0)
        for name in cases.FAMILIES:
            engine, parts = self.open(name)
            self.run_case(engine, "signed", parts["input"])
            for key, view in engine.gradients.items():
                right = copy_of(view).astype(numpy.float64)
                stored = parts["signed"]["gradient/" + key]
                for errors in range(3):
                    wrong = chance.normal(size=right.shape)
                    wrong.ravel()[wrong[:1].size if errors == 1 else 1 if errors == 0 else wrong.size:] = 0
                    wrong *= 1e-4 * numpy.linalg.norm(right) / numpy.linalg.norm(wrong)
                    self.assertGreater(sketch.error(key, right + wrong, stored), sketch.LIMIT, key)

    def test_small_changes_are_seen(self):
        """1e-3 more of one parameter, or of the weight or the advantage of one token; 1e-2 of DPO's reference."""
        for name in cases.FAMILIES:
            with self.subTest(name):
                engine, parts = self.open(name)
                for part, key in (("weights", "signed"), ("advantages", "clipped"), ("reference", "dpo")):
                    inputs = parts["input"] | {part: parts["input"][part].copy()}
                    inputs[part][30] += 0.001 if part != "reference" else 0.01
                    self.assertNotEqual(self.faults(engine, key, parts | {"input": inputs}), [], part)
                weight = array_of(engine.weights["model.layers.0.self_attn.v_proj.weight"])
                weight[1, 1] += 0.001
                for case in cases.CASES:
                    self.assertNotEqual(self.faults(engine, case, parts), [], case)
                weight[1, 1] -= 0.001
                self.assertEqual(self.faults(engine, "signed", parts), [])


if __name__ == "__main__":
    unittest.main()
