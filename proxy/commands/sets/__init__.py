"""Commands that compute over several sets or sorted sets, where the keys are of several slots."""
