"""Tests of the checkout's own files: pages, measurements, tools, recipes. An unpacked sdist has them, too."""
