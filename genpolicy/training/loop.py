"""The training loop: any learner, any game; on the CPU, one GPU or many (Accelerate).

On the CPU, with a budget in updates, epochs or records, a run that is killed and resumed ends with the same weights, to
the bit, as one that is not: everything random is either counted (order of the data, drawn labels) or saved.
"""

from __future__ import annotations

import json
import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from accelerate.utils import gather_object

from genpolicy.config import leaves, to_dict, to_yaml
from genpolicy.data.windows import Batch
from genpolicy.errors import TrainingError
from genpolicy.files import write_atomic
from genpolicy.training import checkpoint as checkpoints
from genpolicy.training import optim, randomness
from genpolicy.training.config import RunConfig
from genpolicy.training.measure import averages
from genpolicy.training.metrics_log import MetricsLog
from genpolicy.training.run import BEST_FOLDER, CHECKPOINTS, POLICY_FOLDER, Run
from genpolicy.training.setup import CONFIG_FILE

LONG_S = 3600.0
"""A run that is expected to take longer says so."""
MANY_WEIGHTS = 4_000_000
"""A network with more says before it starts that it is meant for a GPU: the published ones are, the demos are not."""
SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


def train(config: RunConfig, *, resume: bool = False, overwrite: bool = False) -> Path:
    """Train a policy; returns the folder that ``genpolicy.load_policy`` reads.

    Args:
        config: What to train, on what, for how long; ``config.out`` is the run's folder.
        resume: Resume from the newest whole checkpoint of ``config.out``; without one, start from the beginning.
        overwrite: Delete what an earlier run left in ``config.out``.

    Raises:
        ConfigError: a configuration that cannot be run.
        CheckpointError: a run of other settings, data or tokens is in the folder, or a checkpoint cannot be written.
        LockedError: another process trains in the folder.
        DatasetError: the data set cannot be used.
        TrainingError: loss or weights are not finite numbers any more, or the learner's stream breaks its contract.
        KeyboardInterrupt: Ctrl-C, after a checkpoint was written.
        SystemExit: SIGTERM or SIGHUP, after a checkpoint was written; 128 and the signal's number.
    """
    with randomness.preserved(), ExitStack() as held:
        run = Run(config, held, resume=resume, overwrite=overwrite)
        if run.is_main:
            write_atomic(run.out / CONFIG_FILE, to_yaml(run.config).encode())
        folder = run.out if run.is_main else None
        if config.trainer.trackers:
            sections = {name: part for name, part in to_dict(run.config).items() if isinstance(part, dict)}
            # As JSON where it is a list or null, which TensorBoard does not take.
            settings = {
                ".".join(keys): value if isinstance(value, int | float | str) else json.dumps(value)
                for keys, value in leaves(sections)
            }
            run.accelerator.init_trackers("genpolicy", settings)
        log = MetricsLog(folder, run.num_updates, tensorboard=config.trainer.tensorboard, also=run.accelerator.log)
        with log, stop_requests() as stop:
            for note in run.notes:
                log.say(note)
            policy = Loop(run, log, stop).go()
        run.accelerator.end_training()
        return policy


