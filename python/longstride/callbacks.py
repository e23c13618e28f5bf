"""What a training run calls while it runs: longstride.train(..., callbacks=[TensorBoard(), Mine()]).

A callback is an object of a class derived from Callback. Every method gets one plain dict; keys may be added later.
All calls come from the thread that called `train`, in the order of the list. An exception that a callback raises ends
the run, as an interrupt does: completed steps are saved.
"""
import os
import time
from collections.abc import Iterable
from typing import Any

from longstride.annotations import Path, Record
from longstride.errors import Error


class Callback:
    """Does nothing; override what you need."""

    def start(self, record: Record) -> None:
        """Before the first step: `directory` (checkpoint.directory), `config` (the effective configuration, by
        sections), `step` (steps done by an earlier process, 0 for a new run), `total_steps`."""

    def progress(self, record: Record) -> None:
        """Many times in a step: `step`, `total_steps`, `sequence`, `sequences`, `phase`, `chunk`, `chunks`, and `done`,
        the share of the step."""

    def step(self, record: Record) -> None:
        """After a step: its line of the metrics file (docs/metrics.md)."""

    def eval(self, record: Record) -> None:
        """After an evaluation: its line of the metrics file, of the kind "eval"."""

    def save(self, record: Record) -> None:
        """A checkpoint is complete: `step`, `path`."""

    def end(self, record: Record) -> None:
        """No step follows, whatever the reason: `step` (steps done). Called once, if `start` was."""


METHODS = ("start", "progress", "step", "eval", "save", "end")


class Callbacks(Callback):
    """A list of callbacks as one. `end` reaches all of them, even if one raises; then the first exception is raised."""

    def __init__(self, callbacks: Iterable[Callback] | None) -> None:
        try:
            self._callbacks = list(callbacks or ())
        except TypeError:
            raise Error("callbacks is no list", "write callbacks=[...], even for a single one") from None
        for one in self._callbacks:
            if isinstance(one, type):
                raise Error(f"the callback {one.__name__} is a class", f"make one: callbacks=[{one.__name__}()]")
            missing = [name for name in METHODS if not callable(getattr(one, name, None))]
            if missing:
                raise Error(f"the callback {one!r} has no method {missing[0]}",
                            "derive its class from longstride.callbacks.Callback")

    def __len__(self) -> int:
        return len(self._callbacks)

    def start(self, record: Record) -> None:
        for one in self._callbacks:
            one.start(record)

    def progress(self, record: Record) -> None:
        for one in self._callbacks:
            one.progress(record)

    def step(self, record: Record) -> None:
        for one in self._callbacks:
            one.step(record)

    def eval(self, record: Record) -> None:
        for one in self._callbacks:
            one.eval(record)

    def save(self, record: Record) -> None:
        for one in self._callbacks:
            one.save(record)

    def end(self, record: Record) -> None:
        first = None
        for one in self._callbacks:
            try:
                one.end(record)
            except Exception as error:  # the others must end too
                first = first or error
        if first is not None:
            raise first


class TensorBoard(Callback):
    """Writes event files, by default into `tensorboard` in the run's directory. A resumed run adds a file, and
    TensorBoard drops what earlier files have of the repeated steps. Needs the package tensorboard, not torch."""

    FLUSH_SECONDS = 5

    def __init__(self, directory: Path | None = None) -> None:
        from longstride.tensorboard import EventWriter, require_tensorboard
        require_tensorboard()
        self._directory, self._make = directory, EventWriter
        self._writer: Any = None  # from `start` to `end`
        self._flushed = 0.0

    def start(self, record: Record) -> None:
        directory = self._directory or os.path.join(record["directory"], "tensorboard")
        self._writer = self._make(os.fspath(directory))
        done = record.get("step") or 0
        if done:
            self._writer.restart(done + 1)
        self._flush()

    def step(self, record: Record) -> None:
        self._writer.add(record)
        # The last steps of a run may come in one burst: whoever looks afterwards must see them without `end`.
        if time.monotonic() - self._flushed > self.FLUSH_SECONDS or record.get("step") == record.get("total_steps"):
            self._flush()

    def eval(self, record: Record) -> None:
        self._writer.add(record)
        self._flush()

    def end(self, record: Record) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _flush(self) -> None:
        self._writer.flush()
        self._flushed = time.monotonic()


class WeightsAndBiases(Callback):
    """Logs to Weights & Biases. Options go to wandb.init: project, name, mode="offline", ... Needs the package wandb.

    The effective configuration becomes the config of the run. Everything is logged over `step`, so that a resumed run
    (id=..., resume="must") may repeat steps, which W&B's own counter refuses.
    """

    def __init__(self, **options: Any) -> None:
        try:
            import wandb
        except ImportError as error:
            raise Error(f"the callback WeightsAndBiases needs the package wandb ({error})",
                        "pip install wandb") from error
        from longstride.scalars import scalars_of
        self._wandb, self._options, self._scalars = wandb, options, scalars_of
        self._run: Any = None

    def start(self, record: Record) -> None:
        options = {"project": "longstride", "name": os.path.basename(os.path.abspath(record["directory"]))}
        options |= self._options
        options["config"] = record.get("config", {}) | options.get("config", {})
        self._run = self._wandb.init(**options)
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")

    def step(self, record: Record) -> None:
        self._log(record)

    def eval(self, record: Record) -> None:
        self._log(record)

    def save(self, record: Record) -> None:
        self._run.summary["checkpoint"] = str(record["path"])
        self._run.summary["checkpoint_step"] = record.get("step")

    def end(self, record: Record) -> None:
        if self._run is not None:
            self._run.finish()
            self._run = None

    def _log(self, record: Record) -> None:
        scalars = self._scalars(record)
        if scalars:
            self._run.log(scalars | {"step": record["step"]})
