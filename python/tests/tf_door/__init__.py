"""Tests of raggrad.tf."""
