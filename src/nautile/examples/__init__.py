"""Example programs in the expression language, at realistic sizes (package data)."""
