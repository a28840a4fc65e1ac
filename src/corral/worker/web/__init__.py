"""The worker's HTTP server: files, logs, blobs for other workers, liveness and readiness."""
