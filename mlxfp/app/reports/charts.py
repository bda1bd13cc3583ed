"""Charts as static SVG without packages or scripts. Colors come from the style sheet of the page."""

from collections.abc import Mapping, Sequence
from itertools import islice
from math import floor, isfinite, log10

import numpy as np
from numpy.typing import ArrayLike

from mlxfp.support.html import Html, clip, element, number

Points = Sequence[tuple[float, float]]

_WIDTH, _HEIGHT = 400, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 10, 38
_POINTS, _FEWEST = 4000, 10  # at most 4,000 points in a chart, but at least 10 points for each curve
_CURVE = 200  # maximum number of points of a curve, because a chart is only 400 units wide
_CURVES = 100  # maximum number of curves in a chart; later curves are left out
_DOTS = 1000  # maximum number of points in a scatter plot
_MARKED = 20  # curves with at most 20 points also show dots
_ASIDE = 18  # horizontal distance between the dots of the first and the last curve, so that dots with equal values do not overlap
_MARGIN = 0.08  # empty space above the highest dot and below the lowest dot, as a fraction of the y range
_COLORS = 8
_LEAST = 1e-290  # smallest axis range without numerical underflow
_LABEL = 40  # maximum number of characters of an axis label
_TICKS = 4


def line_chart(title: str, curves: Mapping[str, Points], *, x: str, y: str, joined: bool = True) -> Html:
    """Draw curves in one chart, with a legend if there are several curves. Non-finite points leave a gap.

    With `joined=False`, for example for scores of folds, no line connects the points. Curves are then shifted sideways, so that points
    with equal coordinates do not overlap.

    >>> chart = line_chart("loss", {"fold 1": [(0, 1.0), (1, 0.5)], "fold 2": [(0, 0.9), (1, float("nan"))]}, x="step", y="loss")
    >>> chart.count("stroke-width"), "fold 2" in chart
    (2, True)
    """
    most = max(_FEWEST, min(_CURVE, _POINTS // max(1, len(curves))))
    thin = {name: _thinned(points, most) for name, points in islice(curves.items(), _CURVES)}
    every = [point for points in thin.values() for point in points if isfinite(point[1])]
    if not every:
        return element("p", f"{title}: no finite values were logged.", class_="muted")
    axes = _Axes.around(every)
    ticks = None
    if not joined:  # widen both axes, so that no dot covers the axis labels
        margin = (axes.high_y - axes.low_y) * _MARGIN
        axes.low_x, axes.high_x, axes.low_y, axes.high_y = axes.low_x - 0.5, axes.high_x + 0.5, axes.low_y - margin, axes.high_y + margin
        every_x = sorted({a for a, _ in every})
        ticks = every_x if len(every_x) <= _MARKED else None
    lines = []
    for index, points in enumerate(thin.values()):
        if joined:
            lines.append(element("path", d=_path(axes, points), fill="none", stroke=_color(index), stroke_width=1.5))
        finite = [point for point in points if isfinite(point[1])]
        if not joined or len(finite) <= _MARKED:
            size, aside = (2.5, 0.0) if joined else (4, _ASIDE * (index / max(1, len(thin) - 1) - 0.5))
            lines += [element("circle", cx=round(axes.x(a) + aside, 2), cy=axes.y(b), r=size, fill=_color(index)) for a, b in finite]
    legend = [
        element("span", element("i", style=f"background:{_color(index)}"), clip(name, 2 * _LABEL), class_="key")
        for index, name in enumerate(thin)
        if len(thin) > 1
    ]
    return _figure(title, axes, lines, x, y, *([element("div", *legend, class_="legend")] if legend else []), ticks=ticks)


def scatter(  # noqa: PLR0913
    title: str, xs: ArrayLike, ys: ArrayLike, *, x: str, y: str, diagonal: bool = False
) -> Html:
    """Draw a scatter plot of at most 1,000 evenly chosen points. `diagonal=True` adds the line x = y.

    >>> scatter("a", [1, 2], [3, 4], x="a", y="b").count("<circle")
    2
    """
    pairs = np.column_stack([np.asarray(xs, np.float64), np.asarray(ys, np.float64)])
    pairs = pairs[np.isfinite(pairs).all(axis=1)]
    pairs = pairs[np.linspace(0, len(pairs) - 1, min(len(pairs), _DOTS)).astype(int)] if len(pairs) else pairs
    points = [(float(a), float(b)) for a, b in pairs]
    if not points:
        return element("p", f"{title}: no rows.", class_="muted")
    axes = _Axes.around(points)
    dots = [element("circle", cx=axes.x(a), cy=axes.y(b), r=2, fill=_color(0), fill_opacity=0.5) for a, b in points]
    low, high = max(axes.low_x, axes.low_y), min(axes.high_x, axes.high_y)
    if diagonal and low < high:
        dots.append(element("path", d=_path(axes, [(low, low), (high, high)]), stroke="currentColor", stroke_dasharray="4 3"))
    return _figure(title, axes, dots, x, y)


def histogram(title: str, values: ArrayLike, *, x: str, limit: float | None = None) -> Html:
    """Draw a histogram with 30 equal intervals. `limit` adds a vertical line.

    >>> histogram("lengths", [1, 1, 2, 9], x="tokens", limit=8).count("<rect")
    3
    """
    array = np.asarray(values, np.float64)
    array = array[np.isfinite(array)]
    if not len(array):
        return element("p", f"{title}: no rows.", class_="muted")
    counts, edges = np.histogram(array, bins=30)
    axes = _Axes.around([(edges[0], 0.0), (edges[-1], float(counts.max()))] + ([] if limit is None else [(limit, 0.0)]))
    floor_y = axes.y(0)
    bars = [
        element(
            "rect",
            x=axes.x(a),
            y=axes.y(count),
            width=round(max(axes.x(b) - axes.x(a) - 0.5, 0.5), 2),
            height=round(floor_y - axes.y(count), 2),
            fill=_color(0),
        )
        for a, b, count in zip(edges[:-1], edges[1:], counts, strict=True)
        if count
    ]
    if limit is not None:
        top = [(limit, axes.low_y), (limit, axes.high_y)]
        bars.append(element("path", d=_path(axes, top), stroke=_color(1), stroke_width=1.5, stroke_dasharray="4 3"))
    return _figure(title, axes, bars, x, "rows")


class _Axes:
    """Value ranges of a chart and their mapping to SVG coordinates."""

    def __init__(self, low_x: float, high_x: float, low_y: float, high_y: float, *, whole: bool) -> None:
        self.low_x, self.high_x = _apart(low_x, high_x)
        self.low_y, self.high_y = _apart(low_y, high_y)
        self.whole = whole  # True if all x values are whole numbers, such as step numbers

    @classmethod
    def around(cls, points: Points) -> "_Axes":
        xs, ys = [a for a, _ in points], [b for _, b in points]
        return cls(min(xs), max(xs), min(ys), max(ys), whole=all(a == round(a) for a in xs))

    def x(self, value: float) -> float:
        return round(_LEFT + (value - self.low_x) / (self.high_x - self.low_x) * (_WIDTH - _LEFT - _RIGHT), 2)

    def y(self, value: float) -> float:
        return round(_HEIGHT - _BOTTOM - (value - self.low_y) / (self.high_y - self.low_y) * (_HEIGHT - _TOP - _BOTTOM), 2)


def _apart(low: float, high: float) -> tuple[float, float]:
    """Clip the bounds of an axis, to avoid overflow. Widen the range if both bounds are almost equal."""
    low, high = (min(max(float(bound), -1e300), 1e300) for bound in (low, high))
    margin = abs(low) * 0.05 if abs(low) > _LEAST else 0.05
    return (low, high) if high - low > max(_LEAST, 1e-12 * max(abs(low), abs(high))) else (low - margin, high + margin)


def _figure(  # noqa: PLR0913
    title: str, axes: _Axes, marks: Sequence[Html], x: str, y: str, *more: Html, ticks: Sequence[float] | None = None
) -> Html:
    grid = []
    for value in _ticks(axes.low_x, axes.high_x, least=float(axes.whole)) if ticks is None else ticks:
        position = axes.x(value)
        grid.append(element("text", _short(value), x=position, y=_HEIGHT - _BOTTOM + 14, text_anchor="middle"))
    for value in _ticks(axes.low_y, axes.high_y):
        position = axes.y(value)
        grid.append(element("path", d=f"M{_LEFT} {position}H{_WIDTH - _RIGHT}", class_="grid"))
        grid.append(element("text", _short(value), x=_LEFT - 5, y=position + 4, text_anchor="end"))
    names = [
        element("text", clip(x, _LABEL), x=(_LEFT + _WIDTH - _RIGHT) / 2, y=_HEIGHT - 6, text_anchor="middle"),
        element(
            "text",
            clip(y, _LABEL),
            x=12,
            y=(_TOP + _HEIGHT - _BOTTOM) / 2,
            text_anchor="middle",
            transform=f"rotate(-90 12 {(_TOP + _HEIGHT - _BOTTOM) / 2})",
        ),
    ]
    drawn = element("svg", *grid, *marks, *names, viewBox=f"0 0 {_WIDTH} {_HEIGHT}", role="img", aria_label=clip(title, 4 * _LABEL))
    return element("figure", element("figcaption", clip(title, 4 * _LABEL)), drawn, *more)


def _path(axes: _Axes, points: Points) -> str:
    parts, pen = [], "M"
    for a, b in points:
        if isfinite(b):
            parts.append(f"{pen}{axes.x(a)} {axes.y(b)}")
        pen = "L" if isfinite(b) else "M"
    return "".join(parts)


def _thinned(points: Points, most: int) -> Points:
    """Return at most `most` evenly spaced points of a curve, including the first and last point."""
    if len(points) <= most:
        return points
    return [points[int(index)] for index in np.linspace(0, len(points) - 1, most)]


def _ticks(low: float, high: float, *, least: float = 0.0) -> list[float]:
    rough = max((high - low) / _TICKS, least)
    base = 10.0 ** floor(log10(rough))
    step = next(base * factor for factor in (1, 2, 5, 10) if base * factor >= rough)
    return [index * step for index in range(int(np.ceil(low / step - 1e-9)), int(np.floor(high / step + 1e-9)) + 1)][: 4 * _TICKS]


def _short(value: float) -> str:
    if value and (abs(value) >= 10_000 or abs(value) < 0.001):  # more digits would overlap the label of the axis
        digits, _, power = f"{value:.2e}".partition("e")
        return f"{digits.rstrip('0').rstrip('.')}e{int(power)}"
    return number(round(value)) if value == round(value) else f"{value:.6f}".rstrip("0")


def _color(index: int) -> str:
    return f"var(--c{index % _COLORS})"
