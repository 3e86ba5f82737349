"""k-in-a-row: tic-tac-toe, Connect Four and their kin on any board. The template for a game of your own."""

from genpolicy_connect.game import ConnectGame

__all__ = ["ConnectGame"]
