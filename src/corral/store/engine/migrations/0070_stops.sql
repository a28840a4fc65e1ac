ALTER TABLE intents ADD COLUMN stop_requested BOOLEAN NOT NULL DEFAULT false;

CREATE INDEX intents_stops ON intents (node_id) WHERE stop_requested;
