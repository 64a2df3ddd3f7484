"""The parts of a dashboard for Grafana: rows of panels as plain tables, and the resulting JSON.

Panels flow from left to right and wrap at 24 columns.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

SCHEMA_VERSION = 39
PLUGIN_VERSION = "10.1.0"
GRID_COLUMNS = 24
GREEN, YELLOW, RED = "green", "yellow", "red"


class Panel(NamedTuple):
    """A panel of a dashboard.

    ``queries``: pairs of a query and a legend. ``steps``: thresholds, as pairs of a colour and the
    least value. ``kind``: stat, timeseries, table or bargauge. ``stacked``: lines upon each other.
    """

    title: str
    description: str
    queries: Sequence[tuple[str, str]]
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 8
    height: int = 8
    steps: Sequence[tuple[str, float]] = ()
    stacked: bool = False
    decimals: int | None = None


class PanelRow(NamedTuple):
    title: str
    panels: Sequence[Panel]


def datasource(kind: str, label: str) -> dict[str, Any]:
    return {
        "type": "datasource",
        "name": "datasource",
        "label": label,
        "query": kind,
        "refresh": 1,
        "hide": 0,
        "multi": False,
        "includeAll": False,
    }


def query_variable(name: str, label: str, kind: str, query: str, **more: Any) -> dict[str, Any]:
    everything = {"selected": True, "text": ["All"], "value": ["$__all"]}
    source = {"type": kind, "uid": "$datasource"}
    wide = {"multi": True, "includeAll": True, "current": everything}
    return (
        {
            "type": "query",
            "name": name,
            "label": label,
            "datasource": source,
            "query": query,
            "refresh": 2,
            "sort": 3,
            "hide": 0,
        }
        | wide
        | more
    )


def one_of(name: str, label: str, values: Iterable[str]) -> dict[str, Any]:
    options = [
        {"selected": position == 0, "text": value, "value": value}
        for position, value in enumerate(values)
    ]
    query = ",".join(option["value"] for option in options)
    return {
        "type": "custom",
        "name": name,
        "label": label,
        "query": query,
        "options": options,
        "current": options[0],
        "multi": False,
        "includeAll": False,
        "hide": 0,
    }


def target(
    kind: str, query: str, legend: str, position: int, table: bool, instant: bool
) -> dict[str, Any]:
    base: dict[str, Any] = {"refId": "ABCDEFGH"[position]}
    if kind == "prometheus":
        description = base | {
            "datasource": {"type": kind, "uid": "$datasource"},
            "expr": query,
            "range": not instant,
            "instant": instant,
        }
        return description | {"legendFormat": legend} if legend else description
    more = {
        "query": query,
        "rawQuery": True,
        "resultFormat": "table" if table else "time_series",
        "alias": legend,
    }
    return base | {"datasource": {"type": kind, "uid": "$datasource"}} | more


def options_of(panel: Panel) -> dict[str, Any]:
    match panel.kind:
        case "stat":
            reduced = {"calcs": ["lastNotNull"], "fields": "", "values": False}
            look = {
                "colorMode": "background" if panel.steps else "value",
                "graphMode": "none",
                "justifyMode": "auto",
                "orientation": "auto",
                "textMode": "value",
            }
            return look | {"reduceOptions": reduced}
        case "timeseries":
            return {
                "legend": {
                    "displayMode": "list",
                    "placement": "bottom",
                    "showLegend": True,
                    "calcs": [],
                },
                "tooltip": {"mode": "multi", "sort": "desc"},
            }
        case "bargauge":
            reduced = {"calcs": ["lastNotNull"], "fields": "", "values": False}
            return {
                "displayMode": "basic",
                "orientation": "horizontal",
                "showUnfilled": True,
                "valueMode": "color",
                "reduceOptions": reduced,
            }
        case _:
            return {"showHeader": True, "frameIndex": 0}


def field_config(panel: Panel) -> dict[str, Any]:
    steps = panel.steps or [(GREEN, 0)]
    marks = [
        {"color": colour, "value": None if position == 0 else value}
        for position, (colour, value) in enumerate(steps)
    ]
    defaults: dict[str, Any] = {
        "unit": panel.unit,
        "thresholds": {"mode": "absolute", "steps": marks},
    }
    if panel.kind == "timeseries":
        defaults["color"] = {"mode": "palette-classic"}
        custom: dict[str, Any] = {
            "drawStyle": "line",
            "lineWidth": 1,
            "fillOpacity": 30 if panel.stacked else 0,
            "showPoints": "never",
            "spanNulls": False,
        }
        custom["stacking"] = {"mode": "normal" if panel.stacked else "none", "group": "A"}
        custom["thresholdsStyle"] = {"mode": "line" if panel.steps else "off"}
        defaults |= {"custom": custom, "min": 0}
    elif panel.kind == "bargauge":
        defaults |= {"color": {"mode": "palette-classic"}, "min": 0}
    else:
        defaults["color"] = {"mode": "thresholds"}
    if panel.decimals is not None:
        defaults["decimals"] = panel.decimals
    return {"defaults": defaults, "overrides": []}


def panels(rows: Sequence[PanelRow], kind: str) -> list[dict[str, Any]]:
    """Return every panel with a place: each row's heading, and the row's panels below.

    Panels of a row stand from left to right.
    """
    made: list[dict[str, Any]] = []
    y = 0
    for row in rows:
        made.append(
            {
                "id": len(made) + 1,
                "type": "row",
                "title": row.title,
                "collapsed": False,
                "gridPos": {"h": 1, "w": GRID_COLUMNS, "x": 0, "y": y},
                "panels": [],
            }
        )
        x, y, height = 0, y + 1, 0
        for panel in row.panels:
            if x + panel.width > GRID_COLUMNS:
                x, y, height = 0, y + height, 0
            table, instant = panel.kind == "table", panel.kind == "stat"
            place = {"h": panel.height, "w": panel.width, "x": x, "y": y}
            shown = {
                "id": len(made) + 1,
                "type": panel.kind,
                "title": panel.title,
                "description": panel.description,
                "gridPos": place,
            }
            shown |= {
                "datasource": {"type": kind, "uid": "$datasource"},
                "pluginVersion": PLUGIN_VERSION,
                "transparent": False,
            }
            shown["targets"] = [
                target(kind, query, legend, position, table, instant)
                for position, (query, legend) in enumerate(panel.queries)
            ]
            made.append(shown | {"options": options_of(panel), "fieldConfig": field_config(panel)})
            x, height = x + panel.width, max(height, panel.height)
        y += height
    return made


def dashboard(
    uid: str,
    title: str,
    about: str,
    times: tuple[str, str],
    variables: list[dict[str, Any]],
    made: list[dict[str, Any]],
) -> dict[str, Any]:
    """Return the JSON that Grafana imports.

    ``times`` are the begin of the shown time, and how often the dashboard is refreshed.
    """
    since, refresh = times
    head = {
        "uid": uid,
        "title": title,
        "description": about,
        "tags": ["ares"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": True,
        "graphTooltip": 1,
    }
    return (
        head
        | {"time": {"from": since, "to": "now"}, "timezone": "browser", "refresh": refresh}
        | {
            "templating": {"list": variables},
            "annotations": {"list": []},
            "links": [],
            "panels": made,
        }
    )
