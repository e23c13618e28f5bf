"""The command line of `longstride report`."""
import argparse
import os

from longstride.errors import Error
from longstride.report.charts import all_charts
from longstride.report.needle import find_needles, needle_map, read_eval, read_needles
from longstride.report.page import render
from longstride.report.run import Run, name_apart


def main(arguments):
    options = parser().parse_args(arguments)
    runs = read_runs(options.runs)
    evaluations, maps, left_out = read_evaluations(runs, options.eval or [], options.needle)
    charts, axes, unit = all_charts(runs, evaluations, maps)
    out = options.out or (os.path.join(runs[0].directory, "report.html") if len(runs) == 1 else "report.html")
    write_whole(out, render(runs, charts, axes, unit, left_out + notes_of(runs)))
    print(f"wrote {out}")
    return 0


def parser():
    result = argparse.ArgumentParser(
        prog="longstride report", description="Writes one HTML page about a run, or about several to compare them.")
    result.add_argument("runs", nargs="+", metavar="RUN", help="checkpoint directory of a run, or its metrics file")
    result.add_argument("--out", metavar="FILE", help="the page; default: report.html in RUN, for several RUNs here")
    result.add_argument("--eval", metavar="FILE", action="append",
                        help="output of `longstride eval --json`, may be repeated; default: eval*.json in each RUN")
    result.add_argument("--needle", metavar="PATH",
                        help="what was evaluated: a directory of `longstride prepare needle`, or a needle.json; "
                             "default: beside the evaluation, or the run's data")
    return result


def read_runs(paths):
    runs = [Run(path) for path in paths]
    seen = {}
    for path, run in zip(paths, runs):
        real = os.path.realpath(run.metrics.path)
        if real in seen:
            raise Error(f"{path} and {seen[real]} are the same run", "name every run once")
        seen[real] = path
    name_apart(runs)
    return runs


def read_evaluations(runs, asked, needle_path):
    """([(name, evaluation)], [needle map], notes) of the files asked for, or of those in the directories of the runs.

    A file that was asked for must be right; one that lies there and is something else is left out, with a note.
    """
    found = [(os.path.splitext(os.path.basename(path))[0], path, runs) for path in asked]
    if not asked:
        for run in runs:
            for name in sorted(os.listdir(run.directory)):
                if name.startswith("eval") and name.endswith(".json"):
                    stem = name.removesuffix(".json")
                    found.append((stem if len(runs) == 1 else f"{run.name}, {stem}",
                                  os.path.join(run.directory, name), [run]))
    if needle_path and not found:
        raise Error(f"{needle_path} belongs to an evaluation, and there is none",
                    "give the output of `longstride eval --json` by --eval")
    evaluations, maps, notes = [], [], []
    for name, path, owners in found:
        try:
            evaluation = read_eval(path)
            evaluations.append((name, evaluation))
            data = [one for run in owners for section in ("eval", "data") for one in run.data_paths(section)]
            needles = needle_path or find_needles(path, data)
            if needles and evaluation["documents"]:
                maps.append(needle_map(name, evaluation, read_needles(needles), f"{path} and {needles}"))
        except Error as error:
            if asked or needle_path:
                raise
            notes.append(f"Left out: {error.message}.")
    return evaluations, maps, notes


def notes_of(runs):
    """What a reader should know about the files."""
    notes = []
    for run in runs:
        of_run = f" of {run.name}" if len(runs) > 1 else ""
        metrics = run.metrics
        if metrics.unfinished:
            notes.append(f"The last line of {metrics.path} is unfinished and was left out.")
        for kind, count in metrics.unknown.items():
            notes.append(f"Left out: {count} line{'s' if count > 1 else ''}{of_run} of an unknown kind, {kind}.")
        if not run.state:
            notes.append(f"There is no checkpoint{of_run} yet, so model and settings are not known.")
    return notes


def write_whole(path, text):
    """Writes a file that appears whole or not at all."""
    temporary = f"{path}.unfinished-{os.getpid()}"
    try:
        try:
            with open(temporary, "w", encoding="utf-8", errors="replace", newline="\n") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            if os.path.exists(temporary):
                os.unlink(temporary)
            raise
    except OSError as error:
        raise Error(f"cannot write {path}: {error.strerror}",
                    "check the path and the free space, or set --out") from error
