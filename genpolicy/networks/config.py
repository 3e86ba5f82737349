"""NetworkConfig: the shape of a denoising transformer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from genpolicy.errors import ConfigError, require_one_of

CHOICES = {
    "geometry": ("sequence", "board"),
    "positions": ("learned", "rotary"),
    "head": ("unified", "typed"),
    "activation": ("gelu", "mish", "relu2"),
    "norm": ("pre", "post"),
    "attention": ("full", "prefix", "block_causal"),
}
MAX_SIZE = 1 << 40  # torch does not count much further, and says so without a name
MAX_LAYERS = 1_000  # DeepNet's (Wang et al. 2022); unlike width, more of them fill the memory little by little


@dataclass
class NetworkConfig:
    """The shape of a denoising transformer; the defaults are the paper's (Ye et al. 2025, arXiv:2502.19805)."""

    geometry: str = "sequence"
    """``sequence``: tokens in a row, as in the paper. ``board``: every token knows its square and its ply, attention is
    biased by relative row, column and ply, and a typed head scores moves by their source and target squares."""
    num_layers: int = 8
    """Transformer blocks, from 1 to 1,000."""
    width: int = 256
    """Features of a token; a multiple of ``num_heads``."""
    num_heads: int = 8
    """Attention heads of a block."""
    mlp_ratio: float = 4.0
    """Inner width of the feed-forward part over ``width``, above 0."""
    dropout: float = 0.0
    """Probability in [0, 1) of dropping an embedding, an attention probability or a residual update (GPT-2's places).
    The paper trains with 0.1."""
    positions: str = "learned"
    """``learned`` or ``rotary`` (Su et al. 2021, arXiv:2104.09864): by the token's place in the sequence, in ``board``
    geometry by its ply. A model with rotary positions accepts horizons that it was not trained on."""
    attention: str = "full"
    """Which tokens a token attends to. ``full``: all, as in the paper. ``prefix``: a given token to given ones, an
    imagined one to all. ``block_causal``: its own block and earlier ones, in the order: what is given, the first move,
    the state after it, and so on. With the last two a position is encoded once for all network calls of a decision."""
    bias: str = "auto"
    """What is added to the scores of attention: an entry point in group ``genpolicy.biases``, of which ``relative`` and
    ``none`` come with genpolicy. ``auto`` is ``relative`` in ``board`` geometry and ``none`` in ``sequence``."""
    bias_options: dict[str, Any] = field(default_factory=dict)
    """The bias's own options."""
    activation: str = "gelu"
    """Of the feed-forward part: ``gelu``, ``mish`` (Misra 2019, arXiv:1908.08681) or ``relu2``, a ReLU squared (So et
    al. 2021, arXiv:2109.08668)."""
    norm: str = "pre"
    """``pre``: attention and feed-forward part read a normalised copy, as in GPT-2. ``post``: what they add to is
    normalised after them, scaled and drawn as in DeepNorm (Wang et al. 2022, arXiv:2203.00555)."""
    gates: bool = False
    """Whether every place of a state scales and shifts its embedding (``board`` geometry)."""
    board_code: int = 0
    """Numbers by which the embedding tells each square and hand of the whole root state, with a feed-forward part after
    it (``board`` geometry; BT4 has 512). 0: none."""
    features: bool = False
    """Whether the squares of the root state are told the game's own features of it, such as material and who gives
    check in chess (``StateTokenizer.features``; ``board`` geometry). They begin without effect."""
    shown_moves: bool | None = None
    """Whether decided moves are shown on the squares that they concern, and imagined squares are told what stood there
    before (``genpolicy.networks.shown_moves``). None: in ``board`` geometry."""
    shown_outcome: bool | None = None
    """Whether imagined squares are told what a shown move brings there, a piece on its target and counts of hands
    (``StateTokenizer.captured``), instead of what stood there before. None: where moves are shown."""
    shown_counts: bool | None = None
    """Whether imagined counters of moves (``StateTokenizer.counters``) are told one more than the nearest decided count
    before them, instead of that count. None: where moves are shown."""
    shown_pieces: bool | None = None
    """Whether imagined squares and hands are told, as part of ``shown_outcome``, which piece a drop or a promotion puts
    on its target (``StateTokenizer.dropped`` and ``promoted``) and that a drop leaves one less in hand. None: where
    outcomes are shown; in games with drops only if players alternate and ``viewer`` is ``mover``."""
    copied_symbols: bool = False
    """Whether the typed head also raises the logit of what an imagined square or counter is told by ``shown_moves``
    (``genpolicy.networks.copies``), so that symbols that are seldom seen, such as high counts, are learned sooner."""
    time_conditioning: bool | str = False
    """Whether the timestep is an input: added to what is imagined; ``adaln``, a condition of every block together with
    the mean of what is given, which begins as the identity (adaLN-Zero, Peebles & Xie 2023, arXiv:2212.09748), with
    ``attention: full`` and ``norm: pre``. Off as in the paper, where the number of masks gives it away."""
    head: str = "unified"
    """``unified``: one softmax over the whole vocabulary (the paper). ``typed``: one per kind of token, without
    probability for symbols that a token cannot hold."""
    tied: bool = False
    """Whether the head's rows are the input embedding's, as in GPT-2 and the paper."""
    move_rank: int = 32
    """Inner width of the factorised move head (``board`` geometry with the ``typed`` head); 0 is a plain linear head,
    for moves that squares do not tell apart."""
    move_symbols: bool | str = False
    """Whether that head also reads the symbols on a move's squares and between them from tables
    (``genpolicy.networks.moves.SymbolTerms``), so that how pieces move is learned sooner. ``apart``: in losses of
    single tokens (diffusion, one-step and autoregressive learners) the network learns as if there were no tables, and
    they learn to mend its moves."""
    board_values: int = 0
    """Hidden width of a head that reads values from all squares of their state side by side, beside the value's own
    token, and whose bins share what they learn with their neighbours (``genpolicy.networks.values``; ``board`` geometry
    with the ``typed`` head). 0: none."""
    factorised_pad: bool | None = None
    """Whether the factorised move head predicts PAD, the end of the game, apart from the moves, as p(over) and p(move |
    not over), instead of as one more symbol of their softmax, where finished games lower the logits of all moves. None:
    where they are trained on (``learner.process.ends``)."""
    init_std: float = 0.02
    """Standard deviation of the initial weights, GPT-2's; projections back into the residual stream get
    ``init_std / sqrt(2 num_layers)``."""

    unsaid: ClassVar[Mapping[str, Any]] = {
        "shown_moves": False,
        "shown_outcome": False,
        "shown_counts": False,
        "shown_pieces": False,
        "factorised_pad": False,
    }
    """What a saved configuration means that lacks a key, because it is older than the key."""

    def __post_init__(self) -> None:
        for key, allowed in CHOICES.items():
            require_one_of(key, getattr(self, key), allowed)
        bounded = {"num_layers": 1, "width": 1, "num_heads": 1, "move_rank": 0, "board_code": 0, "board_values": 0}
        for key, least in bounded.items():
            most = MAX_LAYERS if key == "num_layers" else MAX_SIZE
            if not least <= getattr(self, key) <= most:
                raise ConfigError(f"{key} must be at least {least} and at most {most:,}, got {getattr(self, key):,}")
        for key in ("mlp_ratio", "init_std"):
            if not 0 < getattr(self, key) < 1e6:
                raise ConfigError(f"{key} must be above 0 and below 1e6, got {getattr(self, key)}")
        for key in ("gates", "board_code", "features"):
            if getattr(self, key) and self.geometry != "board":
                raise ConfigError(f"{key} needs geometry=board, whose tokens have places; got {self.geometry!r}")
        for key in ("shown_outcome", "shown_counts", "shown_pieces"):
            if getattr(self, key) and not self.shows_moves:
                raise ConfigError(f"{key} needs shown moves: geometry=board, and shown_moves true or not given")
        if self.shown_pieces and self.shown_outcome is False:
            raise ConfigError("shown_pieces is part of shown_outcome, which is false: leave one of them out")
        if self.move_symbols not in (False, True, "apart"):
            raise ConfigError(f"move_symbols must be true, false or apart, got {self.move_symbols!r}")
        if self.move_symbols and not (self.geometry == "board" and self.head == "typed" and self.move_rank):
            raise ConfigError(
                "move_symbols needs the factorised move head: geometry=board, head=typed and move_rank above 0; got "
                f"{self.geometry!r}, {self.head!r} and {self.move_rank}"
            )
        if self.copied_symbols and not (self.shows_moves and self.head == "typed"):
            raise ConfigError(f"copied_symbols needs shown moves and head=typed, got {self.head!r}")
        if self.board_values and (self.geometry, self.head) != ("board", "typed"):
            raise ConfigError(
                f"board_values needs geometry=board and head=typed, got {self.geometry!r} and {self.head!r}"
            )
        if self.width % self.num_heads:
            raise ConfigError(f"width must be a multiple of num_heads={self.num_heads}, got {self.width}")
        if self.time_conditioning not in (False, True, "adaln"):
            raise ConfigError(f"time_conditioning must be true, false or adaln, got {self.time_conditioning!r}")
        if self.time_conditioning == "adaln" and (self.attention, self.norm) != ("full", "pre"):
            raise ConfigError(
                f"time_conditioning=adaln needs attention=full and norm=pre, got {self.attention!r} and {self.norm!r}"
            )
        if not 0.0 <= self.dropout < 1.0:
            raise ConfigError(f"dropout must lie in [0, 1), got {self.dropout}")
        if self.positions == "rotary" and (self.width // self.num_heads) % 2:
            raise ConfigError(f"rotary positions need an even head width, got {self.width // self.num_heads}")

    @property
    def shows_moves(self) -> bool:
        """``shown_moves``, or what None stands for."""
        return self.geometry == "board" if self.shown_moves is None else self.shown_moves

    @property
    def mlp_width(self) -> int:
        """Inner width of the feed-forward part."""
        return round(self.mlp_ratio * self.width)
