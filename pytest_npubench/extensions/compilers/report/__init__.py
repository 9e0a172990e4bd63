"""What compiled cases show in a bucket campaign's place."""
