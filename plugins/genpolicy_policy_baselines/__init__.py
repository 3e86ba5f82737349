"""What DiffuSearch is compared with: random and greedy moves, S-A, S-V and SA-V, autoregressive,
direct and Gaussian futures."""
