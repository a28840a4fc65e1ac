"""Who may do what: access rules, brute-force guard, join tokens, bus credentials."""