class StopRequest:
    """Which signal asked for a stop, if one did."""

    signal: int | None = None


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Inside, the first SIGINT, SIGTERM or SIGHUP is only noted; the second one acts as it always does."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request  # only the main thread may handle signals
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    # What the parent has us ignore (nohup, a shell's background job) stays ignored.
    before = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}

    def note(number: int, frame: FrameType | None) -> None:
        if request.signal is None:
            request.signal = number
        else:
            signal.signal(number, before[number])
            signal.raise_signal(number)

    for number in before:
        signal.signal(number, note)
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Loop:
    """Updates until the budget is used up, with what happens between them."""

    def __init__(self, run: Run, log: MetricsLog, stop: StopRequest) -> None:
        self.run, self.log, self.stop = run, log, stop
        self._measured = self._saved = self._sound = -1  # after which update
        self._batch: Batch | None = None

    def go(self) -> Path:
        """Train, measure and save; the folder of the policy."""
        run, options = self.run, self.run.config.trainer
        num_weights = sum(p.numel() for p in run.learner.parameters() if p.requires_grad)
        total = sum(p.numel() for p in run.learner.parameters())
        weights = f"{num_weights:,}" + (f" of {total:,}" if num_weights < total else "")
        precision = run.accelerator.mixed_precision.replace("no", "float32")
        stream = run.updates.stream
        windows = type(stream).__name__ if stream.num_records is None else f"{stream.num_records:,} windows"
        self.log.say(f"{run.game.spec}: {windows}, {weights} weights, {run.device}, {precision}")
        if num_weights > MANY_WEIGHTS and run.device.type == "cpu":
            self.log.say("a network of this size is meant for a GPU; an estimate follows the first part of an update")
        run.began = time.perf_counter()
        batches = run.updates.starting_at(run.num_updates)
        try:
            while True:
                seconds, stop = self._agree()
                used = run.budget.progress(run.num_updates, seconds)
                run.learner.at(min(1.0, used))
                if used >= 1.0 or stop:
                    break
                # The middle of the coming update, so that neither the first nor the last is lost to a rate of 0.
                ahead = min(1.0, run.budget.progress(run.num_updates + 0.5, seconds))
                self._update(next(batches), optim.learning_rate_factor(ahead, run.config.optim))
                if run.num_updates % options.log_every == 0:
                    self._report(seconds)
                if options.eval_every and run.num_updates % options.eval_every == 0:
                    self._measure()
                if options.checkpoint_every and run.num_updates % options.checkpoint_every == 0:
                    self._save()
        finally:
            batches.close()
        if used < 1.0:
            self._stop_early()
        self._measure()
        self._save()
        return run.save_policy(POLICY_FOLDER)

    def _agree(self) -> tuple[float, bool]:
        """Seconds so far and whether to stop, the same in all processes."""
        seconds, stop = self.run.seconds, self.stop.signal is not None
        if self.run.num_processes == 1:
            return seconds, stop
        mine = torch.tensor([seconds if self.run.is_main else 0.0, float(stop)], device=self.run.device)
        total = self.run.accelerator.reduce(mine, reduction="sum")
        return float(total[0]), bool(total[1] > 0)

    def _update(self, parts: list[Batch], factor: float) -> None:
        """One update of the weights."""
        run, last = self.run, len(parts) - 1
        began = time.perf_counter()
        for group in (group for optimizer in run.optimizers.values() for group in optimizer.param_groups):
            group["lr"] = group["peak_lr"] * factor
        for i, part in enumerate(parts):
            batch = part.to(run.device)
            with nullcontext() if i == last else run.accelerator.no_sync(run.module):
                loss, metrics = run.module(batch, run.generator)
                run.accelerator.backward(loss / len(parts))
            run.means.add_part(loss, metrics, len(batch) * run.num_processes)
            if self._batch is None:
                self._estimate(len(parts) * (time.perf_counter() - began))
            self._batch = batch
        norm = torch.nn.utils.clip_grad_norm_(run.learner.parameters(), run.config.optim.grad_clip or math.inf)
        run.means.end_update(run.num_updates + 1, norm)
        if run.device.type == "cpu":  # elsewhere, looking at it would make the GPU wait
            self._require_finite()
        for optimizer in run.optimizers.values():
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        run.num_updates += 1
        run.learner.after_update(run.num_updates)
        if run.average is not None:
            run.average.update(run.learner)

    def _estimate(self, seconds: float) -> None:
        """Say how long a run will take by the seconds of an update: published settings may need days on a CPU."""
        run = self.run
        if run.budget.updates is None:
            return
        left = (run.budget.updates - run.num_updates) * seconds
        if run.budget.seconds is not None:
            left = min(left, run.budget.seconds - run.seconds)
        if left > LONG_S:
            self.log.say(
                f"this takes about {left / 3600:,.1f} hours on {run.device}; trainer.max_minutes=N ends it earlier"
            )

    def _require_finite(self) -> None:
        """Stop where a loss or gradient was not a finite number, before such weights are measured or saved."""
        update = self.run.means.first_not_finite()
        if update >= 0:
            raise self._diverged(update, "the loss or its gradient is")

    def _require_sound(self) -> None:
        """Stop where the weights, or a loss that they give, are not finite numbers, before they are measured or saved.

        The last update's own loss was that of the weights before it, so the loss of its batch is computed once more.
        """
        run = self.run
        self._require_finite()
        if self._sound == run.num_updates:
            return
        is_sound = torch.stack([p.isfinite().all() for p in run.learner.parameters()]).all()
        if self._batch is not None:
            run.learner.eval()
            with torch.no_grad(), randomness.preserved(run.generator), run.accelerator.autocast():
                is_sound &= run.learner.loss(self._batch, run.generator)[0].isfinite()
            run.learner.train()
        if self._mean(is_sound.float()) < 1:
            raise self._diverged(run.num_updates, "the weights, or the loss that they give, are")
        self._sound = run.num_updates

    def _mean(self, number: torch.Tensor) -> float:
        """Over all processes."""
        reduced: Any = self.run.accelerator.reduce(number, reduction="mean")
        return float(reduced)

    def _diverged(self, update: int, what: str) -> TrainingError:
        newest = checkpoints.newest(self.run.out / CHECKPOINTS, self.run.num_updates)
        where = f"the last good checkpoint is {newest}" if newest else "there is no checkpoint yet"
        return TrainingError(
            f"update {update}: {what} not finite; {where}. Try a lower optim.lr, a longer optim.warmup, "
            "optim.grad_clip=1 or trainer.precision=float32"
        )

    def _report(self, seconds: float) -> None:
        self._require_finite()
        run = self.run
        figures, speed = run.means.take()
        if run.num_processes > 1:  # the other figures are of this process's share of the batches
            figures["train/loss"] = self._mean(torch.tensor(figures["train/loss"], device=run.device))
        figures["train/lr"] = run.optimizers["adamw"].param_groups[0]["lr"]
        figures["records"] = float(run.records())
        if (epochs := run.epochs()) is not None:
            figures["epoch"] = epochs
        self.log.write(run.num_updates, {**figures, "records_per_s": speed, "seconds": seconds})
        numbers = f"update {run.num_updates}  loss {figures['train/loss']:.3f}  {speed:,.0f} records/s"
        self.log.show(run.budget.progress(run.num_updates, seconds), numbers)

    def _measure(self) -> None:
        """Evaluate on the validation split; where its loss is the lowest yet, keep policy and checkpoint."""
        run = self.run
        if run.validation is None or self._measured == run.num_updates:
            return
        self._require_sound()
        self._measured = run.num_updates
        with randomness.preserved(run.generator), run.averaged(), run.accelerator.autocast():
            shares = [run.validation.sums(run.device)]
        shares = gather_object(shares)
        if not all(math.isfinite(share["loss"][0]) for share in shares if "loss" in share):
            raise self._diverged(run.num_updates, "the validation loss is")
        figures = averages(shares)
        self.log.write(run.num_updates, figures)
        numbers = "  ".join(f"{name.removeprefix('validation/')} {value:.4f}" for name, value in figures.items())
        self.log.say(f"update {run.num_updates}, {run.records():,} records: validation {numbers}")
        loss = figures.get("validation/loss", math.nan)
        if loss < run.best_loss:
            run.best_loss, run.best_update, run.best_windows = loss, run.num_updates, run.validation.num_windows
            self._save()
            run.save_policy(BEST_FOLDER)

    def _save(self) -> None:
        if self._saved != self.run.num_updates:
            self._require_sound()
            self.run.save()
            self._saved = self.run.num_updates

    def _stop_early(self) -> None:
        """Save, and end as the signal asks."""
        self._save()
        run = self.run
        again = f", in {run.num_processes} processes as before" if run.num_processes > 1 else ""
        resume = f"genpolicy train --resume --out {run.out}{again}"
        self.log.say(f"stopped after update {run.num_updates}; resume with: {resume}")
        if self.stop.signal not in (None, signal.SIGINT):
            raise SystemExit(128 + self.stop.signal)
        raise KeyboardInterrupt
