"""The engine from Python: weights and masks, errors, interruptions, views, threads and forks."""
import gc
import os
import signal
import tempfile
import threading
import unittest

import numpy

import longstride
from engine_support import SETTINGS, TINY, array_of, copy_of



def tokens_of(count=200, seed=0):
    return numpy.random.default_rng(seed).integers(0, 320, count)


def gradients_of(engine):
    return {name: copy_of(view) for name, view in engine.gradients.items()}


class Engine(unittest.TestCase):
    def setUp(self):
        self.engine = longstride.Engine(**TINY)
        self.tokens = tokens_of()

    def assert_same(self, a, b):
        self.assertEqual(a.keys(), b.keys())
        for name in a:
            self.assertTrue(numpy.array_equal(a[name], b[name]), name)

    def test_loss_is_the_mean(self):
        result = self.engine.backward(self.tokens)
        self.assertEqual(result.targets, 199)
        self.assertEqual(result.logprobs.dtype, numpy.float32)
        self.assertEqual(result.logprobs.shape, (199,))
        self.assertAlmostEqual(result.loss, -float(result.logprobs.mean()), places=5)
        scored = self.engine.score(self.tokens)
        self.assertTrue(numpy.array_equal(scored.logprobs, result.logprobs))
        self.assertEqual(scored.loss, result.loss)

    def test_weights_of_0_and_1_are_the_masks(self):
        targets = numpy.append(self.tokens[1:], -1)
        masked = targets.copy()
        masked[::3] = -1
        want = self.engine.backward(self.tokens, targets=masked)
        bits = gradients_of(self.engine)
        self.engine.zero_grad()
        weights = numpy.ones(200)
        weights[::3] = 0
        got = self.engine.backward(self.tokens, targets=targets, weights=weights)
        self.assertEqual(got.loss, want.loss)
        self.assert_same(bits, gradients_of(self.engine))

    def test_gradients_add_up(self):
        self.engine.backward(self.tokens)
        once = gradients_of(self.engine)
        self.engine.backward(self.tokens)
        for name, twice in gradients_of(self.engine).items():
            self.assertTrue(numpy.allclose(twice, 2 * once[name], rtol=1e-5, atol=1e-9), name)

    def test_documents_do_not_see_each_other(self):
        joined = self.engine.score(self.tokens, documents=[0, 80])
        alone = self.engine.score(self.tokens[80:])
        self.assertTrue(numpy.allclose(joined.logprobs[80:], alone.logprobs, atol=1e-5))
        self.assertEqual(joined.logprobs[79], 0)
        self.assertEqual(joined.targets, 198)

    def test_lora_trains_adapters_alone(self):
        engine = longstride.Engine(**TINY, lora={"rank": 4, "targets": ["q_proj", "down_proj"]})
        self.assertTrue(all(".lora_" in name for name in engine.gradients))
        before = engine.score(self.tokens).loss
        for _ in range(3):
            engine.backward(self.tokens)
            engine.update(1e-2)
            engine.zero_grad()
        self.assertLess(engine.score(self.tokens).loss, before)
        with tempfile.TemporaryDirectory() as folder:
            engine.save(os.path.join(folder, "adapter"))
            self.assertIn("adapter_config.json", os.listdir(os.path.join(folder, "adapter")))

    def test_writes_to_views_count(self):
        engine = longstride.Engine(**TINY)
        before = engine.score(self.tokens).loss
        for name, view in engine.weights.items():
            if name.endswith("norm.weight"):
                array_of(view)[:] *= 0.5
        self.assertNotEqual(engine.score(self.tokens).loss, before)

    def test_a_saved_model_gives_the_same_losses(self):
        self.engine.backward(self.tokens)
        self.engine.update(1e-2)
        want = self.engine.score(self.tokens).logprobs
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model")
            self.engine.save(path)
            with self.assertRaisesRegex(longstride.Error, "exists already"):
                self.engine.save(path)
            again = longstride.Engine(path, context=512, chunk=64, page=16, **SETTINGS)
            self.assertTrue(numpy.array_equal(again.score(self.tokens).logprobs, want))

    def test_wrong_arguments(self):
        tokens, engine = self.tokens, self.engine
        for message, call in (
                ("vocabulary has 320", lambda: engine.backward([1, 2, 320])),
                ("vocabulary has 320", lambda: engine.backward([1, -2])),
                ("targets\\[1\\] is 999", lambda: engine.backward([1, 2], targets=[3, 999])),
                ("longer than the engine's context", lambda: engine.backward(tokens_of(513))),
                ("at least two|of 1 tokens", lambda: engine.backward([1])),
                ("dimensions", lambda: engine.backward([[1, 2], [3, 4]])),
                ("whole numbers|type float64", lambda: engine.backward([1.0, 2.0])),
                ("weights\\[3\\] is nan", lambda: engine.backward(tokens, weights=[1, 1, 1, numpy.nan] + [1] * 195)),
                ("weights has 5 entries", lambda: engine.backward(tokens, weights=[1.0] * 5)),
                ("no divisor", lambda: engine.backward(tokens, weights=-numpy.ones(199))),
                ("add up to 0", lambda: engine.backward(tokens, weights=numpy.zeros(199))),
                ("divisor is 0", lambda: engine.backward(tokens, divisor=0)),
                ("without weights", lambda: engine.backward(tokens, old_logprobs=numpy.zeros(199))),
                ("clip is", lambda: engine.backward(tokens, weights=numpy.ones(199), old_logprobs=numpy.zeros(199),
                                                    clip=(2, 0.2))),
                ("documents", lambda: engine.backward(tokens, documents=[0, 300])),
                ("documents begin at 5", lambda: engine.backward(tokens, documents=[5])),
                ("no token has a target", lambda: engine.backward([1, 2], targets=[-1, -1])),
                ("lr is", lambda: engine.update(-1)),
                ("no argument contxt", lambda: longstride.Engine(preset="tiny-qwen2", contxt=5)),
                ("model directory or a preset", lambda: longstride.Engine(context=5)),
                ("not a setting of an engine", self.refuse_section),
                ("unknown key lora.rnk", lambda: longstride.Engine(**TINY, lora={"rnk": 4}))):
            with self.subTest(message):
                with self.assertRaisesRegex(longstride.Error, message):
                    call()
        # Nothing of it left a trace.
        self.assertEqual(engine.gradient_norm(), 0)

    @staticmethod
    def refuse_section():
        from longstride import _core
        _core.Session(["model.preset=tiny-qwen2", "data.path=x"])

    def test_a_stopped_call_leaves_an_engine_that_works(self):
        want = self.engine.backward(self.tokens).loss
        self.engine.zero_grad()
        seen = []

        def stop(progress):
            seen.append(progress["phase"])
            if progress["phase"] == "backward":
                raise RuntimeError("enough")

        with self.assertRaisesRegex(RuntimeError, "enough"):
            self.engine.backward(self.tokens, on_progress=stop)
        self.assertIn("forward", seen)
        for call in (lambda: self.engine.update(1e-3), lambda: self.engine.backward(self.tokens)):
            with self.assertRaisesRegex(longstride.Error, "partial sum"):
                call()
        self.engine.zero_grad()
        self.assertEqual(self.engine.backward(self.tokens).loss, want)

    def test_ctrl_c(self):
        # Background jobs ignore the signal.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, before)

        def interrupt(progress):
            os.kill(os.getpid(), signal.SIGINT)

        with self.assertRaises(KeyboardInterrupt):
            self.engine.backward(self.tokens, on_progress=interrupt)
        self.engine.zero_grad()
        self.engine.backward(self.tokens)

    def test_another_thread_and_a_child(self):
        errors = []

        def call():
            try:
                self.engine.score(self.tokens)
            except longstride.Error as error:
                errors.append(error.message)

        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
        self.assertIn("thread that made it", errors[0])
        child = os.fork()
        if child == 0:
            try:
                self.engine.score(self.tokens)
                os._exit(1)
            except longstride.Error as error:
                os._exit(0 if "process that made it" in error.message else 2)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)

    def test_views_keep_their_memory(self):
        engine = longstride.Engine(**TINY)
        engine.backward(self.tokens)
        view = array_of(next(iter(engine.gradients.values())))
        copy = view[:] + 0
        engine.close()
        del engine
        gc.collect()
        self.assertTrue((view == copy).all())

    def test_closed(self):
        engine = longstride.Engine(**TINY)
        engine.close()
        with self.assertRaisesRegex(longstride.Error, "closed"):
            engine.score(self.tokens)


if __name__ == "__main__":
    unittest.main()
