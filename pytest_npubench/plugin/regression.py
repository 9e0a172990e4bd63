"""Held against the baselines: every metric of a campaign's cases, jointly, with suspects measured again first.

All that a run judges, campaign after campaign and test after test, shares one budget of false alarms. A suspect is
measured in fresh processes before anybody is alarmed. Where they could not measure it the gate cannot look, and the
regression stands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property

from pytest_npubench.comparison.change_origin import day_of, origin
from pytest_npubench.comparison.earlier_nights import EarlierNights
from pytest_npubench.comparison.observation import (
    CHANGED,
    Findings,
    History,
    Key,
    Observation,
    accepted_history,
    is_canary,
    judge_observations,
)
from pytest_npubench.comparison.other_answers import answer_distances, campaigns_with_other_answers, other_answers
from pytest_npubench.errors import NpubenchError
from pytest_npubench.store.accepted_session import Sessions
from pytest_npubench.store.baselines import Baselines
from pytest_npubench.store.fingerprint import Fingerprint, FingerprintKey
from pytest_npubench.verdict import FAILING, Verdict, VerdictKind
from pytest_npubench.verdict.answers import together
from pytest_npubench.verdict.result import OF_ANSWERS, STATISTICAL, Judgement, Metric
from pytest_npubench.verdict.wording import FACTOR, TONIGHT
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
WITH_OTHERS = frozenset({"move_s", "peak_memory_bytes", "device_peak_bytes"})
"""What a case has only where others ran too, or where none before it had needed as much."""
MISSING_MATTERS = frozenset({VerdictKind.PASSED, VerdictKind.UNCHANGED, VerdictKind.IMPROVED})
NUM_NAMED = 3
NUM_NEWEST = 3  # accepted sessions that say which metrics a case has
BESIDE = frozenset({"compile_s"})
"""What is no performance of a model that runs: it fails a case where it regressed, and decides nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What a comparison found: each case's judgement, with a verdict for each of its metrics, and in words what is said
    of several at once or of a change that is gone."""

    judgements: Mapping[str, Judgement]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCase:
    """A case with its judgement against absolute limits."""

    case: str
    digest: str
    judgement: Judgement


@dataclass(frozen=True, kw_only=True)
class Regression:
    """What to compare with and how. `num_again` fresh processes measure a suspect once more."""

    baselines: Baselines
    margin: float
    across: tuple[str, ...]
    num_again: int
    earlier: EarlierNights = field(default_factory=EarlierNights)
    """The nights before this run."""
    session: str = ""
    """This run's, by which its verdicts name it."""
    collected: tuple[tuple[str, str], ...] = ()
    """Case and digest of all that the run is to judge, whatever is judged at once: they share the false alarms."""
    _lent: dict[FingerprintKey, Mapping[Observation, History]] = field(default_factory=dict)

    def judge(
        self, cases: Iterable[MeasuredCase], key: FingerprintKey, again: Again, *, stack: Fingerprint | None = None
    ) -> Compared:
        """Hold the cases against their accepted sessions, jointly. `stack` is all of what the key is a part of.

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
            for found in [
                Observation.of_metric(
                    case.case,
                    case.digest,
                    metric,
                    is_disturbed=case.judgement.is_partly_disturbed,
                    detail=case.judgement.detail,
                )
            ]
        }
        histories = {name: self._history(found, key) for name, found in observations.items()}
        findings = self._findings(observations, histories, key)
        suspects = tuple(case for case in findings.suspects if not is_canary(case))
        trouble: Exception | None = None
        if suspects and self.num_again:
            try:
                observations = _repeated(observations, suspects, self.num_again, again)
                findings = self._findings(observations, histories, key)
            except NpubenchError as error:
                trouble = error
        gone = [name for name, verdict in findings.verdicts.items() if verdict.since and verdict.kind not in CHANGED]
        verdicts = {
            name: self._since_when(verdict, observations[name], histories[name], stack)
            for name, verdict in findings.verdicts.items()
        }
        if suspects and self.num_again:
            verdicts = _not_looked_at(verdicts, observations, trouble)
        verdicts = _of_the_machine(verdicts, observations)
        notes = [f"metrics in {group}: {suite.kind.value}: {suite.reason}" for group, suite in findings.suites.items()]
        notes += [f"{' '.join(name)}: {verdicts[name].reason}" for name in gone]
        verdicts = _with_other_answers(observations, verdicts)
        apart = {
            name: answer_distances(found, list(histories[name].sessions.values()))
            for name, found in observations.items()
        }
        judgements = {
            case.case: self._with_work(case, _with_verdicts(case, observations, verdicts, apart), key) for case in cases
        }
        return Compared(judgements=judgements, notes=tuple(notes))

    def _with_work(self, case: MeasuredCase, judgement: Judgement, key: FingerprintKey) -> Judgement:
        """What the case did otherwise than accepted, and what it does not measure, stands beside its verdict."""
        judgement = with_missing(judgement, self.baselines.histories(case.case, key, digest=case.digest))
        if not judgement.work:
            return judgement
        accepted = self.baselines.work(case.case, key, digest=case.digest, across=self.across)
        reason = "; ".join([judgement.verdict.reason, *differences(judgement.work, accepted)])
        return replace(judgement, verdict=replace(judgement.verdict, reason=reason))

    def _history(self, observation: Observation, key: FingerprintKey) -> History:
        about = (observation.case, observation.digest, observation.metric)
        nights = self.earlier.of(*about, self.baselines.aliases)
        return accepted_history(self.baselines, observation, key, self.across, nights)

    def _findings(
        self, observations: Mapping[Key, Observation], histories: Mapping[Key, History], key: FingerprintKey
    ) -> Findings:
        lent = {one: history for one, history in self._all_accepted(key).items() if one.key not in observations}
        return judge_observations(
            observations.values(),
            {one.key: history for one, history in lent.items()} | dict(histories),
            margin=self.margin,
            lent=lent,
            num_judged=self.num_judged or None,
        )

    @property
    def num_judged(self) -> int:
        """The number of metrics that the run is to judge, that scatter, and of which anything was accepted."""
        return len(self._metrics)

    def _all_accepted(self, key: FingerprintKey) -> Mapping[Observation, History]:
        """What was accepted under a key for all that the run is to judge, worked out once."""
        if key not in self._lent:
            judged = {metric: self._history(metric, key) for metric in self._metrics}
            self._lent[key] = {metric: history.before_change for metric, history in judged.items() if history.sessions}
        return self._lent[key]

    @cached_property
    def _metrics(self) -> tuple[Observation, ...]:
        return tuple(
            Observation(case=case, digest=digest, metric=metric, processes=(), **asdict(quantity))
            for case, digest in self.collected
            for metric, quantity in self.baselines.quantities(case, digest=digest).items()
            if quantity.gate in STATISTICAL
        )

    def _since_when(
        self, verdict: Verdict, observation: Observation, history: History, stack: Fingerprint | None
    ) -> Verdict:
        """The verdict with the session of its change by name, and what that night ran on otherwise than the one before;
        without a session where that change is gone."""
        if observation.gate not in STATISTICAL or (verdict.since is None and verdict.kind not in CHANGED):
            return verdict
        since = self.session if verdict.since in (None, TONIGHT) else verdict.since
        reason = verdict.reason.replace(since, day_of(since)) if since else verdict.reason
        if verdict.kind not in CHANGED:
            return replace(verdict, since=None, reason=reason)
        names = [*history.sessions, *history.pending, self.session]
        first = names.index(since) if since in names else 0
        stacks = [stack if name == self.session else self._stack_of(name, history) for name in names[first - 1 :][:2]]
        if first and stacks[0] is not None and stacks[1] is not None:
            reason = f"{reason}; {origin(stacks[0], stacks[1])}"
        return replace(verdict, since=since, reason=reason)

    def _stack_of(self, session: str, history: History) -> Fingerprint | None:
        return history.stacks.get(session) or self.baselines.stack_of(session)


def _repeated(
    observations: Mapping[Key, Observation], suspects: Sequence[str], num_again: int, again: Again
) -> dict[Key, Observation]:
    """The observations; to those of suspects the samples of fresh processes are added."""
    repeated = dict(observations)
    for index in range(num_again):
        samples = again(suspects, index)
        for name, observation in repeated.items():
            if observation.case in suspects and name in samples and observation.gate not in OF_ANSWERS:
                repeated[name] = replace(observation, processes=(*observation.processes, samples[name]))
    return repeated


def _not_looked_at(
    verdicts: Mapping[Key, Verdict], observations: Mapping[Key, Observation], trouble: Exception | None
) -> dict[Key, Verdict]:
    """A regression that no fresh process could measure stands, and says why."""
    checked = dict(verdicts)
    for name, verdict in verdicts.items():
        observation = observations[name]
        is_alone = trouble is not None or len(observation.processes) == 1
        if verdict.kind is VerdictKind.REGRESSED and observation.gate in STATISTICAL and is_alone:
            why = f"could not be measured again: {trouble or 'no fresh process could measure it'}"
            checked[name] = replace(verdict, reason=f"{verdict.reason}; {why}")
    return checked


def _of_the_machine(verdicts: Mapping[Key, Verdict], observations: Mapping[Key, Observation]) -> dict[Key, Verdict]:
    """Makes a regression inconclusive where a canary is worse at the same time by half as much or more: it is the
    machine's. The canary's own regression alarms nobody and is inconclusive as well."""
    worse = {
        name: change
        for name, verdict in verdicts.items()
        if is_canary(name[0]) and (change := _surely_worse(verdict, observations[name])) > 0
    }
    canary = max(worse, key=lambda name: worse[name], default=None)
    judged = dict(verdicts)
    for name, verdict in verdicts.items():
        if verdict.kind is not VerdictKind.REGRESSED or observations[name].gate not in STATISTICAL:
            continue
        if is_canary(name[0]):
            reason = f"{verdict.reason}; a canary: where other cases are slower too, the device is"
        elif canary is not None and 2 * worse[canary] >= _worse_by(verdict.ratio or 1.0, observations[name]):
            reason = f"the machine changed: the canary {canary[0]} is {worse[canary]:.1%} worse too; {verdict.reason}"
        else:
            continue
        judged[name] = replace(verdict, kind=VerdictKind.INCONCLUSIVE, reason=reason)
    return judged


def _surely_worse(verdict: Verdict, observation: Observation) -> float:
    """Returns by how much a metric is worse, where it is regressed or its whole interval is worse; else 0."""
    if verdict.ratio is None or verdict.interval is None:
        return 0.0
    is_sure = all(_worse_by(end, observation) > 0 for end in verdict.interval)
    return _worse_by(verdict.ratio, observation) if is_sure or verdict.kind is VerdictKind.REGRESSED else 0.0


def _worse_by(ratio: float, observation: Observation) -> float:
    if observation.gate == "difference":
        return ratio if observation.better == "lower" else -ratio
    return ratio - 1 if observation.better == "lower" else 1 / ratio - 1 if ratio > 0 else math.inf


def _with_other_answers(observations: Mapping[Key, Observation], verdicts: Mapping[Key, Verdict]) -> dict[Key, Verdict]:
    """Puts the change of a model's answers in front of the verdicts on its times."""
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
    apart: Mapping[Key, Sequence[float]],
) -> Judgement:
    """`apart` says of metrics that are vectors of answers how far each position is from the accepted one."""
    metrics = tuple(
        _judged(metric, (case.case, metric.name), observations, verdicts, apart) for metric in case.judgement.metrics
    )
    judgement = replace(case.judgement, metrics=metrics)
    if judgement.verdict.failing:
        return judgement
    return replace(judgement, verdict=overall(judgement))


