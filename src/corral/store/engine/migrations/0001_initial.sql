-- The initial schema: nodes, backends, serving, access, and what frontends share.
--
-- Both databases run this text. Times are milliseconds since 1970 by the store's clock (`now_ms()`); columns named
-- `..._at` or `..._until` hold such times. Structured values are JSON in TEXT columns. Rows refer to each other by id
-- without foreign keys: history outlives what it is about.

-- ---------------------------------------------------------------------------------------------------------------------
-- Frontends

-- One row per lease, for example the leader lease of a reconciler. `fence` grows whenever the holder changes.
CREATE TABLE leases (
  name TEXT PRIMARY KEY,
  holder TEXT NOT NULL,
  fence BIGINT NOT NULL,
  expires_at BIGINT NOT NULL
);

-- Change counters: a reader compares them to learn whether its copy is outdated.
CREATE TABLE change_counters (
  name TEXT PRIMARY KEY,
  value BIGINT NOT NULL
);

INSERT INTO change_counters (name, value) VALUES ('models', 0), ('routes', 0);

CREATE TABLE frontends (
  id TEXT PRIMARY KEY,
  url TEXT NOT NULL,
  version TEXT NOT NULL,
  started_at BIGINT NOT NULL,
  last_seen BIGINT NOT NULL
);

-- ---------------------------------------------------------------------------------------------------------------------
-- Access

-- Of every secret only the hash is stored. `models`: a JSON list of the models the key may use; NULL means all.
-- `limits`: a JSON object of the limits that differ from the defaults. `expires_at`: NULL means never.
CREATE TABLE api_keys (
  id TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  scope TEXT NOT NULL,
  key_hash TEXT NOT NULL UNIQUE,
  hint TEXT NOT NULL,
  models TEXT,
  limits TEXT NOT NULL DEFAULT '{}',
  expires_at BIGINT,
  created_at BIGINT NOT NULL,
  created_by TEXT NOT NULL,
  revoked_at BIGINT
);

-- The limits of all keys that have none of their own: one row, or none.
CREATE TABLE key_defaults (
  id BIGINT PRIMARY KEY,
  limits TEXT NOT NULL
);

-- Browser sessions of the web UI.
CREATE TABLE sessions (
  token_hash TEXT PRIMARY KEY,
  key_id TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL
);

-- `approves`: a node that registers with this token needs no approval by an administrator.
CREATE TABLE join_tokens (
  token_hash TEXT PRIMARY KEY,
  approves BOOLEAN NOT NULL,
  created_at BIGINT NOT NULL,
  revoked_at BIGINT
);

-- The audit log, append-only.
CREATE TABLE audit_events (
  id {serial_key},
  at BIGINT NOT NULL,
  actor TEXT NOT NULL,
  action TEXT NOT NULL,
  subject TEXT NOT NULL,
  detail TEXT NOT NULL
);

CREATE INDEX audit_events_at ON audit_events (at);

-- Requests and tokens by day (days since 1970), API key, model and node.
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

-- How each version of a backend served each model on each node, by minute (minutes since 1970).
CREATE TABLE version_figures (
  digest TEXT NOT NULL,
  minute BIGINT NOT NULL,
  model TEXT NOT NULL,
  node_id TEXT NOT NULL,
  requests BIGINT NOT NULL,
  errors BIGINT NOT NULL,
  tokens_out BIGINT NOT NULL,
  answer_ms BIGINT NOT NULL,
  PRIMARY KEY (digest, minute, model, node_id)
);

CREATE INDEX version_figures_minute ON version_figures (minute);

-- The same for the time to the first token: streams by bucket (core/backends/serving_figures.py).
CREATE TABLE version_first_tokens (
  digest TEXT NOT NULL,
  minute BIGINT NOT NULL,
  model TEXT NOT NULL,
  node_id TEXT NOT NULL,
  bucket BIGINT NOT NULL,
  streams BIGINT NOT NULL,
  PRIMARY KEY (digest, minute, model, node_id, bucket)
);

