"""Events, hooks, webhooks and notices."""
