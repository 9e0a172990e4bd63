"""The plugin's settings are tested on pytest configurations made in process."""

pytest_plugins = ["pytester"]
