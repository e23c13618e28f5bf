"""A model in its user's own loop: forward and backward passes over sequences of any length that fits.

    e = longstride.Engine("model", context="128K", lora={"rank": 16})
    r = e.backward(tokens)
    e.update(lr=1e-5)
    e.zero_grad()
"""
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Unpack

import numpy
from numpy.typing import NDArray

from . import _core
from . import libraries
from . import messages  # noqa: F401  (messages go through logging)
from .annotations import EngineSettings, Path, Record, Section, View
from .arrays import Floats, Integers, array_of, array_or_none
from .errors import Error
from .settings import section, text_of

if TYPE_CHECKING:
    import torch

Progress = Callable[[Record], object]  # gets a dict between chunks; what it returns does not matter
Outcome = tuple[float, int, NDArray[numpy.float32]]

# Keyword arguments that are not sections, and the settings they are.
KEYS = {"context": "training.context", "chunk": "training.chunk", "page": "training.page", "seed": "training.seed",
        "keep_chunks": "training.keep_chunks", "rebuild_feed_forward": "training.rebuild_feed_forward",
        "device": "device.name", "threads": "device.threads"}
SECTIONS = ("lora", "memory", "optimizer", "numerics", "attention")


class Result:
    """What a call computed: `loss`, `targets` (how many counted) and `logprobs` (float32, one per target)."""

    def __init__(self, loss: float, targets: int, logprobs: NDArray[numpy.float32]) -> None:
        self.loss, self.targets, self.logprobs = loss, targets, logprobs

    def __repr__(self) -> str:
        return f"Result(loss={self.loss:.6g}, targets={self.targets})"


def settings_of(model: Path | None, preset: str | None, arguments: Mapping[str, Any]) -> list[str]:
    """The settings of `longstride train`, as `section.key=value`."""
    if (model is None) == (preset is None):
        raise Error("an engine needs a model directory or a preset, and one of them",
                    "Engine(\"DIRECTORY\", ...) or Engine(preset=\"qwen2.5-0.5b\", ...)")
    settings = [f"model.path={os.fspath(model)}" if model is not None else f"model.preset={preset}"]
    for name, value in arguments.items():
        if value is None:
            continue
        if name in KEYS:
            settings.append(f"{KEYS[name]}={text_of(value)}")
        elif name in ("model", *SECTIONS):
            if not isinstance(value, Mapping):
                raise Error(f"{name} is {value!r}", f"give a dict of the settings of [{name}]")
            settings += section(name, value)
        else:
            known = sorted([*KEYS, *SECTIONS, "model_settings", "preset"])
            raise Error(f"Engine has no argument {name}", f"the arguments are {', '.join(known)}")
    return settings


