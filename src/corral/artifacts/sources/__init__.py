"""Where bytes come from: HTTP, Hugging Face, S3, peers, local directories."""
