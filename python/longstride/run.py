"""Whole runs: `train` and `plan`, as the commands of the same names do them."""
import json
import os
import subprocess

from . import _core
from . import messages  # noqa: F401  (messages go through logging)
from .errors import Error
from .program import program
from .settings import section

EVENTS = ("start", "progress", "step", "eval", "save")


class Receiver:
    """Passes each event on to all callbacks that want it."""

    def __init__(self, callbacks):
        for name in EVENTS:
            wanted = [getattr(c, name) for c in callbacks if callable(getattr(c, name, None))]
            setattr(self, name, lambda event, wanted=wanted: [function(event) for function in wanted])


def words_of(config, overrides):
    """(file, settings) of a path, or of a dict of sections."""
    settings = []
    if isinstance(config, dict):
        for name, values in config.items():
            if not isinstance(values, dict):
                raise Error(f"{name} is {values!r}", "give a dict of sections: {\"training\": {\"steps\": 100}, ...}")
            settings += section(name, values)
        config = ""
    for name, values in (overrides or {}).items():
        settings += section(name, values)
    return os.fspath(config), settings


def train(config, resume=False, callbacks=(), overrides=None):
    """Trains as the TOML file `config`, or a dict of its sections, says; `overrides` is such a dict too.

    `resume`: False, True (the newest checkpoint) or a checkpoint's directory. Callbacks have any of the methods start,
    progress, step, eval and save, each with a dict (longstride.callbacks). What one raises ends the run after the last
    completed step has been saved; so does Ctrl-C. Returns True when all steps are done."""
    file, settings = words_of(config, overrides)
    resume = "true" if resume is True else os.fspath(resume) if resume else ""
    return _core.train(file, settings, resume, Receiver(callbacks))


def plan(config=None, *, preset=None, model=None, context, **options):
    """What runs need, before they start: the JSON of `longstride plan` for a TOML file, a preset or a model directory.

    `context` is one, or a list of them: 128 * 1024, "128K". Options are those of the command, with _ for -."""
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
    return json.loads(done.stdout)


def error_of(text):
    """The Error that the program printed."""
    message, _, hint = text.strip().partition("\n  hint: ")
    return Error(message.removeprefix("error: "), hint)
