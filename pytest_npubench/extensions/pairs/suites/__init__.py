"""The suites on pairs of units: a folder each."""
