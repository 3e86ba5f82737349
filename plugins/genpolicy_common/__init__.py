"""What applications share: labelled positions, tables of results, the store of unfinished work, and
the small subcommands.
"""
