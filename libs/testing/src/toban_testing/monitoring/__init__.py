"""What watches Toban, checked and generated: the list of metrics, the dashboard, alerts and their runbooks."""
