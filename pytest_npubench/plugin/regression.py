"""Held against the baselines: every metric of a campaign's cases, jointly, with suspects measured again first.

The campaign is the family: its cases share the device and the night. A suspect is measured in fresh processes before
anybody is alarmed; where they do not show it, a regression that rests on one process is called inconclusive. Where they
could not measure it the gate cannot look, and the regression stands.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pytest_npubench.comparison.observation import (
    Findings,
    History,
    Key,
    Observation,
    accepted_history,
    answer_distance,
    is_canary,
    judge_families,
)
from pytest_npubench.comparison.other_answers import campaigns_with_other_answers, other_answers
from pytest_npubench.errors import NpubenchError
from pytest_npubench.store.baselines import Baselines
from pytest_npubench.store.fingerprint import FingerprintKey
from pytest_npubench.store.journal_reader import Journal
from pytest_npubench.verdict import FAILING, Verdict, VerdictKind
from pytest_npubench.verdict.result import OF_ANSWERS, STATISTICAL, Judgement, Metric
from pytest_npubench.verdict.work import differences

Again = Callable[[Sequence[str], int], Mapping[Key, tuple[float, ...]]]
NOT_COMPARED = frozenset({VerdictKind.INVALID})
WORST_FIRST = (
    VerdictKind.REGRESSED,
    VerdictKind.INCONCLUSIVE,
    VerdictKind.INCOMPARABLE,
    VerdictKind.NO_BASELINE,
    VerdictKind.IMPROVED,
    VerdictKind.UNCHANGED,
    VerdictKind.INVALID,  # a metric that nothing can be compared with, such as a time of 0, speaks where no other does
)
NUM_NAMED = 3
BESIDE = frozenset({"compile_s"})
"""What is no performance of a model that runs: it fails a case where it regressed, and decides nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What a comparison found. `judgements`: each case's, with a verdict for each of its metrics. `suites`: the verdict
    on what all metrics of one unit did alike, by that unit."""

    judgements: Mapping[str, Judgement]
    suites: Mapping[str, Verdict]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCase:
    """A case with its judgement against absolute limits."""

    case: str
    digest: str
    judgement: Judgement


@dataclass(frozen=True, slots=True, kw_only=True)
class Regression:
    """What to compare with and how. `num_again` fresh processes measure a suspect once more."""

    baselines: Baselines
    margin: float
    q: float
    across: tuple[str, ...]
    num_again: int
    max_in_doubt: int = 0
    earlier: Journal | None = None
    """What the journal held before this run."""
    run: str = ""
    """This run's id: another of its processes may have written there before."""

    def judge(self, cases: Iterable[MeasuredCase], key: FingerprintKey, again: Again) -> Compared:
        """Hold the cases against their accepted sessions, jointly.

        `again(cases, index)` measures cases in the fresh process of that index and returns samples by (case, metric);
        it raises NpubenchError where it cannot. Raises ConfigError where `across` names no part of the key.
        """
        cases = list(cases)
        observations = {
            found.key: found
            for case in cases
            if case.judgement.verdict.kind not in NOT_COMPARED
            for metric in case.judgement.metrics
            if metric.gate != "none"
            for found in [Observation.of_metric(case.case, case.digest, metric)]
        }
        histories = {
            name: accepted_history(self.baselines, found, key, self.across) for name, found in observations.items()
        }
        findings = self._findings(observations, histories)
        verdicts = findings.verdicts
        suspects = tuple(case for case in findings.suspects if not is_canary(case))
        if suspects and self.num_again:
            try:
                observations = _repeated(observations, suspects, self.num_again, again)
                findings = self._findings(observations, histories)
                alone = self._findings(_fresh_alone(observations), histories)
                verdicts = _confirmed(findings.verdicts, observations, alone.suspects)
            except NpubenchError as error:
                verdicts = _confirmed(findings.verdicts, observations, (), trouble=error)
        verdicts = {name: self._escalated(observations[name], verdict, key) for name, verdict in verdicts.items()}
        verdicts |= {name: _of_canary(verdict) for name, verdict in verdicts.items() if is_canary(name[0])}
        verdicts = _with_other_answers(observations, verdicts)
        distances = {
            name: distance
            for name, found in observations.items()
            if (distance := answer_distance(found, list(histories[name].sessions.values()))) is not None
        }
        judgements = {
            case.case: self._with_work(case, _with_verdicts(case, observations, verdicts, distances), key)
            for case in cases
        }
        return Compared(judgements=judgements, suites=findings.suites)

    def _with_work(self, case: MeasuredCase, judgement: Judgement, key: FingerprintKey) -> Judgement:
        """What the case did otherwise than accepted stands beside its verdict."""
        if not judgement.work:
            return judgement
        accepted = self.baselines.work(case.case, key, digest=case.digest, across=self.across)
        reason = "; ".join([judgement.verdict.reason, *differences(judgement.work, accepted)])
        return replace(judgement, verdict=replace(judgement.verdict, reason=reason))

    def _escalated(self, observation: Observation, verdict: Verdict, key: FingerprintKey) -> Verdict:
        """Inconclusive and worse for so many sessions in a row, since the case's last reset, is a regression."""
        if not self.max_in_doubt or self.earlier is None:
            return verdict
        from pytest_npubench.comparison.persistence import is_in_doubt, nights_in_doubt

        if not is_in_doubt(verdict, observation, self.margin):
            return verdict
        reset = self.baselines.reset_of(observation.case, key)
        since = None if reset is None else reset.time
        num_nights = 1 + nights_in_doubt(self.earlier, observation, self.margin, self.run, since)
        reason = f"{verdict.reason}; inconclusive and worse in {num_nights} sessions in a row"
        kind = VerdictKind.REGRESSED if num_nights >= self.max_in_doubt else verdict.kind
        return replace(verdict, kind=kind, reason=reason) if num_nights > 1 else verdict

    def _findings(self, observations: Mapping[Key, Observation], histories: Mapping[Key, History]) -> Findings:
        return judge_families(observations.values(), histories, margin=self.margin, q=self.q)


