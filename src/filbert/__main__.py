"""`python -m filbert` is the command `filbert`."""

from filbert.cli.main import main

main()
