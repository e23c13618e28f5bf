"""Thins long series for drawing. A million points on a thousand pixels look like their extremes, so these are kept."""
from array import array

MOST_POINTS = 2000


def _extremes(values, begin, end):
    """The rows of the least and the largest value in begin:end, of which some may be NaN; none if all are."""
    part = values[begin:end]
    total = sum(part)
    if total != total:
        rows = [row for row in range(begin, end) if values[row] == values[row]]
        if not rows:
            return ()
        return min(rows, key=values.__getitem__), max(rows, key=values.__getitem__)
    return begin + part.index(min(part)), begin + part.index(max(part))


def kept_rows(values, most=MOST_POINTS):
    """The rows to draw, ascending: all if there are few; else the extremes of equal stretches, the first and the last.

    A stretch without any value keeps its first row, so that a gap stays a gap.
    """
    count = len(values)
    if count <= most:
        return range(count)
    stretches = max(1, (most - 2) // 2)
    rows = {0, count - 1}
    for k in range(stretches):
        begin, end = count * k // stretches, count * (k + 1) // stretches
        rows.update(_extremes(values, begin, end) or (begin,))
    return sorted(rows)


def even_stretches(count, most):
    """Cuts count rows into at most so many equal stretches: (begin, end) of each."""
    stretches = min(count, most)
    return [(count * k // stretches, count * (k + 1) // stretches) for k in range(stretches)]


def mean(values):
    """The mean of the values that are not NaN; NaN if there are none."""
    total, count = sum(values), len(values)
    if total != total:
        known = [x for x in values if x == x]
        total, count = sum(known), len(known)
    return total / count if count else float("nan")


def smoothed(values, radius):
    """The mean of up to `radius` rows on either side of each row, without those that are NaN.

    At the beginning the window is symmetric, so that a falling line is not bent there. At the end it is not: a single
    last step would say little.
    """
    sums, counts, total, known = array("d", [0.0]), array("q", [0]), 0.0, 0
    for x in values:
        if x == x:
            total, known = total + x, known + 1
        sums.append(total)
        counts.append(known)
    result = array("d")
    last = len(values) - 1
    for row in range(len(values)):
        begin, end = row - min(radius, row), row + min(radius, row, last - row) + 1
        here = counts[end] - counts[begin]
        result.append((sums[end] - sums[begin]) / here if here else float("nan"))
    return result