def _repeated(
    observations: Mapping[Key, Observation], suspects: Sequence[str], num_again: int, again: Again
) -> dict[Key, Observation]:
    """The observations with the samples of fresh processes added, those of the suspects."""
    found = dict(observations)
    for index in range(num_again):
        samples = again(suspects, index)
        for name, observation in found.items():
            if observation.case in suspects and name in samples and observation.gate not in OF_ANSWERS:
                found[name] = replace(observation, processes=(*observation.processes, samples[name]))
    return found


def _fresh_alone(observations: Mapping[Key, Observation]) -> dict[Key, Observation]:
    """Suspects without this process's own samples, for which they were chosen; everything else as it is."""
    return {
        name: replace(found, processes=found.processes[1:]) if len(found.processes) > 1 else found
        for name, found in observations.items()
    }


def _confirmed(
    verdicts: Mapping[Key, Verdict],
    observations: Mapping[Key, Observation],
    suspects_alone: Collection[str],
    trouble: Exception | None = None,
) -> dict[Key, Verdict]:
    """A regression that the fresh processes by themselves do not make suspicious is inconclusive: however slow one
    process was, it may have been the process. One that none of them could measure stands, and says why."""
    checked = dict(verdicts)
    for name, verdict in verdicts.items():
        observation = observations[name]
        if verdict.kind is VerdictKind.REGRESSED and observation.gate in STATISTICAL:
            num_fresh = len(observation.processes) - 1
            if trouble is not None or not num_fresh:
                why = f"could not be measured again: {trouble or 'no fresh process could measure it'}"
                checked[name] = replace(verdict, reason=f"{verdict.reason}; {why}")
            elif observation.case not in suspects_alone:
                why = f"not confirmed: {num_fresh} fresh process{'es do' if num_fresh > 1 else ' does'} not show it"
                checked[name] = replace(verdict, kind=VerdictKind.INCONCLUSIVE, reason=f"{verdict.reason}; {why}")
    return checked


def _of_canary(verdict: Verdict) -> Verdict:
    """A canary alarms nobody by itself: it tells a changed device from changed software, to people and to `compare`."""
    if verdict.kind is not VerdictKind.REGRESSED:
        return verdict
    reason = f"{verdict.reason}; a canary: where other cases are slower too, the device is"
    return replace(verdict, kind=VerdictKind.INCONCLUSIVE, reason=reason)


