"""Shadow outliers by their number, a line for each arm: error, time, and the share of synchronisation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pytest_npubench.extensions.pairs.offload.summaries import ShadowRow
from pytest_npubench.extensions.pairs.suites.offload.kinds.shadow_outlier import ShadowOutlierDetail
from pytest_npubench.extensions.pairs.suites.offload.report.arms import ERROR, by_arm, over, settings_of
from pytest_npubench.reports import number_text
from pytest_npubench.reports.build import chart, line, plain, series_table, table
from pytest_npubench.reports.page import Chart, Table
from pytest_npubench.reports.plot_parts import Axis, DrawnSeries, axis, category_axis, label, log_axis, spread_axis
from pytest_npubench.reports.reported import LLM_NPU, note, reported
from pytest_npubench.verdict.case_record import CaseRecord

SHADOW_ERROR = (
    "Seven ways to multiply: float32, INT8 with a per-tensor scale, INT8 clipped, clipped with the outliers apart on "
    "the other unit (serial, parallel with fast or slow signals), and both in one graph of one unit (mixed)."
)
SHADOW_TIME = "Time of one product, median over the rounds."
SYNC_SHARE = (
    "The part of the time in which neither unit's own work is done: (total - the longer part) / total; of serial, what "
    "both parts leave."
)
SHADOWS = ("serial", "parallel_fast", "parallel_slow")
Arms = Mapping[str, Mapping[str, ShadowRow]]


def error_chart(record: CaseRecord[ShadowOutlierDetail]) -> Chart:
    arms = by_arm(record.detail.arms)
    settings = settings_of(arms)
    errors = _columns(arms, settings, lambda row: row.relative_error)
    return chart(
        "Shadow outliers: error",
        f"Relative error of {len(errors)} arms at {', '.join(settings)}.",
        (SHADOW_ERROR, ERROR),
        _lines(errors, settings),
        (_setting_axis(settings), error_axis([one for values in errors.values() for one in values])),
        series_table(
            "Relative error by arm",
            "setting",
            settings,
            {arm: list(map(plain, values)) for arm, values in errors.items()},
        ),
    )


def time_chart(record: CaseRecord[ShadowOutlierDetail]) -> Chart:
    arms = by_arm(record.detail.arms)
    settings = settings_of(arms)
    times_ms = _columns(arms, settings, lambda row: row.total_s * 1e3)
    share = record.detail.crossover_fraction
    crossing = (
        "One unit with mixed precision is nowhere faster than the pair with fast signals."
        if share is None
        else f"From {number_text.percent(share)} % outlier channels on, one unit with mixed precision is faster than "
        "the pair with fast signals (the crossover)."
    )
    known = [value for values in times_ms.values() for value in values if value is not None]
    return chart(
        "Shadow outliers: time",
        f"Time of {len(times_ms)} arms at {', '.join(settings)}. {crossing}",
        (SHADOW_TIME, crossing),
        _lines(times_ms, settings),
        (_setting_axis(settings), spread_axis("ms", known)),
        table(
            "Time by arm",
            (
                ("setting", lambda row: row.setting),
                ("arm", lambda row: row.arm),
                ("ms", lambda row: plain(row.total_s * 1e3)),
                ("over fp32", over),
                ("channels found", lambda row: number_text.count(row.num_outlier_channels)),
            ),
            [rows[setting] for setting in settings for rows in arms.values() if setting in rows],
        ),
    )


def sync_share_table(record: CaseRecord[ShadowOutlierDetail]) -> Table:
    """The share of synchronisation by the number of outlier channels, and how much smaller the error is."""
    arms, gains = by_arm(record.detail.arms), record.detail.error_gain
    settings = settings_of(arms)
    shares = [
        f"{quantity.partition(' ')[0]} {reported('3.3', 'share', paper=LLM_NPU, quantity=quantity)} %"
        for quantity in ("latency of synchronisation", "energy of synchronisation")
    ]
    synced = {arm: {setting: row.sync_fraction for setting, row in rows.items()} for arm, rows in arms.items()}
    series = {
        f"{arm} %": [number_text.percent(synced.get(arm, {}).get(setting)) for setting in settings] for arm in SHADOWS
    }
    return series_table(
        "Synchronisation of the shadow",
        "setting",
        settings,
        {**series, "error, max_min / shadow": [plain(gains.get(_count(setting))) for setting in settings]},
        note=f"{SYNC_SHARE} {ERROR} {note('3.3', *shares, paper=LLM_NPU)}",
    )


def error_axis(errors: Sequence[float | None]) -> Axis:
    known = [value for value in errors if value is not None and value > 0]
    return log_axis("relative error") if known else axis("relative error")


def _columns(
    arms: Arms, settings: Sequence[str], figure: Callable[[ShadowRow], float]
) -> dict[str, list[float | None]]:
    """arm -> its figure at each setting, None where it is not above 0; without arms that have none."""
    found = {
        arm: [value if row and (value := figure(row)) > 0 else None for row in map(rows.get, settings)]
        for arm, rows in arms.items()
    }
    return {arm: values for arm, values in found.items() if any(value is not None for value in values)}


def _lines(columns: Mapping[str, Sequence[float | None]], settings: Sequence[str]) -> list[DrawnSeries]:
    names = [label(_count(setting)) for setting in settings]
    return [
        line(arm, names, values, "{x}: {y:.4g}", place=place) for place, (arm, values) in enumerate(columns.items())
    ]


def _setting_axis(settings: Sequence[str]) -> Axis:
    """Evenly spaced, for none has no place on a logarithmic axis."""
    return category_axis(map(_count, settings), "outlier channels")


def _count(setting: str) -> str:
    """ "8 outliers" is "8"."""
    return setting.partition(" ")[0]
