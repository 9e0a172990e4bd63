"""False alarms and power of the gate and its rivals under known noise: `python -m pytest_npubench.verdict.simulation`.

noise: the models S1 to S4. rules: ours and those of other tools. nights: one simulated night after the other. The table
that it prints stands in docs/statistics.md.
"""
