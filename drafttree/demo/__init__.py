"""The demo: a real target from a package registry, decoded plain, as a chain and as a tree, side by side."""
