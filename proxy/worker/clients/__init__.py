"""How clients come in (the PROXY protocol, TLS, the engine), and how they are made to leave."""
