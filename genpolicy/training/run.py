"""A run: everything that training works on, how it is set up, saved and resumed.

Axes: W processes.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import DistributedDataParallelKwargs, gather_object
from torch import Tensor

from genpolicy import registry
from genpolicy.config import read_yaml, to_dict
from genpolicy.data.stream import MixedWindows, Share, Updates
from genpolicy.errors import CheckpointError, ConfigError
from genpolicy.files import temporary_of
from genpolicy.folder_lock import HOLDER_FILE, LOCK_FILE, FolderLock
from genpolicy.machine import commit
from genpolicy.policies.base import write_provenance
from genpolicy.training import checkpoint as checkpoints
from genpolicy.training import optim, randomness, resuming, setup
from genpolicy.training.checkpoint import Checkpoint
from genpolicy.training.config import Budget, RunConfig, TrainerConfig
from genpolicy.training.loss import Loss
from genpolicy.training.measure import Validation
from genpolicy.training.metrics_log import METRICS_FILE, RunningMeans
from genpolicy.training.setup import CONFIG_FILE

POLICY_FOLDER, BEST_FOLDER, CHECKPOINTS = "policy", "policy-best", "checkpoints"
OF_A_RUN = (POLICY_FOLDER, BEST_FOLDER, CHECKPOINTS, "tensorboard", METRICS_FILE, CONFIG_FILE)


class Run:
    """What one training run consists of.

    Args:
        config: The run.
        held: Holds the lock of the run's folder until it is closed.
        resume: As in ``genpolicy.training.loop.train``, which also says what is raised.
        overwrite: As there.
    """

    def __init__(self, config: RunConfig, held: ExitStack, *, resume: bool, overwrite: bool) -> None:
        if not config.out:
            raise ConfigError("out is empty: name a folder for the run, e.g. out=runs/first")
        config = setup.filled_in(setup.as_begun(config, setup.begun_files(config, resume=resume)))
        self.config, options = config, config.trainer
        self.out = Path(config.out)
        self.accelerator = _accelerator(options, config.out)
        self.device: torch.device = self.accelerator.device
        self.is_main: bool = self.accelerator.is_main_process
        self.process: int = self.accelerator.process_index
        self.num_processes: int = self.accelerator.num_processes
        self.notes: list[str] = []
        """Lines to print for the user."""
        if self.is_main:
            # Nothing is written or deleted before everything else has been checked.
            _require_free(self.out, resume=resume, overwrite=overwrite)
        share = Share(options.batch_size, options.accumulate, self.process, self.num_processes)
        if config.data.shares is not None:
            MixedWindows.require(share, len(config.data.shares))
        self.dataset, self.game = setup.open_data(config)
        self.notes += self.dataset.unfinished
        randomness.seed_all(options.seed)  # the same initial weights in every process
        self.learner = setup.make_learner(self.game, config.learner)
        kind = config.learner["kind"]
        setup.require_policy(kind, self.learner)
        if config.init_from and not (resume and checkpoints.newest(self.out / CHECKPOINTS)):
            setup.take_weights(self.learner, config.init_from)
        self.learner.to(self.device)
        with self.accelerator.local_main_process_first():  # the machine's others then find the windows in its cache
            stream = setup.make_stream(kind, self.learner, self.dataset, config.data, options.seed)
            self.validation = self._make_validation()
        self.updates = Updates(
            stream,
            share,
            registry.named("learners", kind, self.learner),
            prefetch=options.prefetch,
            pin=self.device.type == "cuda",
        )
        num_windows = self.updates.num_records
        self.budget = Budget.of(options, num_windows)
        if num_windows is not None and options.batch_size > num_windows:
            self.notes.append(
                f"trainer.batch_size={options.batch_size:,} is more than the {num_windows:,} windows of split "
                f"{config.data.train!r}: an update takes some of them several times"
            )
        optim.freeze_others(self.learner, config.optim.only)
        groups = self.learner.param_groups(config.optim.weight_decay)
        self.optimizers = optim.make_optimizers(groups, config.optim)
        self.average = optim.WeightAverage(self.learner, config.optim.ema) if config.optim.ema else None
        own_seed = randomness.seed_of_process(options.seed, self.process)
        randomness.seed_all(own_seed)
        self.generator = torch.Generator(self.device).manual_seed(own_seed)
        self.identity = setup.identity(config, self.dataset, self.learner)
        self.num_updates = 0
        """Updates made."""
        self.means = RunningMeans(self.device)
        """Of the updates since the last line of the log."""
        self.best_loss, self.best_update = math.inf, 0
        """Lowest validation loss, and after which update; 0 for none yet."""
        self.best_windows: int | None = None
        """Windows that this loss was averaged over; None in runs of before this was saved."""
        self._seconds_before, self.began = 0.0, time.perf_counter()
        """When the time of training begins to count."""
        self._commits = [commit() or ""]
        if self.is_main:
            self._lock = _take_folder(self.out, held, resume=resume, overwrite=overwrite)
        self.accelerator.wait_for_everyone()  # the others then find a checkpoint that was put back
        if resume:
            self._resume()
        if options.compile:
            for part in self.learner.children():
                part.compile()
        self.module = self.accelerator.prepare_model(Loss(kind, self.learner))

    @property
    def seconds(self) -> float:
        """Time spent, before the last resume too."""
        return self._seconds_before + time.perf_counter() - self.began

    def records(self) -> int:
        """Windows drawn so far."""
        return self.num_updates * self.config.trainer.batch_size

    def epochs(self) -> float | None:
        """Passes over the training windows so far; None where they have no fixed number."""
        return self.records() / self.updates.num_records if self.updates.num_records else None

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Inside, the learner has the averaged weights, where there are some."""
        if self.average is None:
            yield
            return
        self.average.swap(self.learner)
        try:
            yield
        finally:
            self.average.swap(self.learner)

    def save(self) -> None:
        """Write a checkpoint, and delete those beyond ``trainer.keep``.

        Raises:
            CheckpointError: it cannot be written; the earlier ones are untouched.
            LockedError: another process may train in the folder by now; they are untouched, too.
        """
        randoms = self._gather_random_states()
        streams: list[dict[str, Any]] = gather_object([self.updates.stream.state_dict()])
        if self.is_main:
            self._lock.require()
            tensors: dict[str, dict[str, Tensor]] = {"model": self.learner.state_dict(), "random": randoms}
            tensors["optimizer"], plain = {}, {}
            for name, optimizer in self.optimizers.items():
                packed, plain[name] = checkpoints.pack_optimizer(optimizer.state_dict(), name)
                tensors["optimizer"] |= packed
            if self.average is not None:
                tensors["ema"] = self.average.average
            best = {"loss": self.best_loss, "step": self.best_update, "windows": self.best_windows}
            state = {
                "identity": self.identity,
                "optimizer": plain,
                "seconds": self.seconds,
                "best": best if self.best_update else None,
                "ema_updates": self.average.num_updates if self.average else 0,
                "records": self.records(),
                "epoch": self.epochs(),
                "num_processes": self.num_processes,
                "recent": self.means.state(),
                "versions": setup.versions(),
                "commits": self._commits,
                "run": to_dict(self.config),
            }
            if any(streams):
                tensors["stream"], state["streams"] = checkpoints.pack_streams(streams)
            folder = self.out / CHECKPOINTS
            checkpoints.save_checkpoint(folder, Checkpoint(self.num_updates, tensors, state))
            checkpoints.prune(folder, self.num_updates, self.config.trainer.keep, self.best_update)
        self.accelerator.wait_for_everyone()

    def save_policy(self, name: str) -> Path:
        """Write the policy (of the averaged weights, where there are some) beside the checkpoints; its folder.

        Raises:
            CheckpointError: it cannot be written; an earlier one is untouched.
            LockedError: another process may train in the folder by now; an earlier one is untouched, too.
        """
        final = self.out / name
        if self.is_main:
            self._lock.require()
            unfinished = self.out / f".unfinished-{name}"
            facts = {
                "step": self.num_updates,
                "records_seen": self.records(),
                "epochs": self.epochs(),
                "seconds": self.seconds,
                "averaged_weights": self.average is not None,
                "commit": ", ".join(filter(None, self._commits)) or None,
            }
            try:
                shutil.rmtree(unfinished, ignore_errors=True)
                with self.averaged():
                    self.learner.policy().save_pretrained(unfinished)
                write_provenance(unfinished, setup.provenance(self.config, self.dataset, facts))
                checkpoints.replace_folder(unfinished, final)
            except OSError as error:
                with suppress(OSError):
                    checkpoints.remove_leftovers(self.out)
                raise CheckpointError(
                    f"{final}: the policy cannot be written ({error.strerror or error}); the checkpoints are safe: "
                    "make room, then resume with --resume"
                ) from error
        self.accelerator.wait_for_everyone()
        return final

    def _make_validation(self) -> Validation | None:
        split, options = self.config.data.validation, self.config.trainer
        if split is None or options.eval_records == options.accuracy_records == 0:
            return None
        if not self.dataset.splits.get(split):
            self.notes.append(f"{self.dataset.label}: split {split!r} is empty, so nothing is measured during training")
            return None
        return Validation(self.learner, self.dataset, split, options, self.process, self.num_processes)

    def _resume(self) -> None:
        """Take over the newest whole checkpoint."""
        checkpoint = checkpoints.load_latest(self.out / CHECKPOINTS, self.notes.append, self._require_usable)
        if checkpoint is None:
            self.notes.append(f"{self.out}: no checkpoint yet, so the run starts from the beginning")
            return
        earlier = [each for each in checkpoint.state.get("commits", []) if each != self._commits[-1]]
        self._commits = [*earlier, *self._commits]
        self.learner.load_state_dict(checkpoint.tensors["model"])
        for name, optimizer in self.optimizers.items():
            plain = checkpoint.state["optimizer"][name]
            optimizer.load_state_dict(checkpoints.unpack_optimizer(checkpoint.tensors["optimizer"], plain, name))
        if self.average is not None:
            self.average.load(checkpoint.tensors["ema"], checkpoint.state["ema_updates"])
        self._restore_random_states(checkpoint)
        self._restore_stream(checkpoint)
        self.num_updates, self._seconds_before = checkpoint.num_updates, checkpoint.state["seconds"]
        if "recent" in checkpoint.state:  # older checkpoints lack it; the next line then averages fewer updates
            self.means.restore(checkpoint.state["recent"])
        self.notes.append(f"resuming from {checkpoint.folder}")
        if checkpoint.state["best"]:
            self._restore_best(checkpoint.state["best"])

    def _require_usable(self, checkpoint: Checkpoint) -> None:
        resuming.require_usable(checkpoint, self.identity, self.optimizers, averaged=self.average is not None)

    def _restore_best(self, best: dict[str, Any]) -> None:
        """Take over the lowest validation loss, unless it is now averaged over other windows."""
        self.best_loss, self.best_update, self.best_windows = best["loss"], best["step"], best.get("windows")
        if self.best_update == self.num_updates:  # a kill may have come between this checkpoint and its policy
            self.save_policy(BEST_FOLDER)
        windows = self.validation.num_windows if self.validation else 0
        if windows and self.best_windows not in (None, windows):
            self.notes.append(
                f"the lowest validation loss so far was averaged over {self.best_windows:,} windows, and later ones "
                f"are over {windows:,} (trainer.eval_records): they do not compare, so {BEST_FOLDER} stays until the "
                "next measurement, and is then the best from there on"
            )
            self.best_loss, self.best_update, self.best_windows = math.inf, 0, None

    def _gather_random_states(self) -> dict[str, Tensor]:
        """The generators of all processes, names beginning with the process's number."""
        every = gather_object([randomness.capture(self.generator)])
        return {f"{process}.{name}": tensor for process, states in enumerate(every) for name, tensor in states.items()}

    def _restore_random_states(self, checkpoint: Checkpoint) -> None:
        prefix = f"{self.process}."
        saved = checkpoint.tensors["random"].items()
        mine = {name.removeprefix(prefix): tensor for name, tensor in saved if name.startswith(prefix)}
        num_saved = checkpoint.state["num_processes"]
        same_device = mine and mine["generator"].shape == self.generator.get_state().shape
        if same_device:
            randomness.restore(mine, self.generator)
        if num_saved != self.num_processes or not same_device:
            self.notes.append(
                f"{checkpoint.folder}: made on other devices ({num_saved} processes there, {self.num_processes} here), "
                "so what is drawn from now on differs from an uninterrupted run"
            )

    def _restore_stream(self, checkpoint: Checkpoint) -> None:
        streams = checkpoints.unpack_streams(checkpoint.tensors.get("stream", {}), checkpoint.state.get("streams", []))
        if not streams:
            return
        if len(streams) != self.num_processes:
            raise CheckpointError(
                f"{checkpoint.folder}: holds the streams of {len(streams)} processes, and this run has "
                f"{self.num_processes}; resume with the same number"
            )
        self.updates.stream.load_state_dict(streams[self.process])


