"""A whole decoder layer under the solver's plan (HeteroInfer, Figs. 13 and 16)."""

import pytest

pytestmark = pytest.mark.partition


@pytest.mark.npubench_cases("decoder_layer")
def test_decoder_layer(npubench_case):
    """Prefill and decode, attention and feed-forward, against the best single unit."""
    npubench_case.run()
