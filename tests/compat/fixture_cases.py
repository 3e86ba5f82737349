"""What the fixtures of test_made_before.py are made of: learners that are trained, positions, and who is asked what."""

from __future__ import annotations

from typing import Any

TTT = "connect:rows=3,cols=3,k=3,gravity=false"

# What is trained.
BOARD = {"geometry": "board", "head": "typed", "num_layers": 1, "width": 16, "num_heads": 2, "move_rank": 4}
BOARD |= {"mlp_ratio": 2.0, "init_std": 0.3}
SEQUENCE = {"geometry": "sequence", "head": "unified", "num_layers": 1, "width": 16, "num_heads": 2, "init_std": 0.3}
TRAINER = {"batch_size": 16, "max_records": 128, "eval_records": 0, "accuracy_records": 0, "checkpoint_every": 0}
TRAINER |= {"tensorboard": False, "device": "cpu"}
ABSORBING = {"kind": "absorbing", "num_timesteps": 6, "schedule": "linear", "weighting": "linear"}
LEARNERS: dict[str, tuple[str, dict[str, Any]]] = {
    "absorbing": (
        "labelled",
        {"kind": "diffusion", "horizon": 3, "train_pad": True, "augment": True, "network": BOARD, "process": ABSORBING},
    ),
    "sequence": (
        "labelled",
        {
            "kind": "diffusion",
            "paradigm": "s-aa",
            "horizon": 3,
            "viewer": "absolute",
            "network": {**SEQUENCE, "tied": True, "time_conditioning": True},
            "process": {"kind": "absorbing", "num_timesteps": 5, "schedule": "cosine_squared"},
            "sampler": {"name": "a0_last", "num_steps": 3, "temperature": 0.8, "num_futures": 2},
        },
    ),
    "horizons": (
        "labelled",
        {
            "kind": "diffusion",
            "horizon": 3,
            "horizons": [1, 2],
            "network": {**BOARD, "positions": "rotary"},
            "process": ABSORBING,
            "sampler": {"name": "easy_first", "options": {"rate": "cosine", "score": "margin"}, "horizon": 2},
        },
    ),
    "multinomial": (
        "labelled",
        {
            "kind": "diffusion",
            "horizon": 2,
            "network": BOARD,
            "process": {"kind": "multinomial", "num_timesteps": 6},
            "sampler": {"name": "easy_first"},
        },
    ),
    "gaussian": (
        "labelled",
        {
            "kind": "gaussian",
            "horizon": 2,
            "network": BOARD,
            "process": {"prediction": "x0_ce", "num_timesteps": 20, "width": 8},
            "num_steps": 5,
        },
    ),
    "gaussian-eps": (
        "labelled",
        {
            "kind": "gaussian",
            "horizon": 2,
            "network": BOARD,
            "process": {"prediction": "eps", "num_timesteps": 20, "width": 8},
            "scheduler": "ddim",
            "num_steps": 4,
        },
    ),
    "one_step": ("labelled", {"kind": "one_step", "network": BOARD}),
    "direct": ("labelled", {"kind": "direct", "horizon": 2, "network": BOARD}),
    "autoregressive": ("labelled", {"kind": "autoregressive", "horizon": 2, "network": SEQUENCE}),
    "state_value": ("labelled", {"kind": "state_value", "num_value_bins": 16, "network": BOARD}),
    "action_value": ("labelled", {"kind": "action_value", "num_value_bins": 16, "network": BOARD}),
    "chess": (
        "chess-games",
        {
            "kind": "diffusion",
            "horizon": 2,
            "network": {**BOARD, "width": 6, "num_heads": 1},
            "process": {"kind": "absorbing", "num_timesteps": 5, "weighting": "constant", "reduction": "sum"},
            "sampler": {"name": "easy_first_commit", "temperature": 0.0},
        },
    ),
    "shogi": ("shogi-games", {"kind": "one_step", "network": {**BOARD, "width": 4, "num_heads": 1}}),
    "image": (
        "chess-games",
        {
            "kind": "image",
            "channels": [8],
            "norm_groups": 4,
            "backbone_width": 8,
            "backbone_blocks": 1,
            "cross_attention_dim": 8,
            "num_steps": 3,
            "target": "bits",
        },
    ),
}

# Positions. Equal ones stand in one call and come again in a later one, because their draws count how often they were
# asked.
CONNECT = [
    ["", ".../.X./... O", "", "X.O/.X./..O X", ".../.X./... O", ""],
    ["X.O/.X./..O X", "XO./.X./... O", "OX./X.O/.OX X", "XXO/O.X/..O X"],
]
CHESS = [
    [
        "",
        "r1bqkbnr/pppp1ppp/2n5/4p3/2B1P3/5N2/PPPP1PPP/RNBQK2R b KQkq - 3 3",
        "",
        "8/P5k1/8/8/8/5K2/6p1/8 w - - 0 60",
    ],
    ["| e2e4 e7e5 g1f3 b8c6", "r3k2r/8/8/3pP3/8/8/8/R3K2R w KQkq d6 0 20", "8/P5k1/8/8/8/5K2/6p1/8 b - - 1 60"],
]
SHOGI = [
    ["", "lnsgkgsnl/1r5b1/pppppp1pp/6p2/9/2P6/PP1PPPPPP/1B5R1/LNSGKGSNL b - 3", ""],
    ["4k4/9/4P4/9/9/9/9/9/4K4 b GSNLPrb2g 1", "| 7g7f 3c3d 8h2b+ 3a2b"],
]
REUSE = [["", ".../.X./... O"], ["| b2 a3"], ["| b2 a3 c3 a1", ""], ["| b2 a3"]]


