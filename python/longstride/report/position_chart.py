"""Evaluation loss by position: whether tokens with more context before them are easier to predict."""
from longstride.report.series import RUN_COLOURS, label, plain
from longstride.report.sizes import digits, is_number, tokens_text

MOST_LINES = 7


def position_chart(runs, evaluations):
    """Of one run: evaluations from the first (pale) to the last; of several: the last of each. Then those of `eval`."""
    lines = []
    if len(runs) == 1:
        evals = [one for one in runs[0].metrics.evals if bins_of(one)]
        chosen = chosen_evals(evals)
        for k, one in enumerate(chosen):
            share = (k + 1) / len(chosen)
            lines.append((f"step {one['step']:,}", bins_of(one), "@blue", 0.2 + 0.8 * share**1.5, "solid"))
    else:
        for k, run in enumerate(runs):
            evals = [one for one in run.metrics.evals if bins_of(one)]
            if evals:
                lines.append((f"{run.name}, step {evals[-1]['step']:,}", bins_of(evals[-1]),
                              RUN_COLOURS[k % len(RUN_COLOURS)], 1.0, "solid"))
    first = 1 if len(runs) == 1 else len(runs)
    for k, (name, evaluation) in enumerate(evaluations, first):
        if bins_of(evaluation):
            lines.append((name, bins_of(evaluation), RUN_COLOURS[k % len(RUN_COLOURS)], 1.0, "dot"))
    if not lines:
        return None
    ends = sorted({one["from"] for _, bins, *_ in lines for one in bins} |
                  {one["to"] + 1 for _, bins, *_ in lines for one in bins})
    ticks = [end for end in ends if len(ends) <= 12 or end.bit_length() % 2 == ends[0].bit_length() % 2]
    note = "Predictions that see so many tokens of their document; the larger a dot, the more of them."
    y, cut = {"title": "nats per token"}, frame([bins for _, bins, *_ in lines])
    if cut:
        y["range"] = cut
        note += " Some with few targets lie outside the frame: double-click shows them."
    return {"id": "by-position", "title": "Evaluation loss by position", "section": "Learning", "course": False,
            "traces": [trace_of(*one) for one in lines],
            "note": note, "y": y, "hovermode": "closest",
            "x": {"title": "tokens seen", "type": "log", "tickvals": ticks,
                  "ticktext": [tokens_text(tick) for tick in ticks]}}


def frame(all_bins):
    """The range of the losses of bins that hold at least 1/500 of their evaluation's targets: a bin of three targets
    would else decide how everything is drawn. None if the others are not far outside."""
    every, large = [], []
    for bins in all_bins:
        total = sum(one["targets"] for one in bins)
        every += [one["loss"] for one in bins]
        large += [one["loss"] for one in bins if one["targets"] * 500 >= total]
    if not large:
        return None
    room = max(0.5 * (max(large) - min(large)), 0.15 * abs(max(large)))
    if max(every) <= max(large) + 2 * room:
        return None
    return [round(max(min(every), min(large) - room), 4), round(max(large) + room, 4)]


def bins_of(evaluation):
    """The valid entries of by_position, each with `targets` (0: unknown)."""
    found, bins = [], evaluation.get("by_position")
    for one in bins if isinstance(bins, list) else []:
        if isinstance(one, dict) and isinstance(one.get("from"), int) and isinstance(one.get("to"), int) \
                and 0 < one["from"] <= one["to"] < 2**62 and is_number(one.get("loss")):
            targets = one.get("targets")
            found.append(one | {"targets": targets if isinstance(targets, int) and 0 < targets < 2**62 else 0})
    return found


def chosen_evals(evals):
    """A few evaluations, evenly spread, the first and the last among them."""
    if len(evals) <= MOST_LINES:
        return evals
    return [evals[round(k * (len(evals) - 1) / (MOST_LINES - 1))] for k in range(MOST_LINES)]


def trace_of(name, bins, colour, opacity, dash):
    most = max(one["targets"] for one in bins) or 1
    texts = []
    for one in bins:
        seen = tokens_text(one["from"]) if one["from"] == one["to"] else \
            f"{tokens_text(one['from'])} to {tokens_text(one['to'] + 1)}"
        text = f"<b>{label(name)}</b><br>{seen} tokens seen<br>loss {digits(one['loss'], 4)}"
        if is_number(one.get("accuracy")):
            text += f"<br>accuracy {100 * one['accuracy']:.2f}%"
        if one["targets"]:
            text += f"<br>{one['targets']:,} targets"
        texts.append(text)
    sizes = [3 + 6 * (one["targets"] / most) ** 0.5 for one in bins]
    return {"type": "scatter", "mode": "lines+markers", "name": label(name), "opacity": round(opacity, 2),
            "x": plain((one["from"] * (one["to"] + 1)) ** 0.5 for one in bins), "y": plain(one["loss"] for one in bins),
            "text": texts, "hovertemplate": "%{text}<extra></extra>",
            "line": {"color": colour, "width": 2, "dash": dash}, "marker": {"color": colour, "size": plain(sizes, 3)}}
