"""A whole Toban on one machine: servers, certificates and services as processes."""
