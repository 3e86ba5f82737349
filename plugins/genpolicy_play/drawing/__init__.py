"""Boards as SVG, and what a policy imagines as frames of boards and moves."""

from genpolicy_play.drawing.boards import Action as Action
from genpolicy_play.drawing.boards import Board as Board
from genpolicy_play.drawing.boards import Cell as Cell
from genpolicy_play.drawing.boards import Frame as Frame
from genpolicy_play.drawing.boards import Value as Value
from genpolicy_play.drawing.boards import board_of as board_of
from genpolicy_play.drawing.boards import board_of_symbols as board_of_symbols
from genpolicy_play.drawing.boards import frame_of_step as frame_of_step
from genpolicy_play.drawing.boards import frames as frames
from genpolicy_play.drawing.boards import move_places as move_places
from genpolicy_play.drawing.boards import played_out as played_out
from genpolicy_play.drawing.svg import Arrow as Arrow
from genpolicy_play.drawing.svg import board_svg as board_svg
from genpolicy_play.drawing.svg import plan_arrows as plan_arrows
