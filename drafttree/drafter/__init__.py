"""The DFlash drafter: configuration, network, context and loading."""
