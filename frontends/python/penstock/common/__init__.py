"""What the frontends of every framework share: exceptions and the handles of the runtime."""
