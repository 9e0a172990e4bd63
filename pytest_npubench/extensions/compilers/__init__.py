"""Devices that are not here: what the vendors' own compilers make of the bucket suite for TPUs, GPUs and NPUs."""
