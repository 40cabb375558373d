"""How a coordinator talks to executors, to other coordinators and to the mirror in Redis."""
