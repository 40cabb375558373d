"""admin-web: the pages of Toban. No state and no database driver; all data comes over gRPC."""
