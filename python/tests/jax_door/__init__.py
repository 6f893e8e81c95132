"""Tests of raggrad.jax. The folder is not named jax: Python would take it for a package of that name."""
