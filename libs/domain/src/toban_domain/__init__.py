"""The pure core: states, definitions, epochs, leases, retries, errors."""
