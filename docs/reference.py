"""The reference pages of the site, written from the code: tests of the suites, options, markers, fixtures, metrics,
keys of hardware files and the help of every command. `python docs/reference.py FOLDER` writes them into a folder; the
site's build takes them from `pages()`.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import io
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from msgspec import Meta

from pytest_npubench import suites
from pytest_npubench.cli.main import main as npubench_main
from pytest_npubench.core import families
from pytest_npubench.core.hardware import HardwareSpec
from pytest_npubench.core.record_reader import KINDS
from pytest_npubench.plugin import newhooks, options
from pytest_npubench.plugin import npubench as npubench_fixture
from pytest_npubench.plugin import npubench_case as npubench_case_fixture
from pytest_npubench.plugin.own_definition import CallableLimits

PACKAGE = Path(suites.__file__).resolve().parents[1]
ROOT = PACKAGE.parent
BY_CASE = "by case"  # what a case decides when it runs
SIMULATION = (
    "simulate",
    "--hardware",
    "nvidia-h100",
    "--model",
    "qwen3-30b-a3b",
    "--policy",
    "layered",
    "--workload",
    "layered-arxiv",
    "--tensor-parallel",
    "2",
)
"""A run of a few requests on a virtual clock: it has every metric of a serving run, each with its definition."""


def pages() -> dict[str, str]:
    """The text of each page by its path below docs/."""
    os.environ.update(COLUMNS="100", NO_COLOR="1", TERM="dumb")  # how wide a help is, and that it has no colours
    return {
        "reference/tests.md": test_page(),
        "reference/options.md": option_page(),
        "reference/markers.md": marker_page(),
        "reference/fixtures.md": fixture_page(),
        "reference/metrics.md": metric_page(),
        "reference/hardware-keys.md": hardware_page(),
        "reference/commands.md": command_page(),
    }


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    cells = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(text.replace("|", "\\|") for text in row) + " |" for row in cells) + "\n"


def code(text: str) -> str:
    return f"`{text}`" if text else ""


def prose(text: str | None) -> str:
    """A docstring as Markdown: its signs are no mark-up, but for `names` and indented formulas."""
    signs = re.compile(r"(`[^`\n]*`|^ {4}.*$)|([*_\[])|(<)", re.MULTILINE)

    def plain(found: re.Match[str]) -> str:
        return found[1] or (f"\\{found[2]}" if found[2] else "&lt;")

    return signs.sub(plain, inspect.cleandoc(text or ""))


# -- tests of the suites


def test_page() -> str:
    """What each test of the suites measures and when it fails, as its file and its function say."""
    parts = [
        "# Tests of the suites\n\nEvery metric is also compared with accepted sessions ([baselines](../baselines.md)); "
        "the limits here are absolute.\n"
    ]
    for suite in suites.usable():
        parts.append(f"## {suite.name}\n\n{suite.about[0].upper()}{suite.about[1:]}.\n")
        rows = [row for path in sorted((ROOT / "suites" / suite.name).glob("test_*.py")) for row in _tests_of(path)]
        parts.append(table(("test", "what it measures", "when it fails"), rows))
    return "\n".join(parts)


def _tests_of(path: Path) -> Iterator[tuple[str, str, str]]:
    module = ast.parse(path.read_text(encoding="utf-8"))
    for function in module.body:
        if isinstance(function, ast.FunctionDef):
            measured, limit = (" ".join(prose(ast.get_docstring(node)).split()) for node in (module, function))
            yield code(function.name), measured, limit


# -- options


def option_page() -> str:
    rows = [
        (code(f"{option.flag} {option.metavar}".strip()), code(option.key), code(option.name), option.help)
        for option in options.OPTIONS
    ]
    rows += [(code(f"--npubench-{name}"), "", "", text) for name, text in options.FLAGS]
    return (
        "# Options\n\n"
        "The options of `npubench run` and of pytest. The command line wins over pytest's ini file, and that over the\n"
        "table `[tool.npubench]` of `pyproject.toml`.\n\n"
        + table(("option", "ini key", "[tool.npubench]", "meaning"), rows)
    )


# -- markers


def marker_page() -> str:
    lines = [line.split(": ", 1) for line in options.MARKERS]
    by_class = {
        name: ", ".join(code(one) for one, family in families.OWN.items() if name in family.classes)
        for name in ("gpu", "npu")
    }
    kinds = [(code(suite.name), ", ".join(map(code, suite.kinds))) for suite in suites.usable()]
    return (
        '# Markers\n\nSelect with `-m`, for example `-m "tpu and buckets"`.\n\n## Device families\n\n'
        + table(("marker", "meaning"), [(code(name), about) for name, about in families.markers()])
        + "\n## Device classes\n\n"
        + table(("marker", "families"), [(code(name), found) for name, found in by_class.items()])
        + "\n## Suites\n\n"
        + table(("marker", "meaning"), [(code(one.name), one.about) for one in suites.registered().values()])
        + "\n## For tests\n\n"
        + table(("marker", "meaning"), [(code(name), about) for name, about in lines if name not in by_class])
        + "\n## Kinds of cases\n\nWhat `npubench_cases(kind)` may name.\n\n"
        + table(("suite", "kinds"), kinds)
    )


# -- fixtures and hooks


def fixture_page() -> str:
    limits = [
        (code(field.name), "none" if field.default is None else str(field.default)) for field in fields(CallableLimits)
    ]
    hooks = [
        (code(name), inspect.cleandoc(hook.__doc__ or "").replace("\n", " "))
        for name, hook in vars(newhooks).items()
        if name.startswith("pytest_npubench_")
    ]
    groups = sorted(set(_entry_point_groups()))
    return (
        "# Fixtures and hooks\n\n## `npubench`\n\n"
        + prose(npubench_fixture.__doc__)
        + "\n\n[own-cases](../own-cases.md) describes it. The marker `npubench` takes these keywords:\n\n"
        + table(("keyword", "default"), limits)
        + "\n## `npubench_case`\n\n"
        + prose(npubench_case_fixture.__doc__)
        + "\n\n## Hooks\n\nA `conftest.py` or another plugin defines them. Each returns a sequence of its things.\n\n"
        + table(("hook", "returns"), hooks)
        + "\n## Entry points\n\nAnother distribution registers its things in these groups"
        + " ([architecture](../architecture.md#adding-one-thing-is-adding-one-file)).\n\n"
        + "".join(f"- `{group}`\n" for group in groups)
    )


def _entry_point_groups() -> Iterator[str]:
    for path in PACKAGE.rglob("*.py"):
        yield from re.findall(
            r"""(?:GROUP|KINDS) = .*?["'](pytest_npubench\.\w+)["']""", path.read_text(encoding="utf-8")
        )


