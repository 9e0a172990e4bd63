"""What measuring in shuffled rounds is worth: one journal's rounds, used interleaved and used one side after the other.

    python benchmarks/interleaving.py [JOURNAL] [PROFILE]

Interleaved, profile and judged batches both take all rounds. One after the other, the profile takes the first half of
the rounds and the judged batches the second, and the other way round; the samples are the same.
"""

import sys
from dataclasses import replace
from pathlib import Path

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.hardware_reader import default_directory
from pytest_npubench.predictors.lens import PREDICTOR as LENS
from pytest_npubench.stats.error import case_error
from pytest_npubench.store.journal import read_journal
from pytest_npubench.suites.buckets.plan import BucketPlan
from pytest_npubench.suites.buckets.profile_samples import profile_samples
from pytest_npubench.suites.hardware_files import load_all


def main(path: Path, name: str) -> None:
    journal = read_journal(path)
    spec = load_all([default_directory()])["cpu"]
    size = spec.profile(name)
    apart, together = [], []
    for model in size.models:
        for batch_size in size.batch_sizes:
            plan = BucketPlan(spec=spec, size=size, model=model, batch_size=batch_size, case_error=1.0, mean_error=1.0)
            rows = [r for r in journal.records if r["record"] == "round" and r["campaign"] == plan.key]
            rounds = [{point: tuple(values) for point, values in row["points"].items()} for row in rows]
            measured, half = Measured(rounds=rounds), len(rounds) // 2
            first, second = replace(measured, rounds=rounds[:half]), replace(measured, rounds=rounds[half:])
            for workload in size.workloads:
                together.append(_error(plan, measured, measured, workload))
                apart += [_error(plan, first, second, workload), _error(plan, second, first, workload)]
            print(f"{plan.key}: {len(rounds)} rounds")
    print(f"interleaved: mean error {sum(together) / len(together):.2%} over {len(together)} workloads")
    print(f"one side after the other: {sum(apart) / len(apart):.2%}, x{sum(apart) / sum(together) / 2:.2f}")


def _error(plan: BucketPlan, profiled: Measured, judged: Measured, workload: str) -> float:
    batches = plan.draws(workload)
    lens = LENS.fit(profile_samples(plan, profiled, plan.touched(batches)))
    predicted_s = [lens.predict(batch.requests) for batch in batches]
    return case_error(predicted_s, [judged.samples(batch.name).mean_s for batch in batches]).gate_value


if __name__ == "__main__":
    journal_path = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(".npubench/journal.jsonl")
    main(journal_path, sys.argv[2] if len(sys.argv) > 2 else "quick")
