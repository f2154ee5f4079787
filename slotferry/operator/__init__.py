"""The operator's verbs for a running topom; each family has a module."""
