"""Engines that other people serve models with, as engines of the bucket suite: MaxText and NxD Inference."""
