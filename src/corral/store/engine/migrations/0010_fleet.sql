CREATE TABLE observed_nodes (
  node_id TEXT PRIMARY KEY,
  instance TEXT NOT NULL,
  epoch BIGINT NOT NULL,
  sequence BIGINT NOT NULL,
  fingerprint TEXT NOT NULL,
  processes TEXT NOT NULL,
  seen_at BIGINT NOT NULL,
  changed_at BIGINT NOT NULL
);

CREATE INDEX observed_nodes_changed_at ON observed_nodes (changed_at);

CREATE TABLE observed_backends (
  node_id TEXT NOT NULL,
  name TEXT NOT NULL,
  is_meta BOOLEAN NOT NULL,
  is_system BOOLEAN NOT NULL,
  concrete TEXT NOT NULL,
  alias TEXT NOT NULL,
  version TEXT NOT NULL,
  digest TEXT NOT NULL,
  uri TEXT NOT NULL,
  gallery_url TEXT NOT NULL,
  installed_at TEXT NOT NULL,
  generation BIGINT,
  versions TEXT NOT NULL,
  problem TEXT NOT NULL,
  seen_at BIGINT NOT NULL,
  PRIMARY KEY (node_id, name)
);

CREATE INDEX observed_backends_name ON observed_backends (name);

CREATE TABLE fleet_generation (
  id BIGINT PRIMARY KEY,
  generation BIGINT NOT NULL
);

CREATE TABLE operations (
  id TEXT PRIMARY KEY,
  verb TEXT NOT NULL,
  backend TEXT NOT NULL,
  reference TEXT NOT NULL,
  node_id TEXT,
  target TEXT NOT NULL,
  generation BIGINT NOT NULL,
  actor TEXT NOT NULL,
  cause TEXT NOT NULL,
  plan TEXT NOT NULL,
  idempotency_key TEXT,
  request_hash TEXT NOT NULL,
  state TEXT NOT NULL,
  cancel_requested BOOLEAN NOT NULL,
  error TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  changed_at BIGINT NOT NULL,
  finished_at BIGINT,
  dismissed_at BIGINT,
  cleared_at BIGINT
);

CREATE UNIQUE INDEX operations_idempotency_key ON operations (idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX operations_open ON operations (created_at) WHERE finished_at IS NULL;
CREATE INDEX operations_changed_at ON operations (changed_at);
CREATE INDEX operations_created_at ON operations (created_at);

CREATE TABLE operation_nodes (
  operation_id TEXT NOT NULL,
  node_id TEXT NOT NULL,
  node_name TEXT NOT NULL,
  status TEXT NOT NULL,
  error TEXT NOT NULL,
  transfer TEXT NOT NULL,
  sequence BIGINT NOT NULL,
  variant TEXT NOT NULL,
  digest TEXT NOT NULL,
  attempts BIGINT NOT NULL,
  next_attempt_at BIGINT,
  changed_at BIGINT NOT NULL,
  PRIMARY KEY (operation_id, node_id)
);

CREATE TABLE intents (
  id TEXT PRIMARY KEY,
  node_id TEXT NOT NULL,
  backend TEXT NOT NULL,
  verb TEXT NOT NULL,
  generation BIGINT NOT NULL,
  operation_id TEXT NOT NULL,
  wave BIGINT NOT NULL,
  spec TEXT NOT NULL,
  digest TEXT NOT NULL,
  state TEXT NOT NULL,
  live BOOLEAN NOT NULL,
  newest BOOLEAN NOT NULL,
  attempts BIGINT NOT NULL,
  due_at BIGINT NOT NULL,
  last_error TEXT NOT NULL,
  cancel_requested BOOLEAN NOT NULL,
  claim_token TEXT,
  fence BIGINT NOT NULL,
  lease_until BIGINT NOT NULL,
  created_at BIGINT NOT NULL,
  changed_at BIGINT NOT NULL,
  finished_at BIGINT
);

CREATE UNIQUE INDEX intents_one_live ON intents (node_id, backend) WHERE live;
CREATE INDEX intents_due ON intents (due_at) WHERE live;
CREATE INDEX intents_newest ON intents (node_id, backend) WHERE newest;
CREATE INDEX intents_operation ON intents (operation_id);
CREATE INDEX intents_claim ON intents (claim_token) WHERE claim_token IS NOT NULL;
CREATE INDEX intents_background ON intents (node_id) WHERE state = 'unconfirmed';

CREATE TABLE backend_policies (
  id TEXT PRIMARY KEY,
  backend TEXT NOT NULL,
  selector TEXT NOT NULL,
  ensure TEXT NOT NULL,
  spec TEXT NOT NULL,
  on_drift TEXT NOT NULL,
  generation BIGINT NOT NULL,
  operation_id TEXT NOT NULL,
  created_by TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  changed_at BIGINT NOT NULL,
  ended_at BIGINT,
  ended_because TEXT NOT NULL
);

CREATE UNIQUE INDEX backend_policies_live ON backend_policies (backend, selector) WHERE ended_at IS NULL;
