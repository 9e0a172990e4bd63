"""Evidence over nights against its sum written out, its bound on false alarms, and what has gone."""

from functools import cache

import numpy as np
import pytest
from scipy import stats

from pytest_npubench.verdict import evidence
from pytest_npubench.verdict.evidence import SIZES, change_for_worse, is_gone, lag_correlation
from pytest_npubench.verdict.noise_law import Nights, fit_law
from pytest_npubench.verdict.prediction import GAPS, SHARES, refer


def nights_of(entries):
    return Nights(entries=np.array(entries, dtype=float), variance=np.ones_like(entries, dtype=float))


NONE = np.empty((1, 0))


@pytest.fixture(scope="module")
def law():
    return fit_law(nights_of(np.random.default_rng(1).normal(0, 0.01, (40, 12))))


def written_out(law, entries, levels, taus):
    """log E by explicit loops, and the evidence of each night a change may begin at."""
    grid = [(w, s, m) for w, s in zip(np.exp(law.log_weights), law.scales, strict=True) for m in levels]

    @cache
    def density(scale, level):
        return stats.t.pdf(entries, law.freedom, level, scale)

    never = sum(w * np.prod(density(s, m)) for w, s, m in grid)
    two = np.mean(
        [
            sum(w * np.prod((1 - p) * density(s, m) + p * density(s, m + g)) for w, s, m in grid)
            for p in SHARES
            for g in GAPS
        ]
    )
    by_night = {
        tau: np.average(
            [
                sum(w * np.prod(density(s, m)[:tau]) * np.prod(density(s, m + d)[tau:]) for w, s, m in grid)
                for d in SIZES
            ],
            weights=np.where(np.log1p(0.13) > SIZES, 0.9 / 10, 0.1 / 7),
        )
        for tau in taus
    }
    return np.log(sum(by_night.values()) / (0.97 * never + 0.03 * two)), by_night


def test_the_evidence_is_the_sum_over_nights_and_mean_over_sizes(law):
    entries = np.append(np.random.default_rng(2).normal(0, 0.01, 8), [0.03, 0.035])
    nights = nights_of(entries[None])
    found = change_for_worse(law, nights, nights_of(NONE), np.array([8.0]), 1.0)
    levels = evidence._levels(law, nights, np.arange(10)[None] >= 5)[0]
    expected, by_night = written_out(law, entries, levels, range(5, 10))
    assert found.log_evidence[0] == pytest.approx(expected, rel=1e-3)
    assert found.first[0] == max(by_night, key=by_night.get) == 8
    half = change_for_worse(law, nights, nights_of(NONE), np.array([8.0]), 0.5)
    assert half.log_evidence[0] == pytest.approx(expected / 2, rel=1e-3)


def test_a_missing_night_is_not_there(law):
    entries = np.append(np.random.default_rng(2).normal(0, 0.01, 8), [0.03, 0.035])
    both = np.full((2, 12), np.nan)
    both[0, :10] = entries
    both[1, :10] = entries + 1.0
    found = change_for_worse(law, nights_of(both), nights_of(np.full((2, 0), np.nan)), np.array([8.0, 8.0]), 1.0)
    alone = change_for_worse(law, nights_of(entries[None]), nights_of(NONE), np.array([8.0]), 1.0)
    assert found.log_evidence == pytest.approx(np.repeat(alone.log_evidence, 2), rel=1e-4)


def test_chance_reaches_the_alarm_as_seldom_as_shiryaev_and_roberts_say(law):
    """1500 cases whose scale and noise are the law's: E >= 20 n in one of 20 at most, n nights that a change may begin
    at. Evidence that forgot a case's own scale would be far beyond it."""
    rng = np.random.default_rng(3)
    scale = rng.choice(law.scales, (1500, 1), p=np.exp(law.log_weights) / np.exp(law.log_weights).sum())
    entries = scale * rng.standard_t(law.freedom, (1500, 16))
    gone = nights_of(np.empty((1500, 0)))
    found = change_for_worse(law, nights_of(entries), gone, np.full(1500, 12.0), 1.0)
    for times in (5, 20):
        assert np.mean(found.log_evidence >= np.log(times * 11)) < 1 / times
    planted = entries.copy()
    planted[:, 13:] += 0.05
    later = change_for_worse(law, nights_of(planted), gone, np.full(1500, 12.0), 1.0)
    assert np.mean(later.log_evidence >= np.log(20 * 11)) > 0.8
    assert np.median(later.first) == 13


def test_a_case_that_ran_at_that_speed_before_did_not_change(law):
    entries = np.append(np.random.default_rng(4).normal(0, 0.007, 12), [0.06, 0.062])[None]
    gone = nights_of([[0.061, 0.059]])
    fresh, known = (
        change_for_worse(law, nights_of(entries), nights, np.array([12.0]), 1.0).log_evidence[0]
        for nights in (nights_of(NONE), gone)
    )
    assert fresh > 7.0 > 6.0 > known


@pytest.mark.parametrize(
    ("since", "expected"),
    [
        ([0.05, 0.05, 0.05], False),
        ([0.05] * 8, False),
        ([0.05] * 8 + [0.02], False),
        ([0.05] * 8 + [0.0, 0.0], True),
        ([0.12], False),
        ([0.12, 0.0], True),
        ([-0.05] * 4, True),
    ],
    ids=str,
)
def test_what_is_gone_and_what_is_not(law, since, expected):
    reference = refer(law, nights_of(np.random.default_rng(5).normal(0, 0.01, (1, 15))))
    assert is_gone(law, reference, nights_of([since]), np.log(120 * 30), 1.0) is expected


@pytest.mark.parametrize(("correlation", "low", "high"), [(0.0, 0.0, 0.08), (0.5, 0.35, 0.6)])
def test_nights_that_resemble_the_night_before_temper_the_evidence(correlation, low, high):
    rng = np.random.default_rng(6)
    entries = rng.normal(0, 0.01, (60, 20))
    for index in range(1, 20):
        entries[:, index] = correlation * entries[:, index - 1] + np.sqrt(1 - correlation**2) * entries[:, index]
    nights = nights_of(entries)
    assert low <= lag_correlation(refer(fit_law(nights), nights)) <= high
