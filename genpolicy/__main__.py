"""``python -m genpolicy`` is the command ``genpolicy``."""

from genpolicy.cli import main

raise SystemExit(main())
