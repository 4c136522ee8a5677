"""The embedded engine: generation with a Transformers model in this process."""
