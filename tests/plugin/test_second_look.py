"""What a second look is, and whom it is for."""

from types import SimpleNamespace

import pytest

from pytest_npubench.comparison.observation import Observation
from pytest_npubench.plugin.campaigns import REMEASURE_S, Campaigns
from pytest_npubench.plugin.regression import _of_canary
from pytest_npubench.verdict import Verdict, VerdictKind


def observation(case):
    return Observation(
        case=case, digest="d", metric="m", unit="s", better="lower", gate="ratio", margin=None, processes=((1.0,),)
    )


def test_canaries_are_judged_among_themselves():
    canary, model = observation("buckets/canary/cpu-b1-copy"), observation("buckets/profile/cpu-b1-canary")
    assert canary.is_canary
    assert not model.is_canary
    assert canary.family != model.family
    assert canary.family[1:] == model.family[1:]


@pytest.mark.parametrize("kind", list(VerdictKind))
def test_a_canary_alarms_nobody_by_itself(kind):
    found = _of_canary(Verdict(kind=kind, reason="13 % worse", ratio=1.13))
    if kind is VerdictKind.REGRESSED:
        assert found.kind is VerdictKind.INCONCLUSIVE
        assert found.reason.startswith("13 % worse; a canary: ")
        assert found.ratio == 1.13
    else:
        assert found.kind is kind


@pytest.mark.parametrize(("remeasuring", "least_s"), [(True, REMEASURE_S), (False, 0.0)])
def test_a_second_look_lasts(remeasuring, least_s):
    """A campaign of one case settles within seconds; in a fresh process it goes on."""
    session = SimpleNamespace(settings=SimpleNamespace(remeasuring=remeasuring))
    assert Campaigns(session)._at_least_s == least_s
