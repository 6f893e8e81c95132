"""Tests of raggrad.dist that need a GPU."""