# -- metrics


def metric_page() -> str:
    """Those of kinds are the calls of Metric(...) in the kind's file, below what the file says of itself."""
    parts = [
        "# Metrics\n\nTimes are in seconds. *Gate* says how a metric is compared with accepted sessions: by `ratio`, "
        "by `difference`, `exact`ly, or not at all (`none`). [statistics](../statistics.md) has the rules.\n",
        "## Of a serving run\n\nCases of the scheduling and the server suite have these, and so has every run of "
        "`npubench simulate` and `npubench load`. [serving-metrics](../serving-metrics.md) defines the time points.\n",
        table(
            ("metric", "unit", "definition", "better", "gate"),
            [
                (
                    code(metric["name"]),
                    metric["unit"] or "",
                    prose(metric["definition"]),
                    metric["better"],
                    code(metric["kind"] or "none"),
                )
                for metric in map(_with_percentiles, _simulated())
                if not re.search(r"_p\d\d_s$", metric["name"])
            ],
        ),
    ]
    for suite in suites.usable():
        folder = Path(inspect.getfile(type(suite))).with_name("kinds")
        parts.append(f"## Suite {suite.name}\n")
        for kind in suite.kinds:
            path = folder / f"{kind}.py"
            path = path if path.is_file() else Path(inspect.getfile(type(suite.kind(kind))))
            source = path.read_text(encoding="utf-8")
            parts.append(f"### {suite.name}: {kind}\n\n{prose(ast.get_docstring(ast.parse(source)))}\n")
            if rows := list(_metrics_of(source)):
                parts.append(table(("metric", "unit", "better", "gate"), rows))
    return "\n".join(parts)


