"""The options of the built-in samplers, apart from their classes, so that they are read without importing torch."""

from __future__ import annotations

from dataclasses import replace

from genpolicy.options import Option

RATES = ("linear", "cosine", "even")
SCORES = ("log_prob", "entropy", "margin")
SIGMAS = ("cap", "rescale")
NEED_VISIBLE_NOISE = ("a0_last", "easy_first_commit", "remasking")
"""Built-in samplers that refuse a process whose noise looks like data, whatever their options are."""
COMMIT = "commit"
"""The option that the others refuse for such a process."""

TEMPERATURE = Option(
    "temperature",
    float,
    1.0,
    low=0.0,
    help="divides the logits before a symbol is drawn; 0 takes the likeliest",
    label="Temperature",
    usual_high=10.0,
    basic=True,
)
_LIKELIEST = replace(TEMPERATURE, default=0.0)
_SCORE = Option("score", str, "log_prob", choices=SCORES, help="which tokens are filled in first")
_COMMIT = Option(COMMIT, bool, False, help="keep what has been filled in")
_NOISE = Option(
    "noise", float, 0.0, low=0.0, usual_high=10.0, help="randomness in the order in which tokens are filled in"
)

ANCESTRAL = (TEMPERATURE,)
ONE_CALL = (_SCORE, _LIKELIEST)
EASY_FIRST = (
    _COMMIT,
    Option("rate", str, "linear", choices=RATES, help="how many tokens are filled in at each step"),
    _SCORE,
    _LIKELIEST,
    _NOISE,
)
EASY_FIRST_COMMIT = (replace(_COMMIT, default=True), *EASY_FIRST[1:])
STOCHASTIC = (*EASY_FIRST[:-1], replace(_NOISE, default=0.5))
A0_LAST = EASY_FIRST
BY_PLY = (_SCORE, _LIKELIEST)
REMASKING = (
    Option("eta", float, 0.1, low=0.0, high=1.0, help="share of tokens to remask", label="eta"),
    Option("sigma", str, "cap", choices=SIGMAS, help="how that share depends on the step"),
    TEMPERATURE,
)
