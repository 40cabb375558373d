"""The pages of Toban: no state, no database driver, everything over gRPC."""
