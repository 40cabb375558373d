"""The `toban` command. Modules import gRPC only when a command needs it, so that help prints at once."""
