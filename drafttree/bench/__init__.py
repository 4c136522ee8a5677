"""Measuring: runs of the three methods, acceptance, and the tables made of them."""
