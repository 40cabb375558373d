"""Pure functions: what to show, in which words, and what comes next."""
