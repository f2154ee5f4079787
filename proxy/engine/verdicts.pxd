"""What becomes of a request once it is looked at."""

ctypedef enum verdict:
    # An exception was raised.
    VERDICT_FAILED = -1
    # The request is finished, or under way.
    VERDICT_TAKEN
    # It is an empty line, or an empty list, and no request.
    VERDICT_NOTHING
    # It stays at the front of the input until the session is woken.
    VERDICT_WAIT
    # It stays there until all owed replies have been given.
    VERDICT_PAUSE
    # It stays there until there is room for it in the memory for requests that wait for servers.
    VERDICT_HELD
    # Its keys are of several slots, and whoever asked decides on that.
    VERDICT_APART
