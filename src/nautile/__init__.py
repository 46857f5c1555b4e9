"""Nautile: an equality-saturation superoptimizer for tensor programs."""

__version__ = "0.1.0"
