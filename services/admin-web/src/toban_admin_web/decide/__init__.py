"""Pure functions: what a page shows, its texts, and how a log is read on."""
