"""Conversion of a configuration to a plan with data, folds and functions that create models.

The other modules of `runs` use the plan and do not read the options of the configuration.
"""
