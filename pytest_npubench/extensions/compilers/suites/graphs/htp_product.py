"""What a case says of a product in INT8 with outliers on the emulated NPU (compilers/qnn/product.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_npubench.extensions.compilers.suites.graphs.htp_plan import HtpVisit
from pytest_npubench.verdict.result import Metric

BYTES_MARGIN = 0.001  # a page more or less, 0.01 %, was seen in one compile of many: it places on several threads
ERRORS = ("fp16_error", "max_min_error", "clip_error", "shadow_error")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductDetail:
    """Bytes of its context binaries; errors relative to float64, levels_off of the INT8 output."""

    fp16_bytes: float
    int8_bytes: float
    fp16_error: float
    max_min_error: float
    clip_error: float
    shadow_error: float
    levels_off: float

    @property
    def problems(self) -> list[str]:
        from pytest_npubench.extensions.compilers.qnn.product import LEVELS_OFF

        off = f"the emulated NPU's INT8 is off integer arithmetic by {self.levels_off:g} levels, more than {LEVELS_OFF}"
        lost = f"the shadow path is off by {self.shadow_error:.2g}, INT8 alone by {self.max_min_error:.2g}"
        return [
            *([off] if self.levels_off > LEVELS_OFF else []),
            *([lost] if not self.shadow_error < self.max_min_error else []),
        ]

    @property
    def words(self) -> str:
        return (
            f"with outliers INT8 is off by {self.max_min_error:.2g}, with the shadow path by {self.shadow_error:.2g}, "
            f"fp16 by {self.fp16_error:.2g}, in {self.int8_bytes / 1e6:.1f} MB for {self.fp16_bytes / 1e6:.1f}"
        )


def product_of(visits: Sequence[HtpVisit]) -> ProductDetail | None:
    """None where no product was asked for."""
    if not visits:
        return None
    (facts,) = visits
    figures = {name: getattr(facts, name) for name in (*ERRORS, "levels_off")}
    assert facts.fp16_context_bytes is not None  # the point is one of a product
    return ProductDetail(fp16_bytes=facts.fp16_context_bytes, int8_bytes=facts.context_bytes, **figures)


def product_metrics(product: ProductDetail) -> tuple[Metric, ...]:
    return (
        bytes_metric("int8_context_bytes", product.int8_bytes),
        *(Metric(name=f"product_{name}", unit="", value=getattr(product, name), gate="none") for name in ERRORS),
    )


def bytes_metric(name: str, num_bytes: float) -> Metric:
    """Bytes repeat to a page, so any change beyond BYTES_MARGIN is one."""
    return Metric(name=name, unit="B", value=num_bytes, gate="exact", margin=BYTES_MARGIN)
