"""Plans from configurations. The other modules of `runs` receive ready values and functions, and read no options."""
