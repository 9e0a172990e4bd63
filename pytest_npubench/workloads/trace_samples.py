"""The trace samples that are shipped, with their licence and attribution beside them in data/.

azure-conv-sample: 1,000 of the 19,366 rows of the Azure LLM inference trace 2023 (conversation), picked at random
with a seed and kept in order; data/azure_conv_sample.LICENSE.txt says how. CC-BY-4.0.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import resources

from pytest_npubench.workloads.loading import load
from pytest_npubench.workloads.trace import TraceWorkload


def trace_sample(name: str) -> TraceWorkload:
    """The shipped trace sample of that name."""
    assert name == "azure-conv-sample"  # the registry knows no other
    data = resources.files("pytest_npubench.workloads").joinpath("data/azure_conv_sample.csv")
    with resources.as_file(data) as path:
        return replace(
            load(path, file_format="azure"),
            name=name,
            kind="trace sample",
            source="Azure LLM inference trace 2023, conversation (Azure/AzurePublicDataset, CC-BY-4.0)",
            note="1,000 of 19,366 rows, picked at random and kept in order: arrivals come at 1/19 of the trace's rate",
        )
