CREATE TABLE bucket_weights (
  bucket TEXT NOT NULL,
  sha256 TEXT NOT NULL,
  model TEXT NOT NULL,
  file TEXT NOT NULL,
  noted_at BIGINT NOT NULL,
  deleting_until BIGINT NOT NULL,
  delete_due_at BIGINT NOT NULL,
  delete_attempts BIGINT NOT NULL,
  delete_error TEXT NOT NULL,
  PRIMARY KEY (bucket, sha256, model, file)
);
