"""Rivals of LENS that add up what parts of a model take: operators, kernels, layers."""
