CREATE TABLE versions (
  name TEXT PRIMARY KEY,
  value BIGINT NOT NULL
);

INSERT INTO versions (name, value) VALUES ('models', 0), ('routes', 0);

CREATE TABLE models (
  name TEXT PRIMARY KEY,
  revision TEXT NOT NULL,
  config TEXT NOT NULL,
  document TEXT NOT NULL,
  backend TEXT NOT NULL,
  aliases TEXT NOT NULL,
  alias_of TEXT,
  changed_at BIGINT NOT NULL,
  changed_by TEXT NOT NULL,
  deleted_at BIGINT
);

CREATE INDEX models_changed_at ON models (changed_at);

CREATE TABLE model_revisions (
  id {serial_key},
  model TEXT NOT NULL,
  revision TEXT NOT NULL,
  config TEXT NOT NULL,
  at BIGINT NOT NULL,
  actor TEXT NOT NULL
);

CREATE INDEX model_revisions_model ON model_revisions (model, id);
