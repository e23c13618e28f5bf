"""Puts a report together: one HTML file with everything in it."""
import json
from html import escape
from importlib import resources

from longstride.errors import Error
from longstride.report.facts import facts, status, tiles
from longstride.report.series import RUN_COLOURS

SECTIONS = ("Learning", "Needles", "Speed", "Memory")


def plotly_source():
    """The JavaScript of plotly, from the Python package that carries it."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise Error(f"a report needs the package plotly ({error})", "pip install 'longstride[report]'") from error
    return get_plotlyjs().replace("</script", "<\\/script")


def part(name):
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def render(runs, charts, axes, unit, notes):
    """The text of the page."""
    data = {"charts": charts, "axes": axes, "unit": unit, "runs": len(runs)}
    data = json.dumps(data, separators=(",", ":"), allow_nan=False)
    values = {
        "title": escape(" · ".join(run.name for run in runs)),
        "css": part("page.css"),
        "header": one_header(runs[0]) if len(runs) == 1 else table_header(runs),
        "charts": "\n".join(section(name, [c for c in charts if c["section"] == name]) for name in SECTIONS),
        "settings": "\n".join(settings(run, len(runs) == 1) for run in runs if run.state.get("config")),
        "notes": f'<ul class="notes">{"".join(f"<li>{escape(note)}</li>" for note in notes)}</ul>' if notes else "",
        "sources": ", ".join(escape(str(run.metrics.path)) for run in runs),
        # Neither a tag nor a comment may begin inside a script.
        "data": data.replace("<", "\\u003c"),
        "plotly": plotly_source(),
        "js": part("page.js"),
    }
    text = []
    for piece in part("page.html").split("$"):  # not string.Template: its values would be scanned too
        if text:
            key = next(key for key in values if piece.startswith(key))
            text.append(values[key] + piece[len(key):])
        else:
            text.append(piece)
    return "".join(text)


def one_header(run):
    said, done = status(run)
    boxes = "".join(f'<div class="tile"><div class="what">{escape(label)}</div>'
                    f'<div class="number">{escape(number)}</div><div class="detail">{escape(detail)}</div></div>'
                    for label, number, detail in tiles(run))
    rows = "".join(f"<div><dt>{escape(label)}</dt><dd>{escape(text)}</dd></div>" for label, text in facts(run))
    pill = f'<span class="pill{" done" if done else ""}">{escape(said)}</span>'
    return (f'<h1>{escape(run.name)}</h1>\n<div class="under">{pill}</div>\n<div class="tiles">{boxes}</div>\n'
            f'<dl class="facts">{rows}</dl>')


def table_header(runs):
    """A column for every run. Rows in which all are the same are paler, so that differences stand out."""
    rows = [("Progress", [status(run)[0] for run in runs])]
    numbers = [{label: number for label, number, _ in tiles(run)} for run in runs]
    for found in (numbers, [dict(facts(run)) for run in runs]):
        for label in dict.fromkeys(label for one in found for label in one):
            rows.append((label, [one.get(label, "–") for one in found]))
    heads = "".join(f'<th><span class="dot" style="background: var(--{RUN_COLOURS[k % len(RUN_COLOURS)][1:]})"></span>'
                    f"{escape(run.name)}</th>" for k, run in enumerate(runs))
    body = "".join(f'<tr{" class=same" if len(set(texts)) == 1 else ""}><th scope="row">{escape(label)}</th>'
                   + "".join(f"<td>{escape(text)}</td>" for text in texts) + "</tr>" for label, texts in rows)
    return (f'<h1>{len(runs)} runs</h1>\n<div class="scroll" tabindex="0"><table><thead><tr><th></th>{heads}</tr>'
            f"</thead><tbody>{body}</tbody></table></div>")


def section(name, charts):
    if not charts:
        return ""
    return f'<h2>{name}</h2>\n<div class="charts">\n' + "\n".join(
        card(chart, place) for chart, place in zip(charts, classes(charts))) + "\n</div>"


def classes(charts):
    """Two narrow charts stand side by side; one that would stand alone in its row is wide."""
    result, waiting = [], None
    for chart in charts:
        if chart.get("wide"):
            if waiting is not None:
                result[waiting] = "chart only"
            waiting = None
            result.append("chart wide")
        else:
            waiting = len(result) if waiting is None else None
            result.append("chart")
    if waiting is not None:
        result[waiting] = "chart only"
    return result


def card(chart, place):
    log = f'<button data-log="{chart["id"]}" aria-pressed="false">log</button>' if chart.get("log") else ""
    note = f"<p>{escape(chart['note'], quote=False)}</p>" if chart.get("note") else ""
    return (f'<section class="{place}"><header><h3>{escape(chart["title"])}</h3>{log}</header>{note}'
            f'<div class="legend" data-legend="{chart["id"]}"></div>'
            f'<div class="plot" id="plot-{chart["id"]}"></div></section>')


def settings(run, alone):
    """The effective configuration, as TOML would write it."""
    lines = []
    for name, values in run.state["config"].items():
        if isinstance(values, dict) and values:
            lines.append(f"[{name}]")
            lines += [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in values.items()]
            lines.append("")
    title = "Configuration" if alone else f"Configuration of {run.name}"
    return f"<details><summary>{escape(title)}</summary><pre>{escape(chr(10).join(lines).strip())}</pre></details>"
