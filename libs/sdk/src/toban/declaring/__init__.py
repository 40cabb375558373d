"""Jobs that are declared beside the code: what `command_job` of Django and `@job` share, and how a site is brought in line with them."""
