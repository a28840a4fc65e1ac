CREATE TABLE kept_builds (
  reference TEXT NOT NULL,
  capability TEXT NOT NULL,
  build TEXT NOT NULL,
  resolved_at BIGINT NOT NULL,
  PRIMARY KEY (reference, capability)
);
