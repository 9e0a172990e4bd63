"""The gate over nights on suites whose truth is known: false alarms, and nights until a change is red.

    python benchmarks/gate.py                          # every noise, unchanged suites: alarm nights
    python benchmarks/gate.py --planted                # +2, 3, 5, 10 %, +5 % that goes after 10 nights, creep
    python benchmarks/gate.py --oracle                 # what one could find who knows all laws, and median:5%
    python benchmarks/gate.py --noise mild --cases 30 --suites 10 --nights 60 --accepted 5

Each suite is measured night after night and judged by `judge_jointly`, suspects in two fresh processes; what it says is
fed back as a runner does: a night that is not red is accepted, nights of a change are pending, and of one that went
they are left out. Noise is night / case x night / process / within, in %:

    even     0.6 / 0.6 / 0.6 / 1, normal, all cases alike
    mild     0.5 / 0.7 / 0.4 / 1, cases differ (log-normal, 0.5), Student's t of 5 degrees, nights correlate by 0.7,
             2 % of the cases run at one of two speeds 6 % apart
    typical  1 / 1 / 0.6 / 2, otherwise as mild
    heavy    as typical, 3 degrees

The oracle knows level, scale and law of every case and what the night did: its CUSUM of likelihood ratios for the very
change, and the one night's p, are held to 1 alarm night in 60.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pytest_npubench.verdict import Verdict, VerdictKind, judge_jointly
from pytest_npubench.verdict.observations import Rule

NUM_PROCESSES = 3
WITHIN = 0.5  # the better quartile of 20 samples that correlate strays by half of what a sample does
SPEEDS_APART = 0.06
CHANGES = {"+2 %": 0.02, "+3 %": 0.03, "+5 %": 0.05, "+10 %": 0.10, "+5 % for 10 nights": 0.05, "creep 0.3 %": 0.003}
FOR_NIGHTS = 10
CLEAN_NIGHTS = 22
RED = (VerdictKind.REGRESSED,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Standard deviations of log latency; degrees is infinite for normal, spread that of log scales over cases."""

    night: float
    case: float
    process: float
    within: float
    degrees: float = np.inf
    spread: float = 0.0
    correlation: float = 0.0
    two_speeds: float = 0.0


MILD = {"degrees": 5.0, "spread": 0.5, "correlation": 0.7, "two_speeds": 0.02}
NOISES = {
    "even": Noise(night=0.006, case=0.006, process=0.006, within=0.01),
    "mild": Noise(night=0.005, case=0.007, process=0.004, within=0.01, **MILD),
    "typical": Noise(night=0.01, case=0.01, process=0.006, within=0.02, **MILD),
    "heavy": Noise(night=0.01, case=0.01, process=0.006, within=0.02, **{**MILD, "degrees": 3.0}),
}


def suite(noise: Noise, num_cases: int, num_nights: int, disturbed: float, rng: np.random.Generator) -> np.ndarray:
    """Entries [case, night, process] whose levels are 0."""

    def strays(*shape: int) -> np.ndarray:
        if np.isinf(noise.degrees):
            return rng.normal(size=shape)
        return rng.standard_t(noise.degrees, shape) / np.sqrt(noise.degrees / (noise.degrees - 2))

    shape = (num_cases, num_nights, NUM_PROCESSES)
    scale = np.exp(rng.normal(0, noise.spread, (num_cases, 1)))
    nights = rng.normal(0, noise.night, num_nights)
    for index in range(1, num_nights):
        nights[index] *= np.sqrt(1 - noise.correlation**2)
        nights[index] += noise.correlation * nights[index - 1]
    by_case = scale * noise.case * strays(num_cases, num_nights)
    by_process = scale[..., None] * noise.process * strays(*shape)
    within = WITHIN * noise.within * scale[..., None] * rng.normal(size=shape)
    slow_share = np.where(rng.random(num_cases) < noise.two_speeds, rng.uniform(0.1, 0.9, num_cases), 0.0)
    slow = SPEEDS_APART * (rng.random((num_cases, num_nights)) < slow_share[:, None])
    neighbours = (rng.random((num_cases, num_nights)) < disturbed) * rng.uniform(0.05, 0.2, (num_cases, num_nights))
    return (nights + by_case + slow + neighbours)[..., None] + by_process + within


