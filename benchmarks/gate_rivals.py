"""What other tools' rules say of the suites of benchmarks/gate.py: alarm nights, and +5 % and +10 % found at once.

    python benchmarks/gate_rivals.py

They hold tonight's raw samples of a case, 20 of one process, against those of its accepted nights together:

    U test          Mann-Whitney's, one-sided, p < 0.05 (benchstat, two-sided) or p < 0.05 / cases
    bootstrap       the 95 % interval of the ratio of medians lies beyond +1 % (Criterion.rs: of the mean)

Both take samples for independent. Samples of a night share what the night and the process did, so a few hundred of
them know no more than their nights do.
"""

import argparse

import numpy as np
from gate import NOISES, Noise, suite
from scipy.stats import mannwhitneyu

NUM_SAMPLES = 20
NUM_RESAMPLES = 400
MARGIN = 0.01
SIZES = (0.0, 0.05, 0.10)


def raw_samples(noise: Noise, num_cases: int, num_nights: int, rng: np.random.Generator) -> np.ndarray:
    """Logarithms [case, night, sample] of the first process of each night."""
    entries = suite(noise, num_cases, num_nights, 0.0, rng)[..., :1]
    return entries + rng.normal(0, noise.within, (num_cases, num_nights, NUM_SAMPLES))


def u_test(accepted: np.ndarray, tonight: np.ndarray) -> np.ndarray:
    """p that tonight's samples are no larger, of accepted [case, sample] and tonight [case, sample]."""
    return mannwhitneyu(tonight, accepted, axis=1, alternative="greater", method="asymptotic").pvalue


def bootstrap(accepted: np.ndarray, tonight: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """[case] the lower end of the interval of the medians' difference."""

    def medians(samples: np.ndarray) -> np.ndarray:
        chosen = rng.integers(0, samples.shape[1], (NUM_RESAMPLES, samples.shape[1]))
        return np.median(samples[:, chosen], axis=2)

    return np.quantile(medians(tonight) - medians(accepted), 0.025, axis=1)


def night(accepted: np.ndarray, tonight: np.ndarray, rng: np.random.Generator) -> dict[str, list[np.ndarray]]:
    """By rule [case] whether it alarms, for each of SIZES."""
    shifts = [np.log1p(size) for size in SIZES]
    p = [u_test(accepted, tonight + shift) for shift in shifts]
    lowest = bootstrap(accepted, tonight, rng)
    return {
        "U test, 0.05": [chance < 0.05 for chance in p],
        "U test, 0.05 / cases": [chance < 0.05 / len(tonight) for chance in p],
        "bootstrap": [lowest + shift > np.log1p(MARGIN) for shift in shifts],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--accepted", type=int, default=20)
    parser.add_argument("--nights", type=int, default=20)
    options = parser.parse_args()
    print("| noise | rule | nights that alarm | a case alarms | +5 % found | +10 % found |")
    print("|-|-|-|-|-|-|")
    for name, noise in NOISES.items():
        rng = np.random.default_rng(0)
        nights = []
        for _ in range(options.nights):
            samples = raw_samples(noise, options.cases, options.accepted + 1, rng)
            nights.append(night(samples[:, :-1].reshape(options.cases, -1), samples[:, -1], rng))
        for rule in nights[0]:
            alarms = np.array([one[rule] for one in nights])
            found = " | ".join(f"{share:.1%}" for share in alarms.mean(axis=(0, 2)))
            print(f"| {name} | {rule} | {alarms[:, 0].any(axis=1).mean():.0%} | {found} |", flush=True)


if __name__ == "__main__":
    main()
