"""DeepChess: a network that says which of two positions is better, and alpha-beta that needs no more than that.

After David, Netanyahu and Wolf 2016 (arXiv:1711.09667): an autoencoder reads a position's bits, a comparator the codes
of two positions. Bits come from any game's state tokens. ``docs/deepchess.md`` says what it reaches, and why the
published 98 % is not what to expect of positions from other games.
"""