class Runner:
    """One suite's accepted and pending nights, as a run keeps them."""

    def __init__(self, entries: np.ndarray, *, num_accepted: int) -> None:
        times = np.exp(entries)
        self._cases = [f"case-{row}" for row in range(len(entries))]
        self._times = dict(zip(self._cases, times.tolist(), strict=True))
        for nights in self._times.values():
            nights[:num_accepted] = [processes[:1] for processes in nights[:num_accepted]]
        self.accepted = {case: list(range(num_accepted)) for case in self._cases}
        self.pending: dict[str, list[int]] = {case: [] for case in self._cases}
        self.gone: dict[str, list[int]] = {case: [] for case in self._cases}
        self.since: dict[str, str] = {}

    def night(self, night: int, missing: frozenset[str] = frozenset()) -> dict[str, Verdict]:
        """The verdicts of a night, which it then keeps as they say."""
        measured = [case for case in self._cases if case not in missing]
        processes = {case: [[one] for one in self._times[case][night]] for case in measured}
        first = self._judge({case: found[:1] for case, found in processes.items()})
        again = {case: processes[case] if case in first.suspects else processes[case][:1] for case in measured}
        verdicts = dict(self._judge(again).verdicts) if first.suspects else dict(first.verdicts)
        for case, verdict in verdicts.items():
            self._times[case][night] = [one for (one,) in again[case]]
            self._keep(case, night, verdict)
        return verdicts

    def _judge(self, current: dict[str, list[list[float]]]):
        baseline, pending, gone = (
            {case: {str(night): self._session(case, night) for night in nights} for case, nights in part.items()}
            for part in (self.accepted, self.pending, self.gone)
        )
        return judge_jointly(baseline, current, rules=Rule(), pending=pending, since=self.since, gone=gone)

    def _session(self, case: str, night: int) -> list[list[float]]:
        return [[one] for one in self._times[case][night]]

    def _keep(self, case: str, night: int, verdict: Verdict) -> None:
        if verdict.kind in (VerdictKind.REGRESSED, VerdictKind.IMPROVED):
            since = night if verdict.since == "tonight" else int(verdict.since)
            self.since[case] = str(since)
            self.pending[case] = sorted({*self.pending[case], *(n for n in self.accepted[case] if n >= since), night})
            self.accepted[case] = [n for n in self.accepted[case] if n < since]
        else:
            if self.since.pop(case, None) is not None:
                self.gone[case] += self.pending[case]
                self.pending[case] = []
            self.accepted[case].append(night)
            if len(self.accepted[case]) > 32:
                del self.accepted[case][8]


@dataclass(slots=True, kw_only=True)
class Tally:
    """Of the unchanged cases of all suites: nights, those with a new alarm, with any red case, and new alarms by what
    they came from; of the changed ones their nights of delay, the share of later nights that is red, and the nights
    that a change stays red after it went."""

    num_nights: int = 0
    new_alarm_nights: int = 0
    red_nights: int = 0
    improved_nights: int = 0
    unchanged: int = 0
    verdicts: int = 0
    seconds: float = 0.0
    delays: dict[str, list[int]] = None
    red_share: dict[str, list[float]] = None
    until_gone: list[int] = None


def play(noise: Noise, options: argparse.Namespace, num_cases: int, num_accepted: int) -> Tally:
    tally = Tally(delays={name: [] for name in CHANGES}, red_share={name: [] for name in CHANGES}, until_gone=[])
    for number in range(options.suites):
        rng = np.random.default_rng([options.seed + number, num_cases, num_accepted])
        _play_suite(noise, options, num_cases, num_accepted, rng, tally)
    return tally


