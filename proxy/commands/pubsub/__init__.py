"""Publish and subscribe.

What a session hears is in :mod:`~proxy.commands.pubsub.pubsub`, what a worker is subscribed to at the servers in
:mod:`~proxy.commands.pubsub.subscriptions` and :mod:`~proxy.commands.pubsub.subscribers`.
"""
