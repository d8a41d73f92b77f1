"""The common parts of all frontends: exceptions and the handles of the runtime."""
