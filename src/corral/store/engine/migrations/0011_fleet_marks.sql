CREATE INDEX intents_changed_at ON intents (changed_at);
