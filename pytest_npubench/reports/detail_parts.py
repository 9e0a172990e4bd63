"""Tables and line charts of what cases say beyond their verdicts, drawn from the names of the fields alone.

A detail is plain data, as a journal keeps it; reports/field_text.py reads a field's unit from its name. Its parts are

- figures of the case: one case is a table with a row for each of them, several cases have a row a case;
- lists of one length with fractions among them, side by side: a row for each place;
- records of one form, in a list or by name: a row for each.

Lines are drawn over whole numbers that are all different: those of a list, such as tokens, or an axis of the cases,
such as their buckets; lists without such numbers are drawn over their places. What shares a unit shares a chart.

Worked example: the cases of two operators with the details {"tokens": [1, 8], "seconds": [0.001, 0.004]} and {"tokens":
[1, 8], "seconds": [0.002, 0.006]} are a chart "time by tokens" with a line for each operator.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from pytest_npubench.reports import number_text
from pytest_npubench.reports.build import chart, line, of_kind
from pytest_npubench.reports.field_text import MEASURED, Field, Path, is_number, text, texts, words
from pytest_npubench.reports.page import Chart, Table
from pytest_npubench.reports.plot_parts import Axis, DrawnSeries, axis, spread_axis
from pytest_npubench.verdict.case_record import CaseRecord, Cases

Record = CaseRecord[Mapping[str, Any]]
Row = dict[Path, Any]

NOTHING: Mapping[str, Any] = {}
UNKNOWN: tuple[Any, ...] = (None, "", [], {})
"""Values that tell nothing: a column of these alone is left out."""
LEAST_PLACES = 3
"""Fewer values make no line."""
MOST_TOLD = 4
"""Lines of a chart whose ends its summary tells."""
WIDE = 20.0
"""From this ratio of the largest to the smallest value on, an axis is logarithmic."""
QUANTITIES = {"s": "times", "bytes": "bytes", "flops": "rates", "fraction": "fractions", "j": "energies", "w": "power"}


class Form(Enum):
    """What a row of a part is."""

    CASE = "a case"
    LISTS = "a place in lists"
    RECORDS = "a record"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of the details of a kind: the names that lead to it, and of lists which ones stand side by side."""

    form: Form
    path: Path = ()
    lists: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A field's value in each row; None in rows that lack it."""

    field: Field
    values: tuple[Any, ...]
    is_interval: bool = False

    @property
    def is_counted(self) -> bool:
        """Whole numbers, as places of lines are."""
        return all(isinstance(value, int) and not isinstance(value, bool) for value in self.values)

    @property
    def is_measured(self) -> bool:
        """Numbers of which a line tells something: in a unit of measurement, or no whole ones."""
        values = [value for value in self.values if value is not None]
        is_any = self.field.unit in MEASURED or any(isinstance(value, float) for value in values)
        return is_any and bool(values) and all(map(is_number, values))

    @property
    def is_name(self) -> bool:
        return not self.is_interval and any(isinstance(value, (str, list)) for value in self.values)

    def shown(self, unit: str = "", factor: float = 1.0) -> tuple[str, list[str]]:
        """The heading and the texts below it, in this unit."""
        return self.field.heading(unit), texts(self.values, factor, is_interval=self.is_interval)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The rows of a part in all cases of a kind. `about` are the axes in which these cases differ."""

    title: str
    part: Part
    about: tuple[Column, ...]
    columns: tuple[Column, ...]

    def scale(self, field: Field) -> tuple[str, float]:
        """The unit of a field, and its factor: columns that share a unit can be compared."""
        same = (column for column in self.columns if (column.field.unit, column.field.per) == (field.unit, field.per))
        return field.scale(value for column in same for value in column.values)

    def shown(self, columns: Iterable[Column]) -> list[tuple[str, list[str]]]:
        """The heading of each column and the texts below it."""
        return [column.shown(*self.scale(column.field)) for column in columns]

    @property
    def num_rows(self) -> int:
        return len(self.columns[0].values)

    def parts(self) -> tuple[list[Chart], list[Table]]:
        """Charts, and a table of all columns where the charts' own leave one out."""
        places = self._places()
        drawn = [] if places is None else [one for one in self.columns if one is not places and one.is_measured]
        by_unit: dict[tuple[str, str], list[Column]] = {}
        for column in drawn:
            by_unit.setdefault((column.field.unit, column.field.per), []).append(column)
        charts = [_chart(self, places, columns) for columns in by_unit.values() if places is not None]
        is_whole = all(column in drawn or column is places for column in self.columns)
        return charts, [] if charts and is_whole else [self._table()]

    def lines(self, places: Column) -> dict[str, list[int]]:
        """The rows of each line, by what its cases are called."""
        rows: dict[str, list[int]] = {}
        for row in range(self.num_rows):
            name = ", ".join(text(column.values[row]) for column in self.about if column is not places)
            rows.setdefault(name, []).append(row)
        return rows

    def _places(self) -> Column | None:
        """What lines are drawn over; None where nothing connects the rows."""
        form = self.part.form
        is_inner = form is Form.CASE and self.part.path
        if is_inner or (form is not Form.CASE and any(column.is_name for column in self.columns)):
            return None
        for column in self.about if form is Form.CASE else self.columns:
            if column.is_counted and all(_differ(column, rows) for rows in self.lines(column).values()):
                return column
        if form is not Form.LISTS:
            return None
        nowhere = Column(field=Field(label="place", unit=""), values=())
        numbers = {row: number for rows in self.lines(nowhere).values() for number, row in enumerate(rows, start=1)}
        return replace(nowhere, values=tuple(numbers[row] for row in range(self.num_rows)))

    def _table(self) -> Table:
        if self.part.form is Form.CASE and self.num_rows == 1:
            rows = tuple((heading, *cells) for heading, cells in self.shown(self.columns))
            return Table(caption=self.title, header=("figure", "value"), rows=rows)
        return _side_by_side(self.title, self.shown((*self.about, *self.columns)))


