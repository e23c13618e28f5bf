"""The charts of a report. A chart is a dict for the page: id, title, section, note, traces, axes."""
from array import array

from longstride.report import series
from longstride.report.needle_chart import needle_chart
from longstride.report.position_chart import position_chart
from longstride.report.resource_charts import memory_chart, time_chart
from longstride.report.series import RUN_COLOURS, eval_line, line, noisy_line
from longstride.report.sizes import byte_unit
from longstride.report.thin import mean


def all_charts(runs, evaluations, maps):
    """(charts, names of the x axes). evaluations: (name, output of eval); maps: needle maps."""
    courses, unit = series.courses_of(runs)
    found = [loss_chart(courses), position_chart(runs, evaluations), accuracy_chart(courses)]
    found += [needle_chart(one, number) for number, one in enumerate(maps, 1)]
    found += [rate_chart(courses), norm_chart(courses), speed_chart(courses), time_chart(courses),
              transfer_chart(courses), hidden_chart(courses), memory_chart(runs), selection_chart(courses)]
    axes = {"step": "step", "tokens": "tokens", "time": f"training time, {unit}"}
    return [chart for chart in found if chart], axes


def over_steps(name, title, section, traces, courses, y, note="", **more):
    """A chart over the course of the run; None without traces."""
    if not traces:
        return None
    return {"id": name, "title": title, "section": section, "traces": traces, "y": y, "marks": series.marks(courses),
            "course": True, "note": note, **more}


def colour_of(courses, k, alone="@blue"):
    """One run is blue; several have a colour each, which repeats after eight."""
    return alone if len(courses) == 1 else RUN_COLOURS[k % len(RUN_COLOURS)]


def named(courses, course, what):
    """A trace's name: what it shows, or of several runs the run (and what it shows, if there is more than one thing)."""
    return what if len(courses) == 1 else f"{course.run.name}{' ' + what if what else ''}"


def loss_chart(courses):
    traces, smooth = [], False
    for k, course in enumerate(courses):
        if course.run.metrics.has("loss"):
            hover = "%{y:.4f}"
            found = noisy_line(course, course.run.metrics.column("loss"),
                               "training" if len(courses) == 1 else course.run.name, colour_of(courses, k), hover)
            traces, smooth = traces + found, smooth or len(found) > 1
        colour = colour_of(courses, k, "@orange")
        traces += eval_line(course, "loss", named(courses, course, "evaluation"), colour, "%{y:.4f}")
    traces += skipped_steps(courses)
    note = "Cross-entropy in nats, averaged over a step's targets."
    if smooth:
        note += " Bold: mean over neighbouring steps."
    if any(course.run.metrics.resumes() for course in courses):
        note += " Dotted upright lines, here and below: the run was resumed."
    return over_steps("loss", "Loss", "Learning", traces, courses, {"title": "nats per token"}, note, wide=True, log=True)


def skipped_steps(courses):
    """A cross at the foot of the chart for every step whose update was skipped."""
    traces = []
    for course in courses:
        steps = course.run.metrics.skipped
        if steps:
            traces.append({"type": "scatter", "mode": "markers", "name": "skipped, not finite", "yaxis": "y2",
                           "xs": course.at_steps(steps), "y": [0] * len(steps), "hovertemplate": "update skipped",
                           "marker": {"color": "@rose", "symbol": "x", "size": 8}})
    return traces


def accuracy_chart(courses):
    traces = []
    for k, course in enumerate(courses):
        metrics = course.run.metrics
        if metrics.has("accuracy"):
            values = array("d", (100 * x for x in metrics.column("accuracy")))
            traces += noisy_line(course, values, "training" if len(courses) == 1 else course.run.name,
                                 colour_of(courses, k), "%{y:.2f}%")
        traces += eval_line(course, "accuracy", named(courses, course, "evaluation"),
                            colour_of(courses, k, "@orange"), "%{y:.2f}%", 100)
    return over_steps("accuracy", "Accuracy", "Learning", traces, courses, {"ticksuffix": "%", "rangemode": "tozero"},
                      "Share of the targets to which the model gave the largest logit.")


