"""The partition suite as campaigns: splits of operators, synchronisation and bandwidth of one pair of units."""
