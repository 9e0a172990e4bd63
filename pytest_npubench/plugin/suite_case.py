"""A case of a suite in its test: measure with its campaign, judge, record, and fail the test where the verdict does."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from pytest_npubench.core.clock import perf_counter
from pytest_npubench.errors import BrokenEntryError, JournalError, NpubenchError
from pytest_npubench.plain_text import plain, plain_lines
from pytest_npubench.plugin.benchmark_bridge import both_measure, mirror
from pytest_npubench.plugin.campaign_time import CAMPAIGN_TIME, CampaignTime
from pytest_npubench.plugin.items import DEVICES, ExpandedCase, fail_unprobed, node_id
from pytest_npubench.verdict import Verdict, VerdictKind
from pytest_npubench.verdict.case_record import judgement_of
from pytest_npubench.verdict.result import JudgedCase, Judgement

if TYPE_CHECKING:
    from pytest_npubench.plugin.session import BenchSession


class SuiteCase:
    """What a suite's test receives; its body calls run()."""

    def __init__(self, request: pytest.FixtureRequest, session: BenchSession, expanded: ExpandedCase) -> None:
        self.case = expanded.case
        self._request = request
        self._session = session
        self._expanded = expanded
        self._devices = request.node.stash[DEVICES]
        self.is_used = False

    @classmethod
    def of(cls, request: pytest.FixtureRequest, session: BenchSession) -> SuiteCase:
        expanded = getattr(request, "param", None)
        if isinstance(expanded, BrokenEntryError):
            pytest.fail(plain_lines(expanded), pytrace=False)
        if not isinstance(expanded, ExpandedCase):
            where = plain(request.node.nodeid)
            raise pytest.UsageError(f"{where}: npubench_case needs the marker npubench_cases(kind)")
        fail_unprobed(request.node)
        if wrong := both_measure(request.node, "npubench_case"):
            pytest.fail(plain_lines(wrong), pytrace=False)
        return cls(request, session, expanded)

    def run(self) -> Judgement:
        """Measure (or resume), judge, journal; fail the test with the verdict's reason where it is failing."""
        self.is_used = True
        started_s, campaigns = perf_counter(), self._session.campaigns
        spent_s = campaigns.spent_s
        with ending_with_the_journal():
            judgement, fingerprint, resumed = self._judge()
        if waited_s := campaigns.spent_s - spent_s:
            self._request.node.stash[CAMPAIGN_TIME] = CampaignTime(campaign=self._expanded.plan.key, seconds=waited_s)
        judged = JudgedCase(
            case=self.case,
            digest=self._expanded.digest,
            node_id=node_id(self._request.node),
            device=", ".join(device.id for device in self._devices),
            fingerprint=fingerprint,
            duration_s=perf_counter() - started_s,
            judgement=judgement,
            limits=self._expanded.limits,
            resumed=resumed,
            campaign=self._expanded.plan.key,
        )
        finish_case(self._request, self._session, judged)
        return judgement

    def _judge(self) -> tuple[Judgement, str | None, bool]:
        """The judgement, the fingerprint where the device could be opened, and whether it is an earlier run's."""
        expanded, devices, session = self._expanded, self._devices, self._session
        resumed = False
        try:
            earlier = session.earlier_case(expanded, devices)
            resumed = earlier is not None
            judgement = judgement_of(earlier) if earlier else session.campaigns.judgement(expanded, devices)
        except JournalError:
            raise
        except NpubenchError as error:
            session.progress.done()
            judgement = Judgement(verdict=Verdict(kind=VerdictKind.INVALID, reason=str(error)))
        return judgement, session.campaigns.fingerprint(expanded.plan, devices), resumed


@contextmanager
def ending_with_the_journal() -> Iterator[None]:
    """Ends the run with exit code 3 where the journal can no longer be written; an xdist worker fails the case."""
    try:
        yield
    except JournalError as error:
        if "PYTEST_XDIST_WORKER" in os.environ:  # an exit would be a crash to xdist, and the reason would be lost
            raise pytest.fail.Exception(plain_lines(error), pytrace=False) from None
        pytest.exit(f"{error}; the run ends here, since nothing more can be recorded", returncode=3)


def finish_case(request: pytest.FixtureRequest, session: BenchSession, judged: JudgedCase) -> None:
    """Record a judged case everywhere, then let its test pass or fail."""
    with ending_with_the_journal():
        session.record(request.node, judged)
    mirror(request, judged)
    if judged.judgement.is_disturbed and session.settings.disturbed == "mark":
        pytest.skip(plain(f"disturbed: {judged.verdict.reason}"))
    if judged.verdict.failing:
        kind = "" if judged.verdict.kind is VerdictKind.FAILED else f"{judged.verdict.kind.value}: "
        pytest.fail(plain(kind + judged.verdict.reason), pytrace=False)
