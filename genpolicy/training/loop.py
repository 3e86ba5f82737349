"""The one training loop: any learner, any game; on the CPU, one GPU or many (Accelerate).

On the CPU, with a budget in updates, epochs or records, a run that is killed and resumed ends with the same weights, to
the bit, as one that is not: everything random is either counted (order of the data, drawn labels) or saved.
"""

from __future__ import annotations

import math
import signal
from contextlib import nullcontext
from pathlib import Path

import torch
from accelerate.utils import gather_object

from genpolicy.config import to_yaml
from genpolicy.data.windows import Batch
from genpolicy.errors import TrainingError
from genpolicy.files import write_atomic
from genpolicy.training import checkpoint as checkpoints
from genpolicy.training import optim, randomness
from genpolicy.training.config import RunConfig
from genpolicy.training.interrupt import Wish, wished
from genpolicy.training.measure import averages
from genpolicy.training.metrics_log import Journal
from genpolicy.training.run import BEST_FOLDER, CHECKPOINTS, CONFIG_FILE, POLICY_FOLDER, Run


def train(config: RunConfig, *, resume: bool = False, overwrite: bool = False) -> Path:
    """Train a policy; returns the folder that ``genpolicy.load_policy`` reads.

    Args:
        config: What to train, on what, for how long; ``config.out`` is the run's folder.
        resume: Go on from the newest whole checkpoint of ``config.out``; from the beginning where there is none yet.
        overwrite: Delete what an earlier run left in ``config.out``.

    Raises:
        ConfigError: a configuration that cannot be run.
        CheckpointError: a run of other settings, data or tokens is in the folder, or a checkpoint cannot be written.
        DatasetError: the data set cannot be used.
        TrainingError: the loss is no finite number any more.
        KeyboardInterrupt: Ctrl-C, after a checkpoint was written.
        SystemExit: SIGTERM or SIGHUP, after a checkpoint was written; 128 and the signal's number.
    """
    with randomness.kept():
        run = Run(config, resume=resume, overwrite=overwrite)
        if run.is_main:
            write_atomic(run.out / CONFIG_FILE, to_yaml(run.config).encode())
        journal = Journal(run.out if run.is_main else None, run.step, tensorboard=config.trainer.tensorboard)
        with journal, wished() as wish:
            for note in run.notes:
                journal.say(note)
            folder = Loop(run, journal, wish).go()
        run.accelerator.end_training()
        return folder


