"""Records, oracles that label them, windows (records as token tensors) and streams of batches."""