def _with_other_answers(observations: Mapping[Key, Observation], verdicts: Mapping[Key, Verdict]) -> dict[Key, Verdict]:
    """Where a model's answers changed, what is said of its times begins with that."""
    campaigns = campaigns_with_other_answers((observations[name], verdict) for name, verdict in verdicts.items())
    return {
        name: replace(verdict, reason=f"{words}: {verdict.reason}")
        if (words := other_answers(observations[name], verdict, campaigns))
        else verdict
        for name, verdict in verdicts.items()
    }


def _with_verdicts(
    case: MeasuredCase,
    observations: Mapping[Key, Observation],
    verdicts: Mapping[Key, Verdict],
    distances: Mapping[Key, float],
) -> Judgement:
    """`distances` are the values of metrics that are vectors of answers."""
    metrics = tuple(
        replace(
            _judged(metric, (case.case, metric.name), observations, verdicts),
            value=distances.get((case.case, metric.name), metric.value),
        )
        for metric in case.judgement.metrics
    )
    judgement = replace(case.judgement, metrics=metrics)
    if judgement.verdict.failing:
        return judgement
    return replace(judgement, verdict=overall(judgement))


def _judged(
    metric: Metric, name: Key, observations: Mapping[Key, Observation], verdicts: Mapping[Key, Verdict]
) -> Metric:
    if name not in verdicts:
        return metric
    return replace(metric, again=observations[name].processes[1:], verdict=verdicts[name])


def overall(judgement: Judgement) -> Verdict:
    """The worst of the performance metrics' verdicts with its reason, or that of a metric BESIDE that regressed; that
    of the absolute limits where none is compared, or where it is in doubt of them and no metric regressed. What
    improved, and what stands beside, is named after it."""
    compared = [(metric, metric.verdict) for metric in judgement.metrics if metric.verdict]
    if not compared:
        return judgement.verdict
    deciding = [
        (metric, verdict)
        for metric, verdict in compared
        if metric.name not in BESIDE or verdict.kind is VerdictKind.REGRESSED
    ] or compared
    kind = next(kind for kind in WORST_FIRST if any(verdict.kind is kind for _, verdict in deciding))
    worst = [(metric.name, verdict) for metric, verdict in deciding if verdict.kind is kind]
    others = [(metric, verdict) for metric, verdict in compared if verdict.kind is not kind]
    told = [_changed(metric, verdict) for metric, verdict in others if _is_told(metric, verdict)]
    reason = _reason(kind, worst, judgement.verdict.reason, is_of_all=not others)
    is_in_doubt = judgement.verdict.kind is VerdictKind.INCONCLUSIVE and kind is not VerdictKind.REGRESSED
    return replace(judgement.verdict if is_in_doubt else worst[0][1], reason="; ".join((reason, *told)))


def _reason(kind: VerdictKind, worst: Sequence[tuple[str, Verdict]], limits: str, *, is_of_all: bool) -> str:
    """Every regression is named, of anything else one metric; what was held against limits goes before."""
    if is_of_all and kind in (VerdictKind.NO_BASELINE, VerdictKind.INCOMPARABLE):
        return f"{limits}; {worst[0][1].reason}"
    num_named = NUM_NAMED if kind is VerdictKind.REGRESSED else 1
    named = [f"{name}: {verdict.reason}" for name, verdict in worst[:num_named]]
    more = [f"and {len(worst) - num_named} more"] if len(worst) > num_named else []
    text = "; ".join(named + more)
    return text if kind in FAILING else f"{limits}; {text}"


def _is_told(metric: Metric, verdict: Verdict) -> bool:
    """Whether a case says so of a metric that did not decide it."""
    return verdict.kind is VerdictKind.IMPROVED or (metric.name in BESIDE and verdict.kind is VerdictKind.INCONCLUSIVE)


def _changed(metric: Metric, verdict: Verdict) -> str:
    """Such as "tbt_s improved (-50 %)"; a difference in its own unit."""
    if verdict.ratio is None:
        return f"{metric.name} {verdict.kind.value}"
    is_difference = metric.gate == "difference"
    change = f"{verdict.ratio:+.3g}" if is_difference else f"{100 * (verdict.ratio - 1):+.3g} %"
    return f"{metric.name} {verdict.kind.value} ({change})"
