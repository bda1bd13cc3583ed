"""Values from a configuration: the only room of runs that reads options. Everything behind it receives values and functions."""
