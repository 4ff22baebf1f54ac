"""A small generated website with known faults: what the demo recipe curates, and the truth about it."""
