"""How much of the work comes out, and how much of it in time.

    goodput       requests that attain their SLO / seconds of the run
    throughput    output tokens / seconds of the run              the run: from its start until its last work
    decode batch  mean decode rows of the iterations that have any           (Layered Prefill, Fig. 3, dotted)

Worked number: 30 requests of 231 output tokens in 20 s, 27 of them attain: goodput 1.35 requests/s, 346.5 tokens/s.
"""

from __future__ import annotations

from pytest_npubench.serving.metrics.columns import RequestColumns
from pytest_npubench.serving.metrics.metric import ServingMetric
from pytest_npubench.serving.metrics.served import ServedRun, column
from pytest_npubench.serving.metrics.slo import Slo, meets


def throughput_metrics(run: ServedRun, columns: RequestColumns, slo: Slo | None) -> tuple[ServingMetric, ...]:
    """Goodput, output tokens a second and mean decode batch."""
    seconds = run.ended_s - run.started_s
    num_output = int(columns.num_tokens.sum())
    return (
        _goodput(columns, slo, seconds),
        ServingMetric(
            name="output_tokens_per_s",
            unit="tokens/s",
            value=num_output / seconds if seconds > 0 else None,
            definition="output tokens / seconds of the run",
            better="higher",
            num_samples=num_output,
            note=_no_time(seconds),
        ),
        _decode_batch(run),
    )


def _goodput(columns: RequestColumns, slo: Slo | None, seconds: float) -> ServingMetric:
    value = None
    if slo is not None and seconds > 0:
        value = int(meets(columns, slo)[0].sum()) / seconds
    return ServingMetric(
        name="goodput_requests_per_s",
        unit="requests/s",
        value=value,
        definition="requests that attain their SLO / seconds of the run",
        better="higher",
        num_samples=columns.num_requests,
        note="no SLO was given" if slo is None else _no_time(seconds),
    )


def _decode_batch(run: ServedRun) -> ServingMetric:
    sizes = column("num_decode", run.log.num_decode)
    decoding = sizes[sizes > 0]
    return ServingMetric(
        name="mean_decode_batch_size",
        unit="requests",
        value=float(decoding.mean()) if decoding.size else None,
        definition="mean decode rows of the iterations that have any",
        kind="none",  # a faster policy decodes fewer at once at the same rate: neither way is better
        num_samples=int(decoding.size),
        note="" if decoding.size else "no iteration decodes",
    )


def _no_time(seconds: float) -> str:
    return "" if seconds > 0 else f"the run took {seconds} s"
