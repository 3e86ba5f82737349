"""The transformer trunk, its two geometries and its heads."""

from genpolicy.networks.causal import CausalTransformer
from genpolicy.networks.config import NetworkConfig
from genpolicy.networks.transformer import DenoisingTransformer

__all__ = ["CausalTransformer", "DenoisingTransformer", "NetworkConfig"]
