"""Prints the table of docs/statistics.md: `python -m pytest_npubench.verdict.simulation [--nights 60] [--ours]`."""

from __future__ import annotations

import argparse
import sys

import numpy as np

from pytest_npubench.verdict.simulation.creeping import creep, frozen_baseline
from pytest_npubench.verdict.simulation.nights import EFFECTS, Score, run_nights
from pytest_npubench.verdict.simulation.noise import MODELS
from pytest_npubench.verdict.simulation.rules import OURS, RULES, gate, mann_whitney, median_5_percent

NUM_SUITES = 5  # of the two scenarios


def main() -> None:
    arguments = _parser().parse_args()
    columns_of = [noise.name for noise in MODELS]
    print("Each cell: false alarms per 100 cases / nights with one or more, % / power at 2, 5, 10 %")
    print(f"| rule | {' | '.join(columns_of)} |\n|{'-|' * (len(columns_of) + 1)}")
    options = {"num_nights": arguments.nights, "num_cases": arguments.cases, "num_accepted": arguments.accepted}
    rules, columns = OURS if arguments.ours else RULES, []
    for noise in MODELS:
        print(f"{noise.name} ...", file=sys.stderr)
        columns.append(run_nights(noise, rules, seed=arguments.seed, **options))
    for name in rules:
        print(f"| {name} | {' | '.join(_cell(column[name], arguments.cases) for column in columns)} |")
    if not arguments.ours:
        _print_scenarios(arguments)


def _print_scenarios(arguments: argparse.Namespace) -> None:
    options = {"num_cases": arguments.cases, "num_accepted": arguments.accepted}
    seeds = range(arguments.seed, arguments.seed + NUM_SUITES)
    print("\nNever renewed: cases that did not change and alarm on 7 or more of 14 nights, %")
    for label, rule in (("median:5%", median_5_percent), ("Mann-Whitney", mann_whitney), ("our gate", gate)):
        shares = [np.mean([frozen_baseline(noise, rule, seed=seed, **options) for seed in seeds]) for noise in MODELS]
        print(f"| {label} | {' | '.join(f'{100 * share:.1f}' for share in shares)} |")
    print("\nCreep of 0.5 % a night: creeping cases that alarm within 14 nights, %")
    found = [np.mean([creep(noise, seed=seed, **options) for seed in seeds], axis=0) for noise in MODELS]
    for row, label in enumerate(("our gate", "our gate without its anchor", "median:5% against the night before")):
        print(f"| {label} | {' | '.join(f'{100 * shares[row]:.0f}' for shares in found)} |")


def _cell(score: Score, num_cases: int) -> str:
    alarms = 100 * score.num_alarms / score.num_nights / num_cases
    nights = 100 * score.num_bad_nights / score.num_nights
    return f"{alarms:.3g} / {nights:.3g} / {' '.join(f'{score.power(effect):.2f}' for effect in EFFECTS)}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m pytest_npubench.verdict.simulation", description=__doc__)
    parser.add_argument("--nights", type=int, default=60, help="simulated nights a noise model (60)")
    parser.add_argument("--cases", type=int, default=300, help="cases of the suite (300)")
    parser.add_argument("--accepted", type=int, default=20, help="accepted nights (20)")
    parser.add_argument("--ours", action="store_true", help="our rules alone, without the two scenarios")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random numbers (0)")
    return parser


if __name__ == "__main__":
    main()
