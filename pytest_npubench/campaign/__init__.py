"""The unit of measurement: all selected cases that share device, engine, model and batch size, measured in rounds."""