class Engine:
    """See the module. `model` is a Hugging Face directory; `preset` a built-in shape with random weights instead.

    Settings are those of `longstride train` (docs/configuration.md): context, chunk, page, seed, device, threads, and
    dicts of the sections model, lora, memory, optimizer, numerics and attention. One thread of one process owns it."""

    def __init__(self, model: Path | None = None, *, preset: str | None = None, model_settings: Section | None = None,
                 **arguments: Unpack[EngineSettings]) -> None:
        settings: dict[str, Any] = {**arguments}
        if model_settings:
            settings["model"] = model_settings
        libraries.use()
        self._session: _core.Session | None = _core.Session(settings_of(model, preset, settings))

    def _open(self) -> _core.Session:
        if self._session is None:
            raise Error("the engine is closed", "make another one")
        return self._session

    @staticmethod
    def _sequence(tokens: Integers, targets: Integers | None, documents: Integers | None) -> tuple[
            NDArray[numpy.int32], NDArray[numpy.int32] | None, NDArray[numpy.int64] | None]:
        ids = array_of("tokens", tokens, numpy.int32)
        starts = array_or_none("documents", documents, numpy.int64)
        return (ids, array_or_none("targets", targets, numpy.int32),
                starts if starts is not None and starts.size else None)

    @staticmethod
    def _per_token(name: str, values: Floats | None, tokens: NDArray[numpy.int32],
                   targets: NDArray[numpy.int32] | None) -> NDArray[numpy.float32] | None:
        """One per target: without `targets` that is one less than tokens, and the last one has none."""
        array = array_or_none(name, values, numpy.float32)
        if array is None or targets is not None or array.size != tokens.size - 1:
            return array
        return numpy.append(array, numpy.float32(0))

    @staticmethod
    def _result(outcome: Outcome, targets: NDArray[numpy.int32] | None) -> Result:
        loss, count, logprobs = outcome
        return Result(loss, count, logprobs if targets is not None else logprobs[:-1])

    def backward(self, tokens: Integers, targets: Integers | None = None, weights: Floats | None = None,
                 documents: Integers | None = None, divisor: float | None = None, old_logprobs: Floats | None = None,
                 clip: tuple[float, float] = (0.2, 0.2), on_progress: Progress | None = None) -> Result:
        """Adds the gradients of the weighted mean of -log p of the targets.

        `targets`: the target of every token, negative where there is none; without it the next token. `weights` and
        `old_logprobs` have one entry per target. Without `divisor` the loss is divided by the sum of the weights."""
        session = self._open()
        ids, given, starts = self._sequence(tokens, targets, documents)
        factors = self._per_token("weights", weights, ids, given)
        old = self._per_token("old_logprobs", old_logprobs, ids, given)
        if divisor is not None and not divisor:
            raise Error("divisor is 0", "give another number, or leave it out")
        low, high = clip
        return self._result(session.backward(ids, given, starts, factors, old, float(low), float(high),
                                             float(divisor or 0), on_progress), given)

    def score(self, tokens: Integers, targets: Integers | None = None, documents: Integers | None = None,
              on_progress: Progress | None = None) -> Result:
        """The loss and the log-probabilities of the targets; forward only."""
        ids, given, starts = self._sequence(tokens, targets, documents)
        return self._result(self._open().score(ids, given, starts, on_progress), given)

    def backward_of(self, loss: "Callable[[torch.Tensor], torch.Tensor]", tokens: Integers,
                    targets: Integers | None = None, documents: Integers | None = None,
                    on_progress: Progress | None = None) -> Result:
        """Adds the gradients of `loss`, a function of the log-probabilities (a torch tensor, one per target) that
        returns a torch scalar. The forward pass runs once."""
        import torch  # here alone
        ids, given, starts = self._sequence(tokens, targets, documents)
        value: Any = None

        def weights_of(logprobs: NDArray[numpy.float32]) -> NDArray[numpy.float32]:
            nonlocal value
            leaf = torch.from_numpy(logprobs if given is not None else logprobs[:-1]).requires_grad_(True)
            with torch.enable_grad():
                value = loss(leaf)
                if not isinstance(value, torch.Tensor) or value.numel() != 1:
                    raise Error("the loss is no torch scalar", "return a tensor with one element")
                if not value.requires_grad:
                    raise Error("the loss does not depend on the log-probabilities", "compute it from its argument")
                value.backward()
            if leaf.grad is None:
                raise Error("the loss does not depend on the log-probabilities", "compute it from its argument")
            # Weights multiply -log p.
            weights = numpy.zeros(ids.size, dtype=numpy.float32)
            weights[:leaf.numel()] = -leaf.grad.numpy()
            return weights

        _, count, logprobs = self._open().backward_of(ids, given, starts, weights_of, on_progress)
        return self._result((float(value.detach()), count, logprobs), given)

    @property
    def weights(self) -> dict[str, View]:
        """What is trained, by name: views without copies, for torch.from_dlpack and the like."""
        return self._open().weights()

    @property
    def gradients(self) -> dict[str, View]:
        """Their gradients, float32, likewise."""
        return self._open().gradients()

    def zero_grad(self) -> None:
        self._open().zero_gradients()

    def gradient_norm(self) -> float:
        return self._open().gradient_norm()

    def update(self, lr: float, clip_norm: float | None = None) -> float:
        """AdamW, with the settings of `optimizer`; returns the gradients' norm before clipping."""
        return self._open().update(float(lr), None if clip_norm is None else float(clip_norm))

    def save(self, directory: Path) -> None:
        """A Hugging Face directory; with adapters, PEFT's."""
        self._open().save(os.fspath(directory))

    def close(self) -> None:
        """Frees the memory, once no view of it is left."""
        self._session = None

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    @property
    def context(self) -> int:
        return self._open().context

    @property
    def chunk(self) -> int:
        return self._open().chunk

    @property
    def vocabulary(self) -> int:
        return self._open().vocabulary

    @property
    def parameters(self) -> int:
        """How many are trained."""
        return self._open().parameters

    @property
    def updates(self) -> int:
        return self._open().updates

    @property
    def device_used(self) -> int:
        """Bytes of the device that are in use, by others too."""
        return self._open().device_used