class Loop:
    """Updates until the budget is used up, with what happens between them."""

    def __init__(self, run: Run, journal: Journal, wish: Wish) -> None:
        self.run, self.journal, self.wish = run, journal, wish
        self.recent = run.recent
        self._measured = self._saved = -1  # after which update

    def go(self) -> Path:
        """Train, measure and save; the folder of the policy."""
        run, options = self.run, self.run.config.trainer
        num_weights = sum(p.numel() for p in run.learner.parameters() if p.requires_grad)
        precision = run.accelerator.mixed_precision.replace("no", "float32")
        stream = run.updates.stream
        windows = type(stream).__name__ if stream.num_records is None else f"{stream.num_records:,} windows"
        self.journal.say(f"{run.game.spec}: {windows}, {num_weights:,} weights, {run.device}, {precision}")
        run.start_clock()
        batches = run.updates.starting_at(run.step)
        try:
            while True:
                seconds, stop = self._agree()
                used = run.budget.progress(run.step, seconds)
                run.learner.at(min(1.0, used))
                if used >= 1.0 or stop:
                    break
                # The middle of the coming update, so that neither the first nor the last is lost to a rate of 0.
                ahead = min(1.0, run.budget.progress(run.step + 0.5, seconds))
                self._update(next(batches), optim.learning_rate_factor(ahead, run.config.optim))
                if run.step % options.log_every == 0:
                    self._report(seconds)
                if options.eval_every and run.step % options.eval_every == 0:
                    self._measure()
                if options.checkpoint_every and run.step % options.checkpoint_every == 0:
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
        seconds, stop = self.run.seconds, self.wish.signal is not None
        if self.run.num_processes == 1:
            return seconds, stop
        mine = torch.tensor([seconds if self.run.is_main else 0.0, float(stop)], device=self.run.device)
        told = self.run.accelerator.reduce(mine, reduction="sum")
        return float(told[0]), bool(told[1] > 0)

    def _update(self, parts: list[Batch], factor: float) -> None:
        """One update of the weights."""
        run, last = self.run, len(parts) - 1
        optim.set_learning_rate(run.optimizers, factor)
        for i, part in enumerate(parts):
            batch = part.to(run.device)
            with nullcontext() if i == last else run.accelerator.no_sync(run.module):
                loss, metrics = run.module(batch, run.generator)
                run.accelerator.backward(loss / len(parts))
            self.recent.add_part(loss, metrics, len(batch) * run.num_processes)
        norm = torch.nn.utils.clip_grad_norm_(run.learner.parameters(), run.config.optim.grad_clip or math.inf)
        self.recent.end_update(run.step + 1, norm)
        if run.device.type == "cpu":  # elsewhere, looking at it would make the GPU wait
            self._refuse_nonsense()
        for optimizer in run.optimizers.values():
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        run.step += 1
        run.learner.after_update(run.step)
        if run.average is not None:
            run.average.update(run.learner)

    def _refuse_nonsense(self) -> None:
        """Stop where a loss or gradient was no finite number, before such weights are measured or saved."""
        step = self.recent.first_nonsense()
        if step < 0:
            return
        whole = checkpoints.newest(self.run.out / CHECKPOINTS)
        where = f"the last good checkpoint is {whole}" if whole else "there is no checkpoint yet"
        raise TrainingError(
            f"update {step}: the loss or its gradient is not a finite number; {where}. Try a lower optim.lr, a longer "
            "optim.warmup, optim.grad_clip=1 or trainer.precision=float32"
        )

    def _report(self, seconds: float) -> None:
        self._refuse_nonsense()
        run = self.run
        figures, speed = self.recent.take()
        figures["train/lr"] = run.optimizers["adamw"].param_groups[0]["lr"]
        figures["records"] = float(run.records())
        if (epochs := run.epochs()) is not None:
            figures["epoch"] = epochs
        self.journal.write(run.step, {**figures, "records_per_s": speed, "seconds": seconds})
        numbers = f"update {run.step}  loss {figures['train/loss']:.3f}  {speed:,.0f} records/s"
        self.journal.show(run.budget.progress(run.step, seconds), numbers)

    def _measure(self) -> None:
        """Evaluate on the validation split; where its loss is the lowest yet, keep policy and checkpoint."""
        run = self.run
        if run.validation is None or self._measured == run.step:
            return
        self._refuse_nonsense()
        self._measured = run.step
        with randomness.kept(run.generator), run.averaged(), run.accelerator.autocast():
            shares = [run.validation.sums(run.device)]
        figures = averages(gather_object(shares))
        self.journal.write(run.step, figures)
        numbers = "  ".join(f"{name.removeprefix('validation/')} {value:.4f}" for name, value in figures.items())
        self.journal.say(f"update {run.step}, {run.records():,} records: validation {numbers}")
        loss = figures.get("validation/loss", math.nan)
        if loss < run.best_loss:
            run.best_loss, run.best_step = loss, run.step
            self._save()
            run.save_policy(BEST_FOLDER)

    def _save(self) -> None:
        if self._saved != self.run.step:
            self._refuse_nonsense()
            self.run.save()
            self._saved = self.run.step

    def _stop_early(self) -> None:
        """Save and leave as the signal asked."""
        self._save()
        out = self.run.out
        self.journal.say(f"stopped after update {self.run.step}; go on with: genpolicy train --resume --out {out}")
        if self.wish.signal not in (None, signal.SIGINT):
            raise SystemExit(128 + self.wish.signal)
        raise KeyboardInterrupt
