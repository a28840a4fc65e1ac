ALTER TABLE nodes ADD COLUMN drain_since BIGINT;
UPDATE nodes SET drain_since = changed_at WHERE drain_requested OR worker_draining;