CREATE INDEX version_first_tokens_minute ON version_first_tokens (minute);

-- Processes that ended although nobody stopped them. `revision`: of the model; empty if no replica is known.
CREATE TABLE version_exits (
  digest TEXT NOT NULL,
  minute BIGINT NOT NULL,
  model TEXT NOT NULL,
  revision TEXT NOT NULL,
  node_id TEXT NOT NULL,
  exits BIGINT NOT NULL,
  PRIMARY KEY (digest, minute, model, revision, node_id)
);

CREATE INDEX version_exits_minute ON version_exits (minute);

-- The last batch each writer of a frontend wrote into `usage` or `version_figures`, so that a repeated batch is not
-- counted twice.
CREATE TABLE batch_writers (
  id TEXT PRIMARY KEY,
  batch BIGINT NOT NULL,
  at BIGINT NOT NULL
);

-- ---------------------------------------------------------------------------------------------------------------------
-- Nodes

-- `key_hash` is NULL for a LocalAI worker, which has no secret of its own. `instance` and `epoch` identify the worker
-- process: the epoch grows with every new instance. `..._reported` values come from the worker, `..._override` values
-- from an administrator. A removed node keeps its row.
CREATE TABLE nodes (
  id TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  node_type TEXT NOT NULL,
  key_hash TEXT,
  instance TEXT,
  epoch BIGINT NOT NULL,
  address TEXT NOT NULL,
  http_address TEXT NOT NULL,
  registered_from TEXT,
  claims TEXT NOT NULL DEFAULT '[]',
  conflict_message TEXT,
  conflict_at BIGINT,
  approved BOOLEAN NOT NULL,
  drain_requested BOOLEAN NOT NULL,
  worker_draining BOOLEAN NOT NULL,
  drain_since BIGINT,
  presence TEXT NOT NULL,
  presence_reason TEXT NOT NULL,
  presence_since BIGINT NOT NULL,
  last_heartbeat BIGINT,
  bus_answered BOOLEAN NOT NULL,
  bus_failures BIGINT NOT NULL,
  bus_no_responders BOOLEAN NOT NULL,
  refused_count BIGINT NOT NULL DEFAULT 0,
  refused_reason TEXT,
  refused_at BIGINT,
  conditions TEXT NOT NULL DEFAULT '[]',
  facts TEXT,
  capability TEXT,
  gpu_vendor TEXT,
  gpu_compute_capability TEXT,
  total_vram BIGINT,
  available_vram BIGINT,
  total_ram BIGINT,
  available_ram BIGINT,
  total_disk BIGINT,
  available_disk BIGINT,
  max_replicas_reported BIGINT NOT NULL,
  max_replicas_override BIGINT,
  vram_budget_reported TEXT,
  vram_budget_override TEXT,
  worker_labels TEXT NOT NULL,
  operator_labels TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  changed_at BIGINT NOT NULL,
  removed_at BIGINT
);

CREATE UNIQUE INDEX nodes_name ON nodes (name) WHERE removed_at IS NULL;
CREATE UNIQUE INDEX nodes_key_hash ON nodes (key_hash) WHERE key_hash IS NOT NULL;
CREATE INDEX nodes_changed_at ON nodes (changed_at);

-- Bus credentials issued to nodes. A credential issued up to `revoked_at` is void.
CREATE TABLE bus_credentials (
  public_key TEXT PRIMARY KEY,
  node_id TEXT NOT NULL,
  issued_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL,
  revoked_at BIGINT
);

CREATE INDEX bus_credentials_node ON bus_credentials (node_id);

-- The last report of each node: its process table, and a fingerprint that tells whether anything changed.
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

-- ---------------------------------------------------------------------------------------------------------------------
-- Backends

-- The backends of each node's last report.
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

-- One row: the last generation given to an operation. Whoever creates an operation locks it.
CREATE TABLE fleet_generation (
  id BIGINT PRIMARY KEY,
  generation BIGINT NOT NULL
);

