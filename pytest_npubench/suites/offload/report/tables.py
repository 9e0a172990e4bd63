"""Tables of the offload suite: chunk graphs, what synchronisation of the shadow takes, and the factorial."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_npubench.reports import number_text
from pytest_npubench.reports.page import Table
from pytest_npubench.reports.pair_cells import (
    entries,
    megabytes,
    milliseconds,
    of_kind,
    percent,
    plain,
    ratio,
    without_unknown_columns,
)
from pytest_npubench.reports.record_fields import Record, finite, number, numbers, table, text
from pytest_npubench.reports.reported import LLM_NPU, conditions, reported
from pytest_npubench.reports.reported import label as reported_label
from pytest_npubench.reports.reported_figures import figures_table
from pytest_npubench.suites.offload.report import notes as offload_notes
from pytest_npubench.suites.offload.report.charts import by_arm, settings_of
from pytest_npubench.suites.offload.report.orders import order_tables

SHADOWS = ("serial", "parallel_fast", "parallel_slow")
EFFECTS = {"time": "time", "error": "relative error", "weight_bytes": "bytes of weights"}
HEADLINES = (("abstract", "value"), ("3.3", "share"), ("4.1", "speed_up"), ("heteroinfer", "prefill"))


def offload_tables(records: Sequence[Record]) -> tuple[Table, ...]:
    """Every table that these cases on one device have data for; the paper's own figures last."""
    shown = (
        *map(chunk_table, of_kind(records, "chunk_sharing")),
        *map(sync_share_table, of_kind(records, "shadow_outlier")),
        *order_tables(records),
        *(made for record in of_kind(records, "factorial") for made in (cell_table(record), effect_table(record))),
    )
    is_measured = any(table(record, "detail") for record in records)
    return (*shown, *((figures_table(LLM_NPU, HEADLINES),) if is_measured else ()))


def chunk_table(record: Record) -> Table:
    """Each way to have graphs for a prompt, by its length."""
    detail = table(record, "detail")
    printed = [reported("3.2", name, paper=LLM_NPU) for name in ("shared", "subgraphs", "memory_saved")]
    where = f"prompt {reported('3.2', 'prompt', paper=LLM_NPU)}, chunk {reported('3.2', 'chunk', paper=LLM_NPU)}"
    said = f"{where}: {printed[0]} of {printed[1]} subgraphs shared, {printed[2]} % of memory saved"
    theirs = reported_label(conditions("3.2", paper=LLM_NPU), said, paper=LLM_NPU)
    return Table(
        caption="Chunk-sharing graphs",
        note=f"{offload_notes.CHUNKS} {_saved(detail)}{offload_notes.ERROR} {theirs}",
        header=(
            "prompt",
            "arm",
            "time ms",
            "over whole",
            "graphs",
            "weights MB",
            "executables MB",
            "compiling s",
            "tokens computed",
            "relative error",
        ),
        rows=tuple(
            (
                text(row, "setting") or number_text.UNKNOWN,
                text(row, "arm"),
                milliseconds(row, "total_s"),
                ratio(number(row, "over"), numbers(row, "over_interval")),
                number_text.count(number(row, "num_graphs")),
                megabytes(row, "weight_bytes"),
                megabytes(row, "executable_bytes"),
                number_text.seconds(number(row, "compile_s")),
                number_text.count(number(row, "computed_tokens")),
                plain(number(row, "relative_error")),
            )
            for row in entries(detail, "arms")
        ),
    )


def sync_share_table(record: Record) -> Table:
    """The share of synchronisation by the number of outlier channels, and how much smaller the error is."""
    arms = by_arm(table(record, "detail"))
    gains = table(table(record, "detail"), "error_gain")
    shares = [
        f"{quantity.partition(' ')[0]} {reported('3.3', 'share', paper=LLM_NPU, quantity=quantity)} %"
        for quantity in ("latency of synchronisation", "energy of synchronisation")
    ]
    theirs = reported_label(conditions("3.3", paper=LLM_NPU), *shares, paper=LLM_NPU)
    return Table(
        caption="Synchronisation of the shadow",
        note=f"{offload_notes.SYNC_SHARE} {offload_notes.ERROR} {theirs}",
        header=("setting", *(f"{arm} %" for arm in SHADOWS), "error, max_min / shadow"),
        rows=tuple(
            (
                setting,
                *(percent(arms.get(arm, {}).get(setting, {}), "sync_fraction") for arm in SHADOWS),
                plain(number(gains, setting.partition(" ")[0])),
            )
            for setting in settings_of(arms)
        ),
    )


def cell_table(record: Record) -> Table:
    """The eight cells."""
    rows = [
        (
            text(row, "cell") or number_text.UNKNOWN,
            milliseconds(row, "total_s"),
            ratio(number(row, "over_none")),
            percent(row, "bubble_fraction"),
            number_text.count(number(row, "num_graphs")),
            megabytes(row, "weight_bytes"),
            number_text.seconds(number(row, "compile_s")),
            plain(number(row, "relative_error")),
        )
        for row in entries(table(record, "detail"), "cells")
    ]
    header = ("on", "ms", "over none", "bubble %", "graphs", "weights MB", "compiling s", "relative error")
    shown, *body = without_unknown_columns(header, rows)
    return Table(
        caption="The three techniques, all eight ways",
        note=f"{offload_notes.CELLS} {offload_notes.ERROR}",
        header=shown,
        rows=tuple(body),
    )


def effect_table(record: Record) -> Table:
    """Main effects and interactions on time, error and bytes of weights."""
    effects = table(table(record, "detail"), "effects")
    found = {name: {_factors(row): row for row in entries(effects, name)} for name in EFFECTS}
    sets = list(dict.fromkeys(factors for own in found.values() for factors in own))
    return Table(
        caption="What each technique does alone",
        note=offload_notes.EFFECTS,
        header=("with / without", *EFFECTS.values()),
        rows=tuple((factors, *(_effect(found[name].get(factors, {})) for name in EFFECTS)) for factors in sets),
    )


def _saved(detail: Record) -> str:
    """Weights that sharing saves against a graph for each chunk, and the subgraphs behind it."""
    saved = table(detail, "saved_fraction")
    parts = [f"{number_text.percent(number(saved, length))} % at {length} tokens" for length in saved]
    shared = [ends for ends in map(finite, table(detail, "shared_subgraphs").values()) if len(ends) == 2]
    counts = f" ({shared[0][0]:.0f} of {shared[0][1]:.0f} subgraphs of a chunk are shared)" if shared else ""
    return f"Weights saved by sharing against per_chunk: {', '.join(parts)}{counts}. " if parts else ""


def _factors(effect: Record) -> str:
    names = effect.get("factors")
    return " x ".join(map(str, names)) if isinstance(names, (list, tuple)) and names else "a technique"


def _effect(effect: Record) -> str:
    """What is the same in every round needs no interval."""
    ends = finite([effect.get("low"), effect.get("high")])
    return ratio(number(effect, "ratio"), ends if len(set(ends)) == 2 else ())
