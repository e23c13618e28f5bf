"""Tables and the picture of scripts/page-quality."""
import math

from recall_report import short, table

NAMES = {"wide": "wide", "kv-int8": "K/V int8", "kv-int8-all": "K/V int8 in all layers", "kv-fp8": "K/V fp8",
         "kv-fp8-all": "K/V fp8 in all layers", "gradients-bf16": "gradients bf16",
         "gradients-int8": "gradients int8", "gradients-fp8": "gradients fp8", "int8": "both int8", "fp8": "both fp8"}


def pages_of(setting, attentions):
    """The name of an evaluation's pages; None if its attention is not among these."""
    attention = {key: value for key, value in setting.items() if key != "pages"}
    return setting.get("pages", "wide") if attention in attentions else None


def forward_table(results, sizes, model, attentions):
    """Recall and loss of a model, by attention and pages."""
    found = {}
    for name, r in results.items():
        part = name.split("-", 1)[0]
        if part in ("facts", "quotes", "text") and r.get("model") == model:
            if (pages := pages_of(r["setting"], attentions)) is not None:
                found.setdefault((r["setting"]["kind"], pages), {})[part, r["context"]] = r
    rows = []
    for (kind, pages), of in sorted(found.items(), key=lambda item: (item[0][0], list(NAMES).index(item[0][1]))):
        row = [kind, NAMES[pages]]
        row += [f"{100 * of[part, c]['recall']:.1f}%" if (part, c) in of else ""
                for part in ("facts", "quotes") for c in sizes["contexts"]]
        row += [f"{of['text', c]['loss']:.4f}" if ("text", c) in of else "" for c in sizes["contexts"]]
        rows.append(row)
    names = [short(c) for c in sizes["contexts"]]
    return table(["attention", "pages", *(f"{part} {n}" for part in ("facts", "quotes", "text loss") for n in names)],
                 rows) if rows else ""


def position_table(results, sizes, model, attentions):
    """Loss of text by position at the longest context."""
    longest, rows = sizes["contexts"][-1], []
    for name, r in results.items():
        if name.startswith("text-") and r["model"] == model and r["context"] == longest:
            if (pages := pages_of(r["setting"], attentions)) is not None:
                rows.append((r["setting"]["kind"], list(NAMES).index(pages), NAMES[pages],
                             *(f"{x:.4f}" if x is not None else "" for x in r["loss_by_eighth"])))
    return table(["attention", "pages", *map(str, range(1, 9))],
                 [[kind, *rest] for kind, _, *rest in sorted(rows)]) if rows else ""


def gradient_table(results, model):
    """Relative errors in percent: of q, k and v, the largest of all other groups, and of all parameters together."""
    rows, chunks = {}, set()
    for name, r in results.items():
        if not name.startswith("wide-") or r["model"] != model:
            continue
        chunks.add(r["chunks"])
        groups = {group: 100 * figures["relative_error"] for group, figures in r["wide"]["groups"].items()}
        others = {group: x for group, x in groups.items() if group not in ("all", "q_proj", "k_proj", "v_proj")}
        worst = max(others, key=others.get)
        for group, x in (("q", groups["q_proj"]), ("k", groups["k_proj"]), ("v", groups["v_proj"]),
                         ("others", others[worst]), ("all", groups["all"])):
            rows.setdefault((r["budget"] > 0, r["pages"], group), {})[r["chunks"]] = f"{x:.2f}%"
        if r["budget"]:
            rows.setdefault((True, r["pages"], "pages selected alike"), {})[r["chunks"]] = \
                f"{100 * r['wide']['same_pages']:.1f}%"
    if not rows:
        return ""
    order = ["q", "k", "v", "others", "all", "pages selected alike"]
    lines = [["sparse" if is_sparse else "dense", NAMES[pages], group] + [of.get(n, "") for n in sorted(chunks)]
             for (is_sparse, pages, group), of in
             sorted(rows.items(), key=lambda item: (item[0][0], list(NAMES).index(item[0][1]), order.index(item[0][2])))]
    return table(["attention", "pages", "parameters", *(f"{n} chunks" for n in sorted(chunks))], lines)


def markdown(results, sizes, attentions):
    """The tables, of evaluations with these settings of attention."""
    models = sorted({r["model"] for r in results.values() if "pages" in r.get("setting", {})},
                    key=lambda name: (name.startswith("tuned-"), name))
    text = ""
    for model in models:
        text += f"\nModel {model}: recall, and loss of text; chunks of {sizes['chunk']}, pages of {sizes['page']}:\n\n"
        text += forward_table(results, sizes, model, attentions)
        if not model.startswith("tuned-"):
            text += f"\nLoss of text at {short(sizes['contexts'][-1])} by position, in eighths:\n\n"
            text += position_table(results, sizes, model, attentions)
    for model in sorted({r["model"] for name, r in results.items() if name.startswith("wide-")}):
        text += (f"\nGradients of text beside those of wide pages, model {model}; chunks of {sizes['page']} tokens:\n\n" +
                 gradient_table(results, model))
    commands = [r["command"] for name, r in results.items() if name.startswith("wide-")]
    if commands:
        text += f"\nEvery figure's command is in pages.json, like this one:\n\n    {commands[-1]}\n"
    return text


