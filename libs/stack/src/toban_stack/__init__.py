"""The newcomer's stack: servers, certificates and services on one machine."""
