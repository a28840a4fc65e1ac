ALTER TABLE intents ADD COLUMN final BOOLEAN NOT NULL DEFAULT false;
ALTER TABLE intents ADD COLUMN conditions_at_end TEXT;
CREATE INDEX intents_history ON intents (node_id, backend, generation);