-- Operations: changes requested by a person, a policy or a load, each for one or many nodes.
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

-- Status and progress of an operation on each of its nodes, as shown to people. `transfer`: the progress of a download.
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
  method TEXT NOT NULL DEFAULT '',
  changed_at BIGINT NOT NULL,
  PRIMARY KEY (operation_id, node_id)
);

-- Intents: one backend on one node. `live`: not finished. `newest`: no later intent for the same backend and node
-- exists. `stop_requested`: the intent is over, but its worker may still be running it. `final`: the worker reported a
-- failure that a retry cannot fix. `held`: its wave of a rollout has not begun. `version_failed`: the version did not
-- start on the node. `proof`: why the new version was accepted. `..._at_end`: the node's state when the intent failed.
CREATE TABLE intents (
  id TEXT PRIMARY KEY,
  node_id TEXT NOT NULL,
  backend TEXT NOT NULL,
  verb TEXT NOT NULL,
  generation BIGINT NOT NULL,
  operation_id TEXT NOT NULL,
  spec TEXT NOT NULL,
  digest TEXT NOT NULL,
  state TEXT NOT NULL,
  live BOOLEAN NOT NULL,
  newest BOOLEAN NOT NULL,
  attempts BIGINT NOT NULL,
  due_at BIGINT NOT NULL,
  last_error TEXT NOT NULL,
  final BOOLEAN NOT NULL DEFAULT false,
  held BOOLEAN NOT NULL DEFAULT false,
  version_failed BOOLEAN NOT NULL DEFAULT false,
  proof TEXT NOT NULL DEFAULT '',
  cancel_requested BOOLEAN NOT NULL,
  stop_requested BOOLEAN NOT NULL DEFAULT false,
  claim_token TEXT,
  fence BIGINT NOT NULL,
  lease_until BIGINT NOT NULL,
  epoch_at_end BIGINT,
  free_disk_at_end BIGINT,
  conditions_at_end TEXT,
  created_at BIGINT NOT NULL,
  changed_at BIGINT NOT NULL,
  finished_at BIGINT
);

CREATE UNIQUE INDEX intents_one_live ON intents (node_id, backend) WHERE live;
CREATE INDEX intents_due ON intents (due_at) WHERE live;
CREATE INDEX intents_newest ON intents (node_id, backend) WHERE newest;
CREATE INDEX intents_history ON intents (node_id, backend, generation);
CREATE INDEX intents_operation ON intents (operation_id);
CREATE INDEX intents_claim ON intents (claim_token) WHERE claim_token IS NOT NULL;
CREATE INDEX intents_unconfirmed ON intents (node_id) WHERE state = 'unconfirmed';
CREATE INDEX intents_stops ON intents (node_id) WHERE stop_requested;
CREATE INDEX intents_changed_at ON intents (changed_at);

-- Policies: the desired state of a backend on every node that the selector matches.
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
  ended_because TEXT NOT NULL,
  rollout TEXT NOT NULL DEFAULT ''
);

CREATE UNIQUE INDEX backend_policies_live ON backend_policies (backend, selector) WHERE ended_at IS NULL;

-- Version pins: the version of a backend that is desired on all nodes, on those that the selector matches, or on the
-- named ones. `follows`: these nodes follow the galleries in spite of an older, wider pin. `specs`: the digest and source
-- of the version for each build. `ended_by`: the operation that replaced it.
CREATE TABLE version_pins (
  id TEXT PRIMARY KEY,
  backend TEXT NOT NULL,
  selector TEXT NOT NULL,
  nodes TEXT NOT NULL,
  follows BOOLEAN NOT NULL,
  version TEXT NOT NULL,
  specs TEXT NOT NULL,
  reason TEXT NOT NULL,
  generation BIGINT NOT NULL,
  operation_id TEXT NOT NULL,
  created_by TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  changed_at BIGINT NOT NULL,
  ended_by TEXT
);

CREATE INDEX version_pins_operation ON version_pins (operation_id);
CREATE INDEX version_pins_in_force ON version_pins (backend) WHERE ended_by IS NULL;

