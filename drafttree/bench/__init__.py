"""Measuring: runs of the three methods, acceptance, identity, and the tables made of them."""
