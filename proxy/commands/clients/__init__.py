"""Commands about the session and other clients: AUTH, HELLO, SELECT, PING, CLIENT."""