def detail_parts(
    cases: Cases, *, pictured: Mapping[str, Collection[str]] = NOTHING, notes: Mapping[str, str] = NOTHING
) -> tuple[list[Chart], list[Table]]:
    """The charts and tables of each kind's details. `pictured` are by kind the fields that the caller draws itself,
    with "measured_s" where it draws what the cases measured; `notes` say by kind what its figures mean."""
    charts: list[Chart] = []
    tables: list[Table] = []
    for kind, group in cases.by(lambda record: record.kind).items():
        details = [(record, _figures(record, pictured.get(kind, ()))) for record in group.records]
        parts = [grid.parts() for grid in _grids(kind, [(record, detail) for record, detail in details if detail])]
        kind_charts = [made for charts_of, _ in parts for made in charts_of]
        kind_tables = [made for _, tables_of in parts for made in tables_of]
        if kind in notes and kind_charts:
            kind_charts[0] = replace(kind_charts[0], notes=(notes[kind], *kind_charts[0].notes))
        elif kind in notes and kind_tables:
            kind_tables[0] = replace(kind_tables[0], note=notes[kind])
        charts += of_kind(kind, kind_charts)
        tables += of_kind(kind, kind_tables)
    return charts, tables


def _figures(record: Record, pictured: Collection[str]) -> Mapping[str, Any]:
    """What is left of a case's detail to draw, and with it what the case measured."""
    detail = record.detail if isinstance(record.detail, Mapping) else {}
    left = {name: value for name, value in detail.items() if name not in pictured}
    if left and "measured_s" not in (*detail, *pictured) and record.judgement.measured_s is not None:
        left["measured_s"] = record.judgement.measured_s
    return left


def _grids(kind: str, details: Sequence[tuple[Record, Mapping[str, Any]]]) -> Iterator[Grid]:
    """The rows of each part of the details, with the axes in which the cases differ."""
    rows_of: dict[Part, list[tuple[Record, Row]]] = {}
    for record, detail in details:
        for part, rows in _parts(detail, apart=len(details) > 1):
            rows_of.setdefault(part, []).extend((record, row) for row in rows)
    axes = {name: [record.axes.get(name) for record, _ in details] for record, _ in details for name in record.axes}
    is_shared = {name: all(value == values[0] for value in values) for name, values in axes.items()}
    shared = [str(values[0]) for name, values in axes.items() if is_shared[name]]
    head = ", ".join((words(kind)[:1].upper() + words(kind)[1:], *shared))
    for part, part_rows in rows_of.items():
        about = {name: tuple(record.axes.get(name) for record, _ in part_rows) for name in axes if not is_shared[name]}
        paths = dict.fromkeys(path for _, row in part_rows for path in row)
        columns = {path: tuple(row.get(path) for _, row in part_rows) for path in paths}
        filled = {
            path: values
            for path, values in columns.items()
            if any(value not in UNKNOWN for value in values) and (len(path) > 1 or about.get(path[0]) != values)
        }
        if filled:
            yield Grid(
                title=": ".join(filter(None, (head, Field.of(part.path).label))),
                part=part,
                about=tuple(Column(field=Field.of((name,)), values=values) for name, values in about.items()),
                columns=tuple(
                    Column(field=Field.of(path), values=values, is_interval=path[-1].endswith("interval"))
                    for path, values in filled.items()
                ),
            )


