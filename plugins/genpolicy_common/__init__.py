"""What applications share: tables of results, the store of unfinished work, and the small subcommands."""
