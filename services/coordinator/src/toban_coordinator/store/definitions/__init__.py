"""Jobs, triggers and manifests."""
