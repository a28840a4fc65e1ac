CREATE TABLE revoked_processes (
  node_id TEXT NOT NULL,
  process_key TEXT NOT NULL,
  generation BIGINT NOT NULL,
  at BIGINT NOT NULL,
  PRIMARY KEY (node_id, process_key)
);
