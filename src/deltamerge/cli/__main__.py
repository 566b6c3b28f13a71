"""``python -m deltamerge.cli``."""

from deltamerge.cli import main

main()
