"""One phase of a decoder layer three ways: as the solver splits it, and on each unit alone."""

from __future__ import annotations

from pytest_npubench.extensions.pairs.suites.partition.kinds.decoder_layer import DecoderLayerDetail
from pytest_npubench.reports import number_text
from pytest_npubench.reports.build import bars, chart, plain, ratio, table
from pytest_npubench.reports.page import Chart
from pytest_npubench.reports.plot_parts import GREEN, axis, category_axis
from pytest_npubench.reports.reported import HETERO_INFER, note, reported
from pytest_npubench.verdict.case_record import CaseRecord

LAYER = "A whole decoder layer, attention and feed-forward, median over the rounds; its output is that of one unit."
DECIDED = "solver's splits"


def layer_chart(record: CaseRecord[DecoderLayerDetail]) -> Chart:
    detail, phase = record.detail, record.axis("phase")
    seconds = {DECIDED: detail.decided_s, "gpu alone": detail.gpu_s, "npu alone": detail.npu_s}
    arms_ms = {name: value * 1e3 for name, value in seconds.items()}
    tokens, context = number_text.count(detail.tokens), number_text.count(detail.context)
    what = f"{phase} of {tokens} tokens" if phase == "prefill" else f"{phase} of {tokens} token after {context}"
    sync = number_text.milliseconds(detail.sync_s)
    won = f"Best unit alone / {DECIDED}: {ratio(detail.speedup)}; {sync} ms of it is synchronisation."
    return chart(
        f"Decoder layer: {what}",
        f"Decoder layer, {what}: {', '.join(f'{name} {plain(value)} ms' for name, value in arms_ms.items())}.",
        (LAYER, won, _reported_layer(phase)),
        [
            bars(
                "ms",
                list(arms_ms),
                list(arms_ms.values()),
                "{y}: {x:.4g} ms",
                color=GREEN,
                opacity=0.5,
            )
        ],
        (axis("ms", from_zero=True), category_axis(list(arms_ms))),
        table(
            f"Decoder layer, {what}",
            (
                ("arm", lambda name: name),
                ("ms", lambda name: plain(arms_ms[name])),
                ("of it synchronisation ms", lambda name: sync if name == DECIDED else number_text.UNKNOWN),
            ),
            arms_ms,
        ),
        legend=False,
    )


def _reported_layer(phase: str) -> str:
    """The paper's ablation of a prefill; of decoding what splits gain over none."""
    if phase == "prefill":
        steps = ("activation-centric", "tensor order", "weight-centric", "fast synchronisation")
        gains = [f"{step} {reported('figure 18', 'speedup', paper=HETERO_INFER, step=step)}" for step in steps]
        said = f"320 tokens, each step over the one before: {', '.join(gains)} times"
        return note("figure 18", said, paper=HETERO_INFER)
    gain = reported("figure 15 speedup", "speedup", paper=HETERO_INFER, baseline="hetero-layer")
    said = f"decoding {gain} times as fast as Hetero-layer, which splits no operator"
    return note("figure 15 speedup", said, paper=HETERO_INFER)
