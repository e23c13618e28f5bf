"""Quantities over the course of a run, as traces that plotly draws.

A trace has its x three times, in steps, tokens and training time (`xs`): the page draws the one that is chosen. Colours
are names (`@blue`), which the page looks up in its light or dark theme.
"""
import bisect
import html
from array import array
from itertools import accumulate

from longstride.report.sizes import is_number, time_unit
from longstride.report.thin import kept_rows, smoothed

RUN_COLOURS = ("@blue", "@orange", "@teal", "@purple", "@rose", "@gold", "@green", "@grey")
LEAST_TO_SMOOTH = 60  # steps


def plain(values, digits=6):
    """A list for JSON: six digits are more than a screen shows; NaN becomes null."""
    return [None if x != x else int(x) if x == int(x) and abs(x) < 1e15 else float(f"{x:.{digits}g}") for x in values]


def label(text):
    """Text that plotly shows as it is: it takes some HTML, and names of directories may hold anything."""
    return html.escape(str(text), quote=False)


class Course:
    """The x of a run's steps in every unit, the run's colour, and whether it is the only run of the report."""

    def __init__(self, run, unit_seconds, colour, alone):
        metrics = run.metrics
        self.run, self.steps, self.colour, self.alone = run, metrics.steps, colour, alone
        self.tokens = array("d", accumulate(x if x == x else 0 for x in metrics.column("tokens")))
        self.time = array("d", accumulate(x if x == x else 0 for x in metrics.column("seconds")))
        self.unit = unit_seconds

    def at_rows(self, rows):
        return {"step": [self.steps[row] for row in rows], "tokens": plain(self.tokens[row] for row in rows),
                "time": plain(self.time[row] / self.unit for row in rows)}

    def at_steps(self, steps):
        """x after so many steps each, which need not have a line of their own."""
        rows = [bisect.bisect_right(self.steps, step) - 1 for step in steps]
        return {"step": list(steps), "tokens": plain(self.tokens[row] if row >= 0 else 0 for row in rows),
                "time": plain(self.time[row] / self.unit if row >= 0 else 0 for row in rows)}


def courses_of(runs):
    """(a Course for every run, the unit of time of them all)."""
    most = max(sum(x for x in run.metrics.column("seconds") if x == x) for run in runs)
    name, seconds = time_unit(most)
    return [Course(run, seconds, RUN_COLOURS[k % len(RUN_COLOURS)], len(runs) == 1) for k, run in enumerate(runs)], name


def line(course, values, name, colour, hover, **more):
    """A line of one value for every step, thinned; rows without a value are gaps."""
    rows = kept_rows(values)
    trace = {"type": "scatter", "mode": "lines" if len(rows) > 1 else "markers", "name": label(name),
             "legendgroup": label(name), "xs": course.at_rows(rows), "y": plain(values[row] for row in rows),
             "hovertemplate": hover, "line": {"color": colour, "width": 2, "simplify": False},
             "marker": {"color": colour}}
    trace.update(more)
    return trace


def noisy_line(course, values, name, colour, hover):
    """A line, and where there are enough steps its mean over their neighbours, drawn above a paler one."""
    count = len(values)
    if count < LEAST_TO_SMOOTH:
        return [line(course, values, name, colour, hover)]
    radius = max(2, count // 80)
    raw = line(course, values, name, colour, hover, opacity=0.35, showlegend=False)
    raw["line"] = {"color": colour, "width": 1}
    means = smoothed(values, radius)
    rows = kept_rows(means, 600)
    smooth = {"type": "scatter", "mode": "lines", "name": label(name), "legendgroup": label(name),
              "xs": course.at_rows(rows), "y": plain(means[row] for row in rows), "hoverinfo": "skip",
              "line": {"color": colour, "width": 2.25}}
    return [raw, smooth]


def eval_line(course, key, name, colour, hover, scale=1):
    """A value of every evaluation."""
    lines = [one for one in course.run.metrics.evals if is_number(one.get(key))]
    if not lines:
        return []
    return [{"type": "scatter", "mode": "lines+markers", "name": label(name),
             "xs": course.at_steps([one["step"] for one in lines]), "y": plain(scale * one[key] for one in lines),
             "hovertemplate": hover, "line": {"color": colour, "width": 2, "dash": "dot"},
             "marker": {"color": colour, "size": 7}}]


def marks(courses):
    """Where each run was resumed, in its colour."""
    found = [("@faint" if course.alone else course.colour + ":0.6", [step - 1 for step in course.run.metrics.resumes()])
             for course in courses]
    return [{"color": colour} | course.at_steps(steps) for course, (colour, steps) in zip(courses, found) if steps]
