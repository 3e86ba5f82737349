"""Training: ``genpolicy.training.loop.train(config)``; ``genpolicy train`` is the same from the command line."""
