"""The graphs of each bucket on Snapdragons: profiled on a phone of AI Hub, or compiled and emulated here."""
