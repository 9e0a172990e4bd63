"""Every metric is judged but for these: a new one without a gate is named here with why, or the test fails."""

import re
from pathlib import Path

import pytest_npubench

WHY = {
    "buckets/kinds/band_coverage.py": ["covered_fraction"],  # the case's own limit counts the misses
    "planning/kinds/batch_search.py": ["kendall_tau"],  # of an order whose first place has a limit
    "buckets/kinds/prediction.py": ["name"],  # shares of padding, which the lengths drawn decide
    "offload/kinds/chunk_sharing.py": ["saved_fraction"],  # the plan's own
    "offload/kinds/out_of_order.py": ["contribution_over_fifo"],  # the order's own time is judged
    "offload/kinds/shadow_outlier.py": ["sync_fraction", "slow_sync_fraction"],  # the arm's own time is judged
    "partition/kinds/bandwidth.py": ["bandwidth_gain"],  # its three rates are judged
    "partition/kinds/overlap.py": ["{phase}_fast_speedup"],  # both chains are judged
    "partition/kinds/solver.py": ["{prefix}speedup"],  # the decided split's time and its regret are judged
    "scheduling/kinds/attainment.py": ["capacity_ratio"],  # both capacities are judged
    "scheduling/kinds/identical_tokens.py": ["{policy}_requests_with_other_tokens"],  # a limit in fp32, shown below
    "compiled/kinds/profile.py": ["compile_ratio"],  # one sample a session decides nothing
    "graphs/kinds/layers.py": ["{phase.value}_spill_bytes", "compile_cpu_s"],  # bytes are judged; threads share cores
    "graphs/kinds/making.py": ["compile_cpu_s"],  # as above
    "planning/kinds/simulated_coverage.py": ["{name}_covered_fraction"],  # the case's own limit counts the misses
}
FIGURE = re.compile(r'Metric\(\s*name=f?"?([^",]+)"?,[^#]*?gate="none"')


def test_metrics_without_a_gate_are_these():
    package = Path(pytest_npubench.__file__).parent
    found = {}
    for path in sorted(package.rglob("kinds/*.py")):
        calls = re.split(r"(?=\bMetric\()", path.read_text(encoding="utf-8"))
        if names := [match[1] for call in calls if (match := FIGURE.match(call))]:
            found["/".join(path.parts[-3:])] = names
    assert found == WHY
