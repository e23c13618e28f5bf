"""A model in its user's own loop: forward and backward passes over sequences of any length that fits.

    e = longstride.Engine("model", context="128K", lora={"rank": 16})
    r = e.backward(tokens)
    e.update(lr=1e-5)
    e.zero_grad()
"""
import os

import numpy

from . import _core
from . import libraries
from . import messages  # noqa: F401  (messages go through logging)
from .errors import Error
from .settings import section, text_of

# Keyword arguments that are not sections, and the settings they are.
KEYS = {"context": "training.context", "chunk": "training.chunk", "page": "training.page", "seed": "training.seed",
        "keep_chunks": "training.keep_chunks", "rebuild_feed_forward": "training.rebuild_feed_forward",
        "device": "device.name", "threads": "device.threads"}


class Result:
    """What a call computed: `loss`, `targets` (how many counted) and `logprobs` (float32, one per target)."""

    def __init__(self, loss, targets, logprobs):
        self.loss, self.targets, self.logprobs = loss, targets, logprobs

    def __repr__(self):
        return f"Result(loss={self.loss:.6g}, targets={self.targets})"


def settings_of(model, preset, arguments):
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
        elif name in ("model", "lora", "memory", "optimizer", "numerics", "attention"):
            if not isinstance(value, dict):
                raise Error(f"{name} is {value!r}", f"give a dict of the settings of [{name}]")
            settings += section(name, value)
        else:
            known = sorted([*KEYS, "lora", "memory", "optimizer", "numerics", "attention", "model_settings", "preset"])
            raise Error(f"Engine has no argument {name}", f"the arguments are {', '.join(known)}")
    return settings


def array_of(name, values, dtype, optional=True):
    """One dimension, in host memory, of the wanted type; whole numbers are not made of others."""
    if values is None:
        if optional:
            return None
        raise Error(f"{name} is None", "give a sequence of token ids")
    if hasattr(values, "detach"):
        values = values.detach().cpu()
    try:
        array = numpy.asarray(values)
    except (TypeError, ValueError) as error:
        raise Error(f"{name} is no array: {error}", "give a list, a numpy array or a torch tensor") from error
    if array.ndim != 1:
        raise Error(f"{name} has {array.ndim} dimensions", "give one sequence: one dimension")
    if numpy.issubdtype(dtype, numpy.integer):
        if not numpy.issubdtype(array.dtype, numpy.integer):
            raise Error(f"{name} has the type {array.dtype}", "give whole numbers")
        limits = numpy.iinfo(dtype)
        if array.size and (array.min() < limits.min or array.max() > limits.max):
            raise Error(f"{name} has values outside of {dtype.__name__}", "give token ids")
    elif not (numpy.issubdtype(array.dtype, numpy.floating) or numpy.issubdtype(array.dtype, numpy.integer)
              or array.dtype == bool):
        raise Error(f"{name} has the type {array.dtype}", "give numbers")
    return numpy.ascontiguousarray(array, dtype=dtype)


class Engine:
    """See the module. `model` is a Hugging Face directory; `preset` a built-in shape with random weights instead.

    Settings are those of `longstride train` (docs/configuration.md): context, chunk, page, seed, device, threads, and
    dicts of the sections model, lora, memory, optimizer, numerics and attention. One thread of one process owns it."""

    def __init__(self, model=None, *, preset=None, model_settings=None, **arguments):
        if model_settings:
            arguments["model"] = model_settings
        libraries.use()
        self._session = _core.Session(settings_of(model, preset, arguments))

    def _open(self):
        if self._session is None:
            raise Error("the engine is closed", "make another one")
        return self._session

    def _sequence(self, tokens, targets, documents):
        tokens = array_of("tokens", tokens, numpy.int32, optional=False)
        given = array_of("targets", targets, numpy.int32)
        documents = array_of("documents", documents, numpy.int64)
        if documents is not None and documents.size == 0:
            documents = None
        return tokens, given, documents

    @staticmethod
    def _per_token(name, values, tokens, targets):
        """One per target: without `targets` that is one less than tokens, and the last one has none."""
        array = array_of(name, values, numpy.float32)
        if array is None or targets is not None or array.size != tokens.size - 1:
            return array
        return numpy.append(array, numpy.float32(0))

    @staticmethod
    def _result(outcome, targets):
        loss, count, logprobs = outcome
        return Result(loss, count, logprobs if targets is not None else logprobs[:-1])

    def backward(self, tokens, targets=None, weights=None, documents=None, divisor=None, old_logprobs=None,
                 clip=(0.2, 0.2), on_progress=None):
        """Adds the gradients of the weighted mean of -log p of the targets.

        `targets`: the target of every token, negative where there is none; without it the next token. `weights` and
        `old_logprobs` have one entry per target. Without `divisor` the loss is divided by the sum of the weights."""
        session = self._open()
        tokens, given, documents = self._sequence(tokens, targets, documents)
        weights = self._per_token("weights", weights, tokens, given)
        old = self._per_token("old_logprobs", old_logprobs, tokens, given)
        if divisor is not None and not divisor:
            raise Error("divisor is 0", "give another number, or leave it out")
        low, high = clip
        return self._result(session.backward(tokens, given, documents, weights, old, float(low), float(high),
                                             float(divisor or 0), on_progress), given)

    def score(self, tokens, targets=None, documents=None, on_progress=None):
        """The loss and the log-probabilities of the targets; forward only."""
        tokens, given, documents = self._sequence(tokens, targets, documents)
        return self._result(self._open().score(tokens, given, documents, on_progress), given)

    def backward_of(self, loss, tokens, targets=None, documents=None, on_progress=None):
        """Adds the gradients of `loss`, a function of the log-probabilities (a torch tensor, one per target) that
        returns a torch scalar. The forward pass runs once."""
        import torch  # here alone
        tokens, given, documents = self._sequence(tokens, targets, documents)
        value = None

        def weights_of(logprobs):
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
            weights = numpy.zeros(tokens.size, dtype=numpy.float32)
            weights[:leaf.numel()] = -leaf.grad.numpy()
            return weights

        _, count, logprobs = self._open().backward_of(tokens, given, documents, weights_of, on_progress)
        return self._result((float(value.detach()), count, logprobs), given)

    @property
    def weights(self):
        """What is trained, by name: views without copies, for torch.from_dlpack and the like."""
        return self._open().weights()

    @property
    def gradients(self):
        """Their gradients, float32, likewise."""
        return self._open().gradients()

    def zero_grad(self):
        self._open().zero_gradients()

    def gradient_norm(self):
        return self._open().gradient_norm()

    def update(self, lr, clip_norm=None):
        """AdamW, with the settings of `optimizer`; returns the gradients' norm before clipping."""
        return self._open().update(float(lr), None if clip_norm is None else float(clip_norm))

    def save(self, directory):
        """A Hugging Face directory; with adapters, PEFT's."""
        self._open().save(os.fspath(directory))

    def close(self):
        """Frees the memory, once no view of it is left."""
        self._session = None

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()

    context = property(lambda self: self._open().context)
    chunk = property(lambda self: self._open().chunk)
    vocabulary = property(lambda self: self._open().vocabulary)
    parameters = property(lambda self: self._open().parameters, doc="how many are trained")
    updates = property(lambda self: self._open().updates)
    device_used = property(lambda self: self._open().device_used,
                           doc="bytes of the device that are in use, by others too")
