"""Tests of raggrad.torch. The folder is not named torch: Python would take it for a package of that name."""
