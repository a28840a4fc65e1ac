CREATE TABLE model_pending (
  model TEXT PRIMARY KEY,
  replaces TEXT NOT NULL,
  revision TEXT NOT NULL,
  config TEXT NOT NULL,
  document TEXT NOT NULL,
  at BIGINT NOT NULL,
  actor TEXT NOT NULL,
  reason TEXT NOT NULL,
  failures BIGINT NOT NULL,
  held BIGINT NOT NULL
);
