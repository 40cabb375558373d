"""Clock, configuration, lifecycle, loops: what every main shares."""
