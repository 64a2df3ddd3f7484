"""Line charts and bars as SVG text, which any browser shows without a script."""

import math
from collections.abc import Sequence
from html import escape

from msgspec import Struct

WIDTH, HEIGHT = 760, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 74, 190, 34, 52
_PALETTE = ("#1f5fbf", "#0f9d8f", "#7b3fb5", "#c2347a", "#d1691b", "#8a6d00", "#b3261e", "#3f7d20", "#54606e", "#0086c9", "#a05195", "#6b4226")
_DASHES = ("", "7 3", "2 3", "8 3 2 3")
_LOG_SLACK = 1.15


class Axis(Struct, frozen=True):
    """``log``: equal steps are equal factors. Zero is not left out of an axis that is linear."""

    title: str
    log: bool = True


class Series(Struct, frozen=True):
    """A line: (x, y, what is shown when a pointer rests there). Those of one ``hue`` look the same in every chart."""

    label: str
    points: Sequence[tuple[float, float, str]]
    hue: int
    marks: bool = True


class _Scale:
    """From values to positions between ``first`` and ``last``."""

    def __init__(self, axis: Axis, values: Sequence[float], first: float, last: float) -> None:
        self._log, self._first, self._last = axis.log, first, last
        if axis.log:
            positive = [value for value in values if value > 0] or [1.0]
            self._low, self._high = math.log10(min(positive) / _LOG_SLACK), math.log10(max(positive) * _LOG_SLACK)
        else:
            self._low, self._high = min(0.0, *values), max(values) * 1.05 or 1.0

    def __call__(self, value: float) -> float:
        at = math.log10(max(value, 1e-12)) if self._log else value
        return self._first + (at - self._low) / (self._high - self._low) * (self._last - self._first)

    def ticks(self) -> list[float]:
        """Round values on the axis."""
        if not self._log:
            step = 10 ** math.floor(math.log10(self._high - self._low))
            step = next(step * part for part in (0.1, 0.2, 0.5, 1, 2) if (self._high - self._low) / (step * part) <= 8)
            return [step * number for number in range(math.ceil(self._low / step), math.floor(self._high / step) + 1)]
        decades = self._high - self._low
        factors = (1,) if decades >= 2.5 else (1, 2, 5) if decades >= 0.8 else (1, 1.5, 2, 3, 4, 5, 6, 8)
        powers = range(math.floor(self._low), math.ceil(self._high) + 1)
        found = [factor * 10.0**power for power in powers for factor in factors]
        return [value for value in found if self._low <= math.log10(value) <= self._high]


def line_chart(title: str, x: Axis, y: Axis, series: Sequence[Series], events: Sequence[tuple[float, str]] = ()) -> str:
    """An SVG element; an empty string if there is nothing to show. ``events``: places on the axis ``x`` that are marked, and what they are called."""
    drawn = [one for one in series if one.points]
    if not drawn:
        return ""
    across = _Scale(x, [point[0] for one in drawn for point in one.points], _LEFT, WIDTH - _RIGHT)
    up = _Scale(y, [point[1] for one in drawn for point in one.points], HEIGHT - _BOTTOM, _TOP)
    parts = [_frame(title, x, y, across, up)]
    for number, (at, called) in enumerate(events):
        parts.append(f'<path d="M{across(at):.1f} {_TOP}V{HEIGHT - _BOTTOM}" stroke="#8792a2" stroke-dasharray="3 3"/>')
        parts.append(_text(across(at) + 3, HEIGHT - _BOTTOM - 6 - 13 * (len(events) - 1 - number), called, size=10))
    for number, one in enumerate(drawn):
        parts.append(_line(number, one, across, up))
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" xmlns="http://www.w3.org/2000/svg" role="img">{"".join(parts)}</svg>'


def _frame(title: str, x: Axis, y: Axis, across: _Scale, up: _Scale) -> str:
    bottom, right = HEIGHT - _BOTTOM, WIDTH - _RIGHT
    parts = [_text(_LEFT, 20, title, size=15, weight="600")]
    for value in across.ticks():
        parts.append(_rule(across(value), _TOP, across(value), bottom))
        parts.append(_text(across(value), bottom + 16, tick(value), anchor="middle"))
    for value in up.ticks():
        parts.append(_rule(_LEFT, up(value), right, up(value)))
        parts.append(_text(_LEFT - 6, up(value) + 4, tick(value), anchor="end"))
    parts.append(_text((_LEFT + right) / 2, HEIGHT - 12, x.title, anchor="middle"))
    parts.append(f'<g transform="translate(16 {(_TOP + bottom) / 2}) rotate(-90)">{_text(0, 0, y.title, anchor="middle")}</g>')
    parts.append(f'<path d="M{_LEFT} {_TOP}V{bottom}H{right}" fill="none" stroke="#8792a2"/>')
    return "".join(parts)


def _line(number: int, series: Series, across: _Scale, up: _Scale) -> str:
    colour, dash = _PALETTE[series.hue % len(_PALETTE)], _DASHES[series.hue // len(_PALETTE) % len(_DASHES)]
    places = [(across(x), up(y), told) for x, y, told in series.points]
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y, _ in places)
    parts = [f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.8" stroke-dasharray="{dash}"/>']
    if series.marks:
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.4" fill="{colour}"><title>{escape(told)}</title></circle>' for x, y, told in places]
    left, top = WIDTH - _RIGHT + 14, _TOP + 8 + 18 * number
    parts.append(f'<path d="M{left} {top}h20" stroke="{colour}" stroke-width="2.4" stroke-dasharray="{dash}"/>')
    return "".join(parts) + _text(left + 26, top + 4, series.label)


def bars(title: str, unit: str, values: Sequence[tuple[str, float]]) -> str:
    """One bar for each value, as wide as the value is large."""
    if not values:
        return ""
    height, most = _TOP + 24 * len(values) + 6, max(value for _, value in values) or 1.0
    room = WIDTH - _RIGHT - 180
    parts = [_text(8, 20, title, size=15, weight="600")]
    for number, (label, value) in enumerate(values):
        top = _TOP + 24 * number
        parts.append(_text(172, top + 14, label, anchor="end"))
        parts.append(f'<rect x="180" y="{top + 3}" width="{max(1.0, value / most * room):.1f}" height="16" fill="{_PALETTE[0]}"/>')
        parts.append(_text(186 + value / most * room, top + 15, f"{tick(value)} {unit}"))
    return f'<svg viewBox="0 0 {WIDTH} {height}" xmlns="http://www.w3.org/2000/svg" role="img">{"".join(parts)}</svg>'


def tick(value: float) -> str:
    """Short, as on an axis: 20k, 0.5."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{unit}"
    return f"{value:.3g}"


def _text(x: float, y: float, words: str, anchor: str = "start", size: int = 12, weight: str = "400") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" font-weight="{weight}">{escape(words)}</text>'


def _rule(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="#e3e7ed"/>'
