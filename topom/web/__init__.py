"""The web page: its files, and how they are served.

``/`` is the page, ``/assets/...`` what it is made of. Nothing here is secret, so both are served without a token. The
page asks for one, and then uses the API as any other client: :mod:`topom.api.live` tells it what changes.

May import: errors.

To change

- how files are served: :mod:`~topom.web.pages`; what a browser lets them do: :mod:`topom.api.page_headers`;
- the page: ``index.html`` and ``assets/``. ``assets/js/app.js`` puts its parts together, each a file of its name;
  ``assets/js/live.js`` holds the picture of the cluster, and ``assets/js/frames.js`` the time that drawing may take;
- a library: ``assets/vendor/``, whose ``sources.txt`` says where each file comes from, and its SHA-256.
"""