-- Rollouts: operations that change the version of a backend in waves. `outcome`: how one that is rolling back will end.
-- `builds`: for each build the version before and after. `allowed_by`: who allowed a version again that had failed.
CREATE TABLE rollouts (
  operation_id TEXT PRIMARY KEY,
  backend TEXT NOT NULL,
  strategy TEXT NOT NULL,
  gated BOOLEAN NOT NULL,
  state TEXT NOT NULL,
  outcome TEXT,
  wave BIGINT NOT NULL,
  wave_count BIGINT NOT NULL,
  options TEXT NOT NULL,
  builds TEXT NOT NULL,
  reason TEXT NOT NULL,
  promoted BOOLEAN NOT NULL DEFAULT false,
  rollback_operation_id TEXT,
  allowed_by TEXT NOT NULL DEFAULT '',
  created_at BIGINT NOT NULL,
  changed_at BIGINT NOT NULL,
  ended_at BIGINT
);

CREATE INDEX rollouts_open ON rollouts (created_at) WHERE ended_at IS NULL;
CREATE INDEX rollouts_failed ON rollouts (created_at) WHERE state = 'failed' AND allowed_by = '';
CREATE INDEX rollouts_created_at ON rollouts (created_at);
CREATE INDEX rollouts_changed_at ON rollouts (changed_at);

-- Nodes of a rollout. `inherited`: an earlier rollout, which this one replaced, had reached the node.
CREATE TABLE rollout_nodes (
  operation_id TEXT NOT NULL,
  node_id TEXT NOT NULL,
  node_name TEXT NOT NULL,
  wave BIGINT NOT NULL,
  node_class TEXT NOT NULL,
  build TEXT NOT NULL,
  previous_version TEXT NOT NULL,
  previous_digest TEXT NOT NULL,
  serves BOOLEAN NOT NULL,
  method TEXT NOT NULL,
  inherited BOOLEAN NOT NULL DEFAULT false,
  PRIMARY KEY (operation_id, node_id)
);

-- Waves that have begun. `verdicts`: of the gates, as judged last.
CREATE TABLE rollout_waves (
  operation_id TEXT NOT NULL,
  wave BIGINT NOT NULL,
  began_at BIGINT NOT NULL,
  soak_began_at BIGINT,
  ended_at BIGINT,
  verdicts TEXT NOT NULL DEFAULT '[]',
  PRIMARY KEY (operation_id, wave)
);

-- What happened in a rollout, in order.
CREATE TABLE rollout_events (
  id {serial_key},
  operation_id TEXT NOT NULL,
  at BIGINT NOT NULL,
  wave BIGINT NOT NULL,
  actor TEXT NOT NULL,
  kind TEXT NOT NULL,
  text TEXT NOT NULL
);

CREATE INDEX rollout_events_operation ON rollout_events (operation_id, id);

-- The build each backend reference last resolved to, by node capability: used while a registry or gallery is down.
CREATE TABLE resolved_builds (
  reference TEXT NOT NULL,
  capability TEXT NOT NULL,
  build TEXT NOT NULL,
  resolved_at BIGINT NOT NULL,
  PRIMARY KEY (reference, capability)
);

-- Who fetches a blob for its site, and how far it is. Rows are worthless after some minutes.
CREATE TABLE site_downloads (
  site TEXT NOT NULL,
  digest TEXT NOT NULL,
  node_id TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('leading', 'done', 'failed')),
  bytes_done BIGINT NOT NULL,
  bytes_at_start BIGINT NOT NULL,
  granted_at BIGINT NOT NULL,
  renewed_at BIGINT NOT NULL,
  progressed_at BIGINT NOT NULL,
  displaced TEXT NOT NULL DEFAULT '',
  tried_at BIGINT,
  PRIMARY KEY (site, digest)
);
CREATE INDEX site_downloads_renewed ON site_downloads (renewed_at);
CREATE INDEX site_downloads_node ON site_downloads (node_id);