def simple(courses, key, what, hover, noisy=False, scale=1):
    """Lines of one quantity, one for every run that has it."""
    traces = []
    for k, course in enumerate(courses):
        if course.run.metrics.has(key):
            values = course.run.metrics.column(key)
            if scale != 1:
                values = array("d", (scale * x for x in values))
            name = named(courses, course, "") or what
            draw = noisy_line if noisy else lambda *a: [line(*a)]
            traces += draw(course, values, name, colour_of(courses, k), hover)
    return traces


def rate_chart(courses):
    return over_steps("learning-rate", "Learning rate", "Learning",
                      simple(courses, "learning_rate", "learning rate", "%{y:.3~e}"), courses,
                      {"rangemode": "tozero", "exponentformat": "power"})


def norm_chart(courses):
    traces = simple(courses, "gradient_norm", "gradient norm", "%{y:.4~g}", noisy=True)
    limits = {course.run.setting("optimizer", "clip_norm") for course in courses}
    limit = limits.pop() if len(limits) == 1 else None
    known = sorted(x for course in courses for x in course.run.metrics.column("gradient_norm") if x == x)
    wide = bool(known) and known[0] > 0 and known[-1] > 30 * known[len(known) // 2]
    chart = over_steps("gradient-norm", "Gradient norm", "Learning", traces, courses, {"rangemode": "tozero"},
                       "Before clipping.", log=True, logged=wide)
    if chart and isinstance(limit, (int, float)) and limit > 0 and known and limit < 2 * known[-1]:
        chart["level"] = limit
        chart["note"] = f"Before clipping; dashed: clipped to {limit:g}."
    return chart


def speed_chart(courses):
    return over_steps("speed", "Tokens per second", "Speed",
                      simple(courses, "tokens_per_s", "tokens/s", "%{y:.4~s} tokens/s", noisy=True), courses,
                      {"rangemode": "tozero", "tickformat": "~s"})


def transfer_chart(courses):
    """Bytes of pages that left the device in a step, and that came back; None if none did."""
    most = max((x for course in courses for key in ("bytes_moved_in", "bytes_moved_out")
                for x in course.run.metrics.column(key) if x == x), default=0)
    if most <= 0:
        return None
    unit, size = byte_unit(most)
    traces = []
    for k, course in enumerate(courses):
        for key, what, dash in (("bytes_moved_in", "to the device", "solid"), ("bytes_moved_out", "from it", "dot")):
            if course.run.metrics.has(key):
                values = array("d", (x / size for x in course.run.metrics.column(key)))
                colour = colour_of(courses, k, "@blue" if dash == "solid" else "@orange")
                trace = line(course, values, named(courses, course, what), colour, f"%{{y:.3~f}} {unit}")
                trace["line"]["dash"] = "solid" if len(courses) == 1 else dash
                traces.append(trace)
    return over_steps("transfers", "Pages moved in a step", "Speed", traces, courses,
                      {"title": unit, "rangemode": "tozero"}, "Keys, values and their gradients, to the device and back.")


def hidden_chart(courses):
    """The share of transfers that compute hides; None where nothing is moved."""
    moving = [course for course in courses if any(x > 0 for x in course.run.metrics.column("bytes_moved_in"))]
    traces = simple(courses, "hidden_share", "hidden", "%{y:.1f}%", scale=100) if moving else []
    return over_steps("hidden", "Transfers hidden behind computing", "Speed", traces, courses,
                      {"ticksuffix": "%"}, "100%: computing never waited for a copy or the disk.")


def selection_chart(courses):
    """How many earlier pages the chunks of sparse layers attend to; None without such layers."""
    traces = []
    for k, course in enumerate(courses):
        for key, what, dash in (("union_pages_mean", "mean", "solid"), ("union_pages_most", "most", "dot")):
            if course.run.metrics.has(key):
                trace = line(course, course.run.metrics.column(key), named(courses, course, what),
                             colour_of(courses, k, "@blue" if dash == "solid" else "@orange"), "%{y:.1f} pages")
                trace["line"]["dash"] = "solid" if len(courses) == 1 else dash
                traces.append(trace)
    reuse = [mean(course.run.metrics.column("selected_page_reuse")) for course in courses
             if course.run.metrics.has("selected_page_reuse")]
    note = "Different earlier pages that a chunk attends to in a sparse layer."
    if len(reuse) == 1:
        note += f" A selected page serves {reuse[0]:.1f} pages of queries on average."
    return over_steps("selection", "Selected pages", "Memory", traces, courses, {"title": "pages", "rangemode": "tozero"},
                      note)
