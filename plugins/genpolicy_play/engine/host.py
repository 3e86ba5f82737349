"""The policy behind the engine: loading it, and setting its options."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from genpolicy.game import Game
from genpolicy.options import Option, PolicySpec, declaration_of, options_of
from genpolicy.policies.base import Policy, load_policy
from genpolicy_common.arguments import AUTO, device_for, have_network
from genpolicy_play.engine.options import SEARCH_OVER, SEED, SET_BY_GO, own_options
from genpolicy_play.search_over import search_over


class Host:
    """Holds the policy that is served, and makes it again when an option changes.

    Args:
        spec: The policy.
        game: The game that it plays.
        device: Where its network is at first.
    """

    def __init__(self, spec: PolicySpec, game: Game[Any], device: str) -> None:
        self.spec, self.game = spec, game
        self._device, self._device_now = device, device
        self._base: Policy | None = None
        self._policy: Policy | None = None
        self._made_of: dict[str, Any] | None = None
        own = own_options(device, wdl=game.protocol == "uci")
        reserved = {option.name.lower() for option in own}
        self._keys: dict[str, str] = {}
        """The policy's names of its options, by the names that a GUI uses."""
        self.options: list[Option] = []
        """As a GUI sees them."""
        declared = options_of("policies", spec.kind, spec)
        limited = SET_BY_GO if any(option.name == "nodes" for option in declared) else ()
        for option in declared:
            name = option.label or option.name
            if not option.fixed and option.name not in limited and name.lower() not in reserved:
                self._keys[name] = option.name
                self.options.append(replace(option, name=name))
        if declaration_of("policies", spec.kind).is_prior:
            self.options.append(SEARCH_OVER)
        if "seed" not in self._keys.values():
            self.options.append(SEED)
        self.options += own

    def load(self) -> None:
        """Load the policy; takes seconds, and imports torch where the policy needs it.

        Raises:
            ValueError: as ``load_policy``.
            LookupError: as ``load_policy``.
            EngineError: an engine behind it does not start.
        """
        device = device_for(self._device, [self.spec])
        if self._device == AUTO and have_network([self.spec]):
            print(f"genpolicy: networks run on {device} (--device)", file=sys.stderr)
        base = load_policy(self.spec.text, game=self.game, defaults={"device": device})
        if self._base is not None:
            self._base.close()
        self._base, self._device_now, self._made_of = base, self._device, None

    @property
    def policy(self) -> Policy:
        """The policy as it is set; ``apply`` made it."""
        assert self._policy is not None
        return self._policy

    def apply(self, settings: dict[str, Any]) -> list[str]:
        """Make the policy again where settings changed.

        Args:
            settings: Values that were set, by the names of ``options``; what the policy refuses is put back in it.

        Returns:
            What was refused, for people; not where an option was set to its default.

        Raises:
            ValueError: the policy refuses what it was loaded with.
        """
        self._set_threads(settings)
        refused = self._move(settings)
        # A default is not a choice: some GUIs set all options, and one that is given may turn another off.
        usual = {option.name: option.default for option in self.options if option.name in self._keys}
        policys = {*usual, SEARCH_OVER.name, SEED.name}
        changed = {
            name: value
            for name, value in settings.items()
            if name in policys and (name not in usual or value != usual[name])
        }
        if self._policy is not None and changed == self._made_of:
            return refused
        try:
            self._policy, self._made_of = self._make(changed), changed
            return refused
        except Exception:  # whatever a policy raises, an option must not end the engine
            if not changed:
                raise
        # One at a time, from the last good ones: this names the culprit, and keeps the others.
        good = {name: value for name, value in (self._made_of or {}).items() if name in changed}
        for name, value in changed.items():
            if good.get(name) == value:
                continue
            try:
                self._policy = self._make({**good, name: value})
                good[name] = value
            except Exception as error:
                refused.append(f"option {name} stays as it was: {error}")
                if name in good:
                    settings[name] = good[name]
                else:
                    del settings[name]
        self._policy, self._made_of = self._make(good), good
        return refused

    def _set_threads(self, settings: Mapping[str, Any]) -> None:
        if "Threads" in settings and "torch" in sys.modules:
            import torch

            torch.set_num_threads(int(settings["Threads"]))

    def _move(self, settings: dict[str, Any]) -> list[str]:
        """Load the policy again where another device was set."""
        device = str(settings.get("Device", self._device_now))
        if device == self._device_now or device_for(device, [self.spec]) == device_for(self._device_now, [self.spec]):
            return []
        self._device = device
        try:
            self.load()
        except Exception as error:  # whatever a device's library raises; the network that is loaded still plays
            self._device = settings["Device"] = self._device_now
            return [f"Device {device} cannot be used: {error}"]
        return []

    def _make(self, changed: Mapping[str, Any]) -> Policy:
        assert self._base is not None
        own = {self._keys[name]: value for name, value in changed.items() if name in self._keys and value is not None}
        policy = self._base.with_options(**own) if own else self._base
        if SEARCH_OVER.name not in self._keys and (number := changed.get(SEARCH_OVER.name)):
            policy = search_over(policy, int(number))
        if SEED.name not in self._keys and SEED.name in changed:
            policy.seed(int(changed[SEED.name]))
        return policy

    def reseed(self, settings: Mapping[str, Any]) -> None:
        """Seed the policy as at the beginning of a game, by the option that was set or else as it was loaded."""
        self.policy.seed(int(settings.get("Seed", self.spec.settings.get("seed", 0)) or 0))

    def close(self) -> None:
        """End what the policy holds."""
        if self._base is not None:
            self._base.close()
