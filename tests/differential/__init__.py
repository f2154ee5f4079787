"""The same random commands to a proxy and to one plain Redis: every reply has to be the same, byte for byte."""
