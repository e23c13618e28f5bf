"""The charts of a report. A chart is a dict for the page: id, title, section, note, traces, axes."""
from array import array

from longstride.report import series
from longstride.report.needle_chart import needle_chart
from longstride.report.position_chart import position_chart
from longstride.report.resource_charts import memory_chart, time_chart
from longstride.report.series import eval_line, label, line, noisy_line
from longstride.report.sizes import byte_unit, is_number
from longstride.report.thin import mean


def all_charts(runs, evaluations, maps):
    """(charts, names of the x axes, unit of time). evaluations: (name, output of eval); maps: needle maps."""
    courses, unit = series.courses_of(runs)
    found = [loss_chart(courses), position_chart(runs, evaluations), accuracy_chart(courses)]
    found += [needle_chart(one, number) for number, one in enumerate(maps, 1)]
    found += [rate_chart(courses), norm_chart(courses), speed_chart(courses), time_chart(courses),
              transfer_chart(courses), hidden_chart(courses), memory_chart(runs), selection_chart(courses)]
    axes = {"step": "step", "tokens": "tokens", "time": f"training time, {unit}"}
    return [chart for chart in found if chart], axes, unit


def over_steps(name, title, section, traces, courses, y, note="", **more):
    """A chart over the course of the run; None without traces."""
    if not traces:
        return None
    return {"id": name, "title": title, "section": section, "traces": traces, "y": y, "marks": series.marks(courses),
            "course": True, "note": note, **more}


# How lines tell runs apart. One run: every quantity has a name and a colour. Several: every run has a colour and one
# entry in the legend, and a second quantity of a run is dotted.
def first_look(course, what):
    """(name, colour) of the main quantity."""
    return (what, "@blue") if course.alone else (course.run.name, course.colour)


def second_look(course, what):
    """(name, colour) of the other one."""
    return (what, "@orange") if course.alone else (f"{course.run.name}, {what}", course.colour)


def subdued(traces, course):
    """Traces of the second quantity, out of the legend if there are several runs: they go with their run."""
    for trace in [] if course.alone else traces:
        trace |= {"showlegend": False, "legendgroup": label(course.run.name)}
        trace["line"]["dash"] = "dot"
    return traces


def trained_and_evaluated(courses, key, hover, scale=1):
    """Lines of a quantity of every step, and of evaluations."""
    traces = []
    for course in courses:
        metrics = course.run.metrics
        if metrics.has(key):
            values = metrics.column(key)
            values = array("d", (scale * x for x in values)) if scale != 1 else values
            traces += noisy_line(course, values, *first_look(course, "training"), hover)
        traces += subdued(eval_line(course, key, *second_look(course, "evaluation"), hover, scale), course)
    return traces


def evaluated(courses):
    """A note on how evaluations look, where the legend does not say it."""
    several = len(courses) > 1 and any(course.run.metrics.evals for course in courses)
    return " Dotted, with dots: evaluations." if several else ""


def loss_chart(courses):
    traces = trained_and_evaluated(courses, "loss", "%{y:.4f}")
    note = "Cross-entropy in nats, averaged over a step's targets."
    if any(trace.get("hoverinfo") == "skip" for trace in traces):
        note += " Bold: mean over neighbouring steps."
    note += evaluated(courses)
    if any(course.run.metrics.resumes() for course in courses):
        note += " Dotted upright lines, here and below: the run was resumed."
    return over_steps("loss", "Loss", "Learning", traces + skipped_steps(courses), courses, {"title": "nats per token"},
                      note, wide=True, log=True)


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
    return over_steps("accuracy", "Accuracy", "Learning",
                      trained_and_evaluated(courses, "accuracy", "%{y:.2f}%", 100), courses,
                      {"ticksuffix": "%", "rangemode": "tozero"},
                      "Share of the targets to which the model gave the largest logit." + evaluated(courses))


def simple(courses, key, what, hover, noisy=False, scale=1):
    """Lines of one quantity, one for every run that has it."""
    traces = []
    for course in courses:
        if course.run.metrics.has(key):
            values = course.run.metrics.column(key)
            values = array("d", (scale * x for x in values)) if scale != 1 else values
            name, colour = first_look(course, what)
            found = (course, values, name, colour, hover)
            traces += noisy_line(*found) if noisy else [line(*found)]
    return traces


