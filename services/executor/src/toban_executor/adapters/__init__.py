"""How the executor talks to others: its disk, its guards, coordinators and log-archivers."""
