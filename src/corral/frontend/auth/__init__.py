"""Access rules, brute-force guard, join tokens and bus credentials."""
