"""The bucket suite on Qualcomm's compiler: every case rests on the graphs that it needs, and no phone runs."""
