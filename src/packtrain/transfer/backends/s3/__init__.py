"""The S3 backend. Start with `backend`; `client` sends signed requests, `multipart` uploads large files."""
