ALTER TABLE load_jobs ADD COLUMN stops_first_backend TEXT;
ALTER TABLE load_backoff ADD COLUMN digest TEXT NOT NULL DEFAULT '';
