"""Bucket profiling: two end-to-end measurements a bucket, and what LENS predicts from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pytest_npubench.core.run_option import Option, fraction, names
from pytest_npubench.suites.protocol import Choice, Site, Suite

if TYPE_CHECKING:
    from pytest_npubench.backends.protocol import Runtime
    from pytest_npubench.campaign.memory import MemoryModel
    from pytest_npubench.campaign.points import Measured
    from pytest_npubench.campaign.protocol import Bench, CampaignPlan
    from pytest_npubench.campaign.visits import Round
    from pytest_npubench.core.hardware import HardwareSpec
    from pytest_npubench.reports.lanes import Lane
    from pytest_npubench.reports.page import Chart
    from pytest_npubench.verdict.case_record import CaseRecord, Cases


def _rivals(text: str) -> tuple[str, ...]:
    from pytest_npubench.errors import RegistryError
    from pytest_npubench.predictors import rivals

    try:
        return rivals(names(text))
    except RegistryError as error:
        raise ValueError(str(error)) from None


class Buckets(Suite):
    name = "buckets"
    about = "bucket profiling and latency prediction"
    report = "report.section"
    options = (
        Option("case_error", "FRACTION", "tighten the hardware file's limit on a case's prediction error", fraction),
        Option("mean_error", "FRACTION", "tighten the hardware file's limit on the mean prediction error", fraction),
        Option(
            "predictors", "NAME[,NAME]", "show rivals of LENS beside it, such as linear; all: every one", _rivals, ()
        ),
        Option("transfer", "JOURNAL", "the run on another device whose profile the rival transferred scales", str),
        Option(
            "active_band",
            "FRACTION",
            "repeat profile points until the bands are this narrow (default: fixed)",
            fraction,
        ),
    )

    def plans(self, spec: HardwareSpec, choice: Choice) -> Iterable[CampaignPlan]:
        from pytest_npubench.suites.buckets.plan import chosen_plans

        return chosen_plans(spec, choice)

    def bench(self, runtime: Runtime, plan: Any, site: Site) -> Bench[Any]:
        bench: Bench[Any] = plan.service.bench(runtime, plan, site.folder)
        return bench

    @property
    def memory(self) -> MemoryModel:
        from pytest_npubench.suites.buckets import memory

        return memory

    def work(self, plan: Any, points: Sequence[Any], measured: Measured) -> Mapping[str, float]:
        from pytest_npubench.suites.buckets.work import work_of

        return work_of(points, measured)

    def impossible(self, plan: Any, points: Sequence[Any], measured: Measured) -> str:
        from pytest_npubench.suites.buckets.work import impossible

        return impossible(plan, points, measured)

    def across(self, cases: Cases) -> Sequence[Chart]:
        from pytest_npubench.suites.buckets.report.batch_sizes import batch_charts

        return batch_charts(cases)

    def lanes(self, points: Round) -> Iterable[Lane]:
        from pytest_npubench.reports.lanes import plain_lanes
        from pytest_npubench.reports.served_lanes import served_lanes
        from pytest_npubench.suites.buckets.points import SERVED, seconds_in

        served = {name: values for name, values in points.items() if name.startswith(SERVED)}
        return (*plain_lanes(seconds_in(points)), *served_lanes(served))

    def heading(self, record: CaseRecord[Any]) -> str:
        return f"{record.model}, batch {record.batch_size}"


SUITE = Buckets()
