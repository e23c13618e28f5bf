"""Draws a needle map."""
from longstride.report.series import label
from longstride.report.sizes import digits

MOST_WRITTEN = 150  # cells with their number in them


def needle_chart(needles, number):
    """Length across, depth downwards, colour and number: the share of documents whose needle was found."""
    z, texts, hovers = [], [], []
    for row, depth in enumerate(needles.depths):
        cells = [needles.cells.get((row, column)) for column in range(len(needles.lengths))]
        z.append([None if cell is None else round(100 * cell.found / cell.documents, 2) for cell in cells])
        texts.append(["" if cell is None else f"{100 * cell.found / cell.documents:.0f}%" for cell in cells])
        hovers.append(["" if cell is None else hover_text(length, depth, cell)
                       for length, cell in zip(needles.lengths, cells)])
    trace = {"type": "heatmap", "x": needles.lengths, "y": needles.depths, "z": z, "customdata": hovers,
             "zmin": 0, "zmax": 100, "xgap": 2, "ygap": 2, "hoverongaps": False, "scale": "found",
             "hovertemplate": "%{customdata}<extra></extra>",
             "colorbar": {"ticksuffix": "%", "thickness": 10, "outlinewidth": 0, "tickvals": [0, 50, 100]}}
    if len(needles.lengths) * len(needles.depths) <= MOST_WRITTEN:
        trace |= {"text": texts, "texttemplate": "%{text}", "showscale": False}
    share = 100 * needles.found / needles.documents if needles.documents else 0
    return {"id": f"needle-{number}", "title": f"Needle map: {needles.name}", "section": "Needles", "course": False,
            "traces": [trace], "wide": True, "rows": len(needles.depths), "hovermode": "closest",
            "note": f"Found in {needles.found:,} of {needles.documents:,} documents, {share:.1f}%: "
                    "every token of the answer had the largest logit.",
            "x": {"title": "tokens of the document", "type": "category"},
            "y": {"title": "depth", "type": "category", "reversed": True}}


def hover_text(length, depth, cell):
    text = f"<b>{label(length)} tokens, at {label(depth)}</b>"
    text += f"<br>found in {cell.found:,} of {cell.documents:,} documents"
    if cell.targets:
        text += f"<br>{100 * cell.correct / cell.targets:.1f}% of the targets"
        text += f"<br>loss {digits(cell.loss / cell.targets)}"
    return text