def _parts(detail: Mapping[str, Any], *, apart: bool) -> Iterator[tuple[Part, list[Row]]]:
    """Each part of a detail with its rows. `apart`: the figures of an inner record are a part of their own."""
    figures: dict[Path, Row] = {}
    lists: dict[int, dict[Path, list[Any]]] = {}
    for path, value in _leaves(detail):
        if _are_records(value):
            yield Part(form=Form.RECORDS, path=path), [dict(_leaves(row)) for row in value]
        elif isinstance(value, list) and value and not path[-1].endswith("interval"):
            lists.setdefault(len(value), {})[path] = value
        else:
            figures.setdefault(path[:-1] if apart else (), {})[path] = value
    for columns in lists.values():
        if any(isinstance(item, (float, list)) for items in columns.values() for item in items):
            part = Part(form=Form.LISTS, path=_shared_head(list(columns)), lists=tuple(columns))
            yield part, [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        else:
            figures.setdefault((), {}).update(columns)
    yield from ((Part(form=Form.CASE, path=path), [row]) for path, row in figures.items())


def _leaves(value: Mapping[str, Any], path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """What is no record, with the names that lead to it. Records of one form by name are a list of records."""
    inner = list(value.values())
    if len(inner) > 1 and _are_records(inner) and len({frozenset(record) for record in inner}) == 1:
        yield path or ("",), [{"name": Field.of((name,)).label, **_with_unit(row)} for name, row in value.items()]
        return
    for name, item in value.items():
        if isinstance(item, Mapping) and item:
            yield from _leaves(item, (*path, name))
        else:
            yield (*path, name), item


def _are_records(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, Mapping) and item for item in value)


def _with_unit(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """A figure that says its own unit, as the texts of its value and interval."""
    value, ends = record.get("value"), record.get("interval") or []
    if not isinstance(record.get("unit"), str) or not all(end is None or is_number(end) for end in (value, *ends)):
        return record
    first, *others = number_text.figures((value, *ends), record["unit"])
    rest = {name: item for name, item in record.items() if name != "unit"}
    return {**rest, "value": first, "interval": " to ".join(others)}


def _shared_head(paths: Sequence[Path]) -> Path:
    """The names with which all paths begin, without the last of any."""
    heads = list(zip(*(path[:-1] for path in paths), strict=False))
    return tuple(names[0] for place, names in enumerate(heads) if all(len(set(one)) == 1 for one in heads[: place + 1]))


def _differ(column: Column, rows: Sequence[int]) -> bool:
    return len({column.values[row] for row in rows}) == len(rows) >= LEAST_PLACES


def _side_by_side(caption: str, shown: Sequence[tuple[str, list[str]]]) -> Table:
    header, cells = zip(*shown, strict=True)
    return Table(caption=caption, header=header, rows=tuple(zip(*cells, strict=True)))


def _chart(grid: Grid, places: Column, columns: Sequence[Column]) -> Chart:
    """The lines of columns that share a unit, in the unit that suits all of them."""
    field = columns[0].field
    name, factor = grid.scale(field)
    labels, unit = [column.field.label for column in columns], field.unit_text(name)
    [(over, _)] = grid.shown([places])
    what = " and ".join(labels) if len(labels) < 3 else QUANTITIES.get(field.unit, "figures")
    title = f"{grid.title}: {what} by {over}"
    series = list(_series(grid, places, columns, factor, unit))
    ends = (f"{one.name} from {text(one.y[0])} to {text(one.y[-1])} {unit}".strip() for one in series[:MOST_TOLD])
    about = [column for column in grid.about if column is not places]
    summary = f"{title}: {', '.join(ends)}."
    return chart(
        title,
        summary,
        (summary,),
        series,
        (
            _axis(over, [x for one in series for x in one.x]),
            _axis(unit or what, [y for one in series for y in one.y]),
        ),
        _side_by_side(title, grid.shown((*about, places, *columns))),
        legend=len(series) > 1,
    )


def _series(grid: Grid, places: Column, columns: Sequence[Column], factor: float, unit: str) -> Iterator[DrawnSeries]:
    """A line for each case and column, over its places in ascending order."""
    lines = [(name, column, rows) for name, rows in grid.lines(places).items() for column in columns]
    for number, (name, column, rows) in enumerate(lines):
        rows = sorted(rows, key=lambda row: places.values[row])
        values = [column.values[row] for row in rows]
        label = ", ".join(filter(None, (name, column.field.label if len(columns) > 1 or not name else "")))
        yield line(
            label,
            [places.values[row] for row in rows],
            [None if value is None else value * factor for value in values],
            f"{{x}}: {{y:,.6g}} {unit}".strip(),
            index=number,
            size=7,
        )


def _axis(title: str, values: Sequence[Any]) -> Axis:
    numbers = [float(value) for value in values if value is not None]
    if min(numbers) > 0 and max(numbers) > WIDE * min(numbers):
        return spread_axis(title, numbers)
    return axis(title, from_zero=min(numbers) >= 0)
