"""The last table, kept in a file: when a proxy may serve by it while topom is away."""
