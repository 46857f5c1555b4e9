"""Tile programs -> CUDA for Hopper (sm_90a)."""
