"""Development only: clocks, signals, servers and certificates for tests."""
