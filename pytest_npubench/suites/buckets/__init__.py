"""Bucket profiling: two end-to-end measurements a bucket, and what LENS predicts from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pytest_npubench.core.run_option import Option, fraction, names
from pytest_npubench.suites.protocol import Site, Suite, of_module

if TYPE_CHECKING:
    from pytest_npubench.backends.protocol import Runtime
    from pytest_npubench.campaign.memory import MemoryModel
    from pytest_npubench.campaign.points import Measured
    from pytest_npubench.campaign.protocol import Bench
    from pytest_npubench.campaign.visits import Round
    from pytest_npubench.reports.lanes import Lane
    from pytest_npubench.verdict.case_record import CaseRecord


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
    plans = of_module("plan:chosen_plans")
    impossible = of_module("work:impossible")
    across = of_module("report.batch_sizes:batch_charts")

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

    def lanes(self, points: Round) -> Iterable[Lane]:
        from pytest_npubench.reports.lanes import plain_lanes
        from pytest_npubench.reports.served_lanes import served_lanes
        from pytest_npubench.suites.buckets.points import SERVED, seconds_in

        served = {name: values for name, values in points.items() if name.startswith(SERVED)}
        return (*plain_lanes(seconds_in(points)), *served_lanes(served))

    def heading(self, record: CaseRecord[Any]) -> str:
        return f"{record.model}, batch {record.batch_size}"


SUITE = Buckets()