def pairs(courses, keys, names, hover, scale=1):
    """Lines of two quantities of every run."""
    traces = []
    for course in courses:
        for key, what, role in zip(keys, names, (first_look, second_look)):
            if course.run.metrics.has(key):
                values = array("d", (scale * x for x in course.run.metrics.column(key)))
                trace = line(course, values, *role(course, what), hover)
                traces += subdued([trace], course) if role == second_look else [trace]
    return traces


def rate_chart(courses):
    return over_steps("learning-rate", "Learning rate", "Learning",
                      simple(courses, "learning_rate", "learning rate", "%{y:.3~e}"), courses,
                      {"rangemode": "tozero", "exponentformat": "power"})


def norm_chart(courses):
    traces = simple(courses, "gradient_norm", "gradient norm", "%{y:.4~g}", noisy=True)
    limits = [course.run.setting("optimizer", "clip_norm") for course in courses]
    limit = limits[0] if is_number(limits[0]) and limits.count(limits[0]) == len(limits) else 0
    known = sorted(x for course in courses for x in course.run.metrics.column("gradient_norm") if x == x)
    wide = bool(known) and known[0] > 0 and known[-1] > 30 * known[len(known) // 2]
    chart = over_steps("gradient-norm", "Gradient norm", "Learning", traces, courses, {"rangemode": "tozero"},
                       "Before clipping.", log=True, logged=wide)
    if chart and limit > 0 and known and limit < 2 * known[-1]:
        chart["level"] = limit
        chart["note"] = f"Before clipping; dashed: clipped to {limit:g}."
    return chart


def speed_chart(courses):
    return over_steps("speed", "Tokens per second", "Speed",
                      simple(courses, "tokens_per_s", "tokens/s", "%{y:.4~s} tokens/s", noisy=True), courses,
                      {"rangemode": "tozero", "tickformat": "~s"})


def transfer_chart(courses):
    """Bytes of pages that left the device in a step, and that came back; None if none did."""
    keys = ("bytes_moved_in", "bytes_moved_out")
    courses = moving(courses)
    if not courses:
        return None
    most = max(x for course in courses for key in keys for x in course.run.metrics.column(key) if x == x)
    unit, size = byte_unit(most)
    traces = pairs(courses, keys, ("to the device", "from the device"), f"%{{y:.3~f}} {unit}", 1 / size)
    note = "Keys, values and their gradients."
    return over_steps("transfers", "Pages moved in a step", "Speed", traces, courses,
                      {"title": unit, "rangemode": "tozero"},
                      note if courses[0].alone else note + " Solid: to the device; dotted: from it.")


def moving(courses):
    """The runs that moved pages."""
    return [course for course in courses if any(x > 0 for key in ("bytes_moved_in", "bytes_moved_out")
                                                for x in course.run.metrics.column(key))]


def hidden_chart(courses):
    """The share of transfers that compute hides; None where nothing is moved."""
    courses = moving(courses)
    traces = simple(courses, "hidden_share", "hidden", "%{y:.1f}%", noisy=True, scale=100)
    return over_steps("hidden", "Transfers hidden behind computing", "Speed", traces, courses,
                      {"ticksuffix": "%", "rangemode": "tozero"},
                      "100%: computing never waited for a copy or the disk.")


def selection_chart(courses):
    """How many earlier pages the chunks of sparse layers attend to; None without such layers."""
    courses = [course for course in courses if course.run.metrics.has("union_pages_mean")]
    traces = pairs(courses, ("union_pages_mean", "union_pages_most"), ("mean", "most"), "%{y:.1f} pages")
    note = "Different earlier pages that a chunk attends to in a sparse layer."
    if courses and not courses[0].alone:
        note += " Solid: mean; dotted: most."
    elif courses and courses[0].run.metrics.has("selected_page_reuse"):
        reuse = mean(courses[0].run.metrics.column("selected_page_reuse"))
        note += f" A selected page serves {reuse:.1f} pages of queries on average."
    return over_steps("selection", "Selected pages", "Memory", traces, courses,
                      {"title": "pages", "rangemode": "tozero"}, note)
