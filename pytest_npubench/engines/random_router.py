"""What makes a random router as skewed as a trained one, for all engines that make random weights.

A router of nothing but random weights would choose experts evenly, which no trained one does (128 experts, 8 a token: a
batch of 8 then covers 40 % of them where 29 % were measured). So each layer gets a fixed bias an expert, b from
N(0, 1.4^2), beside logits that vary over tokens with a spread of 1.7 exp(-0.1 b / 1.4). Both figures are fitted to
Layered Prefill's Table 1, coverage of Qwen3-30B-A3B by decode batches of 1 to 256, with a root mean square error of
about 2 points. (Gumbel noise fits with a spread of 1.28, pi / sqrt 6; what a matrix makes of a hidden state is normal,
has thinner tails, and has to spread further.)
"""

from __future__ import annotations

ROUTER_BIAS_SPREAD = 1.4
ROUTER_SPREAD = 1.7
ROUTER_TAPER = 0.1
