"""The admin API: what people and their tools call, under `/api`."""
