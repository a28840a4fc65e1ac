CREATE TABLE nodes (
  id TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  node_type TEXT NOT NULL,
  approved BOOLEAN NOT NULL,
  drain_requested BOOLEAN NOT NULL,
  worker_draining BOOLEAN NOT NULL,
  presence TEXT NOT NULL,
  presence_reason TEXT NOT NULL,
  presence_since BIGINT NOT NULL,
  address TEXT NOT NULL,
  http_address TEXT NOT NULL,
  key_hash TEXT,
  instance TEXT,
  epoch BIGINT NOT NULL,
  total_vram BIGINT,
  available_vram BIGINT,
  total_ram BIGINT,
  available_ram BIGINT,
  total_disk BIGINT,
  available_disk BIGINT,
  gpu_vendor TEXT,
  gpu_compute_capability TEXT,
  capability TEXT,
  max_replicas_reported BIGINT NOT NULL,
  max_replicas_override BIGINT,
  vram_budget_reported TEXT,
  vram_budget_override TEXT,
  worker_labels TEXT NOT NULL,
  operator_labels TEXT NOT NULL,
  facts TEXT,
  conflict_message TEXT,
  conflict_at BIGINT,
  last_heartbeat BIGINT,
  bus_answered BOOLEAN NOT NULL,
  bus_failures BIGINT NOT NULL,
  bus_no_responders BOOLEAN NOT NULL,
  created_at BIGINT NOT NULL,
  changed_at BIGINT NOT NULL,
  removed_at BIGINT
);

CREATE UNIQUE INDEX nodes_name ON nodes (name) WHERE removed_at IS NULL;
CREATE UNIQUE INDEX nodes_key_hash ON nodes (key_hash) WHERE key_hash IS NOT NULL;
CREATE INDEX nodes_changed_at ON nodes (changed_at);

CREATE TABLE api_keys (
  id TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  scope TEXT NOT NULL,
  key_hash TEXT NOT NULL UNIQUE,
  hint TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  created_by TEXT NOT NULL,
  revoked_at BIGINT
);

CREATE TABLE join_tokens (
  token_hash TEXT PRIMARY KEY,
  approves BOOLEAN NOT NULL,
  created_at BIGINT NOT NULL,
  revoked_at BIGINT
);

CREATE TABLE leases (
  name TEXT PRIMARY KEY,
  holder TEXT NOT NULL,
  fence BIGINT NOT NULL,
  expires_at BIGINT NOT NULL
);

CREATE TABLE frontends (
  id TEXT PRIMARY KEY,
  url TEXT NOT NULL,
  version TEXT NOT NULL,
  started_at BIGINT NOT NULL,
  last_seen BIGINT NOT NULL
);

CREATE TABLE sessions (
  token_hash TEXT PRIMARY KEY,
  key_id TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL
);

CREATE TABLE bus_credentials (
  public_key TEXT PRIMARY KEY,
  node_id TEXT NOT NULL,
  issued_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL,
  revoked_at BIGINT
);

CREATE INDEX bus_credentials_node ON bus_credentials (node_id);

CREATE TABLE events (
  id {serial_key},
  at BIGINT NOT NULL,
  actor TEXT NOT NULL,
  action TEXT NOT NULL,
  subject TEXT NOT NULL,
  detail TEXT NOT NULL
);

CREATE INDEX events_at ON events (at);
