"""What JUnit is told of a case."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def properties(record: Mapping[str, Any]) -> list[tuple[str, object]]:
    """Of a case record: key, device, verdict and reason, change and its interval, prediction error and
    metrics."""
    verdict = record["verdict"]
    properties: list[tuple[str, object]] = [
        ("npubench.key", record["case"]),
        ("npubench.device", record["device"]),
        ("npubench.verdict", verdict["kind"]),
        ("npubench.reason", verdict["reason"]),
    ]
    if record.get("campaign"):
        properties.append(("npubench.campaign", record["campaign"]))
    if record.get("is_disturbed"):
        properties.append(("npubench.disturbed", "true"))
    if verdict["ratio"] is not None:
        properties.append(("npubench.ratio", verdict["ratio"]))
    if verdict["interval"] is not None:
        low, high = verdict["interval"]
        properties += [("npubench.ratio_low", low), ("npubench.ratio_high", high)]
    for name in ("measured_s", "predicted_s", "error"):
        if record[name] is not None:
            properties.append((f"npubench.{name}", record[name]))
    properties.extend((f"npubench.{name}", metric["value"]) for name, metric in record["metrics"].items())
    return properties
