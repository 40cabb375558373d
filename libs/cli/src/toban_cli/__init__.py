"""The `toban` command. Modules import gRPC and Rich only when a command needs them, so that help answers at once."""
