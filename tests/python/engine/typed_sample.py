"""A user's program for test_types.py: mypy must report the lines with `error: CODE`, and no other. It is never run."""
import array
import os
from pathlib import Path

import numpy
from numpy.typing import NDArray

import longstride
from longstride.annotations import Record, View
from longstride.callbacks import Callback, TensorBoard


class Stop(Callback):
    def eval(self, record: Record) -> None:
        if record["loss"] < 2:
            raise KeyboardInterrupt


class Wrong(Callback):
    def step(self, record: Record, more: int) -> None:  # error: override
        pass


def told(progress: dict[str, object]) -> None:
    print(progress["done"])


def make() -> longstride.Engine:
    settings = {"rank": 16, "targets": ["q_proj"]}
    longstride.Engine("model", context="128K", chunk=4096, memory={"gpu": "96GiB", "host": None}, lora=settings)
    longstride.Engine(Path("model"), lora={"rank": 4, "targets": ["q_proj"]}, optimizer={"masters": False})
    longstride.Engine(context=[1])  # error: arg-type
    longstride.Engine("model", contxt=5)  # error: call-arg
    longstride.Engine("model", lora=16)  # error: arg-type
    longstride.Engine(5)  # error: arg-type
    return longstride.Engine(preset="tiny-qwen3", context=512, device="cpu", model_settings={"dtype": "f32"})


def arrays(engine: longstride.Engine) -> None:
    tokens = numpy.arange(100)
    engine.backward([1, 2, 3], targets=[2, 3, -1], weights=[1, 0.5, 0], documents=(0, 2), divisor=2)
    engine.backward(range(100), weights=numpy.ones(99, bool), on_progress=told)
    engine.backward(tokens, weights=tokens[1:], old_logprobs=numpy.zeros(99, "f4"), clip=(0.2, 0.28))
    engine.score(array.array("i", [1, 2]), [numpy.int64(1), 2])
    engine.backward_of(lambda logprobs: logprobs.sum(), tokens)
    engine.backward("x")  # error: arg-type
    engine.backward(5)  # error: arg-type
    engine.backward([[1, 2], [3, 4]])  # error: list-item
    engine.backward(numpy.zeros(3))  # error: arg-type
    engine.backward([1.5, 2.5])  # error: list-item
    engine.backward(tokens, clip=0.2)  # error: arg-type
    engine.backward(tokens, weights=["a"])  # error: list-item
    engine.backward(tokens, old=[1.0])  # error: call-arg
    engine.backward_of(tokens, tokens)  # error: arg-type
    engine.score(tokens, on_progress=5)  # error: arg-type


def results(engine: longstride.Engine) -> float:
    result: longstride.Result = engine.score([1, 2])
    logprobs: NDArray[numpy.float32] = result.logprobs
    text: str = result.loss  # error: assignment
    print(result.logits, text)  # error: attr-defined
    return result.loss + float(logprobs.mean()) + result.targets


def views(engine: longstride.Engine) -> int:
    with engine as same:
        view: View = same.weights["lm_head.weight"]
        numpy.from_dlpack(same.gradients["lm_head.weight"])
        view.shape  # error: attr-defined
        same.weights = {}  # error: misc
    engine.zero_grad()
    norm: float = engine.update(lr=1e-5, clip_norm=1) + engine.gradient_norm()
    engine.update("fast")  # error: arg-type
    engine.save(os.curdir)
    engine.save(Path("out"))
    engine.close()
    return int(norm) + engine.context + engine.chunk + engine.vocabulary + engine.parameters + engine.updates


def runs() -> None:
    done: bool = longstride.train("run.toml", resume=True, callbacks=[TensorBoard(), Stop()])
    sections = {"model": {"path": "model"}, "training": {"context": "128K", "steps": 100}}
    longstride.train(sections, resume=Path("out/step-4"), overrides={"data": {"path": [Path("a"), "b"], "mix": [1, 2]}})
    longstride.train(5)  # error: arg-type
    longstride.train("run.toml", callbacks=Stop())  # error: arg-type
    longstride.train("run.toml", callbacks=[Stop])  # error: list-item
    print(longstride.plan(preset="qwen2.5-7b", context=["64K", "1M"], device="cpu")["plans"], done)
    print(longstride.plan(Path("run.toml"), context=4096, threads=2, json=True))
    longstride.plan(preset="qwen2.5-7b")  # error: call-arg
    longstride.callbacks.WeightsAndBiases(project="long")
    version: str = longstride.__version__
    longstride.nothing(version)  # error: attr-defined
    try:
        longstride.train({"training": {"steps": 1}})
    except longstride.Error as error:
        print(error.message + error.hint)
    except longstride.InternalError:
        raise longstride.Error  # error: call-arg