def _accelerator(options: TrainerConfig, out: str) -> Accelerator:
    """The accelerator for a device and precision; ``accelerate launch`` and torchrun set the number of processes."""
    if PartialState().num_processes == 1:
        # Accelerate remembers a process's first device and precision; a second run may want others.
        AcceleratorState._reset_state(reset_partial_state=True)
    kind, _, number = options.device.partition(":")
    if re.fullmatch(r"auto|cpu|mps|cuda(:\d{1,3})?", options.device) is None:
        raise ConfigError(f"trainer.device is auto, cpu, cuda, cuda:1 or mps; got {options.device!r}")
    if kind == "cuda" and not torch.cuda.is_available():
        raise ConfigError("trainer.device=cuda, but torch sees no CUDA device here; use trainer.device=auto or cpu")
    if kind == "mps" and not torch.backends.mps.is_available():
        raise ConfigError("trainer.device=mps, but torch sees no such device here; use trainer.device=auto or cpu")
    if number:
        _choose_gpu(int(number))
    on_gpu = torch.cuda.is_available() and kind in ("auto", "cuda")
    precision = options.precision
    if precision == "auto":
        precision = "bf16" if on_gpu and torch.cuda.is_bf16_supported() else "float32"
    # A learner may have weights that a batch leaves out (a head for PAD that no line reaches).
    parallel = DistributedDataParallelKwargs(find_unused_parameters=True)
    mixed = "bf16" if precision == "bf16" else "no"
    settings: dict[str, Any] = {"cpu": kind == "cpu", "mixed_precision": mixed, "kwargs_handlers": [parallel]}
    settings["log_with"] = options.trackers or None
    try:
        made = Accelerator(**settings, project_dir=out)
    except ValueError as error:
        raise ConfigError(f"trainer.trackers: {error}") from error
    for name in {*options.trackers} - {str(each) for each in made.log_with}:
        raise ConfigError(f"trainer.trackers: {name!r} is not installed: pip install {name}, or leave it out")
    return made