-- ---------------------------------------------------------------------------------------------------------------------
-- Serving: models

-- Model configurations in force. `config` is the YAML as written, `document` its canonical JSON. A deleted model keeps
-- its row under a revision of its own.
CREATE TABLE models (
  name TEXT PRIMARY KEY,
  revision TEXT NOT NULL,
  number BIGINT NOT NULL,
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

-- The history of each model. `revision` is a hash of the content, so two numbers may share one. `served_at`: when a
-- replica with it was first ready. A deletion has an empty `config`.
CREATE TABLE model_revisions (
  model TEXT NOT NULL,
  number BIGINT NOT NULL,
  revision TEXT NOT NULL,
  config TEXT NOT NULL,
  state TEXT NOT NULL,
  reason TEXT NOT NULL,
  comment TEXT NOT NULL,
  at BIGINT NOT NULL,
  actor TEXT NOT NULL,
  served_at BIGINT,
  PRIMARY KEY (model, number)
);

-- Edits that take effect when the first replica of the new revision is ready.
CREATE TABLE pending_revisions (
  model TEXT PRIMARY KEY,
  replaces TEXT NOT NULL,
  revision TEXT NOT NULL,
  number BIGINT NOT NULL,
  config TEXT NOT NULL,
  document TEXT NOT NULL,
  at BIGINT NOT NULL,
  actor TEXT NOT NULL,
  reason TEXT NOT NULL,
  failures BIGINT NOT NULL,
  held BIGINT NOT NULL
);

-- Names for clients that lead to several models. `tiers`: a JSON list of lists of models with weights; the first is
-- preferred, each next one is a fallback.
CREATE TABLE public_routes (
  name TEXT PRIMARY KEY,
  tiers TEXT NOT NULL,
  sticky BOOLEAN NOT NULL,
  created_at BIGINT NOT NULL,
  changed_at BIGINT NOT NULL,
  changed_by TEXT NOT NULL
);

-- How many replicas of a model to run, where, and how to route to them.
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
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL
);

-- When a model was last scaled, and since when no node has capacity for it.
CREATE TABLE scaling_states (
  model TEXT PRIMARY KEY,
  acted_at BIGINT,
  unsatisfiable_until BIGINT,
  unsatisfiable_ticks BIGINT NOT NULL,
  unsatisfiable_reason TEXT NOT NULL
);

-- ---------------------------------------------------------------------------------------------------------------------
-- Serving: replicas

-- A row reserves the replica's slot and memory on its node, from placement until the process has ended.
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
  endpoints TEXT NOT NULL,
  continuation TEXT NOT NULL,
  token TEXT NOT NULL,
  process_key TEXT NOT NULL,
  pid BIGINT,
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

-- Servers that already run: they serve a model as replicas do, but nobody starts or stops them. `api_key` is stored in
-- clear, as the tokens of replicas are: every frontend has to send it.
CREATE TABLE attached_endpoints (
  id TEXT PRIMARY KEY,
  model TEXT NOT NULL,
  url TEXT NOT NULL,
  upstream_model TEXT NOT NULL,
  protocol TEXT NOT NULL,
  endpoints TEXT NOT NULL,
  continuation TEXT NOT NULL,
  api_key TEXT NOT NULL,
  ca_pem TEXT NOT NULL,
  pin TEXT NOT NULL,
  capacity BIGINT NOT NULL,
  weight BIGINT NOT NULL,
  state TEXT NOT NULL,
  health TEXT NOT NULL,
  reason TEXT NOT NULL,
  generation BIGINT NOT NULL,
  last_used BIGINT NOT NULL,
  created_at BIGINT NOT NULL,
  created_by TEXT NOT NULL,
  changed_at BIGINT NOT NULL
);

CREATE INDEX attached_endpoints_model ON attached_endpoints (model);

