"""Leaving Codis: read what ``codis-admin --config-dump`` gives, and bring it into topom."""