def _simulated() -> Sequence[Mapping[str, Any]]:
    status, text = _npubench(*SIMULATION, "--num-requests", "8", "--rate", "1", "--json")
    if status:
        raise SystemExit(f"npubench {' '.join(SIMULATION)}: exit status {status}")
    metrics: Sequence[Mapping[str, Any]] = json.loads(text)["runs"][0]["metrics"]
    return metrics


def _with_percentiles(metric: Mapping[str, Any]) -> Mapping[str, Any]:
    """A mean stands for the percentiles of the same quantity, which have no row of their own."""
    if not metric["name"].endswith("_mean_s"):
        return metric
    name = metric["name"].replace("_mean_s", "_{mean,p50,p90,p95,p99}_s")
    definition = metric["definition"].replace("mean of", "mean, and 50th to 99th percentile, of", 1)
    return {**metric, "name": name, "definition": definition}


def _metrics_of(source: str) -> Iterator[tuple[str, str, str, str]]:
    """The calls of Metric(...), and those of functions that make one under the name that they are given."""
    for call in _calls(ast.parse(source)):
        metric = _called(call) == "Metric" and call
        name = _given(call).get("name") if metric else next(iter(call.args), None)
        metric = metric or _makers().get(_called(call))
        if metric and name is not None and (text := _text(name)):
            given = {key: _text(value) for key, value in _given(metric).items()}
            better, gate = given.get("better", "lower"), given.get("gate", "ratio")
            yield code(text), given["unit"], better or BY_CASE, code(gate) or BY_CASE


@cache
def _makers() -> Mapping[str, ast.Call]:
    """By name of a function whose first argument is a metric's name: the call of Metric in it."""
    found: dict[str, ast.Call] = {}
    folders = ("suites", "extensions", "campaign")
    for path in (path for folder in folders for path in (PACKAGE / folder).rglob("*.py")):
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(function, ast.FunctionDef) and function.args.args:
                first = function.args.args[0].arg
                for call in _calls(function):
                    name = _given(call).get("name") if _called(call) == "Metric" else None
                    if isinstance(name, ast.Name) and name.id == first:
                        found[function.name] = call
    return found


