"""Train a drafter for a target on the target's own responses."""