def _play_suite(noise, options, num_cases, num_accepted, rng, tally) -> None:
    num_nights = num_accepted + options.nights
    entries = suite(noise, num_cases, num_nights, options.disturbed, rng)
    begins = num_accepted + CLEAN_NIGHTS
    kinds = np.full(num_cases, "", dtype=object)
    if options.planted:
        order = rng.permutation(num_cases)
        for index, (name, size) in enumerate(CHANGES.items()):
            rows = order[index * options.each : (index + 1) * options.each]
            kinds[rows] = name
            entries[rows, begins:] += _course(name, size, num_nights - begins)[:, None]
    runner = Runner(entries, num_accepted=num_accepted)
    red = np.zeros((num_cases, num_nights), dtype=bool)
    better = np.zeros_like(red)
    for night in range(num_accepted, num_nights):
        missing = frozenset(f"case-{row}" for row in np.flatnonzero(rng.random(num_cases) < options.missing))
        started = time.process_time()
        verdicts = runner.night(night, missing)
        tally.seconds += time.process_time() - started
        for row in range(num_cases):
            verdict = verdicts.get(f"case-{row}")
            if verdict is None:
                red[row, night], better[row, night] = red[row, night - 1], better[row, night - 1]
                continue
            red[row, night] = verdict.kind is VerdictKind.REGRESSED
            better[row, night] = verdict.kind is VerdictKind.IMPROVED
            if not kinds[row]:
                tally.verdicts += 1
                tally.unchanged += verdict.kind is VerdictKind.UNCHANGED
    steady = kinds == ""
    new = red[steady, num_accepted:] & ~red[steady, num_accepted - 1 : -1]
    tally.num_nights += options.nights
    tally.new_alarm_nights += int(new.any(axis=0).sum())
    tally.red_nights += int(red[steady].any(axis=0).sum())
    better = better[steady, num_accepted:] & ~better[steady, num_accepted - 1 : -1]
    tally.improved_nights += int(better.any(axis=0).sum())
    for name in CHANGES:
        for row in np.flatnonzero(kinds == name):
            after = red[row, begins:]
            first = int(after.argmax()) if after.any() else 10**6
            tally.delays[name].append(first)
            if name.endswith("nights"):
                tally.until_gone.append(int(after[FOR_NIGHTS:].sum()))
            elif after.any():
                tally.red_share[name].append(float(after[first:].mean()))


def _course(name: str, size: float, num_nights: int) -> np.ndarray:
    night = np.arange(num_nights)
    if name.startswith("creep"):
        return np.log1p(size) * (night + 1)
    return np.log1p(size) * ((night < FOR_NIGHTS) if name.endswith("nights") else np.ones(num_nights))


def oracle(noise: Noise, num_cases: int, rng: np.random.Generator) -> Iterator[str]:
    """Lines of one who knows everything, and of pytest-benchmark's median:5% against the night before."""
    one = Noise(night=0.0, case=noise.case, process=noise.process, within=noise.within, degrees=noise.degrees)
    strays = suite(one, 4000, 500, 0.0, rng)
    means, level = strays.mean(axis=2), 1 / (60 * num_cases)
    scales = np.exp(rng.normal(0, noise.spread, (len(means), 1)))
    limit, edges = np.quantile(means, 1 - level), np.linspace(-0.25, 0.25, 2001)
    found, _ = np.histogram(np.clip(means, -0.2499, 0.2499), edges)
    smooth = np.convolve(found, np.hanning(61) / np.hanning(61).sum(), mode="same")
    log_density = np.log(smooth + 1e-3)
    for size in (0.02, 0.03, 0.05, 0.10):
        by = np.log1p(size)

        def ratio(entries, by=by):
            at = [np.clip(np.searchsorted(edges, one / scales[:, 0]) - 1, 0, 1999) for one in (entries - by, entries)]
            return log_density[at[0]] - log_density[at[1]]

        clean = _cusum(ratio, scales * means, 0, 0.0)
        highest = np.quantile(clean[:, 20:], 1 - level * np.mean(_run_lengths(clean)))
        delays = _delays(_cusum(ratio, scales * means[:, :60], 22, by)[:, 22:] > highest)
        first = np.mean(scales * means[:, :50] + by > scales * limit)
        within = " | ".join(f"{np.mean(delays < nights):.2f}" for nights in (3, 7, 14))
        yield f"oracle, {num_cases} cases, +{size:.0%} | {first:.2f} | {within} | {np.median(delays):.0f}"
    singles = scales * strays[:, :, 0]
    jumps = np.diff(singles, axis=1) > np.log(1.05)
    alarm = np.mean([jumps[rng.choice(len(jumps), num_cases), night].any() for night in range(400)])
    power = np.mean(np.diff(singles, axis=1) + np.log(1.05) > np.log(1.05))
    yield f"median:5% against the night before: {alarm:.0%} of nights alarm; +5 % found in {power:.2f}"


