"""Whether what a run left behind is what an undisturbed one leaves."""
import json
import os

from configurations import OUT
from program import Violation

# What neither the clock nor the machine nor the place of the pages decides.
LASTING = ("step", "total_steps", "loss", "gradient_norm", "learning_rate", "tokens", "targets", "accuracy", "skipped")
# Settings under which a run may go on.
FREE_SECTIONS = ("checkpoint", "memory", "device", "metrics")


def read(path):
    with open(path, "rb") as file:
        return file.read()


def saved_steps(directory):
    """The N of every step-N directory of the run, ascending."""
    try:
        names = os.listdir(os.path.join(directory, OUT))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(int(n[5:]) for n in names
                  if n.startswith("step-") and n[5:].isdigit() and os.path.isdir(os.path.join(directory, OUT, n)))


def files_below(directory):
    return sorted(os.path.relpath(os.path.join(folder, name), directory)
                  for folder, _, names in os.walk(directory) for name in names)


def state_of(path):
    text = read(path).decode()
    state = json.loads(text[:-17])
    for section in FREE_SECTIONS:
        state["config"].pop(section, None)
    return state


def same_step(directory, reference, step):
    here, there = (os.path.join(d, OUT, f"step-{step}") for d in (directory, reference))
    if files_below(here) != files_below(there):
        raise Violation(f"step-{step} holds {files_below(here)}, undisturbed {files_below(there)}")
    for name in files_below(here):
        a, b = os.path.join(here, name), os.path.join(there, name)
        if name == os.path.join("state", "state.json"):
            if state_of(a) != state_of(b):
                raise Violation(f"step-{step}/{name} differs from the undisturbed run's")
        elif read(a) != read(b):
            raise Violation(f"step-{step}/{name} differs from the undisturbed run's")


def metrics(directory, configuration):
    path = os.path.join(directory, configuration.settings.get("metrics.file", os.path.join(OUT, "metrics.jsonl")))
    if not os.path.exists(path):
        return []
    lines = []
    for line in read(path).decode(errors="replace").splitlines(keepends=True):
        if line.endswith("\n"):
            record = json.loads(line)
            lines.append({key: record[key] for key in LASTING})
    return lines


def same_metrics(directory, reference, configuration, complete):
    here, there = metrics(directory, configuration), metrics(reference, configuration)
    steps = [line["step"] for line in here]
    if steps != sorted(set(steps)):
        raise Violation(f"the metrics have steps {steps}")
    if complete and steps != list(range(1, configuration.steps() + 1)):
        raise Violation(f"the metrics have steps {steps} of {configuration.steps()}")
    for line in here:
        if line != there[line["step"] - 1]:
            raise Violation(f"metrics of step {line['step']} differ: {line} here, {there[line['step'] - 1]} undisturbed")


def whole_saves(directory, reference, ignored=()):
    """Every save that is there is one of the undisturbed run's."""
    for step in saved_steps(directory):
        if step not in ignored:
            same_step(directory, reference, step)


def finished(directory, reference, configuration, complete_metrics=True):
    steps, keep = saved_steps(directory), configuration.settings["checkpoint.keep"]
    if not steps or steps[-1] != configuration.steps():
        raise Violation(f"it ended with status 0, but its saves are {steps} of {configuration.steps()}")
    # There are more where nothing could be removed.
    if keep > 0 and len(steps) > keep and complete_metrics:
        raise Violation(f"checkpoint.keep is {keep}, but there are {steps}")
    whole_saves(directory, reference)
    same_metrics(directory, reference, configuration, complete_metrics)
    left = [n for n in os.listdir(os.path.join(directory, OUT)) if n.startswith(".")]
    if left:
        raise Violation(f"a finished run left {left} in its directory")


def nothing_on_disk(directory):
    """The page file goes with the process, however it ended."""
    left = os.listdir(os.path.join(directory, "disk")) if os.path.isdir(os.path.join(directory, "disk")) else []
    if left:
        raise Violation(f"memory.disk_path still holds {left}")
