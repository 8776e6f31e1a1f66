"""Large figures: bounded runs that stop by themselves and add up; see `tests.tools.large.__main__`."""
