"""`python -m train`, which is what `torchrun -m train` starts."""

from train.cli import main

main()
