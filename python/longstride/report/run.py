"""A run: its metrics, and what its newest checkpoint says about model and settings."""
import json
import os
import re
import struct

from longstride.errors import Error
from longstride.report.metrics import read_metrics

CHECKSUM_BYTES = 17  # at the end of state.json: 16 digits and the end of the line
MOST_HEADER = 100 << 20  # bytes of a safetensors header


class Run:
    """What a report says about one run. Everything but the metrics may be unknown: a run need not have saved yet."""

    def __init__(self, path):
        self.directory, metrics_path = find_metrics(path)
        self.metrics = read_metrics(metrics_path)
        named = os.path.abspath(path)
        if os.path.basename(named) == "metrics.jsonl":
            named = os.path.dirname(named)
        self.parts = named.removesuffix(".jsonl").split(os.sep)
        self.name = self.parts[-1]
        self.checkpoint, self.state = newest_checkpoint(self.directory)
        self.model = read_object(os.path.join(self.checkpoint, "config.json")) if self.checkpoint else {}
        base = self.setting("model", "path")
        if not self.model and isinstance(base, str):
            self.model = read_object(os.path.join(base, "config.json"))  # a checkpoint of adapters has none of its own

    def setting(self, section, key, default=None):
        """A value of the effective configuration."""
        values = self.state.get("config", {}).get(section)
        return values.get(key, default) if isinstance(values, dict) else default

    def numerics(self, key):
        """A value of the numerics record."""
        return self.state.get("numerics", {}).get(key)

    def parameters(self):
        """How many parameters the whole model has; None if unknown. Packed weights do not tell."""
        if self.model.get("quantization_config") or self.setting("model", "quantize"):
            return None
        for directory in (self.checkpoint, self.setting("model", "path")):
            count = stored_elements(directory) if isinstance(directory, str) else None
            if count:
                return count
        return None

    def data_paths(self, section):
        """The files or directories that `data.path` or `eval.path` names."""
        paths = self.setting(section, "path", [])
        paths = [paths] if isinstance(paths, str) else paths
        return [path for path in paths if isinstance(path, str)] if isinstance(paths, list) else []


def find_metrics(path):
    """(directory of the run, its metrics file) for a checkpoint directory or a metrics file."""
    if os.path.isfile(path):
        return os.path.dirname(path) or ".", path
    if not os.path.isdir(path):
        raise Error(f"there is no run {path}", "give a checkpoint directory (checkpoint.directory), or a metrics file")
    inside = os.path.join(path, "metrics.jsonl")
    if os.path.isfile(inside):
        return path, inside
    _, state = newest_checkpoint(path)
    try:
        elsewhere = state["config"]["metrics"]["file"]
    except (KeyError, TypeError):
        elsewhere = None
    if isinstance(elsewhere, str) and os.path.isfile(elsewhere):
        return path, elsewhere
    above = os.path.dirname(os.path.abspath(path))
    if os.path.isfile(os.path.join(above, "metrics.jsonl")):
        raise Error(f"{path} has no metrics.jsonl", f"the directory above it has one: give {above}")
    raise Error(f"{path} has no metrics.jsonl",
                "give the checkpoint directory of a run, or the file that its metrics.file names")


def newest_checkpoint(directory):
    """(step-N with the largest N whose state.json can be read, its contents); (None, {}) if there is none."""
    try:
        names = os.listdir(directory)
    except OSError:
        return None, {}
    steps = sorted((int(name[5:]) for name in names if re.fullmatch(r"step-[0-9]{1,18}", name)), reverse=True)
    for step in steps:
        path = os.path.join(directory, f"step-{step}")
        state = read_object(os.path.join(path, "state", "state.json"), CHECKSUM_BYTES)
        if isinstance(state.get("config"), dict) and isinstance(state.get("numerics"), dict):
            return path, state
    return None, {}


def read_object(path, tail=0):
    """A JSON object from a file, without the last `tail` bytes; empty if there is none."""
    try:
        with open(path, "rb") as file:
            value = json.loads(file.read()[:-tail or None])
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def stored_elements(directory):
    """The elements of all tensors of a model directory, from the headers of its files; None if it has none."""
    index = read_object(os.path.join(directory, "model.safetensors.index.json")).get("weight_map")
    names = sorted(set(index.values())) if isinstance(index, dict) else ["model.safetensors"]
    total = 0
    try:
        for name in names:
            with open(os.path.join(directory, name), "rb") as file:
                size, = struct.unpack("<Q", file.read(8))
                if size > MOST_HEADER:
                    return None
                header = json.loads(file.read(size))
            for tensor, facts in header.items():
                if tensor != "__metadata__":
                    elements = 1
                    for extent in facts["shape"]:
                        elements *= extent
                    total += elements
    except (OSError, ValueError, TypeError, KeyError, AttributeError, struct.error, RecursionError):
        return None
    return total or None


def name_apart(runs):
    """Gives runs of the same name longer names: with the directories above, as many as it takes."""
    for depth in range(2, max((len(run.parts) for run in runs), default=0) + 1):
        names = [run.name for run in runs]
        if len(set(names)) == len(names):
            return
        for run, name in zip(runs, names):
            if names.count(name) > 1:
                run.name = "/".join(run.parts[-depth:])
