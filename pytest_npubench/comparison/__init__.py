"""Results held against each other: a run against its baselines, one stack against another."""
