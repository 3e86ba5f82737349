"""What DiffuSearch is compared with: S-V and SA-V, autoregressive, direct and Gaussian futures."""
