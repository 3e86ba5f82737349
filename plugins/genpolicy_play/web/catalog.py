"""The games and policies that the page offers, all loaded before the first request."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from genpolicy import __version__, registry
from genpolicy.errors import NotInstalledError, RegistryError
from genpolicy.game import Game
from genpolicy.options import PolicySpec, declaration_of, options_of
from genpolicy.policies.base import Policy, load_policy, policy_spec
from genpolicy.shipped import shipped_policies
from genpolicy_play.web.editing import is_editable
from genpolicy_play.web.positions import ReplayCache
from genpolicy_play.web.requests import MAX_MOVES, MAX_NAME, MAX_TEXT, RequestError, quoted
from genpolicy_play.web.settings import Settings
from genpolicy_play.web.strength import Ratings


@dataclass(frozen=True)
class Offer:
    """A policy that the page offers."""

    id: str
    """Its name in requests."""
    label: str
    policy: Policy = field(repr=False)
    settings: Settings = field(repr=False)
    rating: Mapping[str, Any] | None = None
    """``Ratings.of`` it, as it is set at first; None where it is not rated."""

    @property
    def game(self) -> Game[Any]:
        """The game that it plays."""
        return self.policy.game

    def described(self) -> dict[str, Any]:
        """The offer as JSON."""
        return {
            "id": self.id,
            "label": self.label,
            "game": self.game.spec,
            "kind": self.policy.kind,
            "dreams": self.policy.dreams,
            "about": self.policy.about,
            "rating": self.rating,
            "options": [setting.described() for setting in self.settings.all],
        }


class Catalog:
    """All games and policies of a server.

    Args:
        games: In the page's order.
        policies: Loaded policies and their settings.
        notes: Sentences for the page, such as how to add a policy.
        ratings: Elo of some of them; None where nobody was rated.

    Raises:
        ValueError: ratings of which none is of a policy here.
    """

    def __init__(
        self,
        games: Sequence[Game[Any]],
        policies: Sequence[tuple[Policy, Settings]],
        notes: Sequence[str] = (),
        ratings: Ratings | None = None,
    ) -> None:
        self.games: dict[str, ReplayCache] = {game.spec: ReplayCache(game) for game in games}
        self.policies: dict[str, Offer] = {}
        self.notes = tuple(notes)
        taken: dict[tuple[str, str], int] = {}
        for policy, settings in policies:
            seen = taken[policy.game.spec, policy.label] = taken.get((policy.game.spec, policy.label), 0) + 1
            label = policy.label + (f" ({seen})" if seen > 1 else "")
            rating = None if ratings is None else ratings.of(policy.game.spec, settings.spec.text)
            # A page that stays open while a server is started again must not meet another policy under the same id.
            name = hashlib.sha256(f"{policy.game.spec} {label}".encode()).hexdigest()[:12]
            self.policies[name] = Offer(name, label, policy, settings, rating)
        if ratings is not None and all(offer.rating is None for offer in self.policies.values()):
            here = ", ".join(offer.label for offer in self.policies.values())
            raise ValueError(f"--ratings {ratings.path} rates {ratings.names} at {ratings.game}; here are {here}")

    def offer(self, name: str, game: Game[Any]) -> Offer:
        """The policy of an id.

        Raises:
            RequestError: no such policy, or it plays another game.
        """
        offer = self.policies.get(name)
        if offer is None:
            raise RequestError(f"policy {quoted(name)} is not offered here; there are: {', '.join(self.policies)}")
        if offer.game.spec != game.spec:
            raise RequestError(f"policy {quoted(name)} plays {offer.game.spec}, not {game.spec}")
        return offer

    def described(self) -> dict[str, Any]:
        """The answer of ``/api/offers``."""
        return {
            "version": __version__,
            "games": [_game(cache.game) for cache in self.games.values()],
            "policies": [offer.described() for offer in self.policies.values()],
            "notes": list(self.notes),
            "limits": {"moves": MAX_MOVES, "text": MAX_TEXT, "name": MAX_NAME},
        }

    def close(self) -> None:
        """Close all policies."""
        for offer in self.policies.values():
            offer.settings.close()
            offer.policy.close()


def _game(game: Game[Any]) -> dict[str, Any]:
    return {
        "spec": game.spec,
        "name": game.name,
        "title": game.view.title,
        "words": {language: dict(words) for language, words in game.view.words.items()},
        "players": list(game.players),
        "protocol": game.protocol,
        "file_suffixes": list(game.files.suffixes) if game.files is not None else [],
        "start": game.format(game.parse()),
        "editable": is_editable(game),
    }


def make_catalog(
    specs: Sequence[str], game_specs: Sequence[str], device: str = "cpu", ratings: Path | None = None
) -> Catalog:
    """Load the policies that a command line names.

    Args:
        specs: Policies; none loads the shipped ones and those that need no training, for the named or all installed
            games.
        game_specs: Games to offer beside those of the policies' folders.
        device: Device of the networks.
        ratings: A file of ratings, as ``Ratings`` reads it.

    Raises:
        ValueError: ratings that cannot be read or are of nobody here, a policy that plays any game and no game to play,
            or whatever ``load_policy`` refuses.
        LookupError: no such game or policy.
        EngineError: an engine does not start.
    """
    rated = None if ratings is None else Ratings(ratings)
    games = {game.spec: game for game in map(registry.load_game, game_specs)}
    notes: list[str] = []
    missing: dict[str, str] = {}
    if specs:
        named = [policy_spec(text) for text in specs]
        for spec in named:
            if spec.game is not None:
                own = registry.load_game(spec.game)
                games.setdefault(own.spec, own)
        pairs = [(spec, game) for spec in named for game in _games_of(spec, games)]
    else:
        games = games or _installed_games(notes, missing)
        pairs = [(policy_spec(text), game) for game in games.values() for text in _unnamed(game, notes, missing)]
        example = next(iter(found_policies(Path("runs"))), None)
        folder = "FOLDER" if example is None else str(example)
        notes.insert(
            0,
            "No policy was named, so these are the shipped ones and those that need no training. To add one: "
            f"genpolicy web --policy {folder}",
        )
        if missing:
            notes.append(f"Not installed: {', '.join(f'{name} ({way_out})' for name, way_out in missing.items())}")
    offered: list[tuple[Policy, Settings]] = []
    try:
        for spec, game in pairs:
            try:
                policy = load_policy(spec.text, game=game, defaults={"device": device})
            except (LookupError, ValueError) as error:
                if specs:
                    raise
                notes.append(str(error))  # nobody named it, so the others are offered without it
                continue
            offered.append((policy, Settings(spec, policy, device)))
        return Catalog(list(games.values()), offered, notes, rated)
    except BaseException:
        for policy, _ in offered:
            policy.close()
        raise


def _games_of(spec: PolicySpec, games: Mapping[str, Game[Any]]) -> list[Game[Any]]:
    """The games that a policy is offered for.

    Raises:
        ValueError: it plays any game, and none was named.
    """
    if spec.game is not None:
        return [games[registry.load_game(spec.game).spec]]
    if not games:
        raise ValueError(f"policy {spec.text!r} works for any game: name one, e.g. --game chess")
    return list(games.values())


def _installed_games(notes: list[str], missing: dict[str, str]) -> dict[str, Game[Any]]:
    """All installed games; a note for each that cannot be loaded, and the way out for those that lack an extra.

    Raises:
        RegistryError: there is none.
    """
    games: dict[str, Game[Any]] = {}
    for name in registry.available("games"):
        try:
            made = registry.load("games", name)
            a_class = isinstance(made, type) and issubclass(made, Game)
            usual = made.usual if a_class else ()
            if a_class and not usual and made.variants():
                continue  # it stands for many games; those that are named are offered
            for spec in usual or (name,):
                game = registry.load_game(spec)
                games[game.spec] = game
        except NotInstalledError as error:
            missing[name] = error.way_out
        except (LookupError, ValueError) as error:
            notes.append(str(error))
    if not games:
        ways_out = [f"{name}: {way_out}" for name, way_out in missing.items()]
        raise RegistryError("; ".join(["no game is installed: pip install 'genpolicy[all]'", *ways_out, *notes]))
    return games


def _unnamed(game: Game[Any], notes: list[str], missing: dict[str, str]) -> list[str]:
    """Policies that play a game where none was named; a note for each that is broken, as for games.

    The shipped ones come first, then searches that need no training, then other policies that need none.
    """
    shipped = [name for name, folder in shipped_policies().items() if policy_spec(folder).game == game.spec]
    searches: list[str] = []
    others: list[str] = []
    for kind in registry.available("policies"):
        try:
            declared = declaration_of("policies", kind)
            options_of("policies", kind)  # a page renders them
        except NotInstalledError as error:
            if error.way_out not in missing.values():
                missing[f"policy {kind}"] = error.way_out
            continue
        except LookupError as error:
            if str(error) not in notes:
                notes.append(str(error))
            continue
        (others if declared.is_prior else searches).extend(declared.untrained(game))
    return [*shipped, *searches, *others]


def found_policies(folder: Path) -> Iterator[Path]:
    """Folders of policies where training usually saves them, newest first."""
    try:
        files = [*folder.glob("*/policy/config.yaml"), *folder.glob("*/*/policy/config.yaml")]
        yield from (file.parent for file in sorted(files, key=lambda file: -file.stat().st_mtime))
    except OSError:
        return
