"""What a campaign compiles for a Snapdragon: a layer's prefill and decode graph of each bucket, and the head, once.

All layers of a decoder are one graph but for weights, so one stands for all. With each bucket goes a small decoder that
also runs on the emulated NPU; with the largest the whole decode graph, where this machine has the memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from pytest_npubench.campaign.visits import Visit
from pytest_npubench.core.measurement import Phase
from pytest_npubench.extensions.compilers.qnn.facts import GraphFacts, GraphRequest, Part
from pytest_npubench.extensions.compilers.suites.programs import ProgramPlan, ProgramPoint


@dataclass(frozen=True, slots=True, kw_only=True)
class HtpPoint(ProgramPoint):
    """One graph. A head has the smallest bucket's name, and is equal in all."""

    part: Part = Part.LAYER

    @property
    def name(self) -> str:
        return f"binary/{self.part.value}/{self.phase.value}/{self.bucket}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HtpVisit(GraphFacts, Visit):
    """What the compiler said of a point's graph."""

    @classmethod
    def of(cls, facts: GraphFacts) -> HtpVisit:
        return cls(**{field.name: getattr(facts, field.name) for field in fields(facts)})


@dataclass(frozen=True, slots=True, kw_only=True)
class HtpPlan(ProgramPlan):
    """The graphs that Qualcomm's compiler makes for its NPU (HTP), of which this machine emulates some."""

    suite = "graphs"
    kinds = ("layers", "making", "batches")
    engine: str = "compiled"

    def graph(self, point: HtpPoint) -> GraphRequest:
        """Raises RegistryError on an unknown model."""
        from pytest_npubench.engines.shapes import dense_shape

        return GraphRequest(
            shape=dense_shape(self.model),
            dtype=self.spec.dtype,
            batch_size=self.batch_size,
            phase=point.phase,
            bucket=point.bucket,
            part=point.part,
        )

    def layers(self, buckets: Sequence[int]) -> tuple[HtpPoint, ...]:
        """Returns a layer's graphs of these buckets."""
        return tuple(HtpPoint(phase=phase, bucket=bucket) for bucket in buckets for phase in Phase)

    def chunks(self, bucket: int) -> tuple[HtpPoint, ...]:
        """Returns a layer of a prompt of this bucket in chunks: a graph for every chunk; what is shared, and each
        chunk's attention. Nothing of a prompt that is one chunk, or no whole number of them."""
        from pytest_npubench.extensions.compilers.qnn.chunks import CHUNK_TOKENS, chunk_ends

        if bucket <= CHUNK_TOKENS or bucket % CHUNK_TOKENS:
            return ()
        parts = (Part.CHUNK, Part.ATTENTION)
        of_chunks = (
            HtpPoint(phase=Phase.PREFILL, bucket=end, part=part) for part in parts for end in chunk_ends(bucket)
        )
        return (HtpPoint(phase=Phase.PREFILL, bucket=CHUNK_TOKENS, part=Part.SHARED), *of_chunks)

    def products(self, bucket: int) -> tuple[HtpPoint, ...]:
        """Returns a product in INT8 with outliers, of a chunk's tokens: with one bucket alone."""
        from pytest_npubench.extensions.compilers.qnn.chunks import CHUNK_TOKENS

        with_product = next((larger for larger in self.buckets if larger >= CHUNK_TOKENS), self.buckets[-1])
        if bucket != with_product:
            return ()
        return (HtpPoint(phase=Phase.PREFILL, bucket=CHUNK_TOKENS, part=Part.PRODUCT),)

    @property
    def head(self) -> HtpPoint:
        return HtpPoint(phase=Phase.DECODE, bucket=self.buckets[0], part=Part.HEAD)

    @property
    def whole(self) -> HtpPoint:
        return HtpPoint(phase=Phase.DECODE, bucket=self.buckets[-1], part=Part.WHOLE)

    def answers(self, bucket: int) -> HtpPoint:
        return HtpPoint(phase=Phase.DECODE, bucket=bucket, part=Part.ANSWERS)
