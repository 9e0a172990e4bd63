"""Planning without a device: simulate, search and calibrate on a virtual clock, and what holds the clock to account."""
