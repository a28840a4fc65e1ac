ALTER TABLE api_keys ADD COLUMN models TEXT;

CREATE TABLE usage (
  day BIGINT NOT NULL,
  key_id TEXT NOT NULL,
  model TEXT NOT NULL,
  node_id TEXT NOT NULL,
  requests BIGINT NOT NULL,
  tokens_in BIGINT NOT NULL,
  tokens_out BIGINT NOT NULL,
  PRIMARY KEY (day, key_id, model, node_id)
);

CREATE TABLE usage_writers (
  id TEXT PRIMARY KEY,
  batch BIGINT NOT NULL,
  at BIGINT NOT NULL
);