def _calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def _called(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _given(call: ast.Call) -> Mapping[str, ast.expr]:
    return {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}


def _text(node: ast.expr) -> str:
    """A literal, or an f-string with the names of its variables in braces; empty for what is only known in a run."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(
            str(part.value) if isinstance(part, ast.Constant) else f"{{{ast.unparse(part.value).split('.')[-1]}}}"
            for part in node.values
            if isinstance(part, ast.Constant | ast.FormattedValue)
        )
    return ""


# -- keys of hardware files


def hardware_page() -> str:
    rows = list(_keys(HardwareSpec, ""))
    parts = [
        "# Keys of hardware files\n\n[hardware](../hardware.md) explains them, with a worked example. A key without a "
        "default must be there; `NAME` in a key is a name of your own, and `[]` a list of tables.\n\n## The file\n",
        table(("key", "value", "default"), rows),
    ]
    for suite in suites.usable():
        if suite.section is not None and (record := _section_record(suite.read)) is not None:
            parts.append(f"## `[{suite.section}]`: suite {suite.name}\n\n{prose(record.__doc__)}\n")
            parts.append(table(("key", "value", "default"), _keys(record, suite.section)))
    return "\n".join(parts)


class _Asked(Exception):
    """Carries the record class that a suite reads its section into."""


class _RootTable:
    """Stands for a file's root table: `read` says which record a suite asks for, and reads nothing."""

    def read(self, section: str, record: type, *others: object, **more: object) -> object:
        raise _Asked(record)


def _section_record(read: Callable[[Any], object]) -> type | None:
    try:
        read(_RootTable())
    except _Asked as asked:
        return asked.args[0]  # type: ignore[no-any-return]
    return None


def _keys(record: type, table_name: str) -> Iterator[tuple[str, str, str]]:
    hints = get_type_hints(record, include_extras=True)
    for one in fields(record):
        if one.metadata.get("same_table"):
            yield from _keys(_record_in(hints[one.name]) or record, table_name)
            continue
        name = one.metadata.get("key", one.name)
        if name is None:
            continue
        dotted = f"{table_name}.{name}" if table_name else name
        inner = _record_in(hints[one.name])
        if inner is None:
            yield code(dotted), _value(hints[one.name]), _default(one)
            continue
        is_named = any(field.metadata.get("table_name") for field in fields(inner))
        is_list = _is_many(hints[one.name]) and not is_named
        yield from _keys(
            inner, f"{dotted}.NAME" if is_named or _is_mapping(hints[one.name]) else dotted + "[]" * is_list
        )


def _record_in(hint: Any) -> type | None:
    """The record that a value is, or that its items are."""
    if isinstance(hint, type) and is_dataclass(hint):
        return hint
    return next(filter(None, map(_record_in, _arguments(hint))), None)


def _arguments(hint: Any) -> tuple[Any, ...]:
    return get_args(hint)[:1] if get_origin(hint) is Annotated else get_args(hint)


def _bare(hint: Any) -> Any:
    while get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if get_origin(hint) in (Union, UnionType):
        others = [_bare(one) for one in get_args(hint) if one is not NoneType]
        return others[0]
    return hint


def _is_many(hint: Any) -> bool:
    return get_origin(_bare(hint)) is tuple


def _is_mapping(hint: Any) -> bool:
    return isinstance(get_origin(_bare(hint)), type) and issubclass(get_origin(_bare(hint)), Mapping)


def _value(hint: Any) -> str:
    """What an error would say is wanted, else the type."""
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(_value(one) for one in get_args(hint) if one is not NoneType)
    if get_origin(hint) is Annotated:
        said = [meta.description for meta in get_args(hint)[1:] if isinstance(meta, Meta) and meta.description]
        return said[-1] if said else _value(get_args(hint)[0])
    if hint in KINDS:
        return KINDS[hint]
    if _is_many(hint):
        return f"a list, each {_value(get_args(hint)[0])}"
    if _is_mapping(hint):
        return f"a table, each value {_value(get_args(hint)[1])}"
    return " or ".join(map(str, get_args(hint))) or getattr(hint, "__name__", str(hint))


def _default(one: Field[Any]) -> str:
    if one.default is MISSING and one.default_factory is MISSING:
        return ""
    default = one.default if one.default is not MISSING else one.default_factory()  # type: ignore[misc]
    if isinstance(default, tuple):
        return code(", ".join(map(str, default))) or "empty"
    return "none" if default is None else code(json.dumps(default)) if default != {} else "empty"


# -- commands


def command_page() -> str:
    parts = [
        "# Help of every command\n\nWhat `npubench COMMAND --help` prints. [cli](../cli.md) explains the commands.\n"
    ]
    for path, text in _commands():
        parts.append(f"## npubench {' '.join(path)}".rstrip() + f"\n\n```text\n{text.strip()}\n```\n")
    return "\n".join(parts)


def _commands() -> list[tuple[tuple[str, ...], str]]:
    """Every command and action with its help. A word that begins a line of a help and has a help of its own is one."""
    found: list[tuple[tuple[str, ...], str]] = []
    waiting: list[tuple[str, ...]] = [()]
    while waiting:
        path = waiting.pop()
        if (text := _help(path)) is not None:
            found.append((path, text))
            words = dict.fromkeys(re.findall(r"^[\s│|]+([a-z][a-z-]+)(?=\s)", text, re.MULTILINE))
            waiting += [(*path, word) for word in words if word not in path]
    return sorted(found)


def _help(path: tuple[str, ...]) -> str | None:
    """The help of a command, None where there is no such command."""
    status, text = _npubench(*path, "--help")
    is_its_own = re.search(rf"usage:\s+{' '.join(('npubench', *path))}\b", text, re.IGNORECASE)
    return text if status == 0 and is_its_own else None


def _npubench(*arguments: str) -> tuple[int, str]:
    """Exit status and output of a command, run here: starting Python for each of them takes most of a minute."""
    written = io.StringIO()
    with redirect_stdout(written), redirect_stderr(io.StringIO()):
        try:
            status = npubench_main(arguments)
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return status, written.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False, description=__doc__)
    parser.add_argument("folder", type=Path, help="where the pages are written")
    folder = parser.parse_args().folder
    for name, text in pages().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
