"""What pairs of requests are worth to LENS online: one journal's rounds, predicted without them and with them.

    pytest suites/buckets -m cpu -k online --npubench-profile nightly --npubench-journal JOURNAL
    python benchmarks/online_pairs.py JOURNAL [PROFILE]

Errors of all requests together, in % (p99 in brackets): by the profile alone, with what a pause costs, and with what a
prompt costs that joins others as well. Then what the steps took longer, and the TTFT from idle by the pause before it.
"""

import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.served_block import ServedBlock
from pytest_npubench.core.hardware_reader import default_directory
from pytest_npubench.extensions.planning.joining_pairs import PairVisit, joining_s, waking_s
from pytest_npubench.extensions.planning.kinds.online import predicted
from pytest_npubench.extensions.planning.latency_errors import latency_errors
from pytest_npubench.extensions.planning.virtual.buckets import BucketCost
from pytest_npubench.store.journal import read_journal
from pytest_npubench.suites.buckets.plan import BucketPlan, chosen_plans
from pytest_npubench.suites.buckets.points import pair_name, served_name
from pytest_npubench.suites.buckets.profile_samples import lens_profile
from pytest_npubench.suites.hardware_files import load_all
from pytest_npubench.suites.protocol import Choice


def main(path: Path, profile: str) -> None:
    records = read_journal(path).records
    for plan in chosen_plans(load_all([default_directory()])["cpu"], Choice(profile=profile)):
        rows = [one["points"] for one in records if one["record"] == "round" and one["campaign"] == plan.key]
        if plan.is_online and rows:
            show(plan, [Measured(rounds=[{point: tuple(values) for point, values in row.items()}]) for row in rows])


def show(plan: BucketPlan, rounds: Sequence[Measured]) -> None:
    smallest = plan.buckets[0]
    blocks = [one.visits(served_name(plan.size.workloads[0]), ServedBlock)[0][0] for one in rounds]
    profiles = [lens_profile(plan, one, plan.buckets) for one in rounds]
    pairs = [
        (pair, profile.buckets[smallest])
        for one, profile in zip(rounds, profiles, strict=True)
        for pair in one.visits(pair_name(smallest), PairVisit)[0]
    ]
    waking, joining = waking_s(pairs), joining_s(pairs)
    print(f"{plan.key}: {len(rounds)} rounds, {len(pairs)} pairs")
    for what, extras in (
        ("the profile alone", {}),
        ("and what a pause costs", {"waking_s": waking}),
        ("and a prompt that joins others", {"waking_s": waking, "joining_s": joining}),
    ):
        found = latency_errors(
            [
                (block.records, (predicted(plan, BucketCost({plan.batch_size: profile}, **extras), block.records),))
                for block, profile in zip(blocks, profiles, strict=True)
            ]
        )
        errors = (f"{name.upper()} {one.mean_error:+.1%} ({one.p99_error:+.1%})" for name, one in found.items())
        print(f"  {what:<32}{', '.join(errors)}")
    for what, extra in (("a pause", waking), ("a prompt that joins others", joining)):
        print(f"  ms longer from {what} on: {', '.join(f'{1e3 * one:.2f}' for one in extra)}")
    by_pause: defaultdict[float, list[float]] = defaultdict(list)
    for pair, timing in pairs:
        by_pause[round(pair.first_s[0], 3)].append(pair.first_s[1] - pair.first_s[0] - timing.ttft_s)
    print(f"  TTFT_b {1e3 * fmean(one.ttft_s for _, one in pairs):.2f} ms, longer behind a pause of")
    for pause_s, longer_s in sorted(by_pause.items()):
        print(f"    {1e3 * pause_s:>6.0f} ms: {1e3 * fmean(longer_s):.2f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "nightly")
