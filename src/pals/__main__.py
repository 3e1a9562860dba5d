"""`python -m pals` is the same as `pals`."""

from pals.cli import main

main()
