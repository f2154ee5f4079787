"""How many files a process may have open: each connection is one."""

import resource


def raise_limit(wanted: int) -> int:
    """Raise the limit to ``wanted``, if it is lower and the system allows it; give the limit that holds then."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if now == resource.RLIM_INFINITY or now >= wanted:
        return wanted
    better = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (better, most))
    except (OSError, ValueError):
        # macOS has another limit, below the one that it names.
        return now
    return better
