"""How a merge runs, and why."""
