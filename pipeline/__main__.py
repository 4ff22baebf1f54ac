"""`python -m pipeline`: the same as `curate`."""

from pipeline.cli import main

main()