def _choose_gpu(number: int) -> None:
    """Make a GPU the one that Accelerate takes, which is torch's current one."""
    there = torch.cuda.device_count()
    if number >= there:
        raise ConfigError(f"trainer.device=cuda:{number}: torch sees {there} here, cuda:0 to cuda:{there - 1}")
    if PartialState().num_processes > 1:
        raise ConfigError(f"trainer.device=cuda:{number}: each of several processes has a GPU of its own; say cuda")
    torch.cuda.set_device(number)
    AcceleratorState._reset_state(reset_partial_state=True)


def _is_run(folder: Path) -> bool:
    """Whether it holds checkpoints, or its configuration is that of a run, not of a policy or a data set."""
    if checkpoints.newest(folder / CHECKPOINTS) is not None:  # which resume without that file, too
        return True
    try:
        return {"learner", "trainer"} <= set(read_yaml(folder / CONFIG_FILE))
    except ConfigError:
        return False


def _require_free(out: Path, *, resume: bool, overwrite: bool) -> None:
    """Check that the run's folder is free, or may be used, and can be written to; nothing is changed."""
    begun = {out / LOCK_FILE, out / HOLDER_FILE, temporary_of(out / CONFIG_FILE)}  # by a run that was killed at once
    foreign = out.is_dir() and not begun.issuperset(out.iterdir()) and not _is_run(out)
    if foreign or (out.exists() and not out.is_dir()):
        raise CheckpointError(
            f"{out}: exists already and is not a run of genpolicy train; nothing was touched. Name another folder with "
            "--out"
        )
    there = [out / name for name in OF_A_RUN if (out / name).exists()]
    if there and not (resume or overwrite):
        raise CheckpointError(
            f"{out}: holds a run already ({there[0].name}); resume it with --resume, delete it with --overwrite, or "
            "name another folder with --out"
        )
    above = next(folder for folder in (out, *out.absolute().parents) if folder.exists())
    for folder in (above, out / CHECKPOINTS):
        if os.path.lexists(folder) and not (folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)):
            kind = "a file, not a folder" if folder.exists() else "a link to nothing"
            why = "may not be written to" if folder.is_dir() else f"is {kind}"
            raise CheckpointError(f"{folder}: {why}; change that, or name another folder for the run with --out")


def _take_folder(out: Path, held: ExitStack, *, resume: bool, overwrite: bool) -> FolderLock:
    """Make the run's folder, lock it, and delete what a kill or, with ``overwrite``, an earlier run left in it."""
    out.mkdir(parents=True, exist_ok=True)
    lock = held.enter_context(FolderLock(out, "trains", "name another --out"))
    _require_free(out, resume=resume, overwrite=overwrite)
    for folder in (out, out / CHECKPOINTS):
        checkpoints.remove_leftovers(folder)
    for path in [out / name for name in OF_A_RUN if overwrite and not resume]:
        checkpoints.remove(path)
    return lock
