#!/bin/sh
# The chess demo: train the small S-ASA and S-A configurations on the bundled sample, measure both on held-out games,
# play a short game. `make demo` calls it; RUNS is where everything goes. A second call trains anew.
set -eu
RUNS="${1:-runs/demo}"
SAMPLE=games/genpolicy_chess/sample
show() { printf '\n\033[1m$ %s\033[0m\n' "$*"; "$@"; }

mkdir -p "$RUNS"
show genpolicy data info "$SAMPLE"
show genpolicy train --config configs/chess/demo-s-a.yaml --out "$RUNS/s-a" --overwrite
show genpolicy train --config configs/chess/demo.yaml --out "$RUNS/s-asa" --overwrite
show genpolicy evaluate accuracy --policy "$RUNS/s-asa/policy" "$RUNS/s-a/policy" --data "$SAMPLE" \
    --split test --limit 1500 --json "$RUNS/accuracy.json"
show genpolicy evaluate futures --policy "$RUNS/s-asa/policy" --data "$SAMPLE" --split test --limit 200
show genpolicy play --policy "$RUNS/s-asa/policy" --self-play 1 --max-plies 12

# With Stockfish the whole way, from positions to labels, is shown too; without it nothing above needs it.
if command -v stockfish >/dev/null 2>&1 || [ -x /usr/games/stockfish ]; then
    rm -rf "$RUNS/fresh"
    show genpolicy data selfplay --game chess --oracle 'stockfish?nodes=2000' --positions 10 --max-plies 5 \
        --seed 1 --out "$RUNS/fresh"
fi

cat <<END

The table above is what the two policies reach on games that they never saw. Next:
  genpolicy play --policy $RUNS/s-asa/policy                  play against it and see what it imagines
  tensorboard --logdir $RUNS                                  the curves of both runs
  genpolicy train --config configs/chess/demo.yaml trainer.max_minutes=60 --out runs/longer
  genpolicy data import games.pgn --game chess --out runs/mine && \\
  genpolicy data label runs/mine --oracle 'stockfish?nodes=2000' --out runs/mine-labelled
  genpolicy train --config configs/chess/diffusearch-10k.yaml data.folder=runs/mine-labelled
END
