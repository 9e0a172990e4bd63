"""The bucket suite on Qualcomm AI Hub, where graphs are profiled one by one and nothing runs end to end."""
