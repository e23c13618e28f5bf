"""Where a step's time and the memory go."""
from longstride.report.series import label, marks, plain
from longstride.report.sizes import byte_unit, bytes_text, duration_text
from longstride.report.thin import even_stretches, mean
from longstride.report.tiers import ORDER, TIERS, tiers_of

MOST_STRETCHES = 300
PART_COLOURS = {"forward": "@blue", "recompute": "@gold", "backward": "@purple", "update": "@teal",
                "waiting": "@rose", "other": "@grey"}
TENANT_COLOURS = dict(zip(ORDER, ("@blue", "@purple", "@teal", "@orange", "@gold", "@green", "@grey")))
SPARE_COLOURS = ("@green", "@orange", "@rose")


def parts_of(metrics):
    """{part: function of a stretch of rows, its mean seconds}; what no part accounts for is "other"."""
    keys = [key for key in metrics.time_parts() if metrics.has(key)]
    columns = {key.removeprefix("seconds_").replace("_", " "): metrics.column(key) for key in keys}
    if not columns or not metrics.has("seconds"):
        return {}
    total = metrics.column("seconds")
    parts = {name: (lambda begin, end, column=column: mean(column[begin:end])) for name, column in columns.items()}

    def rest(begin, end):
        known = [part(begin, end) for part in parts.values()]
        return max(0.0, mean(total[begin:end]) - sum(x for x in known if x == x))

    everything = (0, len(metrics))
    shown = {name: part for name, part in parts.items() if part(*everything) > 0}
    return shown | ({"other": rest} if rest(*everything) > 0.005 * mean(total) else {})


def part_colour(name, k):
    return PART_COLOURS.get(name, SPARE_COLOURS[k % len(SPARE_COLOURS)])


def time_chart(courses):
    """One run: areas over its course. Several: a bar of mean parts for each."""
    parts = [parts_of(course.run.metrics) for course in courses]
    if not any(parts):
        return None
    if len(courses) == 1 and len(courses[0].run.metrics) > 1:
        return areas(courses[0], parts[0])
    return bars(courses, parts)


def areas(course, parts):
    metrics = course.run.metrics
    stretches = even_stretches(len(metrics), MOST_STRETCHES)
    middles = [(begin + end - 1) // 2 for begin, end in stretches]
    whole = mean(metrics.column("seconds"))
    traces = []
    for k, (name, part) in enumerate(parts.items()):
        share = part(0, len(metrics)) / whole
        traces.append({"type": "scatter", "mode": "lines", "name": label(name), "stackgroup": "one",
                       "caption": f"{label(name)} {percent(share)}",
                       "xs": course.at_rows(middles), "y": plain((part(*one) for one in stretches), 4),
                       "hovertemplate": "%{y:.3~g} s", "line": {"color": part_colour(name, k), "width": 0.5},
                       "fillcolor": part_colour(name, k) + ":0.75"})
    note = "Other: what no phase accounts for, such as waiting for a save." if "other" in parts else ""
    if len(stretches) < len(metrics):
        note = f"Means over {len(stretches)} stretches of the run. " + note
    return {"id": "step-time", "title": "Time of a step", "section": "Speed", "course": True, "traces": traces,
            "marks": marks([course]), "note": note.strip(), "y": {"title": "seconds", "rangemode": "tozero"}}


def percent(share):
    return "under 1%" if share < 0.005 else f"{100 * share:.0f}%"


def bars(courses, parts):
    names = [label(course.run.name) for course in courses]
    order = list(dict.fromkeys(name for one in parts for name in one))
    order.sort(key=lambda name: name == "other")
    traces = []
    for k, name in enumerate(order):
        values = [one[name](0, len(course.run.metrics)) if name in one else 0 for course, one in zip(courses, parts)]
        traces.append({"type": "bar", "orientation": "h", "name": label(name), "y": names, "x": plain(values, 4),
                       "text": [f"{duration_text(value)} {label(name)}" for value in values], "textposition": "none",
                       "hovertemplate": "%{y}<br>%{text}<extra></extra>", "marker": {"color": part_colour(name, k)}})
    return {"id": "step-time", "title": "Time of a step", "section": "Speed", "course": False, "traces": traces,
            "note": "Means over all steps.", "x": {"title": "seconds"}, "y": {"reversed": True}, "rows": len(names),
            "hovermode": "closest", "bars": True}


def memory_chart(runs):
    """Reserved bytes by tier (a bar each) and tenant (a colour each), as they are at the end of the run."""
    bars_of, notes = [], []
    for run in runs:
        if not run.metrics.memory:
            continue
        memory = run.metrics.memory[-1][1]
        for tier, tenants in tiers_of(memory).items():
            if any(tenants.values()):
                bars_of.append((tier if len(runs) == 1 else f"{run.name}: {tier}", tenants))
        notes += notes_of(run, memory, len(runs) == 1)
    if not bars_of:
        return None
    unit, size = byte_unit(max(sum(tenants.values()) for _, tenants in bars_of))
    names = [label(name) for name, _ in bars_of]
    tenants_shown = list(dict.fromkeys(tenant for _, tenants in bars_of for tenant in tenants if tenants[tenant]))
    tenants_shown.sort(key=lambda name: (ORDER.index(name) if name in ORDER else len(ORDER), name))
    traces = []
    for k, tenant in enumerate(tenants_shown):
        values = [tenants.get(tenant, 0) for _, tenants in bars_of]
        traces.append({"type": "bar", "orientation": "h", "name": label(tenant), "y": names,
                       "x": plain((value / size for value in values), 4),
                       "text": [f"{label(tenant)} {bytes_text(value)}" for value in values], "textposition": "none",
                       "hovertemplate": "%{y}<br>%{text}<extra></extra>",
                       "marker": {"color": TENANT_COLOURS.get(tenant, SPARE_COLOURS[k % len(SPARE_COLOURS)])}})
    return {"id": "memory", "title": "Memory by tier and tenant", "section": "Memory", "course": False,
            "traces": traces, "wide": True, "note": " ".join(notes), "x": {"title": unit}, "y": {"reversed": True},
            "rows": len(names), "hovermode": "closest", "bars": True}


def notes_of(run, memory, alone):
    notes = []
    sums = {tier: sum(tenants.values()) for tier, tenants in tiers_of(memory).items()}
    if alone:
        used = [f"{tier} {bytes_text(sums[tier])}" for tier in TIERS if sums[tier]]
        limit = memory.get("bytes_limit", 0)
        of = f"; the device has {bytes_text(limit)} for the run" if limit else ""
        notes.append(f"Reserved: {', '.join(used)}{of}.")
        resident = max((x for x in run.metrics.column("peak_rss") if x == x), default=0)
        if resident:
            notes.append(f"The process had at most {bytes_text(resident)} resident.")
    since = since_step(run.metrics.memory)
    if since is not None:
        notes.append(("As" if alone else f"{run.name}: as") + f" it was from step {since:,} on.")
    return notes


def since_step(memory):
    """The step from which the last division of memory holds; None if it always did. Limits may change without it."""
    divisions = [tiers_of(one) for _, one in memory]
    for k in range(len(memory) - 1, 0, -1):
        if divisions[k - 1] != divisions[-1]:
            return memory[k][0]
    return None
