"""Signs certificates of executors that join (docs/joining.md). It alone has the key of the certificate authority."""
