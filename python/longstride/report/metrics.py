"""Reads a metrics file (docs/metrics.md) into columns.

A file may have a million lines of 45 values, so it is read once, line by line, and only what is drawn is kept: one
array of doubles per quantity, and the sizes of memory only where they change.
"""
import bisect
import json
import math
from array import array
from datetime import datetime

from longstride.errors import Error
from longstride.report.sizes import is_number

# Quantities of a step that are kept; `seconds_*` (the parts of a step's time) are kept in addition, whatever they are.
KEPT = ("loss", "gradient_norm", "learning_rate", "accuracy", "tokens", "targets", "epoch", "elapsed", "seconds",
        "tokens_per_s", "tflops", "mfu", "bytes_moved_out", "bytes_moved_in", "hidden_share", "union_pages_mean",
        "union_pages_most", "selected_page_reuse", "peak_rss")
NAN = math.nan


def is_time_part(key):
    """Whether a key is a part of a step's duration, such as seconds_forward."""
    return key.startswith("seconds_") and key != "seconds_left"


def is_memory(key):
    """Whether a key is an amount of reserved memory, such as bytes_weights or bytes_host_pages."""
    return key.startswith("bytes") and not key.startswith("bytes_moved")


def is_size(value):
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**62


def number(value):
    """The value as a float; NaN for null and everything else that is no finite number."""
    return float(value) if is_number(value) else NAN


def seconds_of(time):
    """The time of a line as seconds since 1970; NaN if there is none."""
    try:
        return datetime.fromisoformat(time).timestamp()
    except (TypeError, ValueError):
        return NAN


class Metrics:
    """The steps and evaluations of a run, each in ascending order of steps.

    A line of an earlier step than the one before it comes from a run that was resumed there: it takes the place of what
    the file has from that step on, as it does in the file when the program itself resumes.
    """

    def __init__(self, path):
        self.path = path
        self.steps = array("q")
        self.times = array("d")
        self.columns = {key: array("d") for key in KEPT}
        self.memory = []  # (step, {key: bytes}): from this step on
        self.evals = []  # the lines as they are, but every one has `step`
        self.skipped = []  # steps whose update was skipped
        self.last = {}  # the last line of a step
        self.unknown = {}  # how many lines there are of each kind that is not known
        self.unfinished = False  # whether the last line was cut short
        # Most lines have the keys and the memory of the line before: what follows from them is kept.
        self._keys, self._memory_keys, self._sizes = (), [], None

    def __len__(self):
        return len(self.steps)

    def column(self, key):
        """The values of a key, one for every step; NaN where unknown."""
        return self.columns.get(key) or array("d", [NAN]) * len(self.steps)

    def has(self, key):
        """Whether any step has a value for the key."""
        return any(x == x for x in self.columns.get(key, ()))

    def time_parts(self):
        """The keys of the parts of a step's time, in the order of the file."""
        return [key for key in self.columns if is_time_part(key)]

    def resumes(self):
        """The first step of every process but the first: there `elapsed` begins again."""
        elapsed = self.column("elapsed")
        return [self.steps[i] for i in range(1, len(self.steps)) if elapsed[i] < elapsed[i - 1]]

    def row_of(self, step):
        """How many steps up to this one are known."""
        return bisect.bisect_right(self.steps, step)

    def add(self, line):
        """Adds one line; ValueError if it is no record."""
        step = line.get("step")
        kind = line.get("kind")
        if kind is not None and kind != "eval":
            self.unknown[str(kind)] = self.unknown.get(str(kind), 0) + 1
            return
        if not isinstance(step, int) or isinstance(step, bool) or not -(2**63) <= step < 2**63 or "loss" not in line:
            raise ValueError("not a record of a step")
        if kind == "eval":
            while self.evals and self.evals[-1]["step"] >= step:
                self.evals.pop()
            self.evals.append(line)
        else:
            self._add_step(step, line)

    def _add_step(self, step, line):
        if self.steps and step <= self.steps[-1]:
            self._drop_from(step)
        row = len(self.steps)
        self.steps.append(step)
        self.times.append(seconds_of(line.get("time")))
        keys = tuple(line)
        if keys != self._keys:
            self._keys, self._memory_keys = keys, [key for key in keys if is_memory(key)]
            for key in keys:
                if key not in self.columns and is_time_part(key):
                    self.columns[key] = array("d", [NAN]) * row
        get = line.get
        for key, column in self.columns.items():
            value = get(key)
            column.append(value if type(value) is float and -1e100 < value < 1e100 else number(value))
        sizes = [line[key] for key in self._memory_keys]
        if not self.memory or self._sizes != (self._memory_keys, sizes):
            self._sizes = self._memory_keys, sizes
            memory = {key: size for key, size in zip(*self._sizes) if is_size(size)}
            self.memory.append((step, memory))
        if line.get("skipped") is True:
            self.skipped.append(step)
        self.last = line

    def _drop_from(self, step):
        row = bisect.bisect_left(self.steps, step)
        for column in (self.steps, self.times, *self.columns.values()):
            del column[row:]
        self.evals = [line for line in self.evals if line["step"] < step]
        self.memory, self._sizes = [entry for entry in self.memory if entry[0] < step], None
        self.skipped = [skipped for skipped in self.skipped if skipped < step]


def lines_of(path):
    """Yields (number, line as a dict) for every whole line; a last line that was cut short is yielded as None."""
    try:
        file = open(path, "rb")
    except OSError as error:
        raise Error(f"cannot read {path}: {error.strerror}", "check the path and its permissions") from error
    with file:
        for count, text in enumerate(file, 1):
            if not text.strip():
                continue
            try:
                line = json.loads(text)
                if not isinstance(line, dict):
                    raise ValueError("not an object")
            except (ValueError, RecursionError):
                if text.endswith(b"\n") or count == 1 and not text.lstrip().startswith(b"{"):
                    raise damaged(path, count) from None
                line = None
            yield count, line


def damaged(path, count):
    return Error(f"{path}:{count}: not a record of a step",
                 "give a checkpoint directory or its metrics file; if this is one, the line is damaged: remove it")


def read_metrics(path):
    """Reads a whole file. Error if it has no step and no evaluation, or a line that is none of ours."""
    metrics = Metrics(path)
    for count, line in lines_of(path):
        if line is None:
            metrics.unfinished = True
            continue
        try:
            metrics.add(line)
        except ValueError:
            raise damaged(path, count) from None
    if not metrics.steps and not metrics.evals:
        raise Error(f"{path} has no finished step", "wait until the run has done one")
    return metrics