def _cusum(ratio, entries: np.ndarray, begins: int, by: float) -> np.ndarray:
    total, course = np.zeros(len(entries)), np.zeros_like(entries)
    for night in range(entries.shape[1]):
        total = np.maximum(total + ratio(entries[:, night] + by * (night >= begins)), 0.0)
        course[:, night] = total
    return course


def _run_lengths(course: np.ndarray) -> list[int]:
    """Nights that an excursion stays near its top, so that an alarm that lasts counts once."""
    high = course > np.quantile(course, 0.999)
    return [int(high.sum()) / max(int((high[:, 1:] & ~high[:, :-1]).sum()), 1)]


def _delays(red: np.ndarray) -> np.ndarray:
    return np.where(red.any(axis=1), red.argmax(axis=1), 10**6)


def main() -> None:
    options = _options()
    if options.oracle:
        for name in options.noise:
            for num_cases in options.cases:
                for line in oracle(NOISES[name], num_cases, np.random.default_rng(options.seed)):
                    print(f"| {name} | {line} |", flush=True)
        return
    if options.planted:
        print("| noise | change | the first night | within 3 | within 7 | within 14 | median delay | red later |")
        print("|-|-|-|-|-|-|-|-|")
    else:
        print(
            "| noise | cases | accepted | nights | alarm nights | improved | red nights | unchanged said | s a night |"
        )
        print("|-|-|-|-|-|-|-|-|-|")
    for name in options.noise:
        for num_cases in options.cases:
            for num_accepted in options.accepted:
                tally = play(NOISES[name], options, num_cases, num_accepted)
                for line in _lines(name, num_cases, num_accepted, tally, options):
                    print(line, flush=True)


def _lines(name, num_cases, num_accepted, tally, options) -> Iterator[str]:
    nights = tally.num_nights
    if not options.planted:
        yield (
            f"| {name} | {num_cases} | {num_accepted} | {nights} | {tally.new_alarm_nights} | {tally.improved_nights} "
            f"| {tally.red_nights} | {tally.unchanged / max(tally.verdicts, 1):.2f} | {tally.seconds / nights:.2f} |"
        )
        return
    for change, delays in tally.delays.items():
        waited = np.array(delays)
        if not len(waited):
            continue
        shares = " | ".join(f"{np.mean(waited < within):.2f}" for within in (1, 3, 7, 14))
        share = tally.red_share[change]
        later = (
            f"{np.mean(share):.2f}" if share else f"{np.mean(tally.until_gone):.1f} nights" if "for" in change else "-"
        )
        middle = np.median(waited)
        yield f"| {name} | {change} | {shares} | {f'{middle:.0f}' if middle < options.nights else 'never'} | {later} |"
    print(f"{name}: {tally.new_alarm_nights} alarm nights of unchanged cases in {nights}", file=sys.stderr)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--noise", nargs="+", choices=NOISES, default=list(NOISES))
    parser.add_argument("--cases", nargs="+", type=int, default=[30], help="in a suite (30)")
    parser.add_argument(
        "--accepted", nargs="+", type=int, default=[5], help="nights before the first that is judged (5)"
    )
    parser.add_argument("--suites", type=int, default=2, help="one after the other (2)")
    parser.add_argument("--nights", type=int, default=60, help="of each suite (60)")
    parser.add_argument("--planted", action="store_true", help="changes from the 23rd night on")
    parser.add_argument("--oracle", action="store_true", help="what could be found at best")
    parser.add_argument("--each", type=int, default=3, help="cases of a suite with each change (3)")
    parser.add_argument("--missing", type=float, default=0.0, help="share of case-nights that are not measured (0)")
    parser.add_argument("--disturbed", type=float, default=0.0, help="share of case-nights slowed by 5 to 20 %% (0)")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