def _judged(
    metric: Metric,
    name: Key,
    observations: Mapping[Key, Observation],
    verdicts: Mapping[Key, Verdict],
    apart: Mapping[Key, Sequence[float]],
) -> Metric:
    if name not in verdicts:
        return metric
    value = together(apart[name]) if apart[name] else metric.value
    return replace(metric, value=value, again=observations[name].processes[1:], verdict=verdicts[name])


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
    changes = [_changed(metric, verdict) for metric, verdict in others if _is_told(metric, verdict)]
    reason = _reason(kind, worst, judgement.verdict.reason, is_of_all=not others)
    is_in_doubt = judgement.verdict.kind is VerdictKind.INCONCLUSIVE and kind is not VerdictKind.REGRESSED
    return replace(judgement.verdict if is_in_doubt else worst[0][1], reason="; ".join((reason, *changes)))


def _reason(kind: VerdictKind, worst: Sequence[tuple[str, Verdict]], limits: str, *, is_of_all: bool) -> str:
    """Names every regression, or one metric where none regressed; limits come first."""
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
    """A change in words, such as "tbt_s improved (-50 %)"; a difference has its own unit."""
    if verdict.ratio is None:
        return f"{metric.name} {verdict.kind.value}"
    is_difference = metric.gate == "difference"
    change = f"{100 * (verdict.ratio - 1):+.3g} %" if verdict.ratio <= FACTOR else f"x{verdict.ratio:.3g}"
    if is_difference:
        change = f"{verdict.ratio:+.3g}"
    return f"{metric.name} {verdict.kind.value} ({change})"


def with_missing(judgement: Judgement, accepted: Sequence[Sessions]) -> Judgement:
    """Puts a case in doubt where a metric of the newest accepted sessions is missing: its cause may hide more."""
    newest = [session for sessions in accepted for session in sessions[-NUM_NEWEST:]]
    names = dict.fromkeys(name for session in newest for name in session.metrics)
    missing = [name for name in names if name not in {*WITH_OTHERS, *(metric.name for metric in judgement.metrics)}]
    verdict = judgement.verdict
    if not missing or verdict.kind is VerdictKind.INVALID:
        return judgement
    reason = "; ".join([verdict.reason, *(f"{name}, which is accepted, is missing here" for name in missing)])
    kind = VerdictKind.INCONCLUSIVE if verdict.kind in MISSING_MATTERS else verdict.kind
    return replace(judgement, verdict=replace(verdict, kind=kind, reason=reason))
