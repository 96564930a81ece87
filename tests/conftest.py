"""Settings of the whole suite."""

from hypothesis import settings

# A loaded machine is no failure: no test here depends on the clock.
settings.register_profile("reweigh", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("reweigh")
