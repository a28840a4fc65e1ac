ALTER TABLE load_jobs ADD COLUMN stops_first_on TEXT;
