"""Tree search as a policy: over the rules judged by other policies, or over a model of its own."""
