CREATE TABLE replicas (
  id TEXT PRIMARY KEY,
  node_id TEXT NOT NULL,
  model TEXT NOT NULL,
  slot BIGINT NOT NULL,
  revision TEXT NOT NULL,
  state TEXT NOT NULL,
  reason TEXT NOT NULL,
  address TEXT NOT NULL,
  protocol TEXT NOT NULL,
  token TEXT NOT NULL,
  process_key TEXT NOT NULL,
  backend TEXT NOT NULL,
  backend_digest TEXT NOT NULL,
  epoch BIGINT NOT NULL,
  generation BIGINT NOT NULL,
  capacity BIGINT,
  memory_bytes BIGINT,
  disk_bytes BIGINT NOT NULL,
  load_options TEXT NOT NULL,
  last_used BIGINT NOT NULL,
  missed BIGINT NOT NULL,
  stop_attempts BIGINT NOT NULL,
  stop_error TEXT NOT NULL,
  stop_due_at BIGINT NOT NULL,
  created_at BIGINT NOT NULL,
  changed_at BIGINT NOT NULL,
  ready_at BIGINT,
  UNIQUE (node_id, model, slot)
);

CREATE INDEX replicas_model ON replicas (model);

CREATE TABLE load_jobs (
  id TEXT PRIMARY KEY,
  model TEXT NOT NULL,
  ordinal BIGINT NOT NULL,
  revision TEXT NOT NULL,
  state TEXT NOT NULL,
  cause TEXT NOT NULL,
  target_node TEXT,
  replaces TEXT,
  replica_id TEXT,
  node_id TEXT,
  node_name TEXT NOT NULL,
  slot BIGINT,
  owner TEXT NOT NULL,
  fence BIGINT NOT NULL,
  lease_until BIGINT NOT NULL,
  due_at BIGINT NOT NULL,
  attempts BIGINT NOT NULL,
  reason TEXT NOT NULL,
  last_error TEXT NOT NULL,
  bytes_sent BIGINT NOT NULL,
  total_bytes BIGINT NOT NULL,
  file_index BIGINT NOT NULL,
  total_files BIGINT NOT NULL,
  eta_ms BIGINT,
  created_at BIGINT NOT NULL,
  changed_at BIGINT NOT NULL,
  UNIQUE (model, ordinal)
);

CREATE INDEX load_jobs_due ON load_jobs (due_at);

CREATE TABLE scheduling (
  model TEXT PRIMARY KEY,
  id TEXT NOT NULL,
  selector TEXT NOT NULL,
  min_replicas BIGINT NOT NULL,
  max_replicas BIGINT NOT NULL,
  spread_all BOOLEAN NOT NULL,
  route_policy TEXT NOT NULL,
  balance_abs_threshold BIGINT NOT NULL,
  balance_rel_threshold DOUBLE PRECISION NOT NULL,
  min_prefix_match DOUBLE PRECISION NOT NULL,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL
);

CREATE TABLE scaling_states (
  model TEXT PRIMARY KEY,
  acted_at BIGINT,
  unsatisfiable_until BIGINT,
  unsatisfiable_ticks BIGINT NOT NULL,
  unsatisfiable_reason TEXT NOT NULL
);

CREATE TABLE model_load_infos (
  model TEXT PRIMARY KEY,
  backend TEXT NOT NULL,
  backend_digest TEXT NOT NULL,
  load_options TEXT NOT NULL,
  revision TEXT NOT NULL,
  loaded_at BIGINT NOT NULL
);

CREATE TABLE footprints (
  model TEXT NOT NULL,
  revision TEXT NOT NULL,
  backend_digest TEXT NOT NULL,
  device TEXT NOT NULL,
  peak_bytes BIGINT,
  load_ms BIGINT,
  measured_at BIGINT NOT NULL,
  PRIMARY KEY (model, revision, backend_digest, device)
);

CREATE TABLE staged_models (
  node_id TEXT NOT NULL,
  model TEXT NOT NULL,
  revision TEXT NOT NULL,
  weights_bytes BIGINT,
  staged_at BIGINT NOT NULL,
  delete_wanted BOOLEAN NOT NULL,
  delete_attempts BIGINT NOT NULL,
  delete_error TEXT NOT NULL,
  delete_due_at BIGINT NOT NULL,
  files TEXT NOT NULL,
  PRIMARY KEY (node_id, model)
);

CREATE TABLE decisions (
  id {serial_key},
  model TEXT NOT NULL,
  job TEXT NOT NULL,
  at BIGINT NOT NULL,
  cause TEXT NOT NULL,
  node_id TEXT,
  outcome TEXT NOT NULL,
  candidates TEXT NOT NULL
);

CREATE INDEX decisions_model ON decisions (model, id);
