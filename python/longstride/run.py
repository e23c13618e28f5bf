"""Whole runs: `train` and `plan`, as the commands of the same names do them."""
import json
import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from . import _core
from . import libraries
from . import messages  # noqa: F401  (messages go through logging)
from .annotations import Config, Path, Record, Size
from .callbacks import Callback, Callbacks
from .errors import Error
from .program import program
from .settings import section


class Receiver(Callbacks):
    """Hands the engine's events on, with what callbacks are promised (longstride.callbacks)."""

    def __init__(self, callbacks: Iterable[Callback] | None) -> None:
        super().__init__(callbacks)
        self.steps: int = 0
        self.started = False

    def start(self, record: Record) -> None:
        self.steps, self.started = record["completed_steps"], True
        config = record["config"]
        super().start({"directory": config["checkpoint"]["directory"], "step": self.steps,
                       "total_steps": config["training"]["steps"], **record})

    def step(self, record: Record) -> None:
        self.steps = record["step"]
        super().step(record)

    def save(self, record: Record) -> None:
        super().save({"step": int(os.path.basename(record["path"]).removeprefix("step-")), **record})


def words_of(config: Path | Config, overrides: Config | None) -> tuple[str, list[str]]:
    """(file, settings) of a path, or of a dict of sections."""
    settings: list[str] = []
    if isinstance(config, Mapping):
        for name, values in config.items():
            if not isinstance(values, Mapping):
                raise Error(f"{name} is {values!r}", "give a dict of sections: {\"training\": {\"steps\": 100}, ...}")
            settings += section(name, values)
        config = ""
    for name, values in (overrides or {}).items():
        settings += section(name, values)
    return os.fspath(config), settings


def train(config: Path | Config, resume: bool | Path = False, callbacks: Iterable[Callback] | None = (),
          overrides: Config | None = None) -> bool:
    """Trains as the TOML file `config`, or a dict of its sections, says; `overrides` is such a dict too.

    `resume`: False, True (the newest checkpoint) or a checkpoint's directory. `callbacks` are of classes derived from
    longstride.callbacks.Callback. What one raises ends the run after the last completed step has been saved; so does
    Ctrl-C. Returns True when all steps are done."""
    file, settings = words_of(config, overrides)
    checkpoint = "true" if resume is True else os.fspath(resume) if resume else ""
    receiver = Receiver(callbacks)
    libraries.use()
    try:
        return _core.train(file, settings, checkpoint, receiver)
    finally:
        if receiver.started:
            receiver.end({"step": receiver.steps})


def plan(config: Path | None = None, *, preset: str | None = None, model: Path | None = None,
         context: Size | Sequence[Size], **options: Size | float | Path | None) -> dict[str, Any]:
    """What runs need, before they start: the JSON of `longstride plan` for a TOML file, a preset or a model directory.

    `context` is one, or a list of them: 128 * 1024, "128K". Options are those of the command, with _ for -."""
    libraries.use()
    command = [program(), "plan", "--json"]
    if config is not None:
        command.append(os.fspath(config))
    for name, value in {"preset": preset, "model": model, **options}.items():
        if value is None or value is False:
            continue
        command.append("--" + name.replace("_", "-"))
        if value is not True:
            command.append(str(value))
    contexts = context if isinstance(context, (list, tuple)) else [context]
    command += ["--context", ",".join(map(str, contexts))]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if not done.stdout:
        raise error_of(done.stderr)
    made: dict[str, Any] = json.loads(done.stdout)
    return made


def error_of(text: str) -> Error:
    """The Error that the program printed."""
    message, _, hint = text.strip().partition("\n  hint: ")
    return Error(message.removeprefix("error: "), hint)