-- Processes whose replica row was deleted before their node confirmed that they ended.
CREATE TABLE revoked_processes (
  node_id TEXT NOT NULL,
  process_key TEXT NOT NULL,
  generation BIGINT NOT NULL,
  at BIGINT NOT NULL,
  PRIMARY KEY (node_id, process_key)
);

-- Replicas that a rollout stopped before their successors served, because both did not fit into memory.
CREATE TABLE stop_first_replicas (
  replica_id TEXT PRIMARY KEY,
  node_id TEXT NOT NULL,
  model TEXT NOT NULL,
  revision TEXT NOT NULL,
  backend TEXT NOT NULL,
  digest TEXT NOT NULL,
  stopped_at BIGINT NOT NULL
);

-- ---------------------------------------------------------------------------------------------------------------------
-- Serving: loads

-- Load jobs, each for one replica. `replaces`: the replica whose place it takes.
CREATE TABLE load_jobs (
  id TEXT PRIMARY KEY,
  model TEXT NOT NULL,
  ordinal BIGINT NOT NULL,
  revision TEXT NOT NULL,
  state TEXT NOT NULL,
  cause TEXT NOT NULL,
  target_node TEXT,
  replaces TEXT,
  stop_first_node TEXT,
  stop_first_backend TEXT,
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

-- Loads that failed on a node: it is not tried again for this revision before `until_at`.
CREATE TABLE load_backoff (
  model TEXT NOT NULL,
  revision TEXT NOT NULL,
  node_id TEXT NOT NULL,
  digest TEXT NOT NULL DEFAULT '',
  failures BIGINT NOT NULL,
  error TEXT NOT NULL,
  failed_at BIGINT NOT NULL,
  until_at BIGINT NOT NULL,
  PRIMARY KEY (model, revision, node_id)
);

-- Why replicas were placed where they are.
CREATE TABLE placement_decisions (
  id {serial_key},
  model TEXT NOT NULL,
  job TEXT NOT NULL,
  at BIGINT NOT NULL,
  cause TEXT NOT NULL,
  node_id TEXT,
  outcome TEXT NOT NULL,
  candidates TEXT NOT NULL
);

CREATE INDEX placement_decisions_model ON placement_decisions (model, id);

-- Measured memory and load time of a model revision by backend build, class of machines, and the memory that the engine
-- was fitted to (0 if it is not fitted). A row shows that the build has served the revision there.
CREATE TABLE footprints (
  model TEXT NOT NULL,
  revision TEXT NOT NULL,
  backend_digest TEXT NOT NULL,
  node_class TEXT NOT NULL,
  fitted_bytes BIGINT NOT NULL,
  device TEXT NOT NULL,
  peak_bytes BIGINT,
  slots BIGINT,
  load_ms BIGINT,
  measured_at BIGINT NOT NULL,
  PRIMARY KEY (model, revision, backend_digest, node_class, fitted_bytes)
);

-- ---------------------------------------------------------------------------------------------------------------------
-- Serving: weights

-- Model files that were copied to a node.
CREATE TABLE staged_models (
  node_id TEXT NOT NULL,
  model TEXT NOT NULL,
  revision TEXT NOT NULL,
  weights_bytes BIGINT,
  files TEXT NOT NULL,
  staged_at BIGINT NOT NULL,
  delete_requested BOOLEAN NOT NULL,
  delete_attempts BIGINT NOT NULL,
  delete_error TEXT NOT NULL,
  delete_due_at BIGINT NOT NULL,
  PRIMARY KEY (node_id, model)
);

-- Objects that Corral put into a shared bucket, and the models that need them. An empty model name: no model does.
CREATE TABLE bucket_weights (
  bucket TEXT NOT NULL,
  sha256 TEXT NOT NULL,
  model TEXT NOT NULL,
  file TEXT NOT NULL,
  recorded_at BIGINT NOT NULL,
  deleting_until BIGINT NOT NULL,
  delete_attempts BIGINT NOT NULL,
  delete_error TEXT NOT NULL,
  delete_due_at BIGINT NOT NULL,
  PRIMARY KEY (bucket, sha256, model, file)
);
