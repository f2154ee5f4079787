"""The operator's verbs against a running topom, a module a family."""