# ---- the picture ----

COLOURS = {"gradients-bf16": "#222222", "int8": "#1f77b4", "fp8": "#d95f02"}
LABELS = {"gradients-bf16": "wide K/V, bf16 gradients", "int8": "int8", "fp8": "fp8"}
WIDTH, HEIGHT, LEFT, RIGHT, TOP, MIDDLE, BOTTOM = 760, 430, 62, 16, 40, 34, 40


def smoothed(values, over=10):
    return [sum(values[max(0, i - over + 1):i + 1]) / min(i + 1, over) for i in range(len(values))]


def nice_step(span, parts):
    step = 10 ** math.floor(math.log10(span / parts))
    return next(step * m for m in (1, 2, 5, 10) if step * m * parts >= span)


def axes(x0, y0, width, height, most_x, low, high, title):
    """A frame with its grid, and how values become places in it."""
    step, parts = nice_step(high - low, 4), []
    def place(i, v):
        return x0 + width * i / most_x, y0 + height * (high - v) / (high - low)
    parts.append(f'<text x="{x0}" y="{y0 - 8}" class="title">{title}</text>')
    value = math.ceil(low / step) * step
    while value <= high + 1e-12:
        y = place(0, value)[1]
        parts.append(f'<line x1="{x0}" y1="{y:.1f}" x2="{x0 + width}" y2="{y:.1f}" class="grid"/>'
                     f'<text x="{x0 - 6}" y="{y + 4:.1f}" class="y">{value:.10g}</text>')
        value += step
    for i in range(0, most_x + 1, 50):
        x = place(i, low)[0]
        parts.append(f'<text x="{x:.1f}" y="{y0 + height + 16}" class="x">{i}</text>')
    return parts, place


def curves(runs):
    """Losses by step of all runs, and below their differences from the first run."""
    first = next(iter(runs))
    most_x = max(len(losses) for losses in runs.values())
    means = {name: smoothed(losses) for name, losses in runs.items()}
    differences = {name: smoothed([a - b for a, b in zip(losses, runs[first])]) for name, losses in runs.items()
                   if name != first}
    width, upper = WIDTH - LEFT - RIGHT, 190
    everything = [x for values in means.values() for x in values[10:] or values]
    low, high = min(everything), max(everything)
    pad = 0.05 * (high - low or 1)
    parts, place = axes(LEFT, TOP, width, upper, most_x, low - pad, high + pad, "loss, mean of 10 steps")
    def line(name, values, place, low, high, dashed=False):
        points = " ".join("{:.1f},{:.1f}".format(*place(i + 1, min(max(v, low), high))) for i, v in enumerate(values))
        dash = ' stroke-dasharray="5 3"' if dashed else ""
        return f'<polyline points="{points}" fill="none" stroke="{COLOURS[name]}" stroke-width="1.6"{dash}/>'
    # Later runs are drawn over the first, which lies under them where they agree.
    for number, (name, values) in enumerate(means.items()):
        parts.append(line(name, values, place, low - pad, high + pad, number > 0))
    top = TOP + upper + MIDDLE + 16
    lower = HEIGHT - top - BOTTOM
    largest = max([abs(x) for values in differences.values() for x in values] or [1]) or 1
    more, place = axes(LEFT, top, width, lower, most_x, -1.1 * largest, 1.1 * largest,
                       f"difference from {LABELS[first]}, mean of 10 steps")
    parts += more
    for name, values in differences.items():
        parts.append(line(name, values, place, -1.1 * largest, 1.1 * largest))
    parts.append(f'<text x="{LEFT + width / 2}" y="{HEIGHT - 8}" class="x">step</text>')
    x = WIDTH - RIGHT
    for name in reversed(list(runs)):
        x -= 7 * len(LABELS[name]) + 34
        parts.append(f'<line x1="{x}" y1="18" x2="{x + 22}" y2="18" stroke="{COLOURS[name]}" stroke-width="2.4"/>'
                     f'<text x="{x + 27}" y="22" class="key">{LABELS[name]}</text>')
    style = ("text{font-family:sans-serif;font-size:12px;fill:#333}.y{text-anchor:end}.x{text-anchor:middle}"
             ".title{font-size:13px}.grid{stroke:#ddd}")
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}">'
            f'<style>{style}</style><rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>{"".join(parts)}</svg>\n')
