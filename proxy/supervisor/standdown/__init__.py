"""How a proxy stops using what it may not use any more: fences, replicas that are asked, time granted to workers."""
