"""The graphs of each bucket on Snapdragon devices."""
