"""What Corral knows and was asked, in SQLite or PostgreSQL: hand-written SQL, one method = one transaction."""
