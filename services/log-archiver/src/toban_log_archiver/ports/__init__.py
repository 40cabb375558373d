"""What this service needs from others, without saying who provides it."""
