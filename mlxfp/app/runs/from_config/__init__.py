"""Plans from configurations. Other packages of `runs` receive values and functions instead of options."""
