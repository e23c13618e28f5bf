"""longstride tensorboard RUN [--out DIR]: turns a metrics file into an event file that TensorBoard shows.

The same events are written during a run by the callback TensorBoard (longstride/callbacks.py).
"""
import argparse
import math
import os
import shutil
import tempfile
import time
from typing import Any

from longstride.annotations import Record
from longstride.errors import Error
from longstride.report.metrics import damaged, lines_of, seconds_of
from longstride.report.run import find_metrics
from longstride.scalars import scalars_of

SUFFIX = ".longstride"


def require_tensorboard() -> tuple[Any, Any, Any]:
    """The modules (of events, of summaries, of the writer) of the package tensorboard; Error if it is missing."""
    try:
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer import event_file_writer
    except ImportError as error:
        raise Error(f"event files need the package tensorboard ({error})",
                    "pip install 'longstride[tensorboard]'") from error
    return event_pb2, summary_pb2, event_file_writer


class EventWriter:
    """Scalars of metrics lines, one event for every line. TensorBoard's own package writes the file; torch and
    TensorFlow are not needed. For one thread."""

    def __init__(self, directory: str, suffix: str = "") -> None:
        event_pb2, summary_pb2, event_file_writer = require_tensorboard()
        self._event, self._session = event_pb2.Event, event_pb2.SessionLog
        self._summary = summary_pb2.Summary
        self._memory: dict[str, float] = {}  # as last written
        try:
            self._writer = event_file_writer.EventFileWriter(directory, max_queue_size=1000, filename_suffix=suffix)
        except OSError as error:
            raise Error(f"cannot write event files in {directory}: {error.strerror}",
                        "check the path and its permissions") from error

    def restart(self, step: int) -> None:
        """Says that steps from this one on come again: TensorBoard then drops what earlier files have of them."""
        self._writer.add_event(self._event(wall_time=time.time(), step=step,
                                           session_log=self._session(status=self._session.START)))

    def add(self, line: Record) -> None:
        """Writes the scalars of a line at its step and its time; lines without any are left out.

        Memory hardly ever changes, and would be a large part of the file: it is written where it does.
        """
        scalars = {name: value for name, value in scalars_of(line).items() if self._memory.get(name) != value}
        if not scalars:
            return
        self._memory |= {name: value for name, value in scalars.items() if name.startswith("memory/")}
        when = seconds_of(line.get("time"))
        values = [self._summary.Value(tag=name, simple_value=value) for name, value in scalars.items()]
        self._writer.add_event(self._event(wall_time=time.time() if math.isnan(when) else when, step=line["step"],
                                           summary=self._summary(value=values)))

    def flush(self) -> None:
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


def valid_step(line: Record) -> bool:
    step = line.get("step")
    return isinstance(step, int) and not isinstance(step, bool) and 0 <= step < 2**63


def last_lines(path: str) -> set[int]:
    """The numbers of the lines that count: where a run went back to an earlier step, the later lines do."""
    steps: list[tuple[int, int]] = []  # (step, number of the line), ascending
    evals: list[tuple[int, int]] = []
    for number, line in lines_of(path):
        if line is None or line.get("kind") not in (None, "eval"):
            continue
        if not valid_step(line) or "loss" not in line:
            raise damaged(path, number)
        own = evals if line.get("kind") == "eval" else steps
        for others in {id(own): own, id(evals): evals}.values():
            while others and others[-1][0] >= line["step"]:
                others.pop()
        own.append((line["step"], number))
    return {number for _, number in steps + evals}


def convert(path: str, directory: str) -> tuple[str, int]:
    """Writes the event file of a metrics file into a directory, whole or not at all; returns (its path, lines)."""
    kept = last_lines(path)
    if not kept:
        raise Error(f"{path} has no finished step", "wait until the run has done one")
    target = os.path.join(directory, f"events.out.tfevents.0000000000{SUFFIX}")
    try:
        os.makedirs(directory, exist_ok=True)
        others = [name for name in os.listdir(directory)
                  if "tfevents" in name and os.path.join(directory, name) != target]
        if others:
            raise Error(f"{directory} holds event files already, such as {sorted(others)[0]}",
                        "TensorBoard would show both runs as one: give another directory by --out")
        # Not in the directory itself: TensorBoard may be watching it.
        with tempfile.TemporaryDirectory(prefix=".tensorboard.unfinished-",
                                         dir=os.path.dirname(os.path.realpath(directory))) as temporary:
            writer = EventWriter(temporary, SUFFIX)
            try:
                for number, line in lines_of(path):
                    if number in kept:
                        writer.add(line)
            finally:
                writer.close()
            made, = os.listdir(temporary)
            made = os.path.join(temporary, made)
            with open(made, "rb") as file:
                os.fsync(file.fileno())
            shutil.move(made, target)
    except OSError as error:
        raise Error(f"cannot write event files in {directory}: {error.strerror or error}",
                    "check the path and the free space, or set --out") from error
    return target, len(kept)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="longstride tensorboard", description="Turns the metrics of a run into an event file for TensorBoard.")
    parser.add_argument("run", metavar="RUN", help="checkpoint directory of a run, or its metrics file")
    parser.add_argument("--out", metavar="DIR", help="where the event file goes; default: tensorboard in RUN")
    options = parser.parse_args(arguments)
    directory, path = find_metrics(options.run)
    made, lines = convert(path, options.out or os.path.join(directory, "tensorboard"))
    print(f"wrote {made}: {lines} lines\nto see it: tensorboard --logdir {os.path.dirname(made)}")
    return 0
