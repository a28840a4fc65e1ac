CREATE TABLE stopped_first (
  replica_id TEXT PRIMARY KEY,
  node_id TEXT NOT NULL,
  model TEXT NOT NULL,
  revision TEXT NOT NULL,
  backend TEXT NOT NULL,
  digest TEXT NOT NULL,
  stopped_at BIGINT NOT NULL
);
