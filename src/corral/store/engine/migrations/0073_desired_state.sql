ALTER TABLE intents ADD COLUMN free_disk_at_end BIGINT;
CREATE TABLE version_holds (
  id TEXT PRIMARY KEY,
  backend TEXT NOT NULL,
  selector TEXT NOT NULL,
  variant TEXT NOT NULL,
  spec TEXT NOT NULL,
  generation BIGINT NOT NULL,
  operation_id TEXT NOT NULL,
  ended_by TEXT,
  created_at BIGINT NOT NULL
);
CREATE INDEX version_holds_operation ON version_holds (operation_id);
