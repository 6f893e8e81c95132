"""Tests of raggrad.Ragged and of variants."""
