"""Databases: transactions, migrations, leases and change counters, for SQLite and PostgreSQL alike."""
