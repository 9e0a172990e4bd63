"""The weights that the host makes again are those that were written, by the arithmetic of transformers in float64."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from engines.written_shapes import DENSE, MOE

from pytest_npubench.engines.answer_reference import answer_reference
from pytest_npubench.engines.model_directory import write_model_directory
from pytest_npubench.engines.probe import fixed_tokens, probe_prompts
from pytest_npubench.engines.shapes import DecoderShape
from pytest_npubench.extensions.vllm.written_weights import WrittenWeights

ROUNDED = 5e-5  # transformers norms, turns and takes softmax in float32


@pytest.mark.parametrize("shape", [MOE, DENSE], ids=lambda shape: shape.name)
def test_the_reference_is_that_of_the_directory(shape: DecoderShape, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    folder = write_model_directory(tmp_path / "model", shape, dtype="bf16")
    config = transformers.AutoConfig.from_pretrained(folder)
    config._experts_implementation = "eager"  # the others have no float64
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, config=config, dtype=torch.float64)
    prompts = probe_prompts(shape.vocab_size, (16, 32)).with_one_token()
    reference = answer_reference(shape, "bf16", prompts, weights=WrittenWeights(shape, "bf16"))
    for index, (prompt, forced) in enumerate(prompts.asked()):
        assert len(set(forced)) == 1
        with torch.no_grad():
            logits = model(torch.tensor(np.concatenate([prompt, forced])[None].astype(np.int64))).logits[0].numpy()
        expected = logits[len(prompt) - 1 :][:, fixed_tokens(shape.vocab_size)]
        np.testing.assert_allclose(reference.logits[index], expected, rtol=0, atol=ROUNDED)