def cases() -> list[dict[str, Any]]:
    """Who is asked what."""
    found: list[dict[str, Any]] = []

    def add(spec: str, asked: list[list[str]], *, dreamt: bool = False, seed: int = 7, **options: Any) -> None:
        case = {"name": f"{len(found):02d} {spec}", "spec": spec, "seed": seed, "options": options, "asked": asked}
        if dreamt:
            case["dreamt"] = [asked[0][1], asked[0][0], asked[0][1]]
        found.append(case)

    def connect(spec: str, **more: Any) -> None:
        folder, _, query = spec.partition("?")
        add(f"policies/{folder}" + (f"?{query}" if query else ""), CONNECT, **more)

    connect("absorbing", dreamt=True)
    connect("absorbing?sampler=ancestral", dreamt=True)
    connect("absorbing?sampler=ancestral&temperature=0.5&num_steps=3&batch_size=2")
    connect("absorbing?sampler=easy_first&num_steps=4&rate=cosine&score=entropy&noise=0.3", dreamt=True)
    connect("absorbing?sampler=easy_first&commit=true&temperature=1.0")
    connect("absorbing?sampler=easy_first_commit")
    connect("absorbing?sampler=stochastic", dreamt=True)
    connect("absorbing?sampler=a0_last")
    connect("absorbing?sampler=a0_last&temperature=1.0&num_futures=3", dreamt=True)
    connect("absorbing?sampler=one_call", dreamt=True)
    connect("absorbing?sampler=remasking&eta=0.3&sigma=rescale", dreamt=True)
    connect("absorbing?sampler=ancestral&legal_mask=false", dreamt=True)
    connect("absorbing?legal_mask=false")
    connect("absorbing?seed=3", seed=3, num_steps=2)
    connect("sequence", dreamt=True)
    connect("sequence?num_futures=1&temperature=0")
    connect("horizons", dreamt=True)
    connect("horizons?horizon=1")
    connect("horizons?horizon=3", dreamt=True)
    connect("multinomial", dreamt=True)
    connect("multinomial?sampler=ancestral&temperature=0.7", dreamt=True)
    connect("gaussian", dreamt=True)
    connect("gaussian?scheduler=ddim&num_steps=3")
    connect("gaussian?scheduler=dpmsolver++", dreamt=True)
    connect("gaussian?scheduler=one_call&legal_mask=false")
    connect("gaussian-eps", dreamt=True)
    connect("gaussian-eps?scheduler=ddpm")
    connect("one_step", dreamt=True)
    connect("one_step?temperature=1.0")
    connect("one_step?temperature=1.0&legal_mask=false")
    connect("direct", dreamt=True)
    connect("direct?temperature=0.7")
    connect("autoregressive", dreamt=True)
    connect("autoregressive?imagine=false")
    connect("autoregressive?temperature=1.0&legal_mask=no", dreamt=True)
    connect("state_value", dreamt=True)
    connect("state_value?readout=mode")
    connect("state_value?temperature=0.3&prior_temperature=0.5&batch_size=1")
    connect("action_value")
    connect("action_value?readout=mode&temperature=0.2")
    connect("told-otherwise", dreamt=True)
    add("policies/chess", CHESS, dreamt=True)
    add("policies/chess?sampler=ancestral&temperature=1.0", CHESS)
    add("policies/shogi", SHOGI, dreamt=True)
    add("policies/shogi?temperature=1.0", SHOGI)
    add("policies/image", CHESS, dreamt=True)
    add("policies/image?temperature=0", CHESS)
    add("policies/image?scheduler=ddim&num_steps=2&legal_mask=false", CHESS)

    add("mcts:policies/one_step?value=policies/state_value&simulations=24", CONNECT)
    add("mcts:policies/action_value?simulations=20&c_puct=1.5&temperature=1.0", CONNECT)
    add("mcts:policies/state_value?simulations=16&prior=uniform&leaves=1", CONNECT)
    add("mcts:policies/one_step?value=heuristic&simulations=16&reuse=true", REUSE)
    add("mcts:uniform?simulations=60&reuse=yes&early_stop=true&tau=0.5", REUSE, game=TTT)
    add("mcts:rollout?simulations=30&preset=alphazero", CONNECT, game=TTT)
    add("mcts:heuristic?simulations=40&noise_fraction=0.25&temperature=1.0", CHESS, game="chess")
    add("mcts:policies/chess?value=heuristic&simulations=6&preset=diffusearch", CHESS)
    add("alphabeta?depth=2", CHESS, game="chess")
    add("alphabeta?depth=3", CONNECT, game=TTT)
    add("alphabeta?depth=2&evaluator=policies/state_value&prior=policies/one_step", CONNECT[1:], game=TTT)
    add("alphabeta?nodes=300", SHOGI, game="shogi")
    add("greedy", CHESS, game="chess")
    add("greedy?seed=4", CONNECT, game=TTT)
    add("random?seed=5", CONNECT, game=TTT)
    add("random", SHOGI, game="shogi")
    add("oracle:solver", CONNECT, game=TTT)
    return found
