CREATE TABLE load_backoff (
  model TEXT NOT NULL,
  revision TEXT NOT NULL,
  node_id TEXT NOT NULL,
  failures BIGINT NOT NULL,
  error TEXT NOT NULL,
  failed_at BIGINT NOT NULL,
  until_at BIGINT NOT NULL,
  PRIMARY KEY (model, revision, node_id)
);
